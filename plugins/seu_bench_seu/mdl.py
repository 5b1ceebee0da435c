"""Multinomial distribution learning: the rule that both the searcher and the creator sample and learn by.

Each place (an edge, or a layer) has a probability P, an accuracy record A and an epoch record E per candidate. An
epoch samples one candidate per place; its A becomes the accuracy measured, its E grows by one. A candidate is rewarded
for each other that it beats with fewer epochs, and penalised for each that beats it with fewer (paper, equations 5-10
and 15-20; Zheng et al., ICCV 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Scope: TypeAlias = Literal["sampled", "all"]
Normalisation: TypeAlias = Literal["sum", "softmax"]

#: Smallest probability before dividing by the sum: penalties can take a probability below zero.
FLOOR = 1e-8


def reward_minus_penalty(accuracy: Vector, epochs: Vector) -> Vector:
    """For each candidate l: ``#{k: E_l < E_k and A_l > A_k} - #{k: E_l > E_k and A_l < A_k}`` (equations 6, 7)."""
    fewer = epochs[:, None] < epochs[None, :]
    better = accuracy[:, None] > accuracy[None, :]
    rewards: Vector = (fewer & better).sum(axis=1).astype(np.float64)
    penalties: Vector = (fewer & better).sum(axis=0).astype(np.float64)
    return rewards - penalties


def updated(
    probabilities: Vector,
    accuracy: Vector,
    epochs: Vector,
    sampled: int,
    *,
    alpha: float = 0.01,
    scope: Scope = "sampled",
    normalisation: Normalisation = "sum",
) -> Vector:
    """The probabilities after an epoch whose A and E are recorded already.

    Args:
        probabilities, accuracy, epochs: ``[K]`` of one place.
        sampled: the candidate that the epoch trained.
        scope: which candidates the rule moves: the sampled one (the printed equation 8) or all (the published code).
        normalisation: ``sum`` divides by the sum (the printed equation 9), ``softmax`` is what its text and code say.
    """
    step = alpha * reward_minus_penalty(accuracy, epochs)
    if scope == "sampled":
        step = np.where(np.arange(len(step)) == sampled, step, 0.0)
    moved = probabilities + step
    if normalisation == "softmax":
        exponentials = np.exp(moved - moved.max())
        return np.asarray(exponentials / exponentials.sum())
    moved = np.maximum(moved, FLOOR)
    return np.asarray(moved / moved.sum())


class MultinomialTables:
    """P, A and E of all places of one search.

    Args:
        candidates: number of candidates of each place.
        first_epochs: epoch records to start from, per place; zeros by default.
    """

    def __init__(
        self,
        candidates: Sequence[int],
        *,
        alpha: float,
        scope: Scope,
        normalisation: Normalisation,
        first_epochs: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.alpha = alpha
        self.scope: Scope = scope
        self.normalisation: Normalisation = normalisation
        self.probabilities: list[Vector] = [np.full(count, 1 / count) for count in candidates]
        self.accuracy: list[Vector] = [np.zeros(count) for count in candidates]
        starts = [[0] * count for count in candidates] if first_epochs is None else first_epochs
        self.epochs: list[Vector] = [np.asarray(start, dtype=np.float64) for start in starts]

    def sample(self) -> list[int]:
        """One candidate per place, by torch's global generator."""
        return [int(torch.multinomial(torch.from_numpy(p), 1)) for p in self.probabilities]

    def learn(self, sampled: Sequence[int], accuracy: float) -> None:
        """Record an epoch and move the probabilities."""
        for place, candidate in enumerate(sampled):
            self.accuracy[place][candidate] = accuracy
            self.epochs[place][candidate] += 1
            self.probabilities[place] = updated(
                self.probabilities[place],
                self.accuracy[place],
                self.epochs[place],
                candidate,
                alpha=self.alpha,
                scope=self.scope,
                normalisation=self.normalisation,
            )

    def state_dict(self) -> dict[str, Any]:
        """Tensors only."""
        return {
            name: [torch.from_numpy(vector.copy()) for vector in getattr(self, name)]
            for name in ("probabilities", "accuracy", "epochs")
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name in ("probabilities", "accuracy", "epochs"):
            setattr(self, name, [tensor.numpy().copy() for tensor in state[name]])
