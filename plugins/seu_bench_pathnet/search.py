"""The search of a task's path, which trains the weights that stay."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from seu_bench.training import (
    EpochReport,
    StagedStrategy,
    TaskData,
    TrainingStage,
    cosine_rate,
    evaluate,
    set_rate,
)
from seu_bench_pathnet.evolution import Tournament, Turn, turns
from seu_bench_pathnet.model import ModularNetwork


class PathSearch(TrainingStage):
    """Generations of two paths that are trained in turn, each by an optimiser of its own, on weights that they share.

    With ``restore=best_valid`` (the published code) a path's loss is the lowest on the validation images after any of
    its epochs, the champion is the path of the lowest loss in all generations, and the weights that had it are restored
    at the end of each. With ``restore=last``, and without validation images (the paper), it is the share of training
    images that were wrong while it was trained in this generation, and the weights stay as they are.

    Afterwards the champion is the path that is tried.

    Args:
        strategy: that learns; the task's path must not be kept.
        task: to learn.
        active: indices of each layer in a path.
        generations: tournaments.
    """

    def __init__(self, strategy: StagedStrategy, task: TaskData, active: int, generations: int) -> None:
        super().__init__(strategy, task)
        self.turns = turns(strategy.schedule.epochs, generations)
        self.name, self.epochs = "search", len(self.turns)
        model = strategy.model
        if not isinstance(model, ModularNetwork):
            raise TypeError(f"paths are searched in a ModularNetwork, not in a {type(model).__name__}")
        self.model = model
        self.errors: list[float] = []  # of the present contender's epochs in this generation
        with self.randomness.active():
            self.tournament = Tournament.drawn(len(model.layers), model.modules_per_layer, active)

    @property
    def selects(self) -> bool:
        """Whether validation images decide."""
        return self.strategy.restore == "best_valid" and self.data.valid is not None and len(self.data.valid) > 0

    def run_epoch(self) -> EpochReport:
        """One epoch of one path; after the second path's last in a generation the champion overwrites the other."""
        strategy, turn = self.strategy, self.turns[self.epoch]
        if turn.begins:
            self._begin(turn)
        if strategy.lr_schedule == "cosine":
            set_rate(strategy.optimizer, cosine_rate(strategy.schedule, turn.epoch))
        strategy.training_mode()
        report = self.train_epoch()
        self.judge(turn, report)
        if turn.ends and turn.contender:
            self._end_generation()
        return report

    def judge(self, turn: Turn, report: EpochReport) -> None:
        """Offer the loss of the epoch, or of the generation, to the tournament."""
        if self.selects and self.data.valid is not None:
            self.model.eval()
            forward = partial(self.model.forward_single_task, task_label=self.task)
            accuracy, loss = evaluate(forward, self.data.valid, self.strategy.eval_mb_size, self.passed)
            self.rewarded(accuracy, self.data.valid)
            if self.tournament.offer(turn.contender, loss):
                self.best.keep()
            return
        accuracy = report.accuracy or 0.0
        self.rewarded(accuracy, self.data.train)
        self.errors.append(1 - accuracy)
        if turn.ends:
            self.tournament.offer(turn.contender, sum(self.errors) / len(self.errors))
            self.errors = []

    def result(self) -> None:
        """Try the champion's path, with the weights that it was chosen for."""
        self.best.restore()
        self.model.try_path(self.task, self.tournament.paths[self.tournament.champion])

    def get_extra_state(self) -> dict[str, Any]:
        """Weights of all that may train, the best ones, the tournament, and the optimiser of a turn that goes on."""
        optimizer = self.strategy.optimizer.state_dict() if self._goes_on else None
        return {
            "weights": self.module.state_dict(),
            "optimizer": optimizer,
            "best": self.best.state_dict(),
            "batch_flops": dict(self.batch_flops),
            "tournament": self.tournament.state_dict(),
            "errors": list(self.errors),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.tournament.load_state_dict(state["tournament"])
        self.errors = list(state["errors"])
        self.best.load_state_dict(state["best"])
        self.module.load_state_dict(state["weights"])
        if self._goes_on:
            self._begin(self.turns[self.epoch])
            self.strategy.optimizer.load_state_dict(state["optimizer"])
            self.batch_flops = dict(state["batch_flops"])

    @property
    def _goes_on(self) -> bool:
        """Whether the next epoch continues a turn."""
        return self.epoch < self.epochs and not self.turns[self.epoch].begins

    def _begin(self, turn: Turn) -> None:
        self.model.try_path(self.task, self.tournament.paths[turn.contender])
        self.strategy.begin_training(self.model.trainable_module(self.task), self.schedule)
        self.batch_flops = {}  # another path costs something else

    def _end_generation(self) -> None:
        self.best.restore()
        self.tournament.breed(self.model.modules_per_layer)
        if not self.selects:
            self.tournament.forget()
