"""Cliff World: a small deterministic grid whose rare large penalties are hard on squared errors.

The cells are numbered row by row from the bottom left corner, ``state = WIDTH * y + x``. The module's tables describe
the problem completely, for a solver or a vectorised copy::

    15 16 17 18 19
    10 11 12 13 14
     5  6  7  8  9
     S  C  C  C  G      S = 0, the cliff C = 1, 2, 3, G = 4
"""

from __future__ import annotations

from typing import Any, Literal, SupportsIndex, get_args

import gymnasium as gym
import numpy as np

from sb3_robust_be.envs.moves import move_index

__all__ = [
    "CLIFF",
    "CLIFF_REWARD",
    "GOAL",
    "HEIGHT",
    "MOVES",
    "N_STATES",
    "START",
    "STEP_REWARD",
    "WIDTH",
    "CliffWorldEnv",
    "Observation",
    "TransitionTable",
    "coordinates",
    "observation_table",
    "state_index",
    "transition_table",
]

Observation = Literal["coordinates", "one_hot"]
TransitionTable = dict[int, dict[int, list[tuple[float, int, float, bool]]]]

WIDTH, HEIGHT = 5, 4
N_STATES = WIDTH * HEIGHT
START, GOAL = 0, WIDTH - 1
CLIFF = range(START + 1, GOAL)
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))  # (dx, dy) of the actions up, right, down, left
STEP_REWARD = -1.0
CLIFF_REWARD = -1000.0


def coordinates(state: int) -> tuple[int, int]:
    """The column ``x`` and the row ``y`` of a state, counted from the bottom left corner."""
    y, x = divmod(state, WIDTH)
    return x, y


def state_index(x: int, y: int) -> int:
    """The state in column ``x`` and row ``y``: the inverse of :func:`coordinates`."""
    return WIDTH * y + x


def _outcome(state: int, move: tuple[int, int]) -> tuple[float, int, float, bool]:
    if state == GOAL:
        return 1.0, GOAL, 0.0, True
    (x, y), (dx, dy) = coordinates(state), move
    target = state_index(min(max(x + dx, 0), WIDTH - 1), min(max(y + dy, 0), HEIGHT - 1))
    if target in CLIFF:
        return 1.0, START, CLIFF_REWARD, False
    return 1.0, target, STEP_REWARD, target == GOAL


def transition_table() -> TransitionTable:
    """``{state: {action: [(probability, next state, reward, terminated)]}}``, as in gymnasium's toy-text environments.

    All 20 cells have an entry. The goal is absorbing with reward 0; the cliff's cells, which an episode never occupies,
    have the outcomes that the rules give for a move from there.
    """
    return {s: {a: [_outcome(s, move)] for a, move in enumerate(MOVES)} for s in range(N_STATES)}


def observation_table(observation: Observation) -> np.ndarray:
    """What the agent sees in each state.

    :param observation: ``"coordinates"`` for ``(x, y)``, not scaled, or ``"one_hot"`` for the state's indicator.
    :return: float32 of shape ``(20, 2)`` or ``(20, 20)``; row ``s`` is the observation in state ``s``.
    :raises ValueError: If ``observation`` is neither.
    """
    if observation == "coordinates":
        return np.array([coordinates(s) for s in range(N_STATES)], dtype=np.float32)
    if observation == "one_hot":
        return np.eye(N_STATES, dtype=np.float32)
    choices = " or ".join(map(repr, get_args(Observation)))
    raise ValueError(f"observation={observation!r} is unknown: choose {choices}")


class CliffWorldEnv(gym.Env[np.ndarray, np.int64]):
    """Walk from the bottom left to the bottom right corner without falling into the cliff between them.

    Actions: 0 up, 1 right, 2 down, 3 left; a move against the border stays. Each step gives −1, the step into the goal
    included, which terminates the episode. A step into the cliff gives −1000 and leads back to the start, and the
    episode goes on. ``gym.make("RobustBE/CliffWorld-v0")`` cuts episodes off after 500 steps.

    The best return is −6. With ε = 0.1 the expected return is −115.8 around the shortest path and −40.6 along the top
    row: policies that go up until they reach their row, then right, and down in the last column.

    ``state`` is the current cell and ``P`` the transition table, see :func:`transition_table`; the observations of all
    states are given by :func:`observation_table`.

    Source: appendix on the experiments; adapted there from Sutton & Barto (2018), example 6.6.

    :param observation: ``"coordinates"``, a float32 ``(2,)``, or ``"one_hot"``, a float32 ``(20,)``.
    :param render_mode: ``None``, ``"ansi"`` (a string) or ``"rgb_array"`` (a uint8 picture of 240 × 192 pixels).
    :raises ValueError: If ``observation`` or ``render_mode`` is none of these.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (gymnasium declares it so)

    def __init__(self, observation: Observation = "coordinates", render_mode: str | None = None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode={render_mode!r} is unknown: choose None, 'ansi' or 'rgb_array'")
        self.render_mode = render_mode
        self.P = transition_table()
        self.state = START
        self._observations = observation_table(observation)
        self.observation_space = gym.spaces.Box(self._observations.min(axis=0), self._observations.max(axis=0))
        self.action_space = gym.spaces.Discrete(len(MOVES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Go to the start.

        :param seed: Accepted as everywhere; nothing here is random.
        :param options: Not used.
        :return: The observation and an empty dictionary.
        """
        super().reset(seed=seed)
        self.state = START
        return self._observe(), {}

    def step(self, action: SupportsIndex) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move one cell.

        :param action: 0 up, 1 right, 2 down, 3 left.
        :return: Observation, reward, whether the goal is reached, ``False`` (the cut-off is a wrapper's), ``{}``.
        :raises ValueError: If ``action`` is not one of the four.
        """
        index = move_index(action)
        [(_, self.state, reward, terminated)] = self.P[self.state][index]
        return self._observe(), reward, terminated, False, {}

    def _observe(self) -> np.ndarray:
        return self._observations[self.state].copy()

    def render(self) -> Any:
        """The grid with the agent in it.

        :return: As ``render_mode`` says: a string with one line per row, a uint8 array ``(192, 240, 3)``, or ``None``.
        """
        if self.render_mode == "ansi":
            return _text(self.state)
        if self.render_mode == "rgb_array":
            return _picture(self.state)
        gym.logger.warn("render() draws nothing: make the environment with render_mode='ansi' or 'rgb_array'")
        return None


def _text(state: int) -> str:
    letters = {START: "S", GOAL: "G", **dict.fromkeys(CLIFF, "C"), state: "A"}
    rows = [[letters.get(state_index(x, y), ".") for x in range(WIDTH)] for y in reversed(range(HEIGHT))]
    return "".join(" ".join(row) + "\n" for row in rows)


_CELL = 48  # pixels; 48 × 5 and 48 × 4 are multiples of 16, which video encoders ask for
_GROUND, _LINE, _AGENT = (236, 232, 220), (190, 184, 168), (214, 96, 36)
_COLOURS = {START: (150, 190, 228), GOAL: (122, 184, 104), **dict.fromkeys(CLIFF, (66, 54, 58))}


def _picture(state: int) -> np.ndarray:
    colours = np.array([_COLOURS.get(s, _GROUND) for s in range(N_STATES)], dtype=np.uint8)
    top_down = colours.reshape(HEIGHT, WIDTH, 3)[::-1]
    picture = top_down.repeat(_CELL, axis=0).repeat(_CELL, axis=1)
    picture[::_CELL] = picture[_CELL - 1 :: _CELL] = _LINE
    picture[:, ::_CELL] = picture[:, _CELL - 1 :: _CELL] = _LINE
    x, y = coordinates(state)
    rows, columns = np.ogrid[: HEIGHT * _CELL, : WIDTH * _CELL]
    down, right = rows - (HEIGHT - y - 0.5) * _CELL, columns - (x + 0.5) * _CELL
    picture[down**2 + right**2 < (0.32 * _CELL) ** 2] = _AGENT
    return picture
