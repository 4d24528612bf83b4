"""The environments of the single agents' tests serve here as well; and one trained population per algorithm."""

from __future__ import annotations

import functools
import sys
import warnings
from pathlib import Path

import pytest
from populations import TRAINED, Trained, make

sys.path.insert(0, str(Path(__file__).parents[1] / "qrc"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """By algorithm, :data:`populations.TRAINED` after 40 steps, saved after 30. Tests change nothing of it."""

    @functools.cache
    def get(algorithm: str) -> Trained:
        folder = tmp_path_factory.mktemp(algorithm) / "population"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            population = make(algorithm, **TRAINED[algorithm])
            population.learn(40, callback=lambda p: p.save(folder) if p.num_timesteps == 30 else None)
        assert not population.failed.any()
        return Trained(population, folder)

    return get
