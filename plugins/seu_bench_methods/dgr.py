"""Deep generative replay (H. Shin, J. K. Lee, J. Kim, J. Kim, "Continual Learning with Deep Generative Replay",
NeurIPS 2017, arXiv:1705.08690)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from seu_bench import Method
from seu_bench.config import LEARNING_RATES, BackboneOptions, TuningGrid
from seu_bench.data import TaskImages, batch_bounds
from seu_bench.models import BackboneModel, FlopCounter, RepeatedBatches, count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    EpochReport,
    Phase,
    Stage,
    StageCost,
    StrategyContext,
    TaskData,
    build_backbone,
    checked_options,
    evaluation_passes,
    on_meta,
    width_factor,
)
from seu_bench.utils import RandomState, derive_seed
from seu_bench_kit.costing import fixed_cost, task_flops, task_macs
from seu_bench_methods.generators import ImageGenerator, Vae, Wgan

#: Steps in an epoch of the stage ``generator``, between two of which a run can be interrupted.
STEPS: Final = 100


class Scholar(BackboneModel):
    """A solver, which is a backbone under the head of the scenario, and a generator of images of all tasks learned.

    The generator is stored, and counted, with all that it needs to learn another task: an autoencoder's encoder and a
    GAN's critic. It is on no task's path.
    """

    generator: ImageGenerator

    def alone(self, task: int) -> BackboneModel:
        """Return a copy without the generator."""
        solver = copy.deepcopy(self)
        del solver.generator
        return solver


class Dgr(Method):
    """Deep generative replay: a generator's images of earlier tasks, labelled by the old solver (Shin et al. 2017).

    In the task that is the t-th to be learned, 1-based, the loss of a batch is ``r L + (1 - r) L'`` with ``r = 1 / t``
    (section 3): ``L`` is the cross-entropy of the task's images, ``L'`` that of images made by the generator, labelled
    by the solver, both as the task found them. The generator then learns from both kinds with the same weights.
    """

    name = "dgr"
    scenarios = ("class", "domain")
    model: Scholar

    class Options(BackboneOptions):
        """Options of deep generative replay; the schedule is the solver's, its batch size the generator's as well."""

        tuning_grid: ClassVar[TuningGrid] = {
            "generator_learning_rate": (0.0003, 0.001, 0.003),
            "learning_rate": LEARNING_RATES,
        }

        generator: Literal["vae", "wgan_gp"] = Field(
            "vae", description="what makes images: a variational autoencoder, or a WGAN-GP"
        )
        generator_iterations: PositiveInt = Field(3000, description="steps that the generator takes in each task")
        generator_width: PositiveInt | None = Field(
            None,
            description="units of each hidden layer (vae: 400), or channels next to the image (wgan_gp: 64); "
            "multiplied by width as the solver's",
        )
        generator_learning_rate: PositiveFloat | None = Field(
            None, description="learning rate of Adam, constant; not set: 0.001 (vae), 0.0001 (wgan_gp)"
        )
        latent: PositiveInt = Field(100, description="random numbers that an image is made from")
        targets: Literal["hard", "soft"] = Field(
            "hard", description="labels of replayed images: the old solver's answer, or probabilities"
        )
        replay_batch: PositiveInt | None = Field(
            None, description="images replayed beside each batch of the task's; not set: as many as those"
        )
        gradient_penalty: NonNegativeFloat = Field(
            10.0, description="weight of the critic's gradient penalty (wgan_gp)"
        )
        critic_steps: PositiveInt = Field(5, description="steps of the critic for each of the generator (wgan_gp)")

        def replayed_beside(self, count: int) -> int:
            """Return the number of images that are replayed beside a batch of ``count`` new ones."""
            return self.replay_batch or count

    options: Options

    @classmethod
    def make_model(cls, context: StrategyContext) -> Scholar:
        """Return solver and generator; the solver begins with the weights that any method begins with."""
        options, plan = checked_options(context, cls.Options), context.plan
        kind = Vae if options.generator == "vae" else Wgan
        units = max(1, round(width_factor(context) * (options.generator_width or kind.units)))
        more = () if kind is Vae else (options.gradient_penalty, options.critic_steps)
        with RandomState(derive_seed(context.seed, "generator")).active():
            generator = kind((plan.channels, plan.height, plan.width), options.latent, units, *more)
        with RandomState(derive_seed(context.seed, "model")).active():
            scholar = Scholar(*build_backbone(context), plan.classes_per_task, plan.scenario)
        scholar.generator = generator
        return scholar

    def setup(self) -> None:
        """Begin without an old solver: it is there while a task after the first is trained."""
        self.solver: BackboneModel | None = None

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return the solver's training, while the generator is still the old one, and the generator's."""
        (training,) = super().phases(task)
        return [Phase(training.make, lambda _: self.setup()), Phase(lambda: GeneratorStage(self, task))]

    def before_task(self, task: TaskData) -> None:
        """Keep a copy of the solver, frozen and in evaluation mode, that knows the classes of earlier tasks alone."""
        if task.index:
            self.solver = self.model.alone(task.index).eval().requires_grad_(False)
            self.solver.begin_task(task.index - 1)

    def trained_module(self, task: TaskData) -> nn.Module:
        """Return the solver."""
        return self.model.task_module(task.index)

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Return ``r L + (1 - r) L'``; of the first task ``L``."""
        loss = cross_entropy(logits, y)
        if self.solver is None:
            return loss
        count, share = self.options.replayed_beside(len(y)), 1 / (self.learned + 1)
        with torch.no_grad():
            images = self.model.generator.images(count)
            known = self.solver.forward_single_task(images, 0)
        self.count_images(2 * count)  # made by the generator, and labelled by the old solver
        answers = self.replay(images, torch.zeros(count, dtype=torch.int64))
        if self.options.targets == "hard":
            targets = known.argmax(dim=1)
        else:  # the probability of a class that is new is 0
            targets = pad(known.softmax(dim=1), (0, answers.shape[1] - known.shape[1]))
        return share * loss + (1 - share) * cross_entropy(answers, targets)

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """Return the exact cost: a training with replay and the generator's steps for each task."""
        options, plan = checked_options(context, cls.Options), context.plan
        model = on_meta(lambda: cls.make_model(context))
        schedule, generator = options.applied_to(context.protocol.training), model.generator
        paths, stages = task_flops(model, plan, one_path=True), list[StageCost]()
        old = copy.deepcopy(generator).requires_grad_(False)
        with FlopCounter() as counter:
            old.pixels(1)
        making = counter.flops
        for task, planned in enumerate(plan.tasks):
            count, epochs = planned.num_train, schedule.epochs
            sizes = [stop - start for start, stop in batch_bounds(count, schedule.batch_size, join=True)]
            beside = sum(map(options.replayed_beside, sizes)) if task else 0
            answers = paths[task - 1].evaluate if task else 0
            flops = epochs * (count * paths[task].train + beside * (paths[task].train + answers + making))
            stages.append(StageCost("training", task, epochs * (count + beside), 2 * epochs * beside, flops, flops))
            size, steps = min(schedule.batch_size, count), options.generator_iterations
            real = torch.zeros((size, *generator.shape), device="meta")
            replayed = (lambda count: old.pixels(options.replayed_beside(count))) if task else None
            with FlopCounter() as counter:
                _, passes = generator.step(generator.optimizers(1.0), real.clone, replayed)
            made = (options.critic_steps if options.generator == "wgan_gp" else 1) * options.replayed_beside(size)
            made, flops = steps * made if task else 0, steps * counter.flops  # made by the old generator, as it is
            stages.append(StageCost("generator", task, steps * passes - made, made, flops, flops))
        macs = task_macs(model, plan, one_path=True)
        return fixed_cost(count_parameters(model), macs, [*stages, *evaluation_passes(plan)], state_bytes(model))


class GeneratorStage(Stage[None]):
    """The generator learns a task's images, and those that it made before: the old one is a copy, frozen.

    Every step takes a batch of the same size, the training's, or all images where there are fewer.
    """

    def __init__(self, method: Dgr, task: TaskData) -> None:
        self.options, self.generator = method.options, method.model.generator
        epochs, seed = -(-self.options.generator_iterations // STEPS), method.seed_for("generator", task.index)
        super().__init__("generator", task.index, epochs, seed, method.device)
        self.images, self.batch_size = task.train, method.schedule.batch_size
        self.optimizers = self.generator.optimizers(self.options.generator_learning_rate or self.generator.rate)
        self.old = copy.deepcopy(self.generator).requires_grad_(False) if task.index else None
        self.parts: list[Any] = [self.generator, *([self.old] if self.old else []), *self.optimizers]
        if self.old is None:
            self.generator.fit_range(task.train)

    def run_epoch(self) -> EpochReport:
        """Take some steps; the last epoch may have fewer."""
        batches, old = endless(self.images, self.batch_size), self.old
        replayed = None if old is None else lambda count: old.pixels(self.options.replayed_beside(count))
        steps = min(STEPS, self.options.generator_iterations - self.epoch * STEPS)
        total = torch.zeros((), device=self.device)
        with RepeatedBatches() as repeated:
            for _ in range(steps):
                repeated.begin()
                loss, passes = self.generator.step(
                    self.optimizers, lambda: self.generator.scaled(next(batches)), replayed, 1 / (self.task + 1)
                )
                total += loss
                repeated.end(passes)
                self.count_images(passes)
        return EpochReport(float(total) / steps)

    def result(self) -> None:
        """Return nothing: the generator that learned is the model's."""

    def get_extra_state(self) -> dict[str, Any]:
        """Return the weights of the generator and of the old one, and the optimisers."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        for part, saved in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(saved)


def endless(images: TaskImages, size: int) -> Iterator[Tensor]:
    """Yield batches ``[size, C, H, W]`` for ever, in a new order with each turn; what does not fill one is left out of
    the turn. There are never more than all images in a batch."""
    size = min(size, len(images))
    while True:
        order = torch.randperm(len(images))
        for start in range(0, len(images) - size + 1, size):
            yield images.gather(order[start : start + size])[0]
