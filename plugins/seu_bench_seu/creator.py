"""The MDL creator: one unit per layer is sampled per epoch, and probabilities learn from its accuracy
(paper, algorithm 4)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seu_bench.training import BestWeights, Forward
from seu_bench_kit import CreationTask
from seu_bench_seu.multinomial import MultinomialStage
from seu_bench_seu.options import CreationOptions


class MdlCreation(MultinomialStage[tuple[int, ...]]):
    """The creation of one task's path: only new units and the task's head train; the weights to keep are those of the
    lowest loss on the second half, over all paths sampled."""

    state_attributes = (*MultinomialStage.state_attributes, "best")

    def __init__(self, options: CreationOptions, task: CreationTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__("creation", task.task, options, schedule, task.images, task.seed, task.device)
        self.model = task.model
        candidates = self.model.candidates
        self.start(
            self.model.new_units(task.task),
            candidates,
            first_epochs=[
                [schedule.old_unit_epochs] * (count - is_new) + [0] * is_new
                for count, is_new in zip(candidates, self.model.has_new, strict=True)
            ],
        )
        self.best = BestWeights(self.trained)
        self.restore = options.restore

    def forward_of(self, sampled: Sequence[int]) -> Forward:
        """The super model on the sampled path."""
        self.model.set_path(self.task, sampled)

        def forward(images: torch.Tensor) -> torch.Tensor:
            return self.model.forward_single_task(images, self.task)

        return forward

    def set_mode(self, training: bool) -> None:
        """Switch the super model; frozen units refuse."""
        self.model.train(training)

    def learn(self, sampled: list[int], accuracy: float, loss: float) -> None:
        """The rule; and the best weights are kept."""
        super().learn(sampled, accuracy, loss)
        if self.restore == "best_valid":
            self.best.offer(loss)

    def result(self) -> tuple[int, ...]:
        """The most probable unit of each layer, with the best weights seen; of equal ones one by lot, or the oldest."""
        self.best.restore()
        path = []
        for probabilities in self.tables.probabilities:
            order = self.tie_order(len(probabilities))
            path.append(order[int(probabilities[order].argmax())])
        return tuple(path)
