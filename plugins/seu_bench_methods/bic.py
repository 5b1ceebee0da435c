"""BiC (Y. Wu et al., "Large Scale Incremental Learning", CVPR 2019)."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench.data import TaskImages
from seu_bench.training import TaskData
from seu_bench_methods.exemplars import ExemplarOptions, TaughtExemplars

#: Weight of the squared distance to the pair (1, 0), which keeps it finite where it tells all images apart.
PRIOR = 1e-4


class BiasCorrection(TaughtExemplars):
    """Distillation and exemplars; then the logits of a task's classes are scaled and shifted by two numbers (BiC).

    They are learned on as many images of each class, which training did not see, when all else is learned.
    """

    name = "bic"
    title = "BiC"
    citation = "seu_bench_kit:wu2019large"
    least = 2
    check_options = {"memory": 18}

    class Options(ExemplarOptions):
        """Options of BiC."""

        held_out: Annotated[float, Field(gt=0, lt=1)] = Field(
            0.1, description="share of the exemplars, and as many new images of each class, that correct the bias"
        )

    options: Options

    def setup(self) -> None:
        """Begin with logits as they are."""
        super().setup()
        classes = sum(self.plan.classes_per_task)
        self.buffer("pairs", torch.stack([torch.ones(classes), torch.zeros(classes)]))  # of each class
        self.held_out = torch.empty(0, dtype=torch.int64)  # positions among the task's images and exemplars

    def before_task(self, task: TaskData) -> None:
        """Make the teacher, and draw the images that are held out."""
        super().before_task(task)
        if not self.learned:
            return
        labels = torch.cat([table.labels for table in super().training_images(task)]).cpu()
        each = [(labels == label).nonzero().flatten() for label in labels.unique()]
        count = max(1, round(self.options.held_out * min(map(len, each))))
        drawn = [here[torch.randperm(len(here))[: min(count, len(here) - 1)]] for here in each]
        self.held_out = torch.cat(drawn)

    def training_images(self, task: TaskData) -> list[TaskImages]:
        """Return the task's images and the exemplars, without those held out."""
        return self._split(task)[0]

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Return cross-entropy and distillation of corrected logits; those of new classes are not yet."""
        return self.distilled_loss(x, y, self.corrected(logits))

    def after_task(self, task: TaskData) -> None:
        """Learn the pair of the task's classes, and choose exemplars."""
        old, seen = self.earlier, self.network.classes_seen
        if self.learned and seen > old:
            tables = [it.gather(torch.arange(len(it))) for it in self._split(task)[1]]
            x, y = map(torch.cat, zip(*tables, strict=True))
            with self.measuring(), torch.no_grad():
                logits = self.by_batch(lambda images: self.predict(images, 0), x)
                self.network.get_buffer("pairs")[:, old:seen] = fitted_pair(logits, y, old)[:, None]
        self.held_out = self.held_out[:0]
        super().after_task(task)

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return corrected logits ``[N, classes seen]``."""
        return self.corrected(self.network.logits(x, task))

    def corrected(self, logits: Tensor) -> Tensor:
        """Return ``alpha * logits + beta`` by each class's pair."""
        scale, shift = self.network.get_buffer("pairs")[:, : logits.shape[1]]
        found: Tensor = logits * scale + shift
        return found

    def _split(self, task: TaskData) -> tuple[list[TaskImages], list[TaskImages]]:
        """The tables to train on, and those held out."""
        kept: list[TaskImages] = []
        held: list[TaskImages] = []
        start = 0
        for table in super().training_images(task):
            here = self.held_out - start
            is_held = torch.zeros(len(table), dtype=torch.bool)
            is_held[here[(here >= 0) & (here < len(table))]] = True
            for tables, chosen in ((kept, ~is_held), (held, is_held)):
                if chosen.any():
                    tables.append(table.subset(chosen.nonzero().flatten().to(table.device)))
            start += len(table)
        return kept, held


def fitted_pair(logits: Tensor, labels: Tensor, old: int) -> Tensor:
    """Return the scale and the shift ``[2]`` of all logits ``[N, C]`` but the first ``old`` ones by which the
    cross-entropy of labels ``[N]`` is least; it is convex in them."""
    fixed, start = logits.double(), logits.new_tensor([1.0, 0.0], dtype=torch.float64)
    pair = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([pair], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = torch.cat([fixed[:, :old], pair[0] * fixed[:, old:] + pair[1]], dim=1)
        total = cross_entropy(found, labels) + PRIOR * (pair - start).square().sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimizer.step(loss)
    return pair.detach().to(logits.dtype)
