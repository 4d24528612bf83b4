"""What a report says where runs were made on different hardware."""

from __future__ import annotations

from sb3_robust_be.experiments.publish import publish
from sb3_robust_be.experiments.reporting import control_rows, hardware_notes

CPU, GPU = "cores: 2; processor: A", "GPU: B; cores: 16"


def row(hardware, contender="dqn", domain="line", stage="reported", **names):
    return {"stage": stage, "domain": domain, "contender": contender, "hardware": hardware, **names}


def test_one_machine_is_no_note():
    assert hardware_notes([]) == []
    assert hardware_notes([row(CPU), row(CPU, stage="selection"), {"domain": "line"}]) == []
    assert hardware_notes([row("")]) == []


def test_stages():
    found = hardware_notes([row(GPU, stage="selection"), row(CPU), row(CPU, "qrc")])
    assert found == [
        "Not all of these runs were made on the same hardware. On GPU B, cores 16: all selection runs. On cores 2, "
        "processor A: all reported runs."
    ]


def test_whole_environments():
    """Where they tell the machines apart, they are named, although contenders would not."""
    rows = [row(CPU if domain == "line" else GPU, label, domain) for domain in ("line", "circle") for label in "ab"]
    (found,) = hardware_notes(rows)
    assert "On cores 2, processor A: of the reported runs those of line." in found
    assert found.endswith("On GPU B, cores 16: of the reported runs those of circle.")


def test_whole_contenders_under_their_names_for_people():
    rows = [
        row(CPU if label == "dqn" else GPU, label, domain) for domain in ("x", "y") for label in ("dqn", "qrc_huber")
    ]
    (found,) = hardware_notes(rows)
    assert found.endswith("those of DQN. On GPU B, cores 16: of the reported runs those of QRC-Huber.")


def test_parts_of_contenders():
    (found,) = hardware_notes([row(CPU), row(CPU), row(GPU), row(GPU, "qrc")])
    assert "On cores 2, processor A: of the reported runs 2 of 3 of DQN. On GPU B" in found
    assert found.endswith("of the reported runs 1 of 3 of DQN, 1 of 1 of QRC.")


def test_runs_that_do_not_say_it_are_counted_and_not_guessed():
    (found,) = hardware_notes([row(CPU), row(""), row(GPU, "qrc")])
    assert "1 of 2 of DQN" in found


def test_control_on_other_hardware():
    (found,) = hardware_notes([row(GPU), row(GPU, domain="circle")], [row(CPU), row(CPU, "qrc")])
    assert found == (
        "The reported runs of `control` at this scale, on the same environments, were not all made on the same "
        "hardware as these: they on cores 2, processor A, these on GPU B, cores 16. With equal "
        "seeds the runs need not be equal."
    )


def test_control_is_compared_on_the_reported_runs_of_the_same_environments():
    assert hardware_notes([row(CPU)], [row(CPU), row(GPU, domain="circle"), row(GPU, stage="selection")]) == []
    assert hardware_notes([row(GPU, domain="circle")], [row(CPU)]) == []
    assert hardware_notes([row(CPU)], [row("")]) == []
    (mixed,) = hardware_notes([row(CPU)], [row(CPU), row(GPU)])
    assert "they on cores 2, processor A and on GPU B, cores 16, these on cores 2, processor A." in mixed


def test_rows_of_control(tmp_path):
    publish("control", "laptop", [row(CPU)], tmp_path)
    (found,) = control_rows("threshold", "laptop", tmp_path)
    assert found["hardware"] == CPU
    assert control_rows("threshold", "paper", tmp_path) == []
    assert control_rows("control", "laptop", tmp_path) == []
    assert control_rows("threshold", "laptop", None) == []
