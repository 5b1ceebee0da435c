"""DEN (J. Yoon, E. Yang, J. Lee, S. J. Hwang, "Lifelong Learning with Dynamically Expandable Networks", ICLR 2018,
arXiv:1708.01547)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from seu_bench import Method
from seu_bench.config import BackboneOptions, Schedule, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.errors import RequestError
from seu_bench.models import count_parameters, state_bytes
from seu_bench.models.multihead import out_of_turn
from seu_bench.training import (
    Cost,
    EpochlessStage,
    EpochReport,
    PassFlops,
    Phase,
    Stage,
    StageCost,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    evaluation_passes,
    make_sgd,
    on_meta,
)
from seu_bench_den.weights import (
    OldLayer,
    Rule,
    distance,
    drifted_units,
    expansion_rule,
    first_rule,
    old_layers,
    pulled_rule,
    reached_units,
    selection_rule,
    split_units,
    subgraph_masks,
    useful_units,
)
from seu_bench_kit import GrowingNetwork, chain_of
from seu_bench_kit.costing import priced, task_flops, task_macs


class Den(Method):
    """Dynamically expandable networks: retrains what a task needs, adds units, splits those that drifted.

    Selection, retraining, expansion and splitting (Yoon et al. 2018, algorithms 1 to 4) are stages of their own.
    """

    name = "den"
    scenarios = ("task",)
    penalty_strength = "drift"

    class Options(BackboneOptions, SelectingOptions, TaskInferenceOptions):
        """Options of dynamically expandable networks; a schedule is that of each of a task's stages."""

        tuning_grid: ClassVar[TuningGrid] = {"drift": (0.1, 0.5, 2.5), "learning_rate": (0.0003, 0.001, 0.003)}

        backbone: str = Field("mlp", description="network of linear layers to grow from: mlp, or den_mlp of the paper")
        optimizer: Literal["adam", "sgd"] = Field("adam", description="what trains; sgd has the schedule's momentum")
        learning_rate: PositiveFloat | None = Field(0.001, description="learning rate of a stage's first epoch")
        weight_decay: NonNegativeFloat | None = Field(0.0001, description="strength of the l2 penalty on what trains")
        l1: NonNegativeFloat = Field(
            0.00001,
            description="what a step takes off each weight at the first learning rate, in the first task, in the "
            "selection and in the expansion",
        )
        selection_epochs: PositiveInt | None = Field(
            None, description="epochs that the new head alone is trained for; not set: as many as training has"
        )
        loss_threshold: NonNegativeFloat = Field(
            0.01, description="mean training loss above which units are added after the retraining"
        )
        expand_by: PositiveInt = Field(10, description="units that are added to each layer, before useless ones go")
        group_sparsity: NonNegativeFloat = Field(
            0.001, description="what a step takes off the norm of each added unit's incoming weights"
        )
        drift: NonNegativeFloat = Field(
            0.5, description="strength of the pull to the old weights, half of the squared distance to them"
        )
        split_threshold: NonNegativeFloat = Field(
            0.05, description="distance of a unit's incoming weights from the old ones above which it is split"
        )
        split_limit: PositiveInt = Field(10, description="units of a layer that a task splits, at most")
        split: Literal["most_drifted", "least_drifted"] = Field(
            "most_drifted",
            description="which of the units above the threshold are split; the published code takes the least",
        )

        def selecting(self, training: Schedule) -> Schedule:
            """The schedule of training, with the epochs of the selection."""
            return training.model_copy(update={"epochs": self.selection_epochs or training.epochs})

    options: Options
    model: GrowingNetwork

    @classmethod
    def make_model(cls, context: StrategyContext) -> GrowingNetwork:
        """A network without units; it refuses a backbone that is no chain of linear layers."""
        remedy = "choose one with -o backbone=mlp or -o backbone=den_mlp"
        try:
            chain = chain_of(build_backbone(context)[0], "den")
        except RequestError as error:
            raise RequestError(error.what, where=error.where, remedy=remedy) from error
        if not all(isinstance(layer.weighted, nn.Linear) for layer in chain):
            raise RequestError("den needs a backbone of linear layers alone: this one has convolutions", remedy=remedy)
        return GrowingNetwork(chain, context.plan.classes_per_task)

    def setup(self) -> None:
        """Begin with nothing; all of it belongs to the task that is being learned."""
        #: Layers as of the task before, units that are retrained, and the number of copies of units by layer.
        self.old: list[OldLayer] = []
        self.reached: list[Tensor] = []
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
        rule, schedule = selection_rule(self.model, task.index), self.options.selecting(self.schedule)
        return self._trained(task, "selection", rule, schedule=schedule, restore="last")

    def _select(self, task: TaskData) -> None:
        self.old = old_layers(self.model, task.index - 1)
        self.reached = reached_units(self.model, task.index)

    def _retraining(self, task: TaskData) -> DenStage:
        return self._trained(task, "training", Rule(subgraph_masks(self.model, task.index, self.reached)))

    def _expand(self, task: TaskData, loss: float) -> None:
        self.reached = []
        if loss > self.options.loss_threshold:
            with self.drawing("expand", task):
                self.model.widen([self.options.expand_by] * len(self.model.layers))

    def _expansion(self, task: TaskData) -> Stage[float]:
        if not any(self.model.added(task.index)):
            return NotNeeded(self, task, "expansion")
        return self._trained(task, "expansion", expansion_rule(self.model, task.index))

    def _prune(self, task: TaskData) -> None:
        stay = []
        for index, added in enumerate(self.model.added(task.index)):
            layer, name = self.model.layer(index), str(task.index)
            none = torch.ones(0, dtype=torch.bool, device=self.device)
            stay.append(useful_units(layer.own[name], layer.biases.get(name, None)) if added else none)
        self.model.keep(stay)

    def _drifting(self, task: TaskData) -> DenStage:
        return self._trained(task, "drift", pulled_rule(self.model, task.index))

    def _split(self, task: TaskData) -> None:
        chosen = self.options.split_threshold, self.options.split_limit, self.options.split
        units = drifted_units(self.model, task.index - 1, self.old, *chosen)
        # The weights that are drawn for copies are all replaced.
        with self.drawing("split", task):
            split_units(self.model, task.index, self.old, units)
        self.copies = [len(each) for each in units]

    def _splitting(self, task: TaskData) -> Stage[float]:
        if not any(self.copies):
            return NotNeeded(self, task, "splitting")
        return self._trained(task, "splitting", pulled_rule(self.model, task.index))

    def _end(self) -> None:
        self.setup()
        self.model.requires_grad_(True)

    def _grow(self, task: TaskData, units: Sequence[int]) -> None:
        if task.index != len(self.model.heads):
            raise out_of_turn(task.index, len(self.model.heads))
        with self.drawing("grow", task):
            self.model.grow(units, self.device)

    def _trained(self, task: TaskData, name: str, rule: Rule, **more: Any) -> DenStage:
        self._rule = rule
        rule.apply_to(self.model)
        return DenStage(self, task, name, **more)

    # ------------------------------------------------------------------ a step

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """A fresh optimiser without weight decay: the l2 penalty is part of the gradient, as the masks are."""
        self._clipped = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if self.options.optimizer == "adam":
            self.optimizer = torch.optim.Adam(self._clipped, lr=schedule.learning_rate)
        else:
            self.optimizer = make_sgd(self._clipped, schedule.model_copy(update={"weight_decay": 0.0}))

    def optimizer_step(self) -> None:
        """The gradient's step on what trains, then the proximal one, both in proportion to the learning rate."""
        self._rule.add_decay(self._clipped, self.schedule.weight_decay)
        super().optimizer_step()
        share = self.optimizer.param_groups[0]["lr"] / self.schedule.learning_rate
        self._rule.shrink(share * self.options.l1, share * self.options.group_sparsity)

    def penalty(self) -> Tensor | None:
        """Half the squared distance of old weights from where they were, times ``drift``."""
        if not self._rule.pulled or not self.options.drift:
            return None
        return self.options.drift / 2 * distance(self.model, len(self.model.heads) - 2, self.old)

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """That of the pull, where SGD has to follow it."""
        return self.options.drift if self._rule.pulled and self.options.optimizer == "sgd" else None

    # ------------------------------------------------------------------ cost

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """A range, for whether a task adds and splits units is not known before.

        At least: every task makes do with the first one's units. At most: every task adds all units that it may, and
        splits all that it may.
        """
        options, plan = context.options, context.plan

        def whole(*, large: bool) -> GrowingNetwork:
            network = cls.make_model(context)
            network.grow(first_units(network))
            for task in range(1, len(plan.tasks)):
                more = [options.expand_by + min(options.split_limit, units) for units in network.widths(task - 1)]
                network.grow(more if large else [0] * len(more))
            return network

        def sizes(network: GrowingNetwork, count: Callable[..., int]) -> tuple[int, ...]:
            """What there is after each task: its path, and the heads before it."""
            heads = [count(network.head(task)) for task in range(len(network.heads))]
            return tuple(count(network.task_module(task)) + sum(heads[:task]) for task in range(len(heads)))

        def flops(network: GrowingNetwork, *, heads_only: bool) -> tuple[PassFlops, ...]:
            network.layers.requires_grad_(not heads_only)
            return task_flops(network, plan)

        most, least = on_meta(lambda: whole(large=True)), on_meta(lambda: whole(large=False))
        training = options.applied_to(context.protocol.training)
        (all_most, all_least), (head_most, head_least) = (
            [flops(network, heads_only=heads_only) for network in (most, least)] for heads_only in (False, True)
        )
        stages: list[StageCost] = []
        for index, task in enumerate(plan.tasks):
            valid = training.epochs * task.num_valid if options.restore == "best_valid" else 0

            def stage(name: str, index: int = index, train: int = task.num_train, valid: int = valid) -> StageCost:
                return StageCost(name, index, training.epochs * train, valid)

            if not index:
                stages += priced([stage("training")], all_most, all_least)
                continue
            selected = options.selecting(training).epochs * task.num_train
            stages += priced([StageCost("selection", index, selected, 0)], head_most, head_least)
            # The sub-graph may be no more than the head.
            stages += priced([stage("training")], all_most, head_least)
            perhaps = priced([stage("expansion"), stage("splitting")], all_most)
            stages += [replace(cost, flops_min=0) for cost in perhaps]
            stages += priced([stage("drift")], all_most, all_least)
        return Cost(
            params_total=sizes(most, count_parameters),
            params_total_min=sizes(least, count_parameters),
            macs=task_macs(most, plan),
            macs_min=task_macs(least, plan),
            stages=(*stages, *evaluation_passes(plan)),
            memory_bytes=sizes(most, state_bytes),
            memory_bytes_min=sizes(least, state_bytes),
        )


def first_units(network: GrowingNetwork) -> tuple[int, ...]:
    """Units of each layer that the first task gets: the backbone's."""
    return tuple(layer.units for layer in network.chain)


class NotNeeded(EpochlessStage[float]):
    """A stage that a task can do without."""

    def __init__(self, method: Den, task: TaskData, name: str) -> None:
        super().__init__(name, task.index, method.seed_for(name, task.index), method.device)

    def result(self) -> float:
        """Nothing was trained."""
        return 0.0


class DenStage(TrainingStage):
    """A training of one of DEN's stages.

    Attributes:
        loss: mean training loss in the epoch whose weights are restored.
    """

    state_attributes = ("loss",)
    loss = 0.0

    def run_epoch(self) -> EpochReport:
        """One epoch of training and one pass over the validation images."""
        lowest = self.best.loss
        report = super().run_epoch()
        kept = self.best.loss < lowest or self.restores == "last" or not self.data.valid
        if kept and report.loss is not None:
            self.loss = report.loss
        return report

    def result(self) -> float:
        """Restore the best weights; the loss that they were found with."""
        super().result()
        return self.loss
