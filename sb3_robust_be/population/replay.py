"""The replay buffer of a population: the newest transitions of every member."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces

from sb3_robust_be.envs.lockstep import Observation, batches
from sb3_robust_be.population.graphs import Captured
from sb3_robust_be.qrc.maskable import NEXT_ACTION_MASKS

NEXT = "next_"
_SCALARS = {"actions": np.int64, "rewards": np.float32, "dones": np.float32}


def available_memory(device: th.device) -> float:
    """How much memory is free for a replay buffer.

    :param device: Of the replay buffer.
    :return: Bytes that can still be taken there; infinity where the system does not tell.
    """
    if device.type == "cuda":
        return float(th.cuda.mem_get_info(device)[0])
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return float("inf")
    line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable"))
    return 1024.0 * int(line.split()[1])


def nested(tensors: Mapping[str, th.Tensor]) -> dict[str, Any]:
    """Put the parts of Dict observations into dictionaries.

    :param tensors: By name; the parts of Dict observations are called ``observations/<key>``.
    :return: The same with those parts in a dictionary of their own.
    """
    named: dict[str, Any] = {}
    for name, x in tensors.items():
        field, _, key = name.partition("/")
        if key:
            named.setdefault(field, {})[key] = x
        else:
            named[field] = x
    return named


class Replay:
    """
    Replay buffer that holds, for each member, its newest transitions.

    A transition is one record, so that drawing it is one access to memory; :meth:`fields` shows the records as one
    tensor per field.

    :param observation_space: A member's.
    :param n_members: How many.
    :param capacity: Transitions per member.
    :param device: Where to.
    :param dtype: Of the rewards that are drawn, the network's.
    :param verbose: 1 prints how much memory it takes, before it does.
    :param n_masked: How many actions there are, where it is stored which ones are legal in s'; 0: nowhere.
    :raises MemoryError: If it takes more than there is.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        n_members: int,
        capacity: int,
        device: th.device,
        dtype: th.dtype,
        verbose: int = 0,
        n_masked: int = 0,
    ) -> None:
        self._n_masked = n_masked
        self.capacity, self.n_members = capacity, n_members
        self._space, self._device, self._dtype, self._verbose = observation_space, device, dtype, verbose
        self.size = self.position = 0
        observation = batches.by_name(batches.empty(observation_space, 1))
        parts = [(prefix + name, x.dtype, x.shape[1:]) for prefix in ("", NEXT) for name, x in observation.items()]
        parts += [(name, np.dtype(kind), (1,)) for name, kind in _SCALARS.items()]
        if n_masked:
            parts.append((NEXT_ACTION_MASKS, np.dtype(bool), (n_masked,)))
        self._record = np.dtype(parts, align=True)
        self._check_memory()
        # numpy's memory is taken when it is written, torch's at once.
        self._records = th.from_numpy(np.empty((n_members * capacity, self._record.itemsize), np.uint8)).to(device)
        self._newest = np.zeros(n_members, self._record)
        self._graphs: dict[tuple[int, ...], Captured] = {}
        self._batches: dict[tuple[int, ...], tuple[th.Tensor, dict[str, th.Tensor]]] = {}

    def _check_memory(self) -> None:
        needed = self.n_members * self.capacity * self._record.itemsize
        if needed > (free := available_memory(self._device)):
            raise MemoryError(
                f"buffer_size: {self.capacity} transitions of {self.n_members} members take {needed / 1e9:.1f} GB of "
                f"memory and {free / 1e9:.1f} GB are free. Pass a smaller buffer_size, fewer steps or fewer members at "
                "a time."
            )
        if self._verbose > 0:
            size = f"{needed / 1e6:.1f} MB"
            print(f"Replay buffer: {self.n_members} members × {self.capacity} transitions, {size}.", flush=True)

    def _split(self, records: th.Tensor) -> dict[str, th.Tensor]:
        """Views by name, shape (members, n, …), of records of shape (members, n, bytes)."""
        views = {}
        for name in self._record.names or ():
            kind, offset = self._record.fields[name][:2]  # type: ignore[index]
            base, shape = kind.subdtype or (kind, ())
            part = records[..., offset : offset + kind.itemsize].view(th.from_numpy(np.empty(0, base)).dtype)
            views[name] = part.reshape(*records.shape[:2], *shape)
        return views

    def fields(self) -> dict[str, th.Tensor]:
        """The stored transitions by field.

        :return: Views by name, shape (members, capacity, …); the parts of Dict observations are called
            ``observations/<key>``.
        """
        return self._split(self._records.unflatten(0, (self.n_members, self.capacity)))

    def add(
        self,
        observations: Observation,
        next_observations: Observation,
        next_action_masks: np.ndarray | None = None,
        **scalars: np.ndarray,
    ) -> None:
        """Write one transition per member over the oldest.

        :param observations: s, batch first.
        :param next_observations: s', batch first.
        :param next_action_masks: Which actions are legal in s', bool, shape (members, actions), where that is stored.
        :param scalars: ``actions``, ``rewards`` and ``dones`` (terminations alone), each of shape (members,).
        """
        for prefix, batch in (("", observations), (NEXT, next_observations)):
            for name, x in batches.by_name(batch).items():
                self._newest[prefix + name] = x
        for name in _SCALARS:
            self._newest[name][:, 0] = scalars[name]
        if self._n_masked:
            self._newest[NEXT_ACTION_MASKS] = next_action_masks
        rows = self._records.unflatten(0, (self.n_members, self.capacity))
        rows[:, self.position] = th.from_numpy(self._newest.view(np.uint8).reshape(self.n_members, -1)).to(self._device)
        self.position = (self.position + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, uniforms: np.ndarray) -> dict[str, th.Tensor]:
        """Sample a batch per member, with replacement.

        :param uniforms: In [0, 1), shape (members, batch).
        :return: Tensors by name, shape (members, batch, …), which the next call overwrites.
        """
        index = (uniforms * self.size).astype(np.int64) + self.capacity * np.arange(self.n_members)[:, None]
        if self._device.type == "cpu":
            drawn, batch = self._batch(index.shape)
            # Two thirds of the time that `index_select` takes; it is in range, and "raise" would first make a copy.
            np.take(self._records.numpy(), index.ravel(), axis=0, out=drawn.numpy(), mode="clip")
            return self._converted(batch)
        positions = th.from_numpy(index).to(self._device)
        if self._device.type != "cuda":
            return self._drawn(self._records, positions)
        if index.shape not in self._graphs:
            self._graphs[index.shape] = Captured(self._drawn, changed=())
        captured: dict[str, th.Tensor] = self._graphs[index.shape](self._records, positions)
        return captured

    def _drawn(self, records: th.Tensor, index: th.Tensor) -> dict[str, th.Tensor]:
        drawn, batch = self._batch(index.shape)
        th.index_select(records, 0, index.flatten(), out=drawn)
        return self._converted(batch)

    def _batch(self, shape: tuple[int, ...]) -> tuple[th.Tensor, dict[str, th.Tensor]]:
        """Room for so many records per member, and its fields: making these views takes as long as drawing."""
        if shape not in self._batches:
            drawn = self._records.new_empty(math.prod(shape), self._records.shape[1])
            self._batches[shape] = drawn, self._split(drawn.unflatten(0, shape))
        return self._batches[shape]

    def _converted(self, batch: dict[str, th.Tensor]) -> dict[str, th.Tensor]:
        if self._dtype == th.float32:
            return batch
        return batch | {name: batch[name].to(self._dtype) for name in ("rewards", "dones")}

    def __getstate__(self) -> dict[str, Any]:
        # As the learner's: code has no copy.
        return {**self.__dict__, "_graphs": {}, "_batches": {}}

    def grow(self, capacity: int) -> Replay:
        """Copy the transitions to a larger buffer.

        :param capacity: Larger than before.
        :return: A buffer of that capacity with the same transitions, the oldest first.
        """
        grown = Replay(self._space, self.n_members, capacity, self._device, self._dtype, self._verbose, self._n_masked)
        new, oldest = grown.fields(), self.position if self.size == self.capacity else 0
        for name, field in self.fields().items():
            new[name][:, : self.size - oldest] = field[:, oldest : self.size]
            new[name][:, self.size - oldest : self.size] = field[:, :oldest]
        grown.size = grown.position = self.size
        return grown
