"""Base of methods that hold weights where they were, each as strongly as it mattered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seu_bench import Method
from seu_bench.config import BackboneOptions
from seu_bench.config.protocol import Schedule


class PenaltyOptions(BackboneOptions):
    """Options of a method with a quadratic penalty, whose strength is the option :attr:`strength`."""

    strength: ClassVar[str]

    bounded: bool = Field(
        False,
        description="lower the strength where a step would not be stable; true where it is neither given nor tuned",
    )

    @model_validator(mode="before")
    @classmethod
    def _bound_a_default(cls, values: Any) -> Any:
        return values if {cls.strength, "bounded"} & set(values) else {**values, "bounded": True}


class Anchored(Method):
    """Adds ``s * sum_i I_i (theta_i - theta*_i)^2`` to the loss of each batch.

    With the option ``bounded`` ``s`` is, in each training, no more than leaves the learning rate times the largest
    curvature at half the bound of stability, ``1 + momentum``.

    Attributes:
        anchor: the weights ``theta*``, by name of the parameter; empty before the second task.
    """

    anchor: dict[str, Tensor]
    options: Any

    @property
    @abstractmethod
    def strength(self) -> float:
        """``s``."""

    @property
    @abstractmethod
    def importances(self) -> Mapping[str, Tensor]:
        """``I``, by name of the parameter, each of its shape."""

    @property
    def penalty_strength(self) -> str:  # type: ignore[override]
        """The option of ``s``."""
        return str(self.options.strength)

    def weights(self) -> dict[str, nn.Parameter]:
        """Return the weights that may be held, by name: all that train."""
        return {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}

    def copy_weights(self) -> dict[str, Tensor]:
        """Return copies of :meth:`weights`."""
        return {name: weight.detach().clone() for name, weight in self.weights().items()}

    def zeros(self) -> dict[str, Tensor]:
        """Return a zero for each number of :meth:`weights`."""
        return {name: torch.zeros_like(weight, requires_grad=False) for name, weight in self.weights().items()}

    def penalty(self) -> Tensor | None:
        """The sum over all parameters; nothing before the second task, or with strength 0."""
        if not self.strength or not self.anchor:
            return None
        held, anchor, later = self.importances, self.anchor, self.network.later_weights()
        terms = [
            (held[name] * (weight - anchor[name]).square()).sum()
            for name, weight in self.model.named_parameters()
            if name in held and weight not in later  # a sum of more terms, if only of 0, is rounded otherwise
        ]
        return self.strength * self.penalty_share * torch.stack(terms).sum()

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """Also bound the strength, for the weights that train now."""
        super().begin_training(module, schedule)
        self.penalty_share, trained = 1.0, {*module.parameters()}
        names = {name for name, weight in self.model.named_parameters() if weight in trained}
        step, largest = schedule.learning_rate * (self.penalty_curvature(names) or 0.0), 1 + schedule.momentum
        if self.options.bounded and schedule.optimizer == "sgd" and step > largest:
            self.penalty_share = largest / step

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """``2 s`` times the largest importance, ``s`` as bounded; ``None`` where nothing is held yet."""
        held = [importance.max() for name, importance in self.importances.items() if name in trained]
        if not self.anchor or not held:
            return None
        largest = 2 * self.strength * self.penalty_share * float(torch.stack(held).max())
        return largest if largest > 0 else None
