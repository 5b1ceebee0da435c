"""DEN (Yoon et al., ICLR 2018, arXiv:1708.01547)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from seu_bench.config import BackboneOptions, Schedule, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.errors import RequestError
from seu_bench.training import (
    Cost,
    EpochReport,
    Phase,
    Stage,
    StageCost,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
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
from seu_bench_kit import GrowingMethod, GrowingNetwork, chain_of


class Den(GrowingMethod):
    """Dynamically expandable networks: retrains what a task needs, adds units, splits those that drifted.

    Selection, retraining, expansion and splitting (Yoon et al. 2018, algorithms 1 to 4) are stages of their own.
    """

    name = "den"
    title = "DEN"
    citation = "seu_bench_kit:yoon2018lifelong"
    inputs = ("image", "features")

    class Options(BackboneOptions, SelectingOptions, TaskInferenceOptions):
        """Options of dynamically expandable networks; a schedule is that of each of a task's stages."""

        removed: ClassVar[Mapping[str, Any]] = {
            "selection_epochs": None,
            "split": "most_drifted",
        }
        tuning_grid: ClassVar[TuningGrid] = {"drift": (0.1, 0.5, 2.5), "learning_rate": (0.0003, 0.001, 0.003)}

        backbone: str = Field("mlp", description="network of linear layers to grow from: mlp, or den_mlp of the paper")
        optimizer: Literal["adam"] = Field("adam", description="of all stages, with its own momenta")
        learning_rate: PositiveFloat | None = Field(0.001, description="learning rate of a stage's first epoch")
        weight_decay: NonNegativeFloat | None = Field(0.0001, description="strength of the l2 penalty on what trains")
        l1: NonNegativeFloat = Field(
            0.00001,
            description="what a step takes off each weight at the first learning rate, in the first task, in the "
            "selection and in the expansion",
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

    options: Options

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
            Phase(lambda: self._retraining_stage(task), lambda loss: self._expand(task, loss)),
            Phase(lambda: self._expansion(task), lambda _: self._prune(task)),
            Phase(lambda: self._drift_stage(task), lambda _: self._split(task)),
            Phase(lambda: self._split_stage(task), lambda _: self._end()),
        ]

    def _first(self, task: TaskData) -> DenStage:
        self.grow(task, self.model.first_units)
        return self._make_stage(task, "training", first_rule(self.model))

    def _selection(self, task: TaskData) -> DenStage:
        self.grow(task, [0] * len(self.model.layers))
        return self._make_stage(task, "selection", selection_rule(self.model, task.index), restore="last")

    def _select(self, task: TaskData) -> None:
        self.old = old_layers(self.model, task.index - 1)
        self.reached = reached_units(self.model, task.index)

    def _retraining_stage(self, task: TaskData) -> DenStage:
        return self._make_stage(task, "training", Rule(subgraph_masks(self.model, task.index, self.reached)))

    def _expand(self, task: TaskData, loss: float) -> None:
        self.reached = []
        if loss > self.options.loss_threshold:
            with self.drawing("expand", task):
                self.model.widen([self.options.expand_by] * len(self.model.layers))

    def _expansion(self, task: TaskData) -> Stage[Any]:
        if not any(self.model.added_units(task.index)):
            return self.step("expansion", task, lambda _: None).make()
        return self._make_stage(task, "expansion", expansion_rule(self.model, task.index))

    def _prune(self, task: TaskData) -> None:
        stay = []
        for index, added in enumerate(self.model.added_units(task.index)):
            layer, name = self.model.layer(index), str(task.index)
            none = torch.ones(0, dtype=torch.bool, device=self.device)
            stay.append(useful_units(layer.own[name], layer.biases.get(name, None)) if added else none)
        self.model.keep(stay)

    def _drift_stage(self, task: TaskData) -> DenStage:
        return self._make_stage(task, "drift", pulled_rule(self.model, task.index))

    def _split(self, task: TaskData) -> None:
        chosen = self.options.split_threshold, self.options.split_limit
        units = drifted_units(self.model, task.index - 1, self.old, *chosen)
        # The weights that are drawn for copies are all replaced.
        with self.drawing("split", task):
            split_units(self.model, task.index, self.old, units)
        self.copies = [len(each) for each in units]

    def _split_stage(self, task: TaskData) -> Stage[Any]:
        if not any(self.copies):
            return self.step("splitting", task, lambda _: None).make()
        return self._make_stage(task, "splitting", pulled_rule(self.model, task.index))

    def _end(self) -> None:
        self.setup()
        self.model.requires_grad_(True)

    def _make_stage(self, task: TaskData, name: str, rule: Rule, **more: Any) -> DenStage:
        self._rule = rule
        rule.apply_to(self.model)
        return DenStage(self, task, name, **more)

    # ------------------------------------------------------------------ a step

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """A fresh optimiser without weight decay: the l2 penalty is part of the gradient, as the masks are."""
        self._clipped = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(self._clipped, lr=schedule.learning_rate)

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

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """At most every task adds all units that it may, and splits all that it may."""
        options, stages = context.options, list[StageCost]()
        schedule = options.applied_to(context.protocol.training)
        for index, task in enumerate(context.plan.tasks):
            epochs = schedule.of_task(index).epochs
            valid = epochs * task.num_valid if options.restore == "best_valid" else 0
            names = ("selection", "training", "expansion", "drift", "splitting") if index else ("training",)
            stages += [StageCost(it, index, epochs * task.num_train, 0 if it == "selection" else valid) for it in names]

        def most(network: GrowingNetwork) -> list[int]:
            widths = network.widths(len(network.heads) - 1)
            return [options.expand_by + min(options.split_limit, units) for units in widths]

        return cls.bounded_cost(context, most, stages)


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
