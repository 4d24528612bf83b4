"""Whether the environments of runs are there."""

from __future__ import annotations

from collections.abc import Sequence

from sb3_robust_be.experiments.specs import Spec


def check_environments(specs: Sequence[Spec]) -> None:
    """Before hours of work, not after: whether every environment can be made.

    :param specs: Of any function; those without an environment are passed over.
    :raises ValueError: If one cannot.
    """
    import gymnasium as gym

    distinct = {(spec["env"], str(spec["env_kwargs"])): spec["env_kwargs"] for spec in specs if "env" in spec}
    for (env, _), kwargs in distinct.items():
        try:
            gym.make(env, **kwargs).close()
        except Exception as error:
            raise ValueError(
                f"{env} cannot be made here: {error} Install what it needs, then run this again."
            ) from error
