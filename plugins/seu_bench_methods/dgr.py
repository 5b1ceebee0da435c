"""Deep generative replay (Shin et al., NeurIPS 2017, arXiv:1705.08690)."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from seu_bench import Method
from seu_bench.config import LEARNING_RATES, BackboneOptions, TuningGrid
from seu_bench.data import TaskImages
from seu_bench.models import BackboneModel, RepeatedBatches
from seu_bench.training import (
    EpochReport,
    Phase,
    Stage,
    StrategyContext,
    TaskData,
    build_backbone,
    checked_options,
    width_factor,
)
from seu_bench.utils import RandomState, derive_seed
from seu_bench.utils.rehearsing import abridge

#: Steps in an epoch of the stage ``generator``, between two of which a run can be interrupted.
STEPS: Final = 100


class ImageGenerator(nn.Module):
    """A variational autoencoder: two perceptrons of two hidden layers each, an image to a normal distribution of
    latents, and back (D. P. Kingma, M. Welling, "Auto-Encoding Variational Bayes", ICLR 2014; sizes of van de Ven &
    Tolias 2018). Pixels are in [0, 1], and images in the range of the first task's.

    Args:
        shape: channels, height and width of an image.
        latent: random numbers that an image is made from.
        hidden: units of each hidden layer.

    Attributes:
        low, high: darkest and brightest value of each channel, ``[C, 1, 1]``, in the first task's training images.
    """

    low: Tensor
    high: Tensor

    def __init__(self, shape: tuple[int, int, int], latent: int, hidden: int) -> None:
        super().__init__()
        self.shape, self.latent = shape, latent
        self.register_buffer("low", torch.zeros(shape[0], 1, 1))
        self.register_buffer("high", torch.ones(shape[0], 1, 1))
        pixels = math.prod(shape)
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, pixels)
        )

    def logits(self, noise: Tensor) -> Tensor:
        """Return pixels ``[N, C, H, W]`` before the sigmoid, of ``noise`` ``[N, latent]``."""
        decoded: Tensor = self.decoder(noise)
        return decoded.view(-1, *self.shape)

    def pixels(self, count: int) -> Tensor:
        """Draw ``count`` images, pixels in [0, 1]."""
        return self.logits(torch.randn(count, self.latent, device=self.low.device)).sigmoid()

    def images(self, count: int) -> Tensor:
        """Draw ``count`` images ``[count, C, H, W]`` in the range of the first task's training images."""
        return self.low + (self.high - self.low) * self.pixels(count)

    def losses(self, pixels: Tensor) -> Tensor:
        """Return the negative lower bound of each image's log-likelihood, in nats, with one sample of its latents.

        Args:
            pixels: ``[N, C, H, W]`` in [0, 1], the probabilities of independent Bernoulli variables.

        Returns:
            ``[N]``: cross-entropy of the decoded pixels, summed over them, plus the divergence of the latents.
        """
        features = self.encoder(pixels)
        mean, log_variance = self.mean(features), self.log_variance(features)
        decoded = self.logits(mean + (log_variance / 2).exp() * torch.randn_like(mean))
        reconstruction = binary_cross_entropy_with_logits(decoded, pixels, reduction="none").flatten(1).sum(dim=1)
        return reconstruction + divergence(mean, log_variance)

    def fit_range(self, images: TaskImages) -> None:
        """Take the range of pixels from training images, whose own is that of 0 to 1 from then on."""
        batches = [x for x, _ in images.batches(512, shuffle=False)]
        self.low.copy_(torch.stack([x.amin(dim=(0, 2, 3)) for x in batches]).amin(dim=0)[:, None, None])
        self.high.copy_(torch.stack([x.amax(dim=(0, 2, 3)) for x in batches]).amax(dim=0)[:, None, None])

    def to_unit_range(self, images: Tensor) -> Tensor:
        """Return images ``[N, C, H, W]`` as pixels in [0, 1]; what is beyond the range is brought into it."""
        span = (self.high - self.low).clamp_min(torch.finfo(images.dtype).tiny)
        return ((images - self.low) / span).clamp(0, 1)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of normal distributions ``[N, D]`` from the standard one, ``[N]`` nats."""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2


class Scholar(BackboneModel):
    """A solver, which is a backbone under the head of the scenario, and a generator of images of all tasks learned.

    The generator is stored, and counted, with its encoder, which it needs to learn. It is on no task's path.
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
    title = "DGR"
    citation = "seu_bench_kit:shin2017continual"
    inputs = ("image",)
    scenarios = ("class", "domain")
    model: Scholar

    class Options(BackboneOptions):
        """Options of deep generative replay; the schedule is the solver's, its batch size the generator's as well."""

        tuning_grid: ClassVar[TuningGrid] = {
            "generator_learning_rate": (0.0003, 0.001, 0.003),
            "learning_rate": LEARNING_RATES,
        }

        removed: ClassVar[Mapping[str, Any]] = {
            **{"generator": "vae", "generator_width": None, "generator_learning_rate": None, "targets": "hard"},
            **{"replay_batch": None, "gradient_penalty": 10.0, "critic_steps": 5},
        }

        generator_iterations: PositiveInt = Field(3000, description="steps that the generator takes in each task")
        generator_width: PositiveInt = Field(
            400, description="units of each hidden layer of the generator; multiplied by width as the solver's"
        )
        generator_learning_rate: PositiveFloat = Field(0.001, description="learning rate of Adam, constant")
        latent: PositiveInt = Field(100, description="random numbers that an image is made from")

    options: Options

    @classmethod
    def make_model(cls, context: StrategyContext) -> Scholar:
        """Return solver and generator; the solver begins with the weights that any method begins with."""
        options, plan = checked_options(context, cls.Options), context.plan
        units = max(1, round(width_factor(context) * options.generator_width))
        with RandomState(derive_seed(context.seed, "generator")).active():
            generator = ImageGenerator(plan.input.sides, options.latent, units)
        with RandomState(derive_seed(context.seed, "model")).active():
            seed = context.seed if plan.open_ended else None
            scholar = Scholar(*build_backbone(context), plan.classes_per_task, plan.scenario, seed=seed)
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
        count, share = len(y), 1 / (self.learned + 1)
        with torch.no_grad():
            images = self.model.generator.images(count)
            known = self.solver.forward_single_task(images, 0)
        self.count_images(2 * count)  # made by the generator, and labelled by the old solver
        answers = self.replay(images, torch.zeros(count, dtype=torch.int64))
        return share * loss + (1 - share) * cross_entropy(answers, known.argmax(dim=1))


class GeneratorStage(Stage[None]):
    """The generator learns a task's images, and those that it made before: the old one is a copy, frozen.

    Every step takes a batch of the same size, the training's, or all images where there are fewer.
    """

    def __init__(self, method: Dgr, task: TaskData) -> None:
        self.iterations, self.generator = method.options.generator_iterations, method.model.generator
        epochs, seed = -(-self.iterations // STEPS), method.seed_for("generator", task.index)
        super().__init__("generator", task.index, epochs, seed, method.device)
        self.images, self.batch_size = task.train, method.schedule.batch_size
        rate, fused = method.options.generator_learning_rate, not self.generator.low.is_meta
        self.optimizer = torch.optim.Adam(self.generator.parameters(), lr=rate, fused=fused)
        self.old = copy.deepcopy(self.generator).requires_grad_(False) if task.index else None
        self.state_attributes = ("generator", "optimizer", *(("old",) if self.old else ()))
        if self.old is None:
            self.generator.fit_range(task.train)

    def run_epoch(self) -> EpochReport:
        """Take some steps; the last epoch may have fewer."""
        batches = endless(self.images, self.batch_size)
        steps = min(STEPS, self.iterations - self.epoch * STEPS)
        total = torch.zeros((), device=self.device)
        with RepeatedBatches() as repeated:
            for _ in abridge([1] * steps):
                repeated.begin()
                loss, passes = self.step(self.generator.to_unit_range(next(batches)))
                total += loss
                repeated.end(passes)
                self.count_images(passes)
        return EpochReport(float(total) / steps)

    def step(self, new: Tensor) -> tuple[Tensor, int]:
        """Take one step on the weighted mean of the task's and the replayed images' losses; return it, and passes.

        Args:
            new: pixels ``[N, C, H, W]`` in [0, 1].
        """
        self.optimizer.zero_grad(set_to_none=True)
        old = new[:0] if self.old is None else self.old.pixels(len(new))
        losses, share = self.generator.losses(torch.cat([new, old])), 1 / (self.task + 1)
        loss = losses[: len(new)].mean()
        if len(old):
            loss = share * loss + (1 - share) * losses[len(new) :].mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), len(new) + 2 * len(old)

    def result(self) -> None:
        """Return nothing: the generator that learned is the model's."""


def endless(images: TaskImages, size: int) -> Iterator[Tensor]:
    """Yield batches ``[size, C, H, W]`` for ever, in a new order with each turn; what does not fill one is left out of
    the turn. There are never more than all images in a batch."""
    size = min(size, len(images))
    while True:
        order = torch.randperm(len(images))
        for start in range(0, len(images) - size + 1, size):
            yield images.gather(order[start : start + size])[0]
