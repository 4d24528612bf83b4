"""The registry says of every algorithm what is true of its class, its configuration and its populations."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

import sb3_robust_be
from sb3_robust_be import registry
from sb3_robust_be.population.members import resolve_algorithm
from sb3_robust_be.qrc.validation import constructor_arguments
from sb3_robust_be.registry import ENTRIES
from sb3_robust_be.report.style import COLOURS, MARKERS

CONFIGS = Path(__file__).parents[1] / "zoo_configs"
every_entry = pytest.mark.parametrize("name", ENTRIES)


@every_entry
def test_the_name_is_that_of_the_class(name):
    entry, cls = ENTRIES[name], registry.load(name)
    assert cls.__name__ == entry.class_name
    assert cls.__module__.split(".")[0] == entry.module.split(".")[0]
    ours = cls.__module__.startswith("sb3_robust_be.")
    assert ours or entry.baseline
    if ours:
        assert cls.algorithm_name == name
        assert getattr(sb3_robust_be, entry.class_name) is cls


def test_what_the_package_offers_is_what_type_checkers_see():
    """``__all__`` and the imports for type checkers are written out, because those do not run code."""
    own = {entry.class_name for entry in ENTRIES.values() if entry.module.startswith("sb3_robust_be.")}
    others = {"LayerNormExtractor", "MinAtarCNN", "Population", "TerminalActionMasks", "__version__"}
    others |= {"load_from_hub", "load_pretrained", "push_to_hub"}
    assert set(sb3_robust_be.__all__) == own | others
    source = Path(sb3_robust_be.__file__).read_text(encoding="utf-8")
    imports = source.partition("if TYPE_CHECKING:")[2].partition("\n\n")[0].replace(",", " ").split()
    assert own <= set(imports)


@every_entry
def test_whether_there_is_always_a_target_network(name):
    cls = registry.load(name)
    default = constructor_arguments(cls)["target_update_interval"].default
    assert default is None or ENTRIES[name].baseline
    model = cls("MlpPolicy", "CartPole-v1", target_update_interval=None, buffer_size=10, learning_starts=1)
    with pytest.raises(TypeError) if ENTRIES[name].always_target else nullcontext():
        model.learn(2)


@every_entry
def test_whether_populations_can_train_it(name):
    if ENTRIES[name].population:
        assert resolve_algorithm(name) is registry.load(name)
    else:
        for algorithm in (name, registry.load(name)):
            with pytest.raises(ValueError, match="algorithm must be one of"):
                resolve_algorithm(algorithm)


def test_every_configuration_is_of_an_algorithm_that_says_so():
    assert {path.stem for path in CONFIGS.glob("*.yml")} == {name for name, entry in ENTRIES.items() if entry.config}


def test_labels_and_looks_differ():
    entries = ENTRIES.values()
    assert len({entry.label for entry in entries}) == len(ENTRIES)
    assert len({(entry.colour, entry.marker) for entry in entries}) == len(ENTRIES)
    assert {entry.colour for entry in entries} <= COLOURS.keys()
    assert {entry.marker for entry in entries} <= set(MARKERS)


def test_an_unknown_name():
    for look_up in (registry.find, registry.load):
        with pytest.raises(ValueError, match="algorithm is 'qrd'; give one of dqn, qrc,"):
            look_up("qrd")


def test_names():
    own = [name for name, entry in ENTRIES.items() if not entry.baseline]
    assert list(registry.names()) == list(ENTRIES)
    assert list(registry.names(baselines=False)) == list(registry.classes()) == own
    assert {"dqn", "dqn_squared", "qrdqn"} == ENTRIES.keys() - own
    assert registry.classes(baselines=True) == {name: registry.load(name) for name in ENTRIES}
