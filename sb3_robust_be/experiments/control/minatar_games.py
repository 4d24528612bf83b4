"""Five MinAtar games with one setting for all of them, and their scaled returns (table 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import (
    Verdict,
    cdf_normalised_averages,
    greater,
    judged,
    lowest_for_failed,
    scaled_returns,
)
from sb3_robust_be.experiments.control.contenders import plain, qlc_variants
from sb3_robust_be.experiments.control.control_analysis import control_analysis
from sb3_robust_be.experiments.control.domains import Domain
from sb3_robust_be.experiments.control.preset import Contender, ControlPreset, measure, plan, read
from sb3_robust_be.experiments.experiment import Analysis, Experiment, Reading
from sb3_robust_be.experiments.rows import Rows

GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")


STEPS = 5_000_000


RATES = tuple(2.0**k for k in range(-13, -7))


REFRESH = (None, 8, 32, 64)


_FEATURES = {"__import__": "sb3_robust_be.qrc.extractors:MinAtarCNN"}


ARGUMENTS = {
    "policy_kwargs": {"features_extractor_class": _FEATURES},
    "learning_starts": 5_000,
    "exploration_initial_eps": 1.0,
    "device": "cpu",
}


DOMAINS = {
    # The network's 128 units belong to its extractor.
    game.lower(): Domain(game, f"MinAtar/{game}-v0", (), 100_000, STEPS, policy="CnnPolicy", arguments=ARGUMENTS)
    for game in GAMES
}


def _exploration(steps: int) -> dict[str, float]:
    """SB3's ε, linear from 1 at step 0 to 0.1 at step 105 000, in runs that are shorter at half of them.

    Paper: as Young & Tian (2019), ε = 1 for 5 000 random steps, then to 0.1 within 100 000 / Ours: the first 5 000
    steps are random, too, but ε is 0.957 after them.
    """
    return {"exploration_fraction": min(0.5, 105_000 / steps)}


def contenders(rates: tuple[float, ...], refresh: tuple[int | None, ...]) -> tuple[Contender, ...]:
    return (
        Contender("dqn", "dqn", {"learning_rate": rates, "target_update_interval": refresh}),
        *(plain(name, rates) for name in ("qrc", "qrc_huber")),
        qlc_variants(rates)[0],
    )


def preset(
    steps: int,
    algorithms: tuple[Contender, ...],
    seeds: int,
    selection: int,
    note: str = "",
    stacked: bool = False,
    **arguments: object,
) -> ControlPreset:
    """
    :param steps: Of a run.
    :param algorithms: Of :func:`contenders`.
    :param seeds: Reported ones.
    :param selection: Seeds that choose settings.
    :param note: See :class:`ControlPreset`.
    :param stacked: Lock-step populations, or single agents.
    :param arguments: In place of the paper's.
    :return: All five games, with one setting per algorithm.
    """
    return ControlPreset(
        tuple(DOMAINS),
        algorithms,
        seeds=seeds,
        selection_seeds=selection,
        steps=steps / STEPS,
        one_setting=True,
        stacked=stacked,
        own_domains=DOMAINS,
        arguments={**_exploration(steps), **arguments},
        note=note,
    )


def analyse(preset: ControlPreset, rows: Rows) -> Analysis:
    results = read(preset, rows)
    analysis = control_analysis(results)
    by_game = {game: lowest_for_failed(own) for game, own in results.finals.items()}
    labels = [contender.label for contender in preset.contenders]
    runs = {label: {game: own[label] for game, own in by_game.items()} for label in labels}
    averages = cdf_normalised_averages(runs, rng=np.random.default_rng(0))
    returns = [
        {"algorithm": label, "scaled return": averages.interval(label), "seeds": min(averages.seeds[label])}
        for label in labels
    ]
    caption = (
        "Scaled returns, averaged over the games (table 1). Intervals: bootstrap stratified by game, the pool of runs "
        "by which returns are scaled resampled as well. Seeds: runs per game."
    )
    analysis.tables.append(report.Table("scaled-returns", returns, caption=caption))
    analysis.plots.append(report.profiles("profiles", scaled_returns(runs), rng=np.random.default_rng(0)))
    analysis.verdicts = minatar_verdicts(runs)
    analysis.notes += [
        "The learning curve of the scaled return (appendix) is left out; those of the games are here.",
        "The paper tests MinAtar by a t over pairs of a game and a seed, plain and studentised by a bootstrap. Both "
        "take the spread between games for chance, and runs of two algorithms on a game for pairs. They are shown as "
        "what the paper did; the verdict is that of the stratified bootstrap.",
    ]
    return analysis


COMPARED = (("qrc_huber", "qrc"), ("qrc_huber", "dqn"), ("qrc", "dqn"))


def minatar_verdicts(runs: Mapping[str, Mapping[str, np.ndarray]]) -> list[Verdict]:
    """
    :param runs: Final returns by label and game, each (runs,), without NaN.
    :return: The comparisons by a bootstrap stratified over games, then by the paper's own two tests; of each test they
        are a family of their own.
    """
    averages = cdf_normalised_averages(runs, rng=np.random.default_rng(0))
    pooled = {label: np.concatenate(list(games.values())) for label, games in scaled_returns(runs).items()}
    stratified, paired, studentised = [], [], []
    for better, worse in COMPARED:
        claim = f"{better}'s scaled return is above that of {worse}"
        seeds = (min(averages.seeds[better]),)
        stratified.append(averages.greater(claim, better, worse))
        own = greater(f"{claim} (the paper's paired t)", pooled[better], pooled[worse], method="paired")
        paired.append(replace(own, seeds=seeds))
        own = greater(
            f"{claim} (the paper's bootstrap t)",
            pooled[better],
            pooled[worse],
            method="bootstrap-t",
            rng=np.random.default_rng(0),
        )
        studentised.append(replace(own, seeds=seeds))
    return [verdict for family in (stratified, paired, studentised) for verdict in judged([], family)]


def experiment(name: str, summary: str, presets: Mapping[str, ControlPreset]) -> Experiment:
    """Table 1 at some sizes.

    :param name: In commands.
    :param summary: One sentence.
    :param presets: Of :func:`preset`, by scale.
    """
    return Experiment(
        name=name,
        figure="table 1",
        summary=summary,
        claims=("QRC-Huber (0.53) is above QRC (0.47), and both are above DQN (0.36), in scaled return.",),
        presets=presets,
        plan=plan,
        measure=measure,
        analyse=analyse,
        readings=(
            Reading(
                "Whose runs scale the returns?",
                ("the algorithms compared", "a wider pool: the published averages are 0.453, not 0.5"),
                "the algorithms compared",
                "the wider pool is unknown, so that order and significance can be compared, and the values cannot.",
            ),
            Reading(
                "How is the one setting chosen?",
                (
                    "mean scaled AUC of five runs per game (appendix)",
                    "mean rank over games of the return, last 25 % of steps",
                ),
                "mean rank",
                "ranks need no pool of reference.",
                scales=("paper",),
            ),
            Reading(
                "Which return is scaled?",
                ("the AUC (appendix: the same procedure as for the choice)", "that of the last 25 % of steps"),
                "that of the last 25 % of steps",
                "table 1 says average scaled return, and the last quarter is the measure of the other experiments.",
            ),
        ),
    )
