"""What a stage notes: clipped gradients, a penalty too steep for SGD, rewards that guessing would reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seu_bench.config.protocol import Schedule

#: Probability that a search whose networks all guess has any reward that is called above chance.
LEVEL = 0.05


def guessing_probability(accuracy: float, labels: Tensor) -> float:
    """The probability that guessing the most frequent class is right at least as often.

    Guessing is binomial with that class's share among the images: 1 / number of classes where these are balanced, and
    what a network reaches that always gives the same answer where they are not.

    Args:
        accuracy: in [0, 1], measured on ``labels``.
        labels: ``[N]``, of the images that were scored.

    Returns:
        The p-value of the one-sided binomial test, in [0, 1].

    Example:
        ``guessing_probability(0.9, torch.arange(100) % 2) < 1e-10``
    """
    from scipy.special import bdtrc  # the binomial's tail; scipy.stats takes long to import

    count = len(labels)
    right = round(accuracy * count)
    if not right:
        return 1.0
    share = float(torch.bincount(labels).max()) / count
    return float(bdtrc(right - 1, count, share))


def chance_share(probabilities: Sequence[float]) -> float | None:
    """The share of rewards that are not distinguishable from guessing, at :data:`LEVEL` over all of them (Bonferroni).

    Args:
        probabilities: of each reward, by :func:`guessing_probability`.

    Returns:
        A share in [0, 1], 1 where the rewards stayed at chance; ``None`` where there are no rewards.
    """
    if not probabilities:
        return None
    count = len(probabilities)
    return sum(probability * count > LEVEL for probability in probabilities) / count


class ClippedSteps:
    """Count of the steps of a stage, and of those whose gradient was clipped.

    The latter is a number on the device until somebody asks for it: no step waits for an accelerator.

    Example:
        ::

            counted = ClippedSteps()
            with counted.counting():
                clip_gradients(parameters, 5.0)
            print(counted.share)
    """

    def __init__(self) -> None:
        self._steps: int | None = 0
        self._clipped: Tensor | int = 0

    @property
    def share(self) -> float | None:
        """Clipped steps of all, in [0, 1]; ``None`` where nothing clips, or not all steps were counted."""
        return int(self._clipped) / self._steps if self._steps else None

    def add(self, clipped: Tensor | bool) -> None:
        """Count a step; ``clipped`` is whether its gradient was, as a tensor where it is not on the CPU."""
        if self._steps is not None:
            self._steps += 1
            self._clipped = self._clipped + clipped

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the steps that are clipped within a ``with`` block, but not those inside an inner one."""
        token = _COUNTER.set(self)
        try:
            yield
        finally:
            _COUNTER.reset(token)

    def state_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"steps": self._steps, "clipped": int(self._clipped)}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Restore what :meth:`state_dict` returned; ``None``: no share is known."""
        self._steps, self._clipped = (None, 0) if state is None else (state["steps"], state["clipped"])


#: What the code that runs now counts into.
_COUNTER: ContextVar[ClippedSteps | None] = ContextVar("clipped_steps", default=None)


def count_step(clipped: Tensor | bool) -> None:
    """Count a step for the stage that runs now, if any does."""
    counter = _COUNTER.get()
    if counter is not None:
        counter.add(clipped)


@dataclass(frozen=True)
class Stability:
    """Step of a stage along the steepest direction of its penalty, beside the bound of stability.

    SGD with heavy-ball momentum m, ``v <- m v + h x; x <- x - rate v``, converges on the quadratic ``h/2 x^2`` if
    ``0 < rate * h < 2 (1 + m)``, and diverges beyond (B. T. Polyak, "Some methods of speeding up the convergence of
    iteration methods", 1964). Clipping the gradient bounds what then happens, and learns nothing.

    Attributes:
        value: learning rate of the first epoch times the largest second derivative of the penalty.
        bound: ``2 (1 + momentum)``.
        strength: what to lower beside the learning rate: the option of the penalty's strength.

    Example:
        ``Stability.of(schedule, 2 * weight, "weight").holds``
    """

    value: float
    bound: float
    strength: str

    @classmethod
    def of(cls, schedule: Schedule, curvature: float, strength: str) -> Stability:
        """Return the stability of a schedule's SGD on a penalty whose largest second derivative is ``curvature``."""
        return cls(schedule.learning_rate * curvature, 2 * (1 + schedule.momentum), strength)

    @property
    def holds(self) -> bool:
        """Whether the steps are small enough."""
        return self.value < self.bound

    @property
    def advice(self) -> str:
        """What is wrong, and what to do about it."""
        return (
            f"learning rate x largest curvature of the penalty is {self.value:.3g}, and SGD is stable below "
            f"{self.bound:.3g}; lower {self.strength} or learning_rate, or let `seu-bench tune` choose them"
        )
