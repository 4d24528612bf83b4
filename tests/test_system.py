"""Memory that is free is given back to the operating system."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from sb3_robust_be import Population, system
from sb3_robust_be.population import trainer

KEPT_EVERY, BLOCKS, BLOCK = 50, 2000, 100_000
STATM = Path("/proc/self/statm")


def resident() -> int:
    """Pages of 4096 bytes."""
    return int(STATM.read_text().split()[1])


@pytest.mark.skipif(
    not STATM.exists() or system._malloc_trim() is None, reason="the C library is not glibc, or this is not Linux"
)
def test_memory_between_blocks_that_stay_is_given_back():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    blocks = [libc.malloc(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in set(blocks) - set(blocks[::KEPT_EVERY]):
        libc.free(block)
    before = resident()
    system.return_free_memory()
    given_back = (before - resident()) * 4096
    for block in blocks[::KEPT_EVERY]:
        libc.free(block)
    assert given_back > 0.8 * BLOCKS * BLOCK


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(system, "_malloc_trim", lambda: None)
    system.return_free_memory()


def test_a_population_does_so_while_it_learns(monkeypatch):
    calls = []
    monkeypatch.setattr(trainer, "RETURN_MEMORY_EVERY", 10)
    monkeypatch.setattr(trainer, "return_free_memory", lambda: calls.append(1))
    population = Population("qlc", "MlpPolicy", "CartPole-v1", range(2), learning_starts=100, verbose=0)
    population.learn(35)
    population.learn(15, reset_num_timesteps=False)
    assert len(calls) == 5
