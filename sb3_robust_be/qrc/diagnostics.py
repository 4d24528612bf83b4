"""Diagnostics in SB3's log: TD errors, values, secondary estimates, and how often these are clipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.logger import Logger

from sb3_robust_be.messages import warn
from sb3_robust_be.qrc.losses import LossTerms
from sb3_robust_be.updates import is_clipped

# Reading at least this often costs nothing that can be measured. It gives lines that callbacks write by themselves, as
# EvalCallback's, entries of late, and keeps the divergence warning alive in runs that never write their log.
MAX_UPDATES_UNREAD = 100
# The divergence warning: this share of h beyond the threshold, in that many readings in a row, ...
CLIPPED_SHARE, CLIPPED_READINGS = 0.9, 3
# ... while the largest |q(s,a)| of the batch grew by this factor, and by more than this many thresholds.
GROWTH_FACTOR, GROWTH_THRESHOLDS = 2.0, 10.0


class UpdateDiagnostics:
    """Keeps the detached tensors of the last ``train()`` call until they are turned into entries of the log."""

    def __init__(self) -> None:
        self._terms: Sequence[LossTerms] = ()
        self._settings: dict[str, Any] = {}
        self._parameters: Sequence[th.Tensor] = ()
        self._grad_norm: th.Tensor | None = None
        self._updates_unread = 0
        self._clipped_readings = 0
        self._q_before_clipping = 0.0
        self._warned = False

    def hold(
        self,
        terms: Sequence[LossTerms],
        settings: dict[str, Any],
        parameters: Sequence[th.Tensor],
        grad_norm: th.Tensor | None,
    ) -> bool:
        """Remember the updates of one ``train()`` call.

        :param terms: One entry per gradient step.
        :param settings: What the loss was called with; here, keyword arguments of :func:`updates.coefficients`.
        :param parameters: Value parameters, whose gradients are those of the last step.
        :param grad_norm: Their norm before clipping, where clipping has computed it.
        :return: Whether it is time to record them, whoever writes the log.
        """
        self._terms, self._settings = terms, settings
        self._parameters, self._grad_norm = parameters, grad_norm
        self._updates_unread += len(terms)
        return self._updates_unread >= MAX_UPDATES_UNREAD

    def record(self, logger: Logger) -> None:
        """Write the entries of the last ``train()`` call, once.

        :param logger: Where to.
        """
        if not self._terms:
            return
        td_error, h, correction, q = (
            th.cat(column).flatten().double().cpu().numpy() for column in list(zip(*self._terms, strict=True))[1:5]
        )
        own_entries = self._own_entries(self._terms)
        self._terms, self._updates_unread = (), 0
        clip_fraction = self._clip_fraction(h, td_error)
        mean_error, spread = np.abs(td_error).mean(), td_error.var()
        q05, q50, q95 = np.quantile(td_error, (0.05, 0.5, 0.95))
        entries = {
            "loss": 0.5 * np.mean(td_error**2),
            "td_error_abs_mean": mean_error,
            "td_error_q05": q05,
            "td_error_q50": q50,
            "td_error_q95": q95,
            "q_mean": q.mean(),
            "q_max": q.max(),
            "h_abs_mean": np.abs(h).mean(),
            "h_clip_fraction": clip_fraction,
            # Both ratios are 0/0 while every TD error is the same number, as at the first update of many tasks.
            "correction_ratio": np.abs(correction).mean() / mean_error if mean_error > 0 else 0.0,
            "h_explained": 1.0 - (td_error - h).var() / spread if spread > 0 else 0.0,
            "grad_norm": self._norm(),
            **own_entries,
        }
        for name, value in entries.items():
            logger.record(f"train/{name}", float(value))
        self._watch(self._beyond_threshold(h, td_error), float(np.abs(q).max()))

    def _own_entries(self, terms: Sequence[LossTerms]) -> dict[str, Any]:
        """Entries of the log that only this algorithm has."""
        return {}

    def _clip_fraction(self, h: np.ndarray, td_error: np.ndarray) -> float:
        own = {name: self._settings[name] for name in ("projection", "threshold", "limit")}
        return float(np.mean(is_clipped(h, td_error, **own)))

    def _beyond_threshold(self, h: np.ndarray, td_error: np.ndarray) -> float:
        """The share of h that the threshold clips, whatever a limit does besides."""
        threshold = self._settings.get("threshold")
        if threshold is None:
            return 0.0
        return float(np.mean(is_clipped(h, td_error, self._settings["projection"], threshold)))

    def _norm(self) -> float:
        if self._grad_norm is None:
            self._grad_norm = th.nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        return float(self._grad_norm)

    def _watch(self, clip_fraction: float, q_size: float) -> None:
        """Warn once when nearly every correction is clipped and the values keep growing."""
        threshold = self._settings.get("threshold")
        if threshold is None or self._warned:
            return
        if clip_fraction < CLIPPED_SHARE:
            self._clipped_readings = 0
            return
        if self._clipped_readings == 0:
            self._q_before_clipping = q_size
        self._clipped_readings += 1
        growing = q_size > max(
            GROWTH_FACTOR * self._q_before_clipping, self._q_before_clipping + GROWTH_THRESHOLDS * threshold
        )
        if growing and self._clipped_readings >= CLIPPED_READINGS:
            self._warned = True
            warn(
                f"huber_threshold={threshold:g} lies far below the TD errors: it clips h on {clip_fraction:.0%} of the "
                f"batch while the largest |q(s,a)| went from {self._q_before_clipping:.3g} to {q_size:.3g}. That takes "
                "the gradient correction away and the values may diverge. Raise huber_threshold, scale the rewards "
                "down, or use QRC or QLC, which have no threshold."
            )
