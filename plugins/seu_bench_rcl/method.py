"""Reinforced continual learning (J. Xu, Z. Zhu, "Reinforced Continual Learning", NeurIPS 2018, arXiv:1805.12369)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from seu_bench.config import (
    LEARNING_RATES,
    BackboneOptions,
    Schedule,
    SelectingOptions,
    TaskInferenceOptions,
    TuningGrid,
)
from seu_bench.models.multihead import out_of_turn
from seu_bench.training import (
    BestWeights,
    Cost,
    EpochReport,
    Phase,
    Stage,
    StageCost,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    epoch_rate,
    evaluate,
    make_optimizer,
    set_rate,
)
from seu_bench.utils import RandomState
from seu_bench_kit import GrowingMethod, GrowingNetwork, chain_of, train_epoch
from seu_bench_kit.costing import training_passes
from seu_bench_rcl.controller import Controller


class Growth(NamedTuple):
    """What a task adds.

    Attributes:
        units: added to each layer.
        reward: of the trial that it was.
        weights: of the network's ``trainable_module``, after the trial.
    """

    units: tuple[int, ...]
    reward: float
    weights: Mapping[str, Tensor]


class ReinforcedGrowth(GrowingMethod):
    """Reinforced continual learning: a controller finds how many units each layer gets (Xu & Zhu 2018).

    Weights of earlier tasks never change, so nothing is forgotten.
    """

    name = "rcl"
    title = "RCL"
    citation = "seu_bench_kit:xu2018reinforced"
    inputs = ("image", "features")

    class Options(BackboneOptions, SelectingOptions, TaskInferenceOptions):
        """Options of reinforced continual learning; ``lr_schedule`` and the schedule's are for trials and training."""

        tuning_grid: ClassVar[TuningGrid] = {"unit_penalty": (0.0, 0.0001, 0.001), "learning_rate": LEARNING_RATES}

        trials: PositiveInt = Field(50, description="networks that are tried for each task but the first")
        trial_epochs: PositiveInt | None = Field(
            None, description="epochs of each trial; not set: as many as training has"
        )
        max_units: NonNegativeInt = Field(29, description="units that a task adds to a layer at most")
        unit_penalty: NonNegativeFloat = Field(0.0001, description="reward lost per unit that is added")
        controller_learning_rate: PositiveFloat = Field(0.001, description="Adam's learning rate of the controller")
        baseline_learning_rate: PositiveFloat = Field(
            0.005, description="Adam's learning rate of the reward's baseline"
        )
        finish: Literal["keep", "train"] = Field(
            "keep", description="the best trial's weights are kept (published code), or trained on"
        )

        def trial_schedule(self, training: Schedule) -> Schedule:
            """The schedule of training, with the epochs of a trial."""
            return training.of_epochs(self.trial_epochs or training.epochs)

    options: Options

    @classmethod
    def make_model(cls, context: StrategyContext) -> GrowingNetwork:
        """A network without units and heads; it refuses a backbone that is no chain of layers."""
        return GrowingNetwork(chain_of(build_backbone(context)[0], "rcl"), context.plan.classes_per_task)

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of the first network for the first task; then a search, and training if it is asked for."""
        if task.index == 0:
            return [Phase(lambda: self._first_training(task), lambda _: self.model.freeze())]
        search = Phase(lambda: self.search_stage(task), lambda found: self.adopt(task, found))
        if self.options.finish == "keep":
            return [search]
        return [search, Phase(lambda: self.training_stage(task), lambda _: self.model.freeze())]

    def _first_training(self, task: TaskData) -> TrainingStage:
        self.grow(task, self.model.first_units)
        return self.training_stage(task)

    def search_stage(self, task: TaskData) -> GrowthSearch:
        """The stage that finds how many units the task adds.

        Raises:
            RunError: tasks are learned in their order, each once.
        """
        if task.index != len(self.model.heads):
            raise out_of_turn(task.index, len(self.model.heads))
        return GrowthSearch(self, task)

    def adopt(self, task: TaskData, found: Growth) -> None:
        """Add what the search found, with the weights of its trial; they are frozen unless training follows."""
        self.grow(task, found.units)
        self.model.trainable_module(task.index).load_state_dict(found.weights)
        if self.options.finish == "keep":
            self.model.freeze()

    def describe(self) -> dict[str, Any]:
        """The units that each learned task added to each layer."""
        tasks = range(len(self.model.heads))
        return {"choices": tuple(tuple(f"new {units}" for units in self.model.added_units(task)) for task in tasks)}

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """Image passes exactly; at most every task but the first adds ``max_units`` units to each layer."""
        options, plan = context.options, context.plan
        training, select = options.applied_to(context.protocol.training), options.restore == "best_valid"
        trained = training_passes(plan, training, validate=select)
        stages, epochs = trained[:1] if options.finish == "keep" else trained, options.trial_schedule(training).epochs
        for index, task in enumerate(plan.tasks[1:], start=1):
            count, valid = task.num_train, task.num_valid
            # Without validation images either half of the training images has a part.
            passes = (
                (epochs * count, (epochs if select else 1) * valid)
                if valid
                else (epochs * (count // 2), -(-count // 2))
            )
            stages.append(StageCost("search", index, *(options.trials * it for it in passes)))
        return cls.bounded_cost(context, lambda network: (options.max_units,) * len(network.chain), stages)


class Trial:
    """A network that shares all weights of another one, frozen, and adds the units and the head of the next task.

    Args:
        method: whose model's weights are shared; it is not changed.
        units: to add to each layer, by torch's global generator.
    """

    def __init__(self, method: ReinforcedGrowth, units: Sequence[int]) -> None:
        self.units = tuple(units)
        model = method.model
        self.task = len(model.heads)
        # What a copy has in common with the original is what is in the memo from the start.
        shared = [*model.parameters(), *(layer.weighted for layer in model.chain)]
        self.network = deepcopy(model, {id(each): each for each in shared})
        self.network.grow(self.units, method.device)
        self.trained: nn.Module = self.network.trainable_module(self.task)
        self.parameters = list(self.trained.parameters())
        self.optimizer = make_optimizer(self.parameters, method.options.trial_schedule(method.schedule))
        self.best = BestWeights(self.trained)
        #: Of the weights that it would end with now.
        self.accuracy: float | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Images ``[N, C, H, W]`` -> logits ``[N, classes]``."""
        return self.network.forward_single_task(x, self.task)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        parts = {name: getattr(self, name).state_dict() for name in ("trained", "optimizer", "best")}
        return {**parts, "units": list(self.units), "accuracy": self.accuracy}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned of a trial of the same units."""
        for name in ("trained", "optimizer", "best"):
            getattr(self, name).load_state_dict(state[name])
        self.accuracy = state["accuracy"]


class GrowthSearch(Stage[Growth]):
    """Trial by trial: draw units, train them, reward the controller. The result is the trial of the best reward.

    An epoch of the stage is an epoch of a trial, so that a long trial can be interrupted. Trials train on the training
    images and are scored on the validation images; where there are none, on either half of the training images. A
    trial's weights are those of its lowest loss on the validation images, if these select, and the last otherwise. The
    reward is ``accuracy - unit_penalty * units added``.

    Args:
        method: whose model is frozen, as the tasks before left it; it is not changed.
        data: of the task.
    """

    state_attributes = ("controller",)

    def __init__(self, method: ReinforcedGrowth, data: TaskData) -> None:
        self.options = method.options
        self.schedule = self.options.trial_schedule(method.schedule)
        seed, epochs = method.seed_for("search", data.index), self.options.trials * self.schedule.epochs
        super().__init__("search", data.index, epochs, seed, method.device)
        self.method = method
        if data.valid is not None and len(data.valid):
            self.train_images, self.score_images = data.train, data.valid
            self.selects = method.restore == "best_valid"
        else:
            self.train_images, self.score_images = data.train.halves()
            self.selects = False
        with self.randomness.active():
            rates = self.options.controller_learning_rate, self.options.baseline_learning_rate
            self.controller = Controller(len(method.model.chain), self.options.max_units + 1, *rates)
        self.trial: Trial | None = None
        self.best: Growth | None = None

    def run_epoch(self) -> EpochReport:
        """An epoch of the present trial, after which the last one of a trial scores it and teaches the controller."""
        at = self.epoch % self.schedule.epochs
        if self.trial is None:
            self.trial = Trial(self.method, self.controller.draw())
        trial = self.trial
        set_rate(trial.optimizer, epoch_rate(self.schedule, at, self.method.lr_schedule))
        trial.network.train()
        loss = None
        # A single training image leaves the first half empty.
        if len(self.train_images):
            parts = trial.parameters, trial.optimizer, self.train_images, self.schedule
            loss = train_epoch(trial.forward, *parts, self.count_images)
        is_last = at == self.schedule.epochs - 1
        accuracy = self._score(trial, is_last=is_last) if is_last or self.selects else None
        if is_last:
            self._end(trial)
        return EpochReport(loss, accuracy)

    def result(self) -> Growth:
        """The growth of the best reward, the first of equal ones."""
        if self.best is None:
            raise RuntimeError("no trial has ended")
        return self.best

    def get_extra_state(self) -> dict[str, Any]:
        """The controller, the present trial, and the best one so far."""
        trial, best = self.trial and self.trial.state_dict(), self.best and list(self.best)
        return {**super().get_extra_state(), "trial": trial, "best": best}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        super().set_extra_state(state)
        self.best = state["best"] and Growth(*state["best"])
        self.trial = None
        if state["trial"] is not None:
            # Its first weights are drawn, and replaced.
            with RandomState(0, self.device).active():
                self.trial = Trial(self.method, state["trial"]["units"])
            self.trial.load_state_dict(state["trial"])

    def _score(self, trial: Trial, *, is_last: bool) -> float:
        """Measure the accuracy of the present weights, and note them if a trial that ended now would have them."""
        trial.network.eval()
        accuracy, loss = evaluate(trial.forward, self.score_images, self.method.eval_mb_size, self.count_images)
        is_best = self.selects and loss < trial.best.loss
        if is_best:
            trial.best.offer(loss)
        # Where no loss is finite, as with the last weights, the last accuracy counts.
        if is_best or (is_last and trial.best.loss == math.inf):
            trial.accuracy = accuracy
        return accuracy

    def _end(self, trial: Trial) -> None:
        """Learn from the reward of a trial, and keep it if it is the best."""
        trial.best.restore()
        accuracy = trial.accuracy or 0.0
        self.note_reward(accuracy, self.score_images)
        reward = accuracy - self.options.unit_penalty * sum(trial.units)
        if self.best is None or reward > self.best.reward:
            self.best = Growth(trial.units, reward, trial.trained.state_dict())
        self.controller.learn(trial.units, reward)
        self.trial = None
