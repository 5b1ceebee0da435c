"""MIR (R. Aljundi et al., "Online Continual Learning with Maximally Interfered Retrieval", NeurIPS 2019)."""

from __future__ import annotations

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from seu_bench import Balanced, Method, Reservoir
from seu_bench.training import TaskData
from seu_bench_methods.replay import ReplayOptions, make_memory


class Mir(Method):
    """Replay of what is interfered with most (Aljundi et al. 2019)."""

    name = "mir"
    title = "MIR"
    citation = "seu_bench_kit:aljundi2019online"
    online = True  # its memory then needs no end of a task

    class Options(ReplayOptions):
        """Options of maximally interfered retrieval."""

        subsample: PositiveInt = Field(50, description="images of the memory to choose from (Aljundi et al. 2019)")

    options: Options

    def setup(self) -> None:
        """Begin with an empty memory, in which each label has the same share."""
        self.memory = make_memory(self.options, self.plan, "label")

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """``CE(x, y) + CE(x', y')``, where of a sample of the memory ``x'`` are those images whose loss a step of plain
        gradient descent on ``CE(x, y)`` would raise most."""
        loss, count = cross_entropy(logits, y), self.options.batch_size_mem or self.train_mb_size
        old = self.memory.draw(max(self.options.subsample, count)) if len(self.memory) else None
        if isinstance(self.memory, Reservoir):
            self.memory.add(x=x, y=y, task=task)
        if old is None:
            return loss
        named = {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        gradients = torch.autograd.grad(loss, list(named.values()), retain_graph=True, materialize_grads=True)
        rate = self.optimizer.param_groups[0]["lr"]
        moved = {name: named[name] - rate * gradient for name, gradient in zip(named, gradients, strict=True)}
        # Two masks of dropout would differ by more than the step.
        with torch.no_grad(), self.measuring():
            before = cross_entropy(self.replay(old.x, old.task), old.y, reduction="none")
            after = cross_entropy(functional_call(self.model, moved, (old.x, old.task)), old.y, reduction="none")
        self.count_images(len(old))
        chosen = (after - before).topk(min(count, len(old))).indices
        return loss + cross_entropy(self.replay(old.x[chosen], old.task[chosen.cpu()]), old.y[chosen])

    def after_task(self, task: TaskData) -> None:
        """Keep images of the task."""
        if isinstance(self.memory, Balanced):
            self.memory.add_images(task.train)
