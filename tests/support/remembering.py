"""Strategies with a state of their own that changes with every batch, each named in no list: what it remembers, it
forgets whenever it is resumed, unless a subclass says what to keep."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench.training.strategy import StagedStrategy


class Rehearsing(StagedStrategy):
    """Learns the images of a reservoir beside each batch, which replaces some of them in place."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.reservoir: list[tuple[Tensor, int, int]] = []
        self.seen = 0

    def criterion(self) -> Tensor:
        """The batch's loss, and that of what is remembered."""
        loss = super().criterion()
        if not self.is_training:
            return loss
        for image, label, task in self.reservoir:
            logits = self.model.forward_single_task(image[None], task)
            loss = loss + cross_entropy(logits, torch.tensor([label])) / len(self.reservoir)
        for image, label in zip(self.mb_x, self.mb_y.tolist(), strict=True):
            self.seen += 1
            place = int(torch.randint(self.seen, ()))
            if len(self.reservoir) < 4:
                self.reservoir.append((image, label, int(self.mb_task_id[0])))
            elif place < len(self.reservoir):
                self.reservoir[place] = (image, label, int(self.mb_task_id[0]))
        return loss


class Optimizing(StagedStrategy):
    """Steps with an optimiser of its own, over what all tasks share, after each of the stage's."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        shared = [weight for name, weight in self.model.named_parameters() if name.startswith("backbone")]
        self.second = torch.optim.Adam(shared, lr=1e-3)

    def optimizer_step(self) -> None:
        """Both, along one gradient."""
        super().optimizer_step()
        self.second.step()


class Diced(StagedStrategy):
    """Weighs every batch by what a random generator of its own draws."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.generator = torch.Generator().manual_seed(self.seed)

    def criterion(self) -> Tensor:
        """The batch's loss, times a number."""
        loss = super().criterion()
        return loss * torch.rand((), generator=self.generator) if self.is_training else loss


#: What each has to name to be resumed.
REMEMBERED: dict[type[StagedStrategy], tuple[str, ...]] = {
    Rehearsing: ("reservoir", "seen"),
    Optimizing: ("second",),
    Diced: ("generator",),
}


def repaired(strategy: type[StagedStrategy]) -> type[StagedStrategy]:
    """One of them that names what it remembers."""
    return type(f"Repaired{strategy.__name__}", (strategy,), {"state_attributes": REMEMBERED[strategy]})
