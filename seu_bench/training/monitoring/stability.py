"""Whether SGD with momentum can follow a quadratic penalty, or must diverge along its steepest direction."""

from __future__ import annotations

from dataclasses import dataclass

from seu_bench.config.protocol import Schedule


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
