"""Ours, the yardstick: one setting per algorithm for all environments, judged also on those that did not choose it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import NormalisedAverages, Verdict, judged
from sb3_robust_be.experiments.control import minatar_games, yardstick
from sb3_robust_be.experiments.control.contenders import Rate, falling
from sb3_robust_be.experiments.control.control_analysis import MEASURE, size_notes, unfinished_notes
from sb3_robust_be.experiments.control.domains import CHEAP_DOMAINS, DQN_TARGET, HELD_OUT_DOMAINS, Domain
from sb3_robust_be.experiments.control.preset import (
    Contender,
    ControlPreset,
    ControlResults,
    measure,
    plan,
    read,
)
from sb3_robust_be.experiments.control.yardstick import FAILED, LEVEL, SCALE_OF, Scale
from sb3_robust_be.experiments.control.zoo_values import ZOO_VALUES
from sb3_robust_be.experiments.experiment import Analysis, Experiment, Reading, Run, distinct_runs
from sb3_robust_be.experiments.rows import Rows
from sb3_robust_be.experiments.setting_text import setting_text

_LAYER_NORM = {"policy_kwargs": {"layer_norm": True}}
_PLAIN = {"policy_kwargs": {"layer_norm": False}}
_SQUARED = {"huber_threshold": math.inf}
_TARGET = {"target_update_interval": DQN_TARGET}

# Without step sizes, which are those of the preset.
BEST_OF_INGREDIENTS: tuple[Contender, ...] = (
    Contender("qlc, one-sided, layer norm", "qlc", {}, {"limit": "one_sided", **_LAYER_NORM}),
    Contender("qlc, one-sided, target, layer norm", "qlc", {}, {"limit": "one_sided", **_TARGET, **_LAYER_NORM}),
    Contender("qlc, one-sided, target", "qlc", {}, {"limit": "one_sided", **_TARGET, **_PLAIN}),
    Contender("qlc, target, layer norm", "qlc", {}, {"limit": "magnitude", **_TARGET, **_LAYER_NORM}),
)
"""The four combinations with a correction that had the best mean ranks at one step size in `ingredients`"""
CANDIDATES: tuple[Contender, ...] = (
    *BEST_OF_INGREDIENTS,
    Contender("qrc, scaled, layer norm", "qrc", {}, {"h_regularization_scale": "features", **_LAYER_NORM}),
)
"""What is to be level with every baseline"""
SB3_DQN = Contender("dqn", "dqn", {}, {"huber_threshold": 1.0})
"""DQN with SB3's loss, and with the refresh of its target network to choose where the preset has several. The rest is
the paper's, as for all contenders: no gradient clipping, where SB3's default is a norm of 10"""
BASELINES: tuple[Contender, ...] = (
    SB3_DQN,
    Contender("dqn, squared loss, target", "dqn", {}, {**_SQUARED, **_TARGET}),
    Contender("dqn, squared loss, target, layer norm", "dqn", {}, {**_SQUARED, **_TARGET, **_LAYER_NORM}),
    Contender("dqn, squared loss, layer norm", "dqn", {}, {**_SQUARED, "target_update_interval": None, **_LAYER_NORM}),
)
"""With every help there is: the squared loss, layer normalisation, a target network or none"""

RATES: tuple[Rate, ...] = (*(2.0**k for k in range(-12, -7)), *(falling(k) for k in range(-11, -7)))
FEW_RATES: tuple[Rate, ...] = (*(2.0**k for k in range(-11, -8)), *(falling(k) for k in range(-10, -7)))


def contenders(
    rates: tuple[Rate, ...], dqn_rates: tuple[Rate, ...], refresh: tuple[int, ...], labels: tuple[str, ...] = ()
) -> tuple[Contender, ...]:
    """
    :param rates: Step sizes of all contenders but SB3's DQN.
    :param dqn_rates: Step sizes of SB3's DQN, each with each refresh.
    :param refresh: Of its target network, in steps.
    :param labels: Which contenders; none: all.
    """
    dqn_grid = {"learning_rate": dqn_rates, "target_update_interval": refresh}
    return tuple(
        replace(one, grid=dqn_grid if one is SB3_DQN else {"learning_rate": rates})
        for one in (*CANDIDATES, *BASELINES)
        if not labels or one.label in labels
    )


GAMES = ("breakout", "freeway", "spaceinvaders")
GAME_STEPS = 130_000
_GAME_ARGUMENTS = {"exploration_fraction": 100_000 / GAME_STEPS, "device": "auto"}
OWN_DOMAINS: dict[str, Domain] = {
    **HELD_OUT_DOMAINS,
    **{
        key: replace(domain, steps=GAME_STEPS, arguments={**domain.arguments, **_GAME_ARGUMENTS})
        for key, domain in minatar_games.DOMAINS.items()
        if key in GAMES
    },
}
HELD_OUT = ("lunar-lander", *OWN_DOMAINS)


@dataclass(frozen=True)
class OneSettingPreset:
    """The size of the experiment."""

    chosen_on: tuple[str, ...]
    """The domains that choose the setting"""
    held_out: tuple[str, ...]
    """Those that do not"""
    contenders: tuple[Contender, ...]
    seeds: int
    """Reported ones, per contender and domain"""
    selection_seeds: int
    steps: float
    """Environment steps of a run, as a fraction of the domain's"""
    steps_by_domain: Mapping[str, float] = field(default_factory=dict)
    seeds_of: Mapping[str, int] = field(default_factory=dict)
    """Other numbers of reported seeds by domain"""
    zoo: tuple[str, ...] = ("dqn",)
    """The algorithms that run with rl_zoo3's values as well"""
    zoo_seeds: int | None = None
    """Reported seeds of these; ``None``: as many as of the others"""
    best_of_each: bool = True
    """Whether each domain's best setting is run as well, beside the one for all"""
    compile: bool = True
    note: str = ""

    @property
    def candidates(self) -> list[str]:
        """Labels of the candidates."""
        return [one.label for one in self.contenders if one.label in {candidate.label for candidate in CANDIDATES}]

    @property
    def baselines(self) -> list[str]:
        """Labels of the others."""
        return [one.label for one in self.contenders if one.label not in self.candidates]

    def one_for_all(self) -> ControlPreset:
        """The runs with one setting for all domains, which ``chosen_on`` choose."""
        return self._part(
            (*self.chosen_on, *self.held_out),
            self.contenders,
            one_setting=True,
            selection_seeds_of=dict.fromkeys(self.held_out, 0),
        )

    def with_best_of_each(self) -> ControlPreset:
        """The runs with each domain's best setting, by the same selection runs."""
        return self._part(self.chosen_on, self.contenders)

    def of_zoo(self) -> list[ControlPreset]:
        """The runs with rl_zoo3's values, a part for each domain that it has an entry for."""
        found = []
        for key in (*self.chosen_on, *self.held_out):
            values = {name: ZOO_VALUES[name][key] for name in self.zoo if key in ZOO_VALUES[name]}
            if values:
                part = self._part((key,), tuple(Contender(zoo_label(name), name, {}, x) for name, x in values.items()))
                found.append(part if self.zoo_seeds is None else replace(part, seeds=self.zoo_seeds, seeds_of={}))
        return found

    def _part(self, domains: tuple[str, ...], contenders: tuple[Contender, ...], **more: object) -> ControlPreset:
        part = ControlPreset(
            domains,
            contenders,
            self.seeds,
            self.selection_seeds,
            self.steps,
            self.steps_by_domain,
            self.seeds_of,
            compile=self.compile,
            own_domains=OWN_DOMAINS,
        )
        return replace(part, **more)  # type: ignore[arg-type]


def zoo_label(algorithm: str) -> str:
    """The label of an algorithm with rl_zoo3's values."""
    return f"{algorithm}, rl_zoo3's values"


_GAMES_FULL = dict.fromkeys(GAMES, 1.0)
_SHORTER = (
    "Shorter than the paper's runs: 40 000 steps on the small domains, 20 000 on Cliff World, 100 000 on Lunar Lander. "
    "Six step sizes for each contender, three constant and three falling."
)
PRESETS = {
    "smoke": OneSettingPreset(
        ("acrobot", "cliff-world"),
        ("puddle-world",),
        contenders(
            (2.0**-10, 2.0**-9),
            (2.0**-10,),
            (32, 64),
            ("qlc, one-sided, layer norm", "dqn", "dqn, squared loss, target"),
        ),
        seeds=2,
        selection_seeds=1,
        steps=0.0015,
        steps_by_domain={"cliff-world": 0.003},
        compile=False,
    ),
    "laptop": OneSettingPreset(
        CHEAP_DOMAINS,
        tuple(key for key in HELD_OUT if key not in GAMES),
        contenders(FEW_RATES, FEW_RATES, (64,)),
        seeds=30,
        selection_seeds=5,
        steps=0.4,
        seeds_of={"lunar-lander": 10},
        zoo=(),
        best_of_each=False,
        note=f"{_SHORTER} MinAtar and rl_zoo3's values, which take hours on two cores each, are in the scale `long`; "
        "the best setting of each environment beside the one for all is in `paper`.",
    ),
    "long": OneSettingPreset(
        CHEAP_DOMAINS,
        HELD_OUT,
        contenders(FEW_RATES, FEW_RATES, (64,)),
        seeds=30,
        selection_seeds=5,
        steps=0.4,
        steps_by_domain=_GAMES_FULL,
        seeds_of={"lunar-lander": 10, **dict.fromkeys(GAMES, 5)},
        zoo=("dqn", "qrdqn"),
        zoo_seeds=10,
        best_of_each=False,
        note=f"{_SHORTER} MinAtar has 130 000 steps and five seeds, rl_zoo3's values ten.",
    ),
    "paper": OneSettingPreset(
        CHEAP_DOMAINS,
        HELD_OUT,
        contenders(RATES, RATES, (32, 64, 256)),
        seeds=100,
        selection_seeds=10,
        steps=1.0,
        steps_by_domain=_GAMES_FULL,
        seeds_of={"lunar-lander": 30, **dict.fromkeys(GAMES, 10)},
        zoo=("dqn", "qrdqn"),
        note="MinAtar has 130 000 steps here, too: its long runs are those of `minatar`.",
    ),
}


def _parts(preset: OneSettingPreset) -> list[ControlPreset]:
    beside = [preset.with_best_of_each()] if preset.best_of_each else []
    return [preset.one_for_all(), *beside, *preset.of_zoo()]


def _plan(preset: OneSettingPreset, rows: Rows) -> list[Run]:
    # The selection is one for both choices, and a domain's best setting may be the one for all.
    return distinct_runs(run for part in _parts(preset) for run in plan(part, rows))


def _settings(results: ControlResults) -> dict[tuple[str, str], str]:
    return {
        (results.preset.domain(key).name, label): setting_text(setting) or "rl_zoo3's"
        for (key, label), setting in results.settings.items()
    }


def _verdicts(
    preset: OneSettingPreset,
    finals: Mapping[str, Mapping[str, np.ndarray]],
    scales: Mapping[str, Scale],
    averages: Mapping[str, NormalisedAverages],
) -> list[Verdict]:
    """Of each candidate: level with the baselines, level with rl_zoo3's values, above the baselines on average."""
    claims: list[Verdict] = []
    single: list[Verdict] = []
    for candidate in preset.candidates:
        claims += yardstick.level_with_baselines(candidate, preset.baselines, finals, scales)
        claims += yardstick.level_with_zoo(candidate, [zoo_label(name) for name in preset.zoo], finals, scales)
        for words, own in averages.items():
            together, *parts = yardstick.above_on_average(candidate, preset.baselines, own, words)
            claims.append(together)
            single += parts
    return judged(claims, single)


def _analyse(preset: OneSettingPreset, rows: Rows) -> Analysis:
    one = read(preset.one_for_all(), rows)
    best = [read(preset.with_best_of_each(), rows)] if preset.best_of_each else []
    others = [read(part, rows) for part in preset.of_zoo()]
    name_of = {key: one.preset.domain(key).name for key in one.preset.domains}
    scales = {name: SCALE_OF[key] for key, name in name_of.items()}
    finals = {name: dict(own) for name, own in one.finals.items()}
    settings = _settings(one)
    for part in others:
        settings |= _settings(part)
        for name, own in part.finals.items():
            finals[name] |= own
    candidates, baselines = preset.candidates, preset.baselines
    chosen_on = {name_of[key] for key in preset.chosen_on}
    where = {
        "all environments": finals,
        "held-out environments": {name: own for name, own in finals.items() if name not in chosen_on},
    }
    averages = {words: yardstick.averages(of, [*candidates, *baselines]) for words, of in where.items()}
    widths = ", ".join(f"{name} {scale.width:g} from {scale.poor:g}" for name, scale in scales.items())
    return Analysis(
        verdicts=_verdicts(preset, finals, scales, averages),
        plots=[
            report.distributions("distributions", finals, measure=MEASURE, rng=np.random.default_rng(0)),
            yardstick.averages_plot(averages),
        ],
        tables=[
            yardstick.averages_table(averages),
            yardstick.averages_between(averages),
            yardstick.leads_without_each(candidates[0], baselines, averages),
            yardstick.returns_by_environment("returns", "One setting for all environments.", finals, settings, scales),
            *(
                yardstick.returns_by_environment(
                    "best-per-environment",
                    "For each environment the setting that is best there, by the same selection runs.",
                    results.finals,
                    _settings(results),
                    scales,
                )
                for results in best
            ),
            yardstick.improvements(candidates, [*baselines, *(zoo_label(name) for name in preset.zoo)], finals),
        ],
        notes=[
            f"Level: no more than {LEVEL:g} of an environment's scale below. Scales: {widths}.",
            *size_notes(one.preset),
            *unfinished_notes(run for part in (one, *others) for run in part.named()),
            *([preset.note] if preset.note else []),
        ],
    )


EXPERIMENT = Experiment(
    name="one-setting",
    figure="ours",
    summary="The yardstick: one setting per algorithm for all environments",
    claims=(
        "With one setting for all environments, a candidate is level with the best baseline on every environment.",
        "On average over environments, those held out among them or alone, a candidate is above every baseline.",
        "A candidate is level with DQN and QR-DQN with the values that rl_zoo3 has tuned for an environment.",
    ),
    presets=PRESETS,
    plan=_plan,
    measure=measure,
    analyse=_analyse,
    readings=(
        Reading(
            "How is the one setting chosen?",
            (
                "by the mean CDF-normalised return over environments (Patterson et al., arXiv 2407.18840)",
                "by the mean rank over environments of the mean return of a setting",
            ),
            "mean rank",
            "as in `minatar`; ranks are among a contender's own settings, so that its choice depends on no other runs.",
        ),
        Reading(
            "Which environments choose, and which judge?",
            ("all of them do both", "four small ones choose; the others judge beside them, and alone"),
            "four small ones choose",
            "a setting for all environments is meant for those that nobody has tried it on.",
        ),
        Reading(
            "Held out from what?",
            ("from the design of the candidates", "from the choice of their settings"),
            "from the choice of their settings",
            "short runs on Lunar Lander, Breakout and Freeway were looked at while the candidates were designed; "
            "Mountain Car with 200 steps, Puddle World and Space Invaders were not.",
        ),
        Reading(
            "Which baseline is the best on an environment?",
            (
                "the one with the highest mean of the reported runs",
                "each of them: level with all is level with the best",
            ),
            "each of them",
            "a maximum of noisy means is too high, and would be picked by the runs that then judge; being level with "
            "all needs no choice and, all having to hold, no correction.",
        ),
        Reading(
            "What is level?",
            ("no significant difference", f"a mean that lies no more than {LEVEL:g} of the scale below"),
            f"no more than {LEVEL:g} of the scale below",
            "absence of evidence is none for equality, and few seeds must not make it easier.",
        ),
        Reading(
            "What is an environment's scale?",
            ("from the lowest to the highest run seen", "stated before: from a poor return to a good one"),
            "stated before",
            "what is seen depends on who was compared. In MinAtar it ends where DQN did in as many steps in the "
            "published `minatar-population`.",
        ),
        Reading(
            "What is a failed seed?",
            ("one without a return", f"also one within {FAILED:g} of the scale of a poor return"),
            f"also one within {FAILED:g} of the scale of a poor return",
            "who never reaches the goal has failed, though nothing has diverged.",
        ),
        Reading(
            "How are environments averaged?",
            ("returns scaled between two bounds", "the share of all contenders' runs that are worse (CDF-normalised)"),
            "CDF-normalised",
            "no bounds to choose, and no environment outweighs another. Whose runs are in the pool matters: here those "
            "of all contenders with one setting, not those with rl_zoo3's values, which are not everywhere.",
        ),
        Reading(
            "Is the pool of runs resampled for the intervals?",
            ("no, it is fixed", "yes, with the runs"),
            "yes",
            "it is a sample as well, of which a contender's own runs are a part.",
        ),
        Reading(
            "How many settings does each contender choose from?",
            ("a full product of all its arguments", "the same step sizes for all, and little else"),
            "the same step sizes for all, and little else",
            "more settings are more tries. There are six step sizes, three constant and three falling, for every "
            "contender, and one refresh, every 64 steps, for every target network.",
            scales=("laptop", "long"),
        ),
        Reading(
            "How many settings does each contender choose from?",
            ("a full product of all its arguments", "the same step sizes for all, and little else"),
            "the same step sizes for all, and little else",
            "more settings are more tries. There are nine step sizes, five constant and four falling; the DQN with "
            "SB3's loss chooses among three refreshes as well, 27 settings in all, which favours a baseline.",
            scales=("paper",),
        ),
        Reading(
            "Is DQN's gradient clipped?",
            ("yes, to a norm of 10, as SB3 does", "no, as in the paper"),
            "no",
            "it is among the settings that are the paper's and the same for all contenders (batch, ε, one update per "
            "step); with the Huber loss a TD error enters the gradient with at most 1 anyway. With rl_zoo3's values "
            "the norm is 10: they leave it to SB3.",
        ),
        Reading(
            "To which value does a step size fall?",
            ("to 0", "to 2^-13, linearly over the run"),
            "to 2^-13",
            "whoever goes on training afterwards still learns.",
        ),
        Reading(
            "How long do runs with rl_zoo3's values last?",
            ("as many steps as they were tuned for (50 000 to 120 000)", "as many as the others"),
            "as many as the others",
            "equal steps are the comparison; their ε is a fraction of the run. Networks, buffers and frequencies are "
            "rl_zoo3's.",
        ),
        Reading(
            "Does rl_zoo3 have values for Mountain Car with 1000 steps?",
            ("those of MountainCar-v0", "none"),
            "none",
            "they were tuned for episodes of 200 steps, and stand there.",
        ),
        Reading(
            "Which return is compared?",
            ("that of greedy evaluations", "that of the ε-greedy behaviour in the last quarter"),
            "that of the ε-greedy behaviour",
            "the measure of all control experiments. For a contender with a smaller ε at the end, as rl_zoo3's values "
            "have on Cart-pole and Mountain Car, it is an advantage.",
        ),
    ),
)
