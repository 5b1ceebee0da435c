"""What a stage notes: a penalty too steep for SGD, rewards that guessing would reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seu_bench.config.protocol import Schedule

#: Probability that a search whose networks all guess has any reward that is called above chance.
LEVEL = 0.05


def guessing_probability(accuracy: float, labels: Tensor) -> float:
    """Return the probability that guessing the most frequent class of ``labels`` ``[N]`` is right at least as often.

    It is the p-value of the one-sided binomial test of an accuracy in [0, 1] against that class's share, which a
    constant answer reaches.
    """
    from scipy.special import bdtrc  # the binomial's tail; scipy.stats takes long to import

    count = len(labels)
    right = round(accuracy * count)
    return float(bdtrc(right - 1, count, float(torch.bincount(labels).max()) / count)) if right else 1.0


def chance_share(probabilities: Sequence[float]) -> float | None:
    """Return the share of rewards not distinguishable from guessing, at :data:`LEVEL` over all of them (Bonferroni).

    Args:
        probabilities: of each reward, by :func:`guessing_probability`.

    Returns:
        A share in [0, 1], 1 where the rewards stayed at chance; ``None`` where there are no rewards.
    """
    count = len(probabilities)
    return sum(probability * count > LEVEL for probability in probabilities) / count if count else None


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
