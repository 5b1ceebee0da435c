"""Deep generative replay (DGR): a generator dreams up images of earlier tasks, and the solver as it was labels them.

Source: H. Shin, J. K. Lee, J. Kim, J. Kim, "Continual Learning with Deep Generative Replay", NeurIPS 2017,
arXiv:1705.08690.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import LEARNING_RATES, BackboneOptions, TuningGrid
from seu_bench.training import StrategyFactory

#: What makes images.
GeneratorKind: TypeAlias = Literal["vae", "wgan_gp"]

#: Replayed images are labelled by the old solver's answer, or by its probabilities.
Targets: TypeAlias = Literal["hard", "soft"]


class DgrOptions(BackboneOptions):
    """Options of deep generative replay; the schedule is the solver's, its batch size the generator's as well."""

    tuning_grid: ClassVar[TuningGrid] = {
        "generator_learning_rate": (0.0003, 0.001, 0.003),
        "learning_rate": LEARNING_RATES,
    }

    generator: GeneratorKind = Field("vae", description="what makes images: a variational autoencoder, or a WGAN-GP")
    generator_iterations: PositiveInt = Field(3000, description="steps that the generator takes in each task")
    generator_width: PositiveInt | None = Field(
        None,
        description="units of each hidden layer (vae: 400), or channels next to the image (wgan_gp: 64); multiplied by "
        "width as the solver's",
    )
    generator_learning_rate: PositiveFloat | None = Field(
        None, description="learning rate of Adam, constant; not set: 0.001 (vae), 0.0001 (wgan_gp)"
    )
    latent: PositiveInt = Field(100, description="random numbers that an image is made from")
    targets: Targets = Field("hard", description="labels of replayed images: the old solver's answer, or probabilities")
    replay_batch: PositiveInt | None = Field(
        None, description="images replayed beside each batch of the task's; not set: as many as those"
    )
    gradient_penalty: NonNegativeFloat = Field(10.0, description="weight of the critic's gradient penalty (wgan_gp)")
    critic_steps: PositiveInt = Field(5, description="steps of the critic for each of the generator (wgan_gp)")

    def replayed_beside(self, count: int) -> int:
        """Number of images that are replayed beside a batch of ``count`` new ones."""
        return self.replay_batch or count


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``dgr``."""
    register(
        "dgr",
        LazyFactory(
            "deep generative replay: a generator's images of earlier tasks, labelled by the old solver (Shin et al. "
            "2017)",
            options=DgrOptions,
            scenarios=("class", "domain"),
            build="seu_bench_dgr.strategy:build_dgr",
            cost="seu_bench_dgr.costing:dgr_cost",
        ),
    )
