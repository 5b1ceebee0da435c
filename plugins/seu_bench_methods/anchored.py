"""Base of methods that hold weights where they were, each as strongly as it mattered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from seu_bench import Method


class Anchored(Method):
    """Adds ``s * sum_i I_i (theta_i - theta*_i)^2`` to the loss of each batch.

    Attributes:
        anchor: the weights ``theta*``, by name of the parameter; empty before the second task.
    """

    anchor: dict[str, Tensor]

    @property
    @abstractmethod
    def strength(self) -> float:
        """``s``."""

    @property
    @abstractmethod
    def importances(self) -> Mapping[str, Tensor]:
        """``I``, by name of the parameter, each of its shape."""

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
        return self.strength * torch.stack(terms).sum()

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """``2 s`` times the largest importance; ``None`` where nothing is held yet."""
        held = [float(importance.max()) for name, importance in self.importances.items() if name in trained]
        largest = 2 * self.strength * max(held, default=0.0) if self.anchor else 0.0
        return largest if largest > 0 else None
