"""PathNet (C. Fernando et al., "PathNet: Evolution Channels Gradient Descent in Super Neural Networks", 2017,
arXiv:1701.08734) in its supervised form: the baseline of that name in the code that J. Serra et al. published with
"Overcoming catastrophic forgetting with hard attention to the task", ICML 2018, is called the published code here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

from pydantic import Field, PositiveInt, model_validator
from torch import nn

from seu_bench import Method
from seu_bench.config import LEARNING_RATES, BackboneOptions, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.models import count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    EpochReport,
    Phase,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    epoch_rate,
    evaluate,
    evaluation_passes,
    on_meta,
    set_rate,
)
from seu_bench_kit import chain_of, packed_bytes
from seu_bench_kit.costing import task_macs, training_passes
from seu_bench_pathnet.network import CONTENDERS, ModularNetwork, Tournament, Turn, turns


class PathNet(Method):
    """PathNet: each task evolves a path through layers of modules, which is frozen (Fernando et al. 2017).

    Earlier tasks' paths never change, so nothing is forgotten.
    """

    name = "pathnet"
    title = "PathNet"
    citation = "seu_bench_kit:fernando2017pathnet"
    inputs = ("image", "features")
    scenarios = ("task",)

    class Options(BackboneOptions, SelectingOptions, TaskInferenceOptions):
        """Options of PathNet; ``epochs`` is how long each of the two paths is trained for a task."""

        tuning_grid: ClassVar[TuningGrid] = {"generations": (5, 20), "learning_rate": LEARNING_RATES}

        modules: PositiveInt = Field(16, description="modules in each layer (published code)")
        active: PositiveInt = Field(3, description="modules of a layer that a path has at most (published code)")
        generations: PositiveInt = Field(
            20, description="tournaments of a task (published code); with fewer epochs one for each epoch"
        )

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.active > self.modules:
                raise ValueError(f"active={self.active} is more than modules={self.modules}")
            return self

    options: Options
    model: ModularNetwork

    @classmethod
    def make_model(cls, context: StrategyContext) -> ModularNetwork:
        """A network without paths; it refuses a backbone that is no chain of layers."""
        chain = chain_of(build_backbone(context)[0], "pathnet")
        plan, modules = context.plan, context.options.modules
        return ModularNetwork(chain, plan.classes_per_task, modules, open_ended=plan.open_ended)

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """The search, whose path is kept: no training follows it, for it trains the weights that stay."""
        return [Phase(lambda: self._search(task), lambda _: self.model.keep(task.index))]

    def trained_module(self, task: TaskData) -> nn.Module:
        """All that the task's paths may train."""
        return self.model.free_module(task.index)

    def describe(self) -> dict[str, Any]:
        """The modules that each learned task uses in each layer."""
        paths = [self.model.paths[task] for task in sorted(self.model.paths)]
        return {"choices": tuple(tuple(" ".join(map(str, layer)) for layer in path) for path in paths)}

    def _search(self, task: TaskData) -> PathSearch:
        if self.model.paths:
            with self.drawing("modules", task):
                self.model.renew()
        return PathSearch(self, task)

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """All but multiply-accumulates is exact: every module is there from the start, and both paths are trained for
        all epochs. A path has from one module in each layer to ``active``."""
        options, plan = context.options, context.plan
        network, tasks = on_meta(lambda: cls.make_model(context)), range(1, len(plan.tasks) + 1)
        params, state, masks = count_parameters(network), state_bytes(network), packed_bytes(network.path_bits)

        def macs(modules: int) -> tuple[int, ...]:
            for task in range(len(plan.tasks)):
                network.try_path(task, (tuple(range(modules)),) * len(network.layers))
            return task_macs(network, plan, one_path=True)

        training, select = options.applied_to(context.protocol.training), options.restore == "best_valid"
        stages = [
            replace(it, name="search", train=CONTENDERS * it.train, evaluate=CONTENDERS * it.evaluate)
            for it in training_passes(plan, training, validate=select)
        ]
        memory, bits = (
            [more + task * each for task in tasks] for more, each in ((state, masks), (0, network.path_bits))
        )
        sizes, every, most = (params,) * len(tasks), (*stages, *evaluation_passes(plan)), macs(options.active)
        return Cost(sizes, sizes, most, macs(1), every, tuple(memory), tuple(memory), tuple(bits))


class PathSearch(TrainingStage):
    """Generations of two paths that are trained in turn, each by an optimiser of its own, on weights that they share.

    With ``restore=best_valid`` (the published code) a path's loss is the lowest on the validation images after any of
    its epochs, the champion is the path of the lowest loss in all generations, and the weights that had it are restored
    at the end of each. With ``restore=last``, and without validation images (the paper), it is the share of training
    images that were wrong while it was trained in this generation, and the weights stay as they are.

    Afterwards the champion is the path that is tried.

    Args:
        method: that learns; the task's path must not be kept.
        task: to learn.
    """

    state_attributes = ("tournament", "errors")

    def __init__(self, method: PathNet, task: TaskData) -> None:
        super().__init__(method, task)
        self.turns = turns(method.schedule.epochs, method.options.generations)
        self.name, self.epochs = "search", len(self.turns)
        self.model = method.model
        #: Of the present contender's epochs in this generation.
        self.errors: tuple[float, ...] = ()
        with self.randomness.active():
            layers, modules = len(self.model.layers), self.model.modules_per_layer
            self.tournament = Tournament.drawn(layers, modules, method.options.active)

    @property
    def selects(self) -> bool:
        """Whether validation images decide."""
        return self.restores == "best_valid" and self.data.valid is not None and len(self.data.valid) > 0

    def run_epoch(self) -> EpochReport:
        """One epoch of one path; after the second path's last in a generation the champion overwrites the other."""
        turn = self.turns[self.epoch]
        if turn.begins:
            self._begin(turn)
        set_rate(self.strategy.optimizer, epoch_rate(self.schedule, turn.epoch, self.strategy.lr_schedule))
        self.strategy.training_mode()
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
            accuracy, loss = evaluate(forward, self.data.valid, self.strategy.eval_mb_size, self.count_images)
            self.note_reward(accuracy, self.data.valid)
            if self.tournament.offer(turn.contender, loss):
                self.best.keep()
            return
        accuracy = report.accuracy or 0.0
        self.note_reward(accuracy, self.data.train)
        self.errors = (*self.errors, 1 - accuracy)
        if turn.ends:
            self.tournament.offer(turn.contender, sum(self.errors) / len(self.errors))
            self.errors = ()

    def result(self) -> None:
        """Try the champion's path, with the weights that it was chosen for."""
        self.best.restore()
        self.model.try_path(self.task, self.tournament.paths[self.tournament.champion])

    def get_extra_state(self) -> dict[str, Any]:
        """That of a training, without the optimiser of a turn that is over."""
        return super().get_extra_state() | ({} if self._goes_on else {"optimizer": None})

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.tournament.load_state_dict(state["tournament"])
        if self._goes_on:
            self._begin(self.turns[self.epoch])
        else:
            state = {**state, "optimizer": self.strategy.optimizer.state_dict()}
        super().set_extra_state(state)

    @property
    def _goes_on(self) -> bool:
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
