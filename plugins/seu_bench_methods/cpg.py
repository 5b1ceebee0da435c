"""CPG: compacting, picking and growing (Hung et al., NeurIPS 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from seu_bench.config import LEARNING_RATES, BackboneOptions, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.models import count_parameters, state_bytes
from seu_bench.training import (
    BestWeights,
    Cost,
    EpochReport,
    Phase,
    StageCost,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    evaluate,
    evaluation_passes,
    on_meta,
    set_rate,
    width_factor,
)
from seu_bench_kit.costing import task_macs
from seu_bench_methods.cpg_network import GrownModel, check_leading, each
from seu_bench_methods.masked import Held, MaskedMethod

#: What a growth adds to the number of weights, of those of the first network.
GROWTH: Final = 0.5
#: Shares of a task's free weights that are pruned one after another, and the learning rate, as a multiple.
SPARSITIES, PRUNE_RATE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95), 0.1
#: One of so many epochs is that of a share; one of so many steps to it prunes, after each so many of these.
EPOCHS, RAMP, EVERY = 5, 5, 10


def pruned_share(first: float, last: float, step: int, steps: int) -> float:
    """Share that is pruned after a step of so many (M. Zhu, S. Gupta, "To prune, or not to prune", 2017, eq. 1)."""
    return last + (first - last) * (1 - step / steps) ** 3


class MeasuredStage(TrainingStage):
    """A training that ends with the accuracy on validation images of the weights that stay; where a script gives none,
    on training images."""

    def result(self) -> Any:
        """The accuracy in [0, 1]."""
        super().result()
        return self.accuracy()

    def accuracy(self) -> float:
        """The accuracy at present."""
        strategy, images = self.strategy, self.data.valid or self.data.train
        forward = partial(strategy.model.forward_single_task, task_label=self.task)
        with strategy.measuring():
            found, _ = evaluate(forward, images, strategy.eval_mb_size, self.count_images)
        self.note_reward(found, images)
        return found


class PickingStage(MeasuredStage):
    """A training of free weights and of scores, these by Adam, whose rate follows that of the weights."""

    state_attributes = ("scores", "picker")

    def __init__(self, strategy: Any, task: TaskData, name: str) -> None:
        super().__init__(strategy, task, name)
        self.scores = strategy.model.scores
        self.picker = torch.optim.Adam([{"params": list(self.scores)}])
        self.best = BestWeights(nn.ModuleList([self.module, self.scores]))

    def after_step(self) -> None:
        """Move the scores."""
        share = self.strategy.optimizer.param_groups[0]["lr"] / self.schedule.learning_rate
        set_rate(self.picker, share * self.strategy.options.mask_rate)
        self.picker.step()
        self.picker.zero_grad()


class CompactingStage(MeasuredStage):
    """Gradual pruning: weights of the largest share after which the accuracy is not below ``goal`` stay.

    Args:
        free: what was free for the task.
    """

    def __init__(self, strategy: Any, task: TaskData, goal: float, free: Sequence[Tensor]) -> None:
        rate, self.each = PRUNE_RATE * strategy.schedule.learning_rate, _epochs_each(strategy.schedule.epochs)
        constant = {"learning_rate": rate, "min_learning_rate": rate, "milestones": (), "warmup_epochs": 0}
        values = {"epochs": (len(SPARSITIES) - 1) * self.each, **constant}
        schedule = strategy.schedule.model_copy(update=values)
        super().__init__(strategy, task, "compacting", schedule, restore="last")
        self.goal, self.free = goal, free
        self.best.keep()

    def run_epoch(self) -> EpochReport:
        """One epoch of training and pruning; at the end of a share the weights are kept, if they are good enough."""
        report = super().run_epoch()
        if (self.epoch + 1) % self.each == 0 and self.accuracy() >= self.goal:
            self.best.keep()
        return report

    def after_step(self) -> None:
        """Prune, if it is time."""
        (level, epoch), batches = divmod(self.epoch, self.each), self.strategy.batches_per_epoch
        step, steps = epoch * batches + self.strategy.batch_number + 1, max(1, self.each * batches // RAMP)
        if step <= steps and (step % EVERY == 0 or step == steps):
            self.strategy.model.prune(self.free, pruned_share(SPARSITIES[level], SPARSITIES[level + 1], step, steps))

    def result(self) -> Any:
        """Restore the weights that stay."""
        self.best.restore()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        super().set_extra_state(state)
        self.strategy.model.compact(self.task)


class Cpg(MaskedMethod):
    """Compacting, picking and growing: a task picks old weights, grows where it must, prunes (Hung et al. 2019).

    Weights of earlier tasks are used and never changed, so nothing is forgotten.
    """

    name = "cpg"
    title = "CPG"
    citation = "seu_bench_kit:hung2019compacting"
    needs_validation = True

    class Options(BackboneOptions, SelectingOptions, TaskInferenceOptions):
        """Options of CPG; the schedule is that of training."""

        tuning_grid: ClassVar[TuningGrid] = {"goal_margin": (0.0, 0.05, 0.1), "learning_rate": LEARNING_RATES}

        max_size: Annotated[float, Field(ge=1)] = Field(
            1.5,
            description="weights after all growth, as a multiple of the first network's, half of which a growth adds",
        )
        goal_margin: NonNegativeFloat = Field(
            0.0, description="what the accuracy on validation images may be below that of a network for the task alone"
        )
        mask_rate: PositiveFloat = Field(
            0.0005, description="first learning rate of the picking mask, by Adam (published code)"
        )

        @property
        def growths(self) -> int:
            """How often the network may grow."""
            return math.ceil((self.max_size - 1) / GROWTH)

    options: Options
    model: GrownModel

    @classmethod
    def make_model(cls, context: StrategyContext) -> GrownModel:
        """The backbone as that of ``naive``; it refuses one that cannot be widened."""
        build = partial(cls.grown_backbone, context)
        found = [on_meta(partial(build, growth))[0].state_dict() for growth in range(context.options.growths + 1)]
        for old, new in each(found[:-1], found[1:]):
            check_leading(old, new)
        return GrownModel(build, context.plan.classes_per_task)

    @staticmethod
    def grown_backbone(context: StrategyContext, growth: int) -> tuple[nn.Module, int]:
        """The backbone with so many more weights: its widths grow with the root of that."""
        if not growth:
            return build_backbone(context)
        width = width_factor(context) * math.sqrt(min(1 + GROWTH * growth, context.options.max_size))
        options = context.options.model_copy(update={"width": width, "weights": None})
        return build_backbone(replace(context, options=options))

    def setup(self) -> None:
        """Begin with nothing: all of it belongs to the task that is being learned."""
        super().setup()
        #: The accuracy to reach, and whether picking is over.
        self.goal, self.met = 1.0, False

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of a network for the task alone, picking at each width until the goal is met, compacting."""
        return [
            *([Phase(lambda: self._individual_stage(task), self._set_goal)] if task.index else ()),
            *(
                Phase(partial(self._picking_stage, task, name), partial(self._judge, task))
                for name in _trainings(self.options, task.index)
            ),
            Phase(lambda: self._compacting_stage(task), lambda _: self._finish()),
        ]

    def trained_module(self, task: TaskData) -> nn.Module:
        """The network for the task alone, or the weights and the task's part."""
        return self.model.individual or nn.ModuleList([self.model.weights, self.model.part(task.index)])

    def optimizer_step(self) -> None:
        """A step of the weights, then of what follows them."""
        super().optimizer_step()
        if isinstance(self._stage, PickingStage | CompactingStage):
            self._stage.after_step()

    def _individual_stage(self, task: TaskData) -> MeasuredStage:
        with self.drawing("individual", task):
            backbone, features = self.model.build(0)
            head = nn.Linear(features, self.model.classes_per_task[task.index])
        self.model.individual = nn.Sequential(backbone, head).to(self.device)
        self._held = Held()
        return MeasuredStage(self, task, "individual")

    def _set_goal(self, accuracy: float) -> None:
        self.goal, self.model.individual = accuracy, None

    def _picking_stage(self, task: TaskData, name: str) -> Any:
        if self.met:
            return self.step(name, task, lambda _: None).make()
        with self.drawing("begin", task):
            self.model.begin(task.index)
        self.model.pick(task.index)
        self._held = Held([*self.model.weights], self.model.taken)
        return PickingStage(self, task, name)

    def _judge(self, task: TaskData, accuracy: float | None) -> None:
        """Go on with what is picked where the goal is met, or cannot be; otherwise grow."""
        if accuracy is None:
            return
        grown = self.model.part(task.index).growth
        if not task.index or grown == self.options.growths or accuracy >= self.goal - self.options.goal_margin:
            self.goal, self.met = min(self.goal, accuracy), True
            self.model.choose()
        else:
            with self.drawing(f"grow_{grown}", task):
                self.model.grow(task.index)

    def _compacting_stage(self, task: TaskData) -> CompactingStage:
        free = self.model.free(task.index)
        self.model.compact(task.index)
        self._held = Held([*self.model.weights], free)
        return CompactingStage(self, task, self.goal - self.options.goal_margin, free)

    def _finish(self) -> None:
        self.model.finish()
        self.setup()

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """From a network that never grows to one that is widest from its second task on; operations are not told."""
        plan, options, stages = context.plan, context.options, list[StageCost]()

        def sizes(growths: int) -> tuple[tuple[int, ...], ...]:
            model, found = cls.make_model(context), []
            for task in range(len(plan.tasks)):
                model.begin(task)
                for _ in range(growths if task == 1 else 0):
                    model.grow(task)
                model.finish()
                found.append((count_parameters(model), state_bytes(model), model.mask_bits))
            return *zip(*found, strict=True), task_macs(model, plan)

        for index, task in enumerate(plan.tasks):
            epochs, valid = options.applied_to(context.protocol.training).of_task(index).epochs, task.num_valid
            measured = 1 + epochs * (options.restore == "best_valid")
            for name in (*(["individual"] if index else ()), *_trainings(options, index)):
                stages.append(StageCost(name, index, epochs * task.num_train, measured * valid))
            shares = len(SPARSITIES) - 1
            stages.append(
                StageCost("compacting", index, shares * _epochs_each(epochs) * task.num_train, shares * valid)
            )
        few, few_bytes, few_bits, few_macs = on_meta(partial(sizes, 0))
        many, many_bytes, many_bits, many_macs = on_meta(partial(sizes, options.growths))
        every = (*stages, *evaluation_passes(plan))
        return Cost(many, few, many_macs, few_macs, every, many_bytes, few_bytes, many_bits, few_bits)


def _trainings(options: Cpg.Options, task: int) -> list[str]:
    growths = options.growths if task else 0
    return ["picking", *(f"growing_{growth}" for growth in range(1, growths + 1))]


def _epochs_each(epochs: int) -> int:
    return max(1, epochs // EPOCHS)
