"""DER++ (P. Buzzega et al., "Dark Experience for General Continual Learning", NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench import Method, Reservoir
from seu_bench.config import BackboneOptions, SelectingOptions


class DarkReplay(Method):
    """Dark experience replay: labels and logits of a reservoir (DER++, Buzzega et al. 2020)."""

    name = "derpp"
    title = "DER++"
    citation = "seu_bench_kit:buzzega2020dark"
    check_options = {"backbone": "mlp", "memory": 20, "batch_size_mem": 8}

    class Options(BackboneOptions, SelectingOptions):
        """Options of DER++ (equation 6)."""

        id_names: ClassVar[Mapping[str, str]] = {"memory": "mem_size"}

        memory: PositiveInt = Field(200, description="images kept")
        batch_size_mem: PositiveInt = Field(32, description="images replayed with each batch, twice")
        alpha: NonNegativeFloat = Field(0.1, description="weight of the squared distance to remembered logits")
        beta: NonNegativeFloat = Field(0.5, description="weight of the cross-entropy of remembered labels")

    options: Options

    def setup(self) -> None:
        """Begin with an empty reservoir."""
        self.memory = Reservoir(self.options.memory)

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """``CE(x, y) + alpha * |f(x') - logits'|^2 + beta * CE(x'', y'')``; then the reservoir sees the batch."""
        loss = cross_entropy(logits, y)
        if len(self.memory):
            old = self.memory.draw(self.options.batch_size_mem)
            present = self.replay(old.x, old.task)
            width = min(present.shape[1], old.logits.shape[1])
            # Heads of other tasks may be narrower, and classes that came later were not there.
            there = old.logits[:, :width] > torch.finfo(present.dtype).min
            change = torch.where(there, present[:, :width] - old.logits[:, :width], 0)
            loss = loss + self.options.alpha * change.square().sum() / there.sum()
            old = self.memory.draw(self.options.batch_size_mem)
            loss = loss + self.options.beta * cross_entropy(self.replay(old.x, old.task), old.y)
        self.memory.add(x=x, y=y, task=task, logits=logits)
        return loss
