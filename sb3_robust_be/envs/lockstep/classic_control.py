"""CartPole, Mountain Car and Acrobot: gymnasium's equations of motion, for all members at once.

Every rounding is gymnasium's, so that the states are equal to the last bit wherever numpy computes a sine or a power
of an array as it does that of a number.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv, MountainCarEnv

from .vectorised import VectorisedEnv

__all__ = ["Acrobot", "CartPole", "MountainCar"]


def _as_observations(states: np.ndarray) -> np.ndarray:
    return states.T.astype(np.float32, order="C")


def _constants(**values: float) -> SimpleNamespace:
    """As float64 arrays without dimensions: numpy multiplies by one in half the time that a Python number takes."""
    return SimpleNamespace(**{name: np.array(value, dtype=np.float64) for name, value in values.items()})


class CartPole(VectorisedEnv):
    """``CartPole-v0`` and ``-v1``; the state is ``(x, ẋ, θ, θ̇)``, moved by Euler's method.

    With ``sutton_barto_reward`` a step gives 0 and the fall −1, else every step gives 1.
    """

    env_class = CartPoleEnv

    def __init__(self, env: gym.Env[Any, Any], seeds: tuple[int, ...]) -> None:
        super().__init__(env, seeds)
        names = ("gravity", "masspole", "total_mass", "length", "polemass_length", "tau")
        self._c = _constants(four_thirds=4.0 / 3.0, **{name: getattr(self._model, name) for name in names})
        self._forces = np.array([-self._model.force_mag, self._model.force_mag])
        self._limits = np.array([[self._model.x_threshold], [self._model.theta_threshold_radians]])
        self._sutton_barto_reward = bool(self._model._sutton_barto_reward)

    @classmethod
    def copies(cls, env: gym.Env[Any, Any]) -> bool:
        """As :meth:`VectorisedEnv.copies`, and whether the environment integrates by Euler's method."""
        model: Any = env.unwrapped
        return super().copies(env) and model.kinematics_integrator == "euler"

    def _move(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        c, (_, _, angle, spin) = self._c, states
        cos, sin = np.cos(angle), np.sin(angle)
        push = (self._forces[actions] + c.polemass_length * np.square(spin) * sin) / c.total_mass
        lever = c.length * (c.four_thirds - c.masspole * np.square(cos) / c.total_mass)
        acceleration = np.empty((2, len(actions)))
        acceleration[1] = (c.gravity * sin - cos * push) / lever
        acceleration[0] = push - c.polemass_length * acceleration[1] * cos / c.total_mass
        states[::2] += c.tau * states[1::2]
        states[1::2] += c.tau * acceleration
        beyond = np.abs(states[::2]) > self._limits
        terminated = beyond[0] | beyond[1]
        rewards = np.where(terminated, -1.0, 0.0) if self._sutton_barto_reward else np.ones(len(actions))
        return _as_observations(states), rewards, terminated


class MountainCar(VectorisedEnv):
    """``MountainCar-v0`` and ``RobustBE/MountainCar1000-v0``; the state is ``(position, velocity)``."""

    env_class = MountainCarEnv

    def __init__(self, env: gym.Env[Any, Any], seeds: tuple[int, ...]) -> None:
        super().__init__(env, seeds)
        names = ("min_position", "max_position", "max_speed", "goal_position", "goal_velocity")
        self._c = _constants(
            three=3.0,
            zero=0.0,
            min_speed=-self._model.max_speed,
            pull=-self._model.gravity,
            **{name: getattr(self._model, name) for name in names},
        )
        self._forces = (np.arange(self._n_actions) - 1) * self._model.force

    def _move(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        c, (position, velocity) = self._c, states
        velocity += self._forces[actions] + np.cos(c.three * position) * c.pull
        np.maximum(velocity, c.min_speed, out=velocity)
        np.minimum(velocity, c.max_speed, out=velocity)
        position += velocity
        np.maximum(position, c.min_position, out=position)
        np.minimum(position, c.max_position, out=position)
        velocity[(position == c.min_position) & (velocity < c.zero)] = 0.0
        terminated = (position >= c.goal_position) & (velocity >= c.goal_velocity)
        return _as_observations(states), np.full(len(actions), -1.0), terminated


class Acrobot(VectorisedEnv):
    """``Acrobot-v1``; the state is ``(θ₁, θ₂, θ̇₁, θ̇₂)``, moved by one step of the classical Runge–Kutta method.

    gymnasium's start states are float32, and so are the sines and cosines of a first observation; from the first step
    on the state is float64.
    """

    env_class = AcrobotEnv

    def __init__(self, env: gym.Env[Any, Any], seeds: tuple[int, ...]) -> None:
        super().__init__(env, seeds)
        model = self._model
        self._torques = np.array(model.AVAIL_TORQUE)
        self._max_speeds = np.array([[model.MAX_VEL_1], [model.MAX_VEL_2]])
        self._min_speeds = -self._max_speeds
        m1, m2, l1 = model.LINK_MASS_1, model.LINK_MASS_2, model.LINK_LENGTH_1
        c1, c2, inertia = model.LINK_COM_POS_1, model.LINK_COM_POS_2, model.LINK_MOI
        g = 9.8  # m/s²; gymnasium has this number in the middle of its equations
        self._c = _constants(
            two=2.0,
            dt=model.dt,
            half_dt=model.dt / 2.0,
            sixth_dt=model.dt / 6.0,
            pi=np.pi,
            half_pi=np.pi / 2,
            turn=np.pi - -np.pi,
            m2=m2,
            inertia=inertia,
            inertia1=m1 * c1**2,
            inertia2=m2 * c2**2 + inertia,
            coupling=m2 * l1 * c2,
            twice_coupling=2 * m2 * l1 * c2,
            weight1=(m1 * c1 + m2 * l1) * g,
            weight2=m2 * c2 * g,
        )
        self._arms = np.array([[2 * l1 * c2], [l1 * c2]]).repeat(len(seeds), axis=1)
        self._square_arms = np.array([[l1**2 + c2**2], [c2**2]]).repeat(len(seeds), axis=1)

    @classmethod
    def copies(cls, env: gym.Env[Any, Any]) -> bool:
        """As :meth:`VectorisedEnv.copies`, and whether the options are gymnasium's: the book's equations, no noise."""
        model: Any = env.unwrapped
        return super().copies(env) and model.book_or_nips == "book" and model.torque_noise_max == 0

    def _move(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        c, torque = self._c, self._torques[actions]
        k1 = self._derivatives(states, torque)
        k2 = self._derivatives(states + c.half_dt * k1, torque)
        k3 = self._derivatives(states + c.half_dt * k2, torque)
        k4 = self._derivatives(states + c.dt * k3, torque)
        states += c.sixth_dt * (k1 + c.two * k2 + c.two * k3 + k4)
        angles, speeds = states[:2], states[2:]
        while (beyond := np.abs(angles) > c.pi).any():
            angles[beyond] -= np.copysign(c.turn, angles[beyond])
        np.maximum(speeds, self._min_speeds, out=speeds)
        np.minimum(speeds, self._max_speeds, out=speeds)
        observations = np.empty((len(actions), 6), dtype=np.float32)
        cos = np.cos(angles)
        observations[:, 0:3:2] = cos.T
        observations[:, 1:4:2] = np.sin(angles).T
        observations[:, 4:] = speeds.T
        terminated = -cos[0] - np.cos(angles[1] + angles[0]) > 1.0
        return observations, np.where(terminated, 0.0, -1.0), terminated

    def _derivatives(self, states: np.ndarray, torque: np.ndarray) -> np.ndarray:
        """The velocities and the accelerations, ``(4, N)``, by the equations of Sutton and Barto's book."""
        c, angle1, angle2, speeds = self._c, states[0], states[1], states[2:]
        cos, sin = np.cos(angle2), np.sin(angle2)
        d1, d2 = d = c.m2 * (self._square_arms + self._arms * cos)
        d1 += c.inertia1
        d += c.inertia
        d1 += c.inertia
        # gymnasium squares by `**` on numbers, which is pow(); on arrays `**` multiplies and may round otherwise.
        coupling1, coupling2 = c.coupling * np.float_power(speeds, c.two) * sin
        phi2 = c.weight2 * np.cos(angle1 + angle2 - c.half_pi)
        phi1 = c.weight1 * np.cos(angle1 - c.half_pi)
        phi1 -= coupling2 + c.twice_coupling * speeds[1] * speeds[0] * sin
        phi1 += phi2
        derivatives = np.empty_like(states)
        derivatives[:2] = speeds
        derivatives[3] = (torque + d2 / d1 * phi1 - coupling1 - phi2) / (c.inertia2 - np.float_power(d2, c.two) / d1)
        derivatives[2] = -(d2 * derivatives[3] + phi1) / d1
        return derivatives
