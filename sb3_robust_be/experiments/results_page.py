"""The published results as one Markdown page: what the tables in ``results`` say of the paper's claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.experiment import SCALES, Experiment
from sb3_robust_be.experiments.publish import load, published
from sb3_robust_be.experiments.reporting import PAPER, control_rows, make_report
from sb3_robust_be.report import Report, Table, verdict_table
from sb3_robust_be.report.sentences import by_sentence
from sb3_robust_be.report.tables import markdown_text

PAGE = "README.md"
"""The page's name, beside the tables"""
LONGEST_TABLE = 60
"""Rows; longer tables are left to the reports"""
WANTED_TABLES: Mapping[str, tuple[str, ...]] = {"one-setting": ("returns",), "robustness": ("differences",)}
"""By experiment, tables that the page has however long they are: the means, worst deciles and failed seeds behind what
the README says, and what each alternative does, which is the experiment's subject"""

#: By experiment and scale, as files of ``.github`` in this package's repository, with what they show.
PICTURES: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("fixed-points", "paper"): (
        ("fixed_points.png", "Errors of the minima of MSBE, MHBE and MABE on five problems, over the least possible"),
    ),
    ("prediction", "paper"): (
        ("prediction.png", "MSVE of TDC, TDC-Huber and TDC-ℓ1 over step sizes on the prediction problems"),
    ),
    ("control", "long"): (("control.png", "Returns of every seed in five domains, by algorithm"),),
    ("threshold", "long"): (
        ("threshold.png", "Returns of every seed of QRC-Huber for six thresholds and both clips in four domains"),
    ),
    ("minatar-population", "laptop"): (
        ("minatar.png", "Learning curves of DQN, QRC, QRC-Huber and the QLC of 0.1 in five MinAtar games"),
    ),
    ("cliff-maps", "laptop"): (
        (
            "cliff_world.png",
            "Cliff World: values with greedy actions above, h of each action below, of QRC on the left and QRC-Huber "
            "on the right, of each the seed with the median return",
        ),
        (
            "cliff_mechanism.png",
            "Over training, at falls and at blocked moves: how often h is clipped, the correction over the TD error, "
            "the values of the start, and the share of blocked moves",
        ),
    ),
}

#: What the columns of the published tables mean. Text, numbers and JSON, see :mod:`.rows`.
COLUMNS: Mapping[str, str] = {
    "experiment, scale": "the experiment and its size, as in the file's name",
    "stage": "`selection`: the run helped to choose a setting; `reported`: it is part of the results",
    "domain": "the environment or prediction problem",
    "contender": "what is compared: an algorithm, with arguments that are a part of its name, or an objective",
    "setting": "the arguments that were chosen or varied",
    "seed": "of the run; selection seeds begin at 10 000",
    "steps": "how many the run has",
    "final": "episode return over the last quarter of the steps, each counting with its episode's, while exploring",
    "diverged_at": "the step at which the values became infinite or NaN",
    "unfinished": "whether `final` counts the episode in which the run stopped, with its return so far",
    "auc": "the same over all steps: the area under the learning curve",
    "curve": "the learning curve, at equal distances over the run",
    "evaluations": "greedy returns before the first step and at equal distances over the run, each a mean of episodes",
    "failed": "the error of a run that has no result",
    "part": "`minimum` or `surface`: an exact minimiser, or an objective over the weight",
    "theta": "the weights: of the minimum, or at which `values` are given",
    "value, values": "of the objective",
    "msve, mave": "squared and absolute value error of the minimum",
    "msve_relative, mave_relative": "the same over the least that the features can represent",
    "unique, converged, certificate": "of the minimum: whether it is the only one, whether the solver finished, and "
    "the norm of the gradient (or subgradient) that it left",
    "largest_error": "the largest expected TD error of a state at the minimum",
    "measure": "`msve` or `mave`, averaged over the run (`_auc`) or its last quarter (`_late`)",
    "step_size, ratio": "α and η = α_h/α as chosen on the selection seeds",
    "selection_score": "the mean error of the selection seeds there",
    "before": "the error before learning",
    "error": "of this seed at the chosen step size and ratio",
    "width": "how many step sizes have at most twice the best error",
    "errors": "of this seed at every step size, the ratio at its best",
    "reaches_goal": "whether the greedy policy does, after training",
    "q, h": "both heads' values after training, state by state, action by action",
    "trace, …": "measured during training, see the notes of `cliff-maps`",
    "run_spec": "tells apart runs of the same names that were made with different arguments; empty in older tables",
    "hardware, versions, date": "where, with what and when the run was made",
}

_INTRODUCTION = f"""# Results

*Made by `sb3-robust-be experiment page` from the tables in this folder; do not edit it by hand.*

Each section is one experiment of the paper {PAPER}, or one of ours that
explains them: a summary, the paper's sentences, verdicts on each in the words in which it was judged, and the numbers
behind them. The paper's experiments with agents have fewer seeds and settings here than there, and MinAtar fewer steps,
too, as the notes of each say. Of an experiment that stands here at two scales the larger one comes first; where they
differ, it is the one that we go by. What we make of this, and how experiments are run, is in
[experiments/README.md](../experiments/README.md). From the same tables,
`sb3-robust-be experiment report all --published` makes a page per experiment with every figure and table.

## How to read it

A claim *holds* if its 95 % interval and its test both say so, *does not hold* if both say the opposite, and is *not
resolved* by this many seeds otherwise.

- **number**: what it is (difference, ratio, probability, excess over one half and so on), the number, its 95 %
  interval, and in brackets what the claim compares it with, if that is not 0. Without an interval it was computed
  exactly, or the reason says that the runs have no spread. `–`: the claim is about several domains or problems at once.
- **test** and **p**: the test, and its p-value. The combined claims below a sentence of the paper are one family and
  its single comparisons another, each corrected by Holm's method, as the test's name says; so are ours where an
  experiment renders no sentence. A comparison that serves two sentences can be resolved for the one and not for the
  other.
- **above in**: beside a difference of means the share of pairs of runs, one of each side, in which the first is above,
  with its interval and the p-value of Brunner and Munzel's test. It decides nothing; where it and the mean say
  different things, few runs make the mean.
- **seeds**: independent runs of each side of the comparison. Pairs count once; of several environments taken together
  it is the number on one of them. Without any, and without p, no test was left to make: what decides was computed
  exactly, or is equal on every seed.
- **reason**: why the outcome is not the interval's alone, or which parts of a combined claim are in its way.

In tables of returns, *mean* and *AUC* are over seeds, and in brackets stand 95 % intervals: below 30 seeds Student's t
corrected for skewness, else the BCa bootstrap. Equal runs have none, since their spread is not known. The *worst
decile* is the mean of the lowest tenth; *diverged*, *crashed* and *unfinished* are numbers of seeds; *setting* was
chosen on others.

The columns of the CSV tables, in which a cell that is not plain text is JSON and an empty cell means that there is no
such value:
"""


_LARGEST_FIRST = tuple(reversed(SCALES))


def results_page(folder: Path) -> str:
    """
    :param folder: Of published tables.
    :return: The page. Its links are right in ``sb3_robust_be/results`` of this package's repository.
    :raises ValueError: If there is none of a declared experiment.
    """
    there = published(folder)
    found = [(name, scale) for name in names() for scale in _LARGEST_FIRST if (name, scale) in there]
    if not found:
        raise ValueError(
            f"{folder} has no table of a declared experiment; give a folder that `publish` has written to."
        )
    columns = "\n".join(f"- `{column}`: {meaning}" for column, meaning in COLUMNS.items())
    contents = "\n".join(
        f"- [{markdown_text(load_declared(name).summary)}](#{name}-{scale}) "
        f"({load_declared(name).figure}; scale `{scale}`)"
        for name, scale in found
    )
    sections = [results_section(folder, name, scale) for name, scale in found]
    return "\n".join([_INTRODUCTION, columns, "", "## Experiments", "", contents, "", *sections])


def results_section(folder: Path, name: str, scale: str) -> str:
    """
    :param folder: Of published tables.
    :param name: Of a declared experiment.
    :param scale: Of its presets.
    :return: What the page says of it.
    :raises ValueError: If rows were made with other arguments than the experiment has now.
    """
    experiment, rows = load_declared(name), load(folder, name, scale)
    _, fitting = experiment.planned(experiment.preset(scale), rows)
    if others := len(rows) - len(fitting):
        raise ValueError(
            f"{others} of {len(rows)} rows of {name} in {folder} were made with other arguments than it has now; "
            f"`sb3-robust-be experiment run {name} --scale {scale} --from {folder}` makes these again, to be published."
        )
    command = f"sb3-robust-be experiment run {name} --scale {scale}"
    made = make_report(experiment, scale, fitting, command, control_rows(name, scale, folder))
    return _section(experiment, scale, made, larger_scale(folder, name, scale))


def larger_scale(folder: Path, name: str, scale: str) -> str | None:
    """
    :param folder: Of published tables.
    :param name: Of an experiment.
    :param scale: One of its scales.
    :return: The largest scale of which there is a table, if it is larger than this one.
    """
    there = published(folder)
    largest = next((one for one in _LARGEST_FIRST if (name, one) in there), scale)
    return None if largest == scale else largest


def _section(experiment: Experiment, scale: str, made: Report, larger: str | None) -> str:
    parts = [
        f"## {experiment.name} ({scale})",
        f"{markdown_text(made.title)}.",
        *([_smaller_than(experiment.name, larger)] if larger else []),
        _list(made.summary),
        f"    {made.command}",
        *_verdicts(made),
    ]
    for file, shows in PICTURES.get((experiment.name, scale), ()):
        parts.append(f"![{shows}](../../.github/{file})")
    for table in made.tables:
        if _is_shown(made, table):
            parts += [markdown_text(table.caption), table.markdown().rstrip()]
    parts.append(f"Notes:\n\n{_list([*made.notes, *made.readings, *_made_with(made)])}")
    return "\n\n".join(parts) + "\n"


def _smaller_than(name: str, larger: str) -> str:
    return (
        f"This is a smaller size of the experiment. The larger one, at [scale `{larger}`](#{name}-{larger}), stands "
        "above; where they differ, it is the one that we go by."
    )


def _is_shown(made: Report, table: Table) -> bool:
    return len(table.rows) <= LONGEST_TABLE or table.name in WANTED_TABLES.get(made.name, ())


def _list(texts: Sequence[str]) -> str:
    return "\n".join(f"- {markdown_text(text)}" for text in texts)


def _verdicts(made: Report) -> list[str]:
    """The paper's sentences, each with the table of its verdicts; the claims in words where verdicts name none."""
    groups = by_sentence(made.verdicts)
    if not any(group.sentence for group in groups):
        return [
            f"The paper's claims, or ours where it has none:\n\n{_list(made.claims)}",
            verdict_table(made.verdicts).markdown().rstrip(),
        ]
    return [
        part
        for group in groups
        for part in (
            f"> {markdown_text(group.sentence)}" if group.sentence else "Claims of ours, beside the paper's:",
            verdict_table(group.verdicts).markdown().rstrip(),
        )
    ]


def _made_with(made: Report) -> list[str]:
    longer = [table.name for table in made.tables if not _is_shown(made, table)]
    left_out = f"Longer tables are in the report: {', '.join(longer)}." if longer else ""
    failures = f"Failed runs: {len(made.failures)}." if made.failures else ""
    where = "; ".join(f"{name} {value}" for name, value in {**made.hardware, **made.versions}.items())
    return [note for note in (left_out, failures, f"Made on: {where}." if where else "") if note]
