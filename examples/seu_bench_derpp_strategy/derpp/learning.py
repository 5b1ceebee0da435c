"""The heavy half: imported when a run or a cost estimate begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from derpp import DerOptions
from derpp.reservoir import Reservoir
from seu_bench.data import StreamPlan, batch_bounds
from seu_bench.training import (
    Cost,
    KeptImages,
    StageCost,
    StagedStrategy,
    StrategyContext,
    TaskData,
    backbone_model,
    checked_options,
    fixed_size_cost,
)


class DarkReplay(StagedStrategy):
    """DER++: each batch also pulls remembered images to their labels and to the logits that they had.

    P. Buzzega et al., "Dark Experience for General Continual Learning", NeurIPS 2020, equation 6.
    """

    state_attributes = ("memory",)

    def __init__(self, *, options: DerOptions, plan: StreamPlan, **more: Any) -> None:
        super().__init__(**more)
        self.options = options
        self.plan = plan
        self.widths = torch.tensor(plan.classes_per_task)
        shape = plan.channels, plan.height, plan.width
        self.memory = Reservoir(options.memory, shape, max(plan.classes_per_task), self.device)

    def trained_module(self, task: TaskData) -> nn.Module:
        """All of the model: replayed images reach the heads of earlier tasks."""
        return self.model

    def criterion(self) -> Tensor:
        """The batch's loss; in training with the two terms of replay, after which the memory sees the batch."""
        loss = super().criterion()
        if not self.is_training:
            return loss
        if len(self.memory):
            loss = loss + self.options.alpha * self.logit_distance() + self.options.beta * self.label_loss()
        self.memory.add(self.mb_x, self.mb_y, int(self.mb_task_id[0]), self.mb_output.detach())
        return loss

    def logit_distance(self) -> Tensor:
        """Mean squared distance of logits to remembered ones."""
        x, _, tasks, logits = self.memory.draw(self.options.batch_size_mem)
        output = self.replayed(x, tasks)
        there = torch.arange(output.shape[1]) < self.widths[tasks, None]  # narrower heads are padded
        return (output - logits[:, : output.shape[1]])[there.to(output.device)].square().mean()

    def label_loss(self) -> Tensor:
        """Mean cross-entropy of remembered labels."""
        x, labels, tasks, _ = self.memory.draw(self.options.batch_size_mem)
        return functional.cross_entropy(self.replayed(x, tasks), labels)

    def replayed(self, x: Tensor, tasks: Tensor) -> Tensor:
        """Logits ``[N, widest head present]``, and the images are counted."""
        self.passed(len(x))
        logits: Tensor = self.model(x, tasks)
        return logits

    def kept(self) -> Mapping[str, Any]:
        """The state has images as float32; as they are stored, they take 8 bits."""
        count = len(self.memory)
        by_task = torch.bincount(self.memory.tasks[:count], minlength=len(self.widths)).tolist()
        return {
            "model": self.model,
            "exemplars": [KeptImages(images, self.plan.stored_shape(task)) for task, images in enumerate(by_task)],
            "logits": self.memory.logits[:count],
        }


def build(context: StrategyContext) -> DarkReplay:
    """Build the strategy of a run."""
    options = checked_options(context, DerOptions)
    return DarkReplay.of(context, model=backbone_model(context), options=options, plan=context.plan)


def cost(context: StrategyContext) -> Cost:
    """Estimate a run: training as usual, the replayed images, and the memory."""
    options, plan = checked_options(context, DerOptions), context.plan
    schedule = options.applied_to(context.protocol.training)
    widest = max(plan.classes_per_task)
    seen = 0
    replays: list[StageCost] = []
    most: list[int] = []
    least: list[int] = []
    for index, task in enumerate(plan.tasks):
        replayed = 0
        for start, stop in batch_bounds(task.num_train, schedule.batch_size, join=True) * schedule.epochs:
            replayed += 2 * min(options.batch_size_mem, options.memory, seen)
            seen += stop - start
        replays.append(StageCost("training", index, replayed, 0))
        # Images of different sizes: which of them are kept is drawn by lot.
        sizes = [KeptImages(1, plan.stored_shape(earlier)).nbytes for earlier in range(index + 1)]
        for bounds, size in ((most, max(sizes)), (least, min(sizes))):
            bounds.append(min(seen, options.memory) * (size + 4 * widest))
    plain = fixed_size_cost(context, replays, kept_copies=0)
    return replace(
        plain,
        memory_bytes=tuple(model + images for model, images in zip(plain.memory_bytes, most, strict=True)),
        memory_bytes_min=tuple(model + images for model, images in zip(plain.memory_bytes, least, strict=True)),
    )
