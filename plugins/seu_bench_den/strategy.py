"""DEN as a strategy: selection, retraining, expansion and splitting, each a stage of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.config import Schedule
from seu_bench.errors import RunError
from seu_bench.models import GrowingNetwork
from seu_bench.training import (
    EpochlessStage,
    Phase,
    Stage,
    StagedStrategy,
    StrategyContext,
    TaskData,
    checked_options,
    make_sgd,
)
from seu_bench.utils import RandomState
from seu_bench_den import DenOptions
from seu_bench_den.networks import empty_network, first_units
from seu_bench_den.proximal import useful_units
from seu_bench_den.splitting import OldLayer, distance, drifted_units, split_units
from seu_bench_den.stages import DenStage, Rule, expansion_rule, first_rule, pulled_rule, selection_rule
from seu_bench_den.subgraph import reached_units, subgraph_masks


class NotNeeded(EpochlessStage[float]):
    """A stage that a task can do without."""

    def result(self) -> float:
        """Nothing was trained."""
        return 0.0


class Den(StagedStrategy):
    """Yoon et al., ICLR 2018.

    Args:
        model: without units.
        den: options.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.
    """

    model: GrowingNetwork
    penalty_strength = "drift"

    def __init__(self, *, model: GrowingNetwork, den: DenOptions, **options: Any) -> None:
        super().__init__(model=model, **options)
        self.den = den
        #: Layers as of the task before, and units that are retrained; empty between two tasks.
        self.old: list[OldLayer] = []
        self.reached: list[Tensor] = []
        #: Copies that the task has of units, by layer.
        self.copies: list[int] = []
        self._rule = Rule({})

    # ------------------------------------------------------------------ phases

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training alone for the first task; selection, retraining, expansion, drift and splitting for a later one."""
        if not task.index:
            return [Phase(lambda: self._first(task), lambda _: self._end())]
        return [
            Phase(lambda: self._selection(task), lambda _: self._select(task)),
            Phase(lambda: self._retraining(task), lambda loss: self._expand(task, loss)),
            Phase(lambda: self._expansion(task), lambda _: self._prune(task)),
            Phase(lambda: self._drifting(task), lambda _: self._split(task)),
            Phase(lambda: self._splitting(task), lambda _: self._end()),
        ]

    def _first(self, task: TaskData) -> DenStage:
        self._grow(task, first_units(self.model))
        return self._trained(task, "training", first_rule(self.model))

    def _selection(self, task: TaskData) -> DenStage:
        self._grow(task, [0] * len(self.model.layers))
        rule = selection_rule(self.model, task.index)
        return self._trained(task, "selection", rule, self.den.selection_epochs, last=True)

    def _select(self, task: TaskData) -> None:
        self.old = OldLayer.of(self.model, task.index - 1)
        self.reached = reached_units(self.model, task.index)

    def _retraining(self, task: TaskData) -> DenStage:
        return self._trained(task, "training", Rule(subgraph_masks(self.model, task.index, self.reached)))

    def _expand(self, task: TaskData, loss: float) -> None:
        self.reached = []
        if loss > self.den.loss_threshold:
            with RandomState(self.seed_for("expand", task.index), self.device).active():
                self.model.widen([self.den.expand_by] * len(self.model.layers))

    def _expansion(self, task: TaskData) -> Stage[float]:
        if not any(self.model.added(task.index)):
            return self._not_needed(task, "expansion")
        return self._trained(task, "expansion", expansion_rule(self.model, task.index))

    def _prune(self, task: TaskData) -> None:
        stay = []
        for index, added in enumerate(self.model.added(task.index)):
            layer, name = self.model.layer(index), str(task.index)
            bias = layer.biases.get(name, None)
            none = torch.ones(0, dtype=torch.bool, device=self.device)
            stay.append(useful_units(layer.own[name], bias) if added else none)
        self.model.keep(stay)

    def _drifting(self, task: TaskData) -> DenStage:
        return self._trained(task, "drift", pulled_rule(self.model, task.index))

    def _split(self, task: TaskData) -> None:
        options = self.den
        units = drifted_units(
            self.model, task.index - 1, self.old, options.split_threshold, options.split_limit, options.split
        )
        # The weights that are drawn for copies are all replaced.
        with RandomState(self.seed_for("split", task.index), self.device).active():
            split_units(self.model, task.index, self.old, units)
        self.copies = [len(each) for each in units]

    def _splitting(self, task: TaskData) -> Stage[float]:
        if not any(self.copies):
            return self._not_needed(task, "splitting")
        return self._trained(task, "splitting", pulled_rule(self.model, task.index))

    def _end(self) -> None:
        self.old, self.copies, self._rule = [], [], Rule({})
        self.model.requires_grad_(True)

    def _grow(self, task: TaskData, units: Sequence[int]) -> None:
        if task.index != len(self.model.heads):
            raise RunError(
                f"task {task.index} cannot follow {len(self.model.heads)} learned ones: den learns each task once, in "
                "the stream's order",
                remedy="train on benchmark.train_stream from its beginning, with a strategy made for it",
            )
        with RandomState(self.seed_for("grow", task.index), self.device).active():
            self.model.grow(units, self.device)

    def _trained(
        self, task: TaskData, name: str, rule: Rule, epochs: int | None = None, *, last: bool = False
    ) -> DenStage:
        self._rule = rule
        rule.apply_to(self.model)
        return DenStage(self, task, name, epochs, "last" if last else None)

    def _not_needed(self, task: TaskData, name: str) -> NotNeeded:
        return NotNeeded(name, task.index, self.seed_for(name, task.index), self.device)

    # ------------------------------------------------------------------ a step

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """A fresh optimiser without weight decay: the l2 penalty is part of the gradient, as the masks are."""
        self._clipped = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if self.den.optimizer == "adam":
            self.optimizer = torch.optim.Adam(self._clipped, lr=schedule.learning_rate)
        else:
            self.optimizer = make_sgd(self._clipped, schedule.model_copy(update={"weight_decay": 0.0}))

    def optimizer_step(self) -> None:
        """The gradient's step on what trains, then the proximal one, both in proportion to the learning rate."""
        self._rule.add_decay(self._clipped, self.schedule.weight_decay)
        super().optimizer_step()
        share = self.optimizer.param_groups[0]["lr"] / self.schedule.learning_rate
        self._rule.shrink(share * self.den.l1, share * self.den.group_sparsity)

    def penalty(self) -> Tensor | None:
        """Half the squared distance of old weights from where they were, times ``drift``."""
        if not self._rule.pulled or not self.den.drift:
            return None
        return self.den.drift / 2 * distance(self.model, len(self.model.heads) - 2, self.old)

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """That of the pull, where SGD has to follow it."""
        return self.den.drift if self._rule.pulled and self.den.optimizer == "sgd" else None

    # ------------------------------------------------------------------ state

    def get_extra_state(self) -> dict[str, Any]:
        """While a task is learned: layers as of the one before, units of the sub-graph, numbers of copies."""
        return {
            "old": [[layer.weight, layer.bias] for layer in self.old],
            "reached": list(self.reached),
            "copies": list(self.copies),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.old = [OldLayer(weight.to(self.device), _moved(bias, self.device)) for weight, bias in state["old"]]
        self.reached = [units.to(self.device) for units in state["reached"]]
        self.copies = list(state["copies"])


def _moved(bias: Tensor | None, device: torch.device) -> Tensor | None:
    return None if bias is None else bias.to(device)


def build_den(context: StrategyContext) -> Den:
    """The strategy of a run.

    Raises:
        RequestError: the backbone is no chain of linear layers.
    """
    return Den.of(context, model=empty_network(context), den=checked_options(context, DenOptions))
