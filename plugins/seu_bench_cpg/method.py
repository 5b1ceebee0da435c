"""CPG (C.-Y. Hung, C.-H. Tu, C.-E. Wu, C.-H. Chen, Y.-M. Chan, C.-S. Chen, "Compacting, Picking and Growing for
Unforgetting Continual Learning", NeurIPS 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from seu_bench.config import (
    LEARNING_RATES,
    BackboneOptions,
    Schedule,
    SelectingOptions,
    TaskInferenceOptions,
    TuningGrid,
)
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
    pass_flops,
    set_rate,
    width_factor,
)
from seu_bench_cpg.network import GrownModel, check_leading
from seu_bench_kit.costing import task_macs
from seu_bench_methods.masked import Held, MaskedMethod

#: What a growth adds to the number of weights, of those of the first network.
GROWTH: Final = 0.5
#: Shares of a task's free weights that are pruned one after another.
SPARSITIES: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
#: The share of the steps to a sparsity in which weights are pruned, one in so many, and after every how many steps.
RAMP, EVERY = 5, 10


def pruned_share(first: float, last: float, step: int, steps: int) -> float:
    """Share that is pruned after a step of so many (M. Zhu, S. Gupta, "To prune, or not to prune", 2017, eq. 1)."""
    return last + (first - last) * (1 - step / steps) ** 3


class MeasuredStage(TrainingStage):
    """A training that ends with the accuracy of the weights that stay: on validation images, where there are none on
    training images."""

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

    def after_step(self) -> None:
        """Called after every step on weights."""


class PickingStage(MeasuredStage):
    """A training of free weights and of scores, these by Adam, whose rate follows that of the weights."""

    state_attributes = ("scores", "picker")

    def __init__(self, strategy: Any, task: TaskData, name: str) -> None:
        super().__init__(strategy, task, name)
        self.scores = strategy.model.scores
        self.picker = torch.optim.Adam([{"params": list(self.scores)}], lr=strategy.options.mask_rate)
        self.best = BestWeights(nn.ModuleList([self.module, self.scores]))

    def after_step(self) -> None:
        """Move the scores."""
        share = self.strategy.optimizer.param_groups[0]["lr"] / self.schedule.learning_rate
        set_rate(self.picker, share * self.strategy.options.mask_rate)
        self.picker.step()
        self.picker.zero_grad()


class CompactingStage(MeasuredStage):
    """Gradual pruning: weights of the largest sparsity at whose end the accuracy is not below ``goal`` stay.

    Args:
        free: what was free for the task.
    """

    def __init__(self, strategy: Any, task: TaskData, schedule: Schedule, goal: float, free: Sequence[Tensor]) -> None:
        super().__init__(strategy, task, "compacting", schedule, restore="last")
        self.goal, self.free, self.each = goal, free, schedule.epochs // (len(SPARSITIES) - 1)
        self.best.keep()

    def run_epoch(self) -> EpochReport:
        """One epoch of training and pruning; at the end of a sparsity the weights are kept, if they are good enough."""
        report = super().run_epoch()
        if (self.epoch + 1) % self.each == 0 and self.accuracy() >= self.goal:
            self.best.keep()
        return report

    def after_step(self) -> None:
        """Prune, if it is time."""
        level, epoch = divmod(self.epoch, self.each)
        batches = self.strategy.batches_per_epoch
        step, steps = epoch * batches + self.strategy.batch_number + 1, max(1, self.each * batches // RAMP)
        if step <= steps and (step % EVERY == 0 or step == steps):
            share = pruned_share(SPARSITIES[level], SPARSITIES[level + 1], step, steps)
            self.strategy.model.prune(self.free, share)

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
        prune_epochs: PositiveInt | None = Field(
            None,
            description="epochs for each of ten sparsities; not set: a fifth of those of training (published code)",
        )
        prune_rate: PositiveFloat = Field(
            0.1,
            description="learning rate while weights are pruned, as a multiple of that of training (published code)",
        )

        @property
        def growths(self) -> int:
            """How often the network may grow."""
            return math.ceil((self.max_size - 1) / GROWTH)

        def size(self, growth: int) -> float:
            """Weights after a growth, as a multiple of those of the first network."""
            return min(1 + GROWTH * growth, self.max_size)

        def pruning_schedule(self, training: Schedule) -> Schedule:
            """The schedule of training, with the epochs and the constant learning rate of pruning."""
            rate = self.prune_rate * training.learning_rate
            each = self.prune_epochs or max(1, training.epochs // 5)
            constant = {"learning_rate": rate, "min_learning_rate": rate, "milestones": (), "warmup_epochs": 0}
            return training.model_copy(update={"epochs": (len(SPARSITIES) - 1) * each, **constant})

    options: Options
    model: GrownModel

    @classmethod
    def make_model(cls, context: StrategyContext) -> GrownModel:
        """The backbone as that of ``naive``; it refuses one that cannot be widened."""
        build, options = partial(cls.grown_backbone, context), context.options
        for narrow, wide in pairwise(on_meta(partial(build, growth))[0] for growth in range(options.growths + 1)):
            check_leading(narrow, wide)
        return GrownModel(build, context.plan.classes_per_task)

    @staticmethod
    def grown_backbone(context: StrategyContext, growth: int) -> tuple[nn.Module, int]:
        """The backbone with so many more weights: its widths grow with the root of that."""
        if not growth:
            return build_backbone(context)
        width = width_factor(context) * math.sqrt(context.options.size(growth))
        options = context.options.model_copy(update={"width": width, "weights": None})
        return build_backbone(replace(context, options=options))

    def setup(self) -> None:
        """Begin with nothing: all of it belongs to the task that is being learned."""
        #: The accuracy to reach, and whether picking is over.
        self.goal, self.met = 1.0, False
        super().setup()

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of a network for the task alone, picking at each width until the goal is met, compacting."""
        names = ["picking", *(f"growing_{growth}" for growth in range(1, self.options.growths + 1))]
        return [
            *([Phase(lambda: self._individual_stage(task), self._set_goal)] if task.index else ()),
            *(Phase(partial(self._picking_stage, task, name), partial(self._judge, task)) for name in names),
            Phase(lambda: self._compacting_stage(task), lambda _: self._finish()),
        ]

    def trained_module(self, task: TaskData) -> nn.Module:
        """The network for the task alone, or the weights and the task's part."""
        model = self.model
        return model.individual or nn.ModuleList([model.weights, model.part(task.index)])

    def optimizer_step(self) -> None:
        """A step of the weights, then of what follows them."""
        super().optimizer_step()
        if isinstance(self._stage, MeasuredStage):
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
        last = not task.index or grown == self.options.growths
        if last or accuracy >= self.goal - self.options.goal_margin:
            self.goal, self.met = min(self.goal, accuracy), True
            self.model.choose()
        else:
            with self.drawing(f"grow_{grown}", task):
                self.model.grow(task.index)

    def _compacting_stage(self, task: TaskData) -> CompactingStage:
        free = self.model.free(task.index)
        self.model.compact(task.index)
        self._held = Held([*self.model.weights], free)
        schedule = self.options.pruning_schedule(self.schedule)
        return CompactingStage(self, task, schedule, self.goal - self.options.goal_margin, free)

    def _finish(self) -> None:
        self.model.finish()
        self.setup()

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """From a network that never grows to one that is widest from its second task on."""
        plan, options = context.plan, context.options
        most = options.growths

        def sizes(growths: int) -> tuple[list[tuple[int, int, int]], tuple[int, ...]]:
            model, found = cls.make_model(context), []
            for task in range(len(plan.tasks)):
                model.begin(task)
                for _ in range(growths if task == 1 else 0):
                    model.grow(task)
                model.finish()
                found.append((count_parameters(model), state_bytes(model), model.mask_bits))
            return found, task_macs(model, plan)

        def passes(task: int, growth: int) -> Any:
            backbone, features = on_meta(partial(cls.grown_backbone, context, growth))
            head = on_meta(partial(nn.Linear, features, plan.classes_per_task[task]))
            return pass_flops(nn.Sequential(backbone, head), plan)

        stages = list[StageCost]()
        for index, task in enumerate(plan.tasks):
            schedule = options.applied_to(context.protocol.training).of_task(index)
            pruning = options.pruning_schedule(schedule).epochs
            measured = task.num_valid or task.num_train
            validated = schedule.epochs * task.num_valid if options.restore == "best_valid" else 0
            learning = schedule.epochs * task.num_train, validated + measured
            compacting = pruning * task.num_train, (len(SPARSITIES) - 1) * measured
            narrow, widest = passes(index, 0), passes(index, most if index else 0)

            def add(name: str, images: tuple[int, int], least: Any, largest: Any, index: int = index) -> None:
                flops = [0 if it is None else images[0] * it.train + images[1] * it.evaluate for it in (largest, least)]
                stages.append(StageCost(name, index, *images, *flops))

            if index:
                add("individual", learning, narrow, narrow)
            add("picking", learning, narrow, widest)
            for growth in range(1, most + 1 if index else 1):
                add(f"growing_{growth}", learning, None, widest)
            add("compacting", compacting, narrow, widest)
        (few, macs_min), (many, macs) = on_meta(partial(sizes, 0)), on_meta(partial(sizes, most))
        params, memory, masks = zip(*many, strict=True)
        params_min, memory_min, masks_min = zip(*few, strict=True)
        every = (*stages, *evaluation_passes(plan))
        return Cost(params, params_min, macs, macs_min, every, memory, memory_min, masks, masks_min)
