"""Hard attention to the task (Serra et al., ICML 2018): learned gates on the units of one network, and gradients that
leave alone what earlier tasks' gates let through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import BackboneOptions, PlateauOptions, TaskInferenceOptions, TuningGrid
from seu_bench.plugin.registration import deferred
from seu_bench.training import StrategyFactory

if TYPE_CHECKING:
    from torch import nn

    from seu_bench.training import BackboneFactory


class HatOptions(PlateauOptions, BackboneOptions, TaskInferenceOptions):
    """Options of hard attention to the task."""

    tuning_grid: ClassVar[TuningGrid] = {
        "hat_lambda": (0.05, 0.25, 0.75),
        "learning_rate": (0.025, 0.05, 0.1, 0.2),
    }

    hat_lambda: NonNegativeFloat = Field(0.75, description="weight of the penalty on units that no earlier task uses")
    s_max: Annotated[float, Field(ge=1)] = Field(
        400.0, description="largest factor of the embeddings within the gates, and the one of evaluation"
    )
    learning_rate: PositiveFloat | None = Field(0.05, description="learning rate of the first epoch")
    weight_decay: NonNegativeFloat | None = Field(
        0.0, description="weight decay of SGD; only 0 leaves alone what earlier tasks use"
    )
    clip_norm: PositiveFloat | None = Field(10_000.0, description="largest norm of the gradient")
    min_learning_rate: NonNegativeFloat | None = Field(
        1e-4, description="where the cosine schedule ends; with lr_schedule=plateau training ends below it"
    )


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``hat``."""
    register(
        "hat",
        LazyFactory(
            "hard attention to the task: a learned gate per task and unit (Serra et al. 2018)",
            options=HatOptions,
            build="seu_bench_hat.strategy:build_hat",
            cost="seu_bench_hat.strategy:hat_cost",
            # On streams of a few steps the published penalty closes units before they have learned anything.
            check_options={"hat_lambda": 0.05, "learning_rate": 0.1},
        ),
    )


class HatMlp:
    """The perceptron that Serra et al. learn permuted MNIST with."""

    summary = "two hidden layers of 2000, dropout .2 on the pixels, .5 behind each layer (Serra et al. 2018)"

    def build(self, channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
        """Images ``[N, channels, height, width]`` to features ``[N, F]``, and ``F``."""
        made: tuple[nn.Module, int] = deferred("seu_bench_hat.networks:hat_mlp")(channels, height, width, factor)
        return made


@hookimpl
def register_backbones(register: Register[BackboneFactory]) -> None:
    """Offer ``hat_mlp``."""
    register("hat_mlp", HatMlp())
