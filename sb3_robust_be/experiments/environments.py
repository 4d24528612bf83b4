"""The environments of control runs: what registers them, and whether they can be made."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import gymnasium as gym

from sb3_robust_be.envs import why_unregistered
from sb3_robust_be.messages import first_line
from sb3_robust_be.runner.specs import Spec


def import_packages(spec: Spec) -> None:
    """Import the modules that register the environment, as each worker process must.

    :param spec: Of :func:`~sb3_robust_be.experiments.control.training.control_spec`.
    :raises ValueError: If a module cannot be imported.
    """
    for package in spec.get("gym_packages", ()):
        try:
            importlib.import_module(package)
        except Exception as error:
            raise ValueError(
                f"gym_packages has {package!r}, which cannot be imported ({first_line(error)}); give modules that are "
                "installed or in the current folder."
            ) from error


def check_environments(specs: Sequence[Spec]) -> None:
    """Check that every environment can be made, before hours of work.

    :param specs: Of any function; those without an environment are passed over.
    :raises ValueError: If one cannot.
    """
    distinct = {(spec["env"], str(spec["env_kwargs"])): spec for spec in specs if "env" in spec}
    for spec in distinct.values():
        env, kwargs = spec["env"], spec["env_kwargs"]
        import_packages(spec)
        try:
            gym.make(env, **kwargs).close()
        except gym.error.UnregisteredEnv as error:
            raise ValueError(
                f"{env} is not registered with gymnasium. {why_unregistered(env, error)} Correct the id, or name the "
                "module that registers it in gym_packages."
            ) from error
        except Exception as error:
            raise ValueError(
                f"{env} cannot be made here: {first_line(error)} Install what it needs, then run this again."
            ) from error
