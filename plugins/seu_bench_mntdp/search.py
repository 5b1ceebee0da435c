"""The search of MNTDP-S: a path is drawn for each batch, trained on it, and its loss is the reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from seu_bench.models import RepeatedBatches
from seu_bench.training import (
    EpochReport,
    Stage,
    StagedStrategy,
    TaskData,
    clip_gradients,
    cosine_rate,
    set_rate,
)
from seu_bench_mntdp.candidate import Choices, Path
from seu_bench_mntdp.model import ModularResNet
from seu_bench_mntdp.policy import PathPolicy


class PathSearch(Stage[Choices]):
    """Learn where the related path's modules are reused, while new ones are trained.

    At each place the options are the module of the related path and a new one; a head of another number of classes is
    no option. The reward of a batch is ``-cross-entropy - new_module_cost * new modules``, before the step of the new
    modules on the same batch. The result is the most probable path, of equals that which reuses.

    Args:
        strategy: that learns; the candidate that is tried has a new module at every place.
        model: of the strategy.
        data: of the task.
        related: path of the related task.
        new_module_cost: reward lost for each new module.
        path_learning_rate: of the distribution over paths.
    """

    def __init__(
        self,
        strategy: StagedStrategy,
        model: ModularResNet,
        data: TaskData,
        related: Path,
        new_module_cost: float,
        path_learning_rate: float,
    ) -> None:
        self.schedule = strategy.schedule
        super().__init__(
            "search", data.index, self.schedule.epochs, strategy.seed_for("search", data.index), strategy.device
        )
        self.strategy = strategy
        self.model = model
        self.data = data
        self.new_module_cost = new_module_cost
        self.choices: list[Choices] = [(number, None) for number in related]
        if not model.can_reuse_head(model.unit_tasks[-1][related[-1]]):
            self.choices[-1] = (None,)
        self.policy = PathPolicy([len(options) for options in self.choices], path_learning_rate)
        self.trained = model.trainable_module(data.index)
        strategy.begin_training(self.trained, self.schedule)

    def run_epoch(self) -> EpochReport:
        """One epoch; each batch has a path of its own."""
        strategy, total, correct = self.strategy, 0.0, 0
        if strategy.lr_schedule == "cosine":
            set_rate(strategy.optimizer, cosine_rate(self.schedule, self.epoch))
        self.model.train()
        with RepeatedBatches() as repeated:
            for x, y in self.data.train.batches(self.schedule.batch_size, shuffle=True):
                drawn = self.policy.draw()
                path = self._path(drawn)
                self.model.choose(path)
                repeated.begin(path)
                logits = self.model.forward_single_task(x, self.task)
                loss = nn.functional.cross_entropy(logits, y)
                if loss.requires_grad:  # there is something new
                    self._step(loss)
                repeated.end(len(y))
                value = float(loss.detach())
                self.policy.learn(drawn, -value - self.new_module_cost * sum(choice is None for choice in path))
                total, correct = total + value * len(y), correct + int((logits.detach().argmax(dim=1) == y).sum())
                self.passed(len(y))
        return EpochReport(total / len(self.data.train), correct / len(self.data.train))

    def result(self) -> Choices:
        """The most probable path."""
        return self._path(self.policy.most_probable())

    def get_extra_state(self) -> dict[str, Any]:
        """Weights, optimiser and the distribution."""
        return {
            "weights": self.trained.state_dict(),
            "optimizer": self.strategy.optimizer.state_dict(),
            "policy": self.policy.state_dict(),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.trained.load_state_dict(state["weights"])
        self.strategy.optimizer.load_state_dict(state["optimizer"])
        self.policy.load_state_dict(state["policy"])

    def _path(self, drawn: list[int]) -> Choices:
        return tuple(options[at] for options, at in zip(self.choices, drawn, strict=True))

    def _step(self, loss: Any) -> None:
        optimizer, limit = self.strategy.optimizer, self.schedule.clip_norm
        optimizer.zero_grad()
        loss.backward()
        if limit is not None:
            clip_gradients(list(self.trained.parameters()), limit)
        optimizer.step()
