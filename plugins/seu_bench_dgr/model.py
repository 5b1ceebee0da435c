"""The scholar: a solver, which is a backbone under the head of the scenario, and a generator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from seu_bench.config import Scenario
from seu_bench.models import BackboneModel
from seu_bench.training import StrategyContext, build_backbone, checked_options, width_factor
from seu_bench.utils.seeding import RandomState, derive_seed
from seu_bench_dgr import DgrOptions
from seu_bench_dgr.generators import ImageGenerator
from seu_bench_dgr.vae import HIDDEN, Vae
from seu_bench_dgr.wgan import CHANNELS, Wgan


class Scholar(BackboneModel):
    """A solver that answers, and the generator that makes images of all tasks learned.

    The generator is stored, and counted, with all that it needs to learn another task: an autoencoder's encoder and a
    GAN's critic. It is on no task's path.

    Args:
        backbone: images ``[N, C, H, W]`` -> features ``[N, features]``.
        features: width of its output.
        classes: number of classes of each task.
        scenario: ``class`` or ``domain``.
        generator: of images.
    """

    def __init__(
        self,
        backbone: nn.Module,
        features: int,
        classes: Sequence[int],
        scenario: Scenario,
        generator: ImageGenerator,
    ) -> None:
        super().__init__(backbone, features, classes, scenario)
        self.features = features
        self.generator = generator

    def alone(self, task: int) -> BackboneModel:
        """The solver, which shares its weights with this model."""
        with torch.device("meta"):  # of which nothing is drawn: its head is replaced
            solver = BackboneModel(self.backbone, self.features, self.classes_per_task, self.scenario)
        solver.heads = self.heads
        return solver


def make_scholar(context: StrategyContext) -> Scholar:
    """The model of a run; its solver begins with the weights that any strategy begins with.

    Raises:
        RequestError: the backbone does not fit the stream's images.
    """
    with RandomState(derive_seed(context.seed, "generator")).active():
        generator = make_generator(context)
    plan = context.plan
    with RandomState(derive_seed(context.seed, "model")).active():
        return Scholar(*build_backbone(context), plan.classes_per_task, plan.scenario, generator)


def make_generator(context: StrategyContext) -> ImageGenerator:
    """The generator that was chosen, its weights drawn from torch's generator."""
    options, plan = checked_options(context, DgrOptions), context.plan
    shape = (plan.channels, plan.height, plan.width)
    published = HIDDEN if options.generator == "vae" else CHANNELS
    units = max(1, round(width_factor(context) * (options.generator_width or published)))
    if options.generator == "vae":
        return Vae(shape, options.latent, units)
    return Wgan(shape, options.latent, units, options.gradient_penalty, options.critic_steps)
