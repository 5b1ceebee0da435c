"""A memory of images that is at any time a uniform sample of all that it was shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class Reservoir:
    """Images with labels, tasks and the logits that they had (J. Vitter, "Random Sampling with a Reservoir", 1985).

    Args:
        capacity: images at most.
        shape: channels, height and width of an image as the network gets it.
        widest: outputs of the widest head.
        device: where images are kept; tasks stay on the CPU, where a model looks at them.
    """

    def __init__(self, capacity: int, shape: tuple[int, int, int], widest: int, device: torch.device) -> None:
        self.capacity = capacity
        self.seen = 0
        self.images = torch.zeros(capacity, *shape, device=device)
        self.labels = torch.zeros(capacity, dtype=torch.int64, device=device)
        self.tasks = torch.zeros(capacity, dtype=torch.int64)
        self.logits = torch.zeros(capacity, widest, device=device)

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def add(self, images: Tensor, labels: Tensor, task: int, logits: Tensor) -> None:
        """Show a batch: images ``[N, C, H, W]``, labels ``[N]``, logits ``[N, classes]``."""
        numbers = torch.arange(self.seen, self.seen + len(labels))
        places = torch.where(numbers < self.capacity, numbers, (torch.rand(len(labels)) * (numbers + 1)).long())
        for position, place in enumerate(places.tolist()):  # one by one: a later image may take an earlier one's place
            if place < self.capacity:
                self.images[place] = images[position]
                self.labels[place] = labels[position]
                self.tasks[place] = task
                self.logits[place].zero_()[: logits.shape[1]] = logits[position]
        self.seen += len(labels)

    def draw(self, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw images, labels, tasks and logits, ``count`` at most, none twice."""
        chosen = torch.randperm(len(self))[:count]
        there = chosen.to(self.images.device)
        return self.images[there], self.labels[there], self.tasks[chosen], self.logits[there]

    def state_dict(self) -> dict[str, Any]:
        """Return the images that are there, as copies, for the memory itself changes with every batch."""
        return {"seen": self.seen, **{name: held[: len(self)].clone() for name, held in self._tensors().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, on the memory's own devices."""
        self.seen = state["seen"]
        for name, held in self._tensors().items():
            held[: len(self)] = state[name]

    def _tensors(self) -> dict[str, Tensor]:
        return {"images": self.images, "labels": self.labels, "tasks": self.tasks, "logits": self.logits}
