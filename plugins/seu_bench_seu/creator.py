"""The MDL creator: one unit per layer is sampled per epoch, and probabilities learn from its accuracy
(paper, algorithm 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from seu_bench.interfaces import CreationTask
from seu_bench.loops import evaluate, train_epoch
from seu_bench.stages import BestWeights, EpochReport, Stage, cosine_rate, make_sgd, set_rate
from seu_bench_seu.mdl import MultinomialTables
from seu_bench_seu.options import CreationOptions


class MdlCreation(Stage[tuple[int, ...]]):
    """The creation of one task's path: only new units and the task's head train, on the first half of the training
    images; accuracies and the weights to keep are judged on the second."""

    def __init__(self, options: CreationOptions, task: CreationTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__("creation", task.task, schedule.epochs, task.seed, task.device)
        self.schedule = schedule
        self.options = options
        self.model = task.model
        self.train_images, self.score_images = task.images.halves()
        trained = self.model.new_units(task.task)
        self.best = BestWeights(trained)
        self.parameters = list(trained.parameters())
        self.optimizer = make_sgd(self.parameters, schedule)
        candidates = self.model.candidates
        self.tables = MultinomialTables(
            candidates,
            alpha=options.alpha,
            scope=options.update,
            normalisation=options.normalisation,
            first_epochs=[
                [schedule.old_unit_epochs] * (count - is_new) + [0] * is_new
                for count, is_new in zip(candidates, self.model.has_new, strict=True)
            ],
        )

    def run_epoch(self) -> EpochReport:
        """Sample a path, train one epoch, measure, learn."""
        path = self.tables.sample()
        self.model.set_path(self.task, path)
        set_rate(self.optimizer, cosine_rate(self.schedule, self.epoch))

        def forward(images: torch.Tensor) -> torch.Tensor:
            return self.model.forward_single_task(images, self.task)

        self.model.train()
        loss = train_epoch(
            forward,
            self.parameters,
            self.optimizer,
            self.train_images,
            self.schedule,
            self.passed,
            self.options.unsampled,
        )
        self.model.eval()
        accuracy, score_loss = evaluate(forward, self.score_images, self.schedule.batch_size, self.passed)
        self.tables.learn(path, accuracy)
        if self.options.restore == "best_valid":
            self.best.offer(score_loss)
        return EpochReport(loss, accuracy)

    def result(self) -> tuple[int, ...]:
        """The most probable unit of each layer, with the best weights seen; equal ones: the oldest."""
        self.best.restore()
        path = []
        for probabilities in self.tables.probabilities:
            order = torch.arange(len(probabilities))
            if self.options.tie_break == "random":
                order = torch.randperm(len(probabilities))
            path.append(int(order[int(probabilities[order.numpy()].argmax())]))
        return tuple(path)

    def own_state(self) -> dict[str, Any]:
        """Weights, optimiser, tables and best weights."""
        return {
            "weights": self.best.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "tables": self.tables.state_dict(),
            "best": self.best.state_dict(),
        }

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`own_state` gave."""
        self.best.module.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.tables.load_state_dict(state["tables"])
        self.best.load_state_dict(state["best"])
