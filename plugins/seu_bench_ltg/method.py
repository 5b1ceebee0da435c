"""Learn to Grow (Li et al., ICML 2019, arXiv:1904.00310) as the SEU paper compares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from seu_bench import Method
from seu_bench.config import (
    LEARNING_RATES,
    Schedule,
    SelectingOptions,
    TaskInferenceOptions,
    TuningGrid,
    WidthOptions,
)
from seu_bench.data import batch_bounds
from seu_bench.models import RepeatedBatches, count_parameters, state_bytes
from seu_bench.training import (
    BestWeights,
    Cost,
    EpochMeter,
    EpochReport,
    Phase,
    Stage,
    StageCost,
    StrategyContext,
    TaskData,
    TrainingStage,
    clip_gradients,
    dropout_factor,
    epoch_rate,
    evaluate,
    evaluation_passes,
    make_optimizer,
    on_meta,
    set_rate,
    width_factor,
)
from seu_bench_kit import AlexNetShape
from seu_bench_kit.costing import task_macs, training_passes
from seu_bench_ltg.network import Choice, Decision, GrowingAlexNet, Mixture


class LearnToGrow(Method):
    """Learn to Grow: each layer reuses, adapts or adds a unit, as a differentiable search finds.

    Units and adapters of earlier tasks never change, so nothing is forgotten.
    """

    name = "ltg"
    title = "Learn to Grow"
    citation = "seu_bench_kit:li2019learn"
    scenarios = ("task",)

    class Options(WidthOptions, SelectingOptions, TaskInferenceOptions):
        """Options of Learn to Grow; ``lr_schedule``, ``restore`` and the schedule's are for search and training."""

        tuning_grid: ClassVar[TuningGrid] = {"size_penalty": (0.0, 0.001, 0.01, 0.1), "learning_rate": LEARNING_RATES}

        removed: ClassVar[Mapping[str, Any]] = {"adapter": "pre"}

        size_penalty: NonNegativeFloat = Field(
            0.001, description="weight of the additions' size in the search's loss; the paper tries 0, .001, .01 and .1"
        )
        arch_learning_rate: PositiveFloat = Field(
            0.025, description="Adam's learning rate of the architecture weights (published README: .0003)"
        )
        arch_weight_decay: NonNegativeFloat = Field(0.001, description="weight decay of the architecture weights")
        search_epochs: PositiveInt | None = Field(
            None, description="epochs of the search; not set: as many as training has"
        )
        search_weight_decay: NonNegativeFloat = Field(0.0003, description="weight decay of SGD in the search")

        def search_schedule(self, training: Schedule) -> Schedule:
            """The schedule of training, with the search's own epochs and weight decay."""
            schedule = training.of_epochs(self.search_epochs or training.epochs)
            return schedule.model_copy(update={"weight_decay": self.search_weight_decay})

    options: Options
    model: GrowingAlexNet

    @classmethod
    def make_model(cls, context: StrategyContext) -> GrowingAlexNet:
        """Heads, and no units yet; it refuses images below 8x8."""
        plan = context.plan
        shape = AlexNetShape.of(plan.channels, plan.height, plan.width, width_factor(context), dropout_factor(context))
        return GrowingAlexNet(shape, plan.classes_per_task)

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training alone for the first task, which has nothing to choose from; then search and training."""
        if not self.model.paths:
            return [Phase(lambda: self._first_training(task), lambda _: self.model.freeze())]
        return [
            Phase(lambda: self.search_stage(task), lambda found: self.model.grow(task.index, found)),
            Phase(lambda: self.training_stage(task), lambda _: self.model.freeze()),
        ]

    def _first_training(self, task: TaskData) -> TrainingStage:
        with self.drawing("expand", task):
            self.model.grow_anew(task.index)
        return self.training_stage(task)

    def search_stage(self, task: TaskData) -> StructureSearch:
        """The stage that finds the task's structure."""
        with self.drawing("expand", task):
            mixture = Mixture(self.model, task.index)
        return StructureSearch(self, task, mixture)

    def describe(self) -> dict[str, Any]:
        """Paths and choices per learned task, and the task that each unit was made for."""
        learned = sorted(self.model.paths)
        return {
            "paths": tuple(tuple(stop.unit for stop in self.model.paths[task]) for task in learned),
            "choices": tuple(tuple(map(str, self.model.choices[task])) for task in learned),
            "unit_tasks": tuple(tuple(layer.unit_tasks) for layer in self.model.all_layers),
        }

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """A range, for how much is reused is not known before.

        Parameters at most: every task all new, since a unit has more of them than an adapter. Multiply-accumulates at
        most: every task adapts the first one's convolutions, since a task computes its unit and all adapters below its
        own. Both at least: every task reuses the first one's units as they are.
        """
        tasks, options, plan = len(context.plan.tasks), context.options, context.plan
        model = on_meta(lambda: cls.make_model(context))
        heads, head_bytes = count_parameters(model), state_bytes(model)
        on_meta(lambda: model.grow_anew(0))
        first, first_bytes = count_parameters(model), state_bytes(model)
        reused = [Decision(Choice("reuse", 0))] * len(model.layers)
        for task in range(1, tasks):
            model.grow(task, reused)
        macs_min = task_macs(model, plan, one_path=True)
        for task in range(1, tasks):
            adapters = on_meta(lambda: [None if it.linear else it.make_adapter() for it in model.all_layers])
            model.grow(task, [Decision(Choice("adapt" if it else "reuse", 0), it) for it in adapters])
        params = tuple(first + task * (first - heads) for task in range(tasks))
        memory = tuple(first_bytes + task * (first_bytes - head_bytes) for task in range(tasks))

        training = options.applied_to(context.protocol.training)
        search, select = options.search_schedule(training), options.restore == "best_valid"
        stages = []
        for index, each in enumerate(plan.tasks[1:], start=1):
            steps, batch = arch_batches(each.num_train, search)
            passes = search.epochs * (each.num_train // 2 + steps * batch)
            stages.append(StageCost("search", index, passes, search.epochs * each.num_valid if select else 0))
        stages += [*training_passes(plan, training, validate=select), *evaluation_passes(plan)]
        least = (first,) * tasks, (first_bytes,) * tasks
        return Cost(params, least[0], task_macs(model, plan), macs_min, tuple(stages), memory, least[1])


def arch_batches(images: int, schedule: Schedule) -> tuple[int, int]:
    """Steps of one epoch of the search on so many training images, and images in each of its architecture steps."""
    first = images // 2
    steps = len(batch_bounds(first, schedule.batch_size, join=True)) if first else 0
    return steps, min(images - first, schedule.batch_size)


class StructureSearch(Stage[tuple[Decision, ...]]):
    """First-order DARTS over reuse, adapt and new (section 3.2): alternate, batch by batch, a step of the architecture
    weights on the second half of the training images and a step of the new weights on the first. The result is the best
    candidate of each layer.

    Both losses, and that of the validation images, are cross-entropy plus the size penalty.

    Args:
        method: that learns.
        data: of the task.
        mixture: of this task; its weights are what the search starts from.
    """

    state_attributes = ("mixture", "optimizer", "arch_optimizer", "best")

    def __init__(self, method: LearnToGrow, data: TaskData, mixture: Mixture) -> None:
        self.schedule = method.options.search_schedule(method.schedule)
        seed = method.seed_for("search", data.index)
        super().__init__("search", data.index, self.schedule.epochs, seed, method.device)
        self.method = method
        self.options = method.options
        self.model = method.model
        self.mixture = mixture
        self.train_images, self.arch_images = data.train.halves()
        self.valid_images = data.valid
        self.weights = mixture.weights()
        self.architecture = mixture.architecture()
        self.optimizer = make_optimizer(self.weights, self.schedule)
        # The momenta are those of the paper, and of DARTS.
        self.arch_optimizer = torch.optim.Adam(
            self.architecture,
            lr=self.options.arch_learning_rate,
            betas=(0.5, 0.999),
            weight_decay=self.options.arch_weight_decay,
        )
        self.best = BestWeights(mixture)

    def run_epoch(self) -> EpochReport:
        """One pass over the first half, and one over the validation images."""
        set_rate(self.optimizer, epoch_rate(self.schedule, self.epoch, self.method.lr_schedule))
        self.model.train()
        meter = EpochMeter(self.device)
        # A single training image leaves the first half empty.
        batches = self.train_images.batches(self.schedule.batch_size, shuffle=True) if len(self.train_images) else ()
        with RepeatedBatches() as repeated:
            for x, y in batches:
                arch_x, arch_y = self._arch_batch()
                repeated.begin("architecture")
                self.arch_step(arch_x, arch_y)
                repeated.end(len(arch_y))
                repeated.begin("weights")
                loss, logits = self.weight_step(x, y)
                repeated.end(len(y))
                meter.add(loss, logits, y)
        self._validate()
        return meter.report

    def arch_step(self, x: Tensor, y: Tensor) -> None:
        """Move the architecture weights, and nothing else, by one batch."""
        loss, _ = self.loss(x, y)
        self.arch_optimizer.zero_grad()
        loss.backward(inputs=self.architecture)
        self.arch_optimizer.step()
        self.count_images(len(y))

    def weight_step(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Move new units, new adapters and the head, and nothing else, by one batch; returns loss and logits."""
        loss, logits = self.loss(x, y)
        self.optimizer.zero_grad()
        loss.backward(inputs=self.weights)
        clip_gradients(self.weights, self.schedule.clip_norm)
        self.optimizer.step()
        self.count_images(len(y))
        return loss, logits

    def loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy plus the size penalty, and the logits."""
        logits = self.mixture(self.model, x)
        loss = nn.functional.cross_entropy(logits, y)
        return loss + self.options.size_penalty * self.mixture.penalty(), logits

    def result(self) -> tuple[Decision, ...]:
        """The best candidates at the lowest validation loss, with the weights that they had then."""
        self.best.restore()
        return self.mixture.decisions()

    def _arch_batch(self) -> tuple[Tensor, Tensor]:
        """A random batch of the second half, drawn anew for every step."""
        positions = torch.randperm(len(self.arch_images))[: self.schedule.batch_size]
        return self.arch_images.gather(positions)

    def _validate(self) -> None:
        if self.method.restore != "best_valid" or self.valid_images is None or not len(self.valid_images):
            return
        self.model.eval()
        forward, size = (lambda x: self.mixture(self.model, x)), self.method.eval_mb_size
        _, loss = evaluate(forward, self.valid_images, size, self.count_images)
        with torch.no_grad():
            self.best.offer(loss + self.options.size_penalty * float(self.mixture.penalty()))
