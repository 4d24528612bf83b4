"""One-hot encodes integer observations before the networks see them, since torch cannot within ``vmap``.

Truth values become bytes, since compiled code reads those ten times as fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch as th
import torch.nn.functional as functional
from gymnasium import spaces

Encoder = Callable[[th.Tensor], th.Tensor]


def _encoded(space: spaces.Space) -> tuple[spaces.Space, Encoder | None]:
    if isinstance(space, spaces.Discrete):
        return _binary(int(space.n)), functools.partial(_one_hot, n=int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts, axes = space.nvec.ravel().tolist(), space.start.ravel().tolist(), space.nvec.ndim
        # As SB3's preprocess_obs: one block per component, in the order in which numpy flattens them.
        return _binary(sum(counts)), lambda x: th.cat(
            [
                _one_hot(part, n, start)
                for part, n, start in zip(x.flatten(-axes).unbind(-1), counts, starts, strict=True)
            ],
            dim=-1,
        )
    return space, _as_bytes if space.dtype == np.bool_ else None


def _as_bytes(x: th.Tensor) -> th.Tensor:
    # Normalised, they are numbers already.
    return x.view(th.uint8) if x.dtype == th.bool else x


def _one_hot(x: th.Tensor, n: int, start: int) -> th.Tensor:
    return functional.one_hot(x.long() - start, n).float()


def _binary(n: int) -> spaces.Box:
    return spaces.Box(0.0, 1.0, (n,), np.float32)


def stored_space(raw: spaces.Space, network: spaces.Space) -> spaces.Space:
    """The space of the observations in the replay buffer.

    :param raw: The environment's observations.
    :param network: The single agent's, in which images may be transposed and integers are encoded.
    :return: What the replay buffer holds: transposed, not encoded.
    """
    if isinstance(raw, spaces.Dict) and isinstance(network, spaces.Dict):
        return spaces.Dict({key: stored_space(raw[key], network[key]) for key in raw})
    return network if isinstance(raw, spaces.Box) else raw


class Encoding:
    """
    What SB3 does with Discrete and MultiDiscrete observations inside the network, done outside. Truth values, which the
    network turns into floats, are shown as bytes.

    :param space: Of the environment's observations.
    """

    def __init__(self, space: spaces.Space) -> None:
        self._encoders: dict[str, Encoder] = {}
        if isinstance(space, spaces.Dict):
            parts = {key: _encoded(part) for key, part in space.items()}
            self.space: spaces.Space = spaces.Dict({key: part for key, (part, _) in parts.items()})
            found = {f"observations/{key}": encoder for key, (_, encoder) in parts.items()}
        else:
            self.space, encoder = _encoded(space)
            found = {"observations": encoder}
        for name, function in found.items():
            if function is not None:
                self._encoders |= {name: function, f"next_{name}": function}

    def __call__(self, tensors: dict[str, th.Tensor]) -> dict[str, th.Tensor]:
        """
        :param tensors: By name, integers of shape (members, batch, …) or (members, …) and truth values among them.
        :return: The same with floats of shape (members, batch, n) in the place of the integers, and bytes in that of
            truth values.
        """
        return {name: self._encoders[name](x) if name in self._encoders else x for name, x in tensors.items()}
