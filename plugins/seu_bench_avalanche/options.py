"""Options of Avalanche's strategies, under Avalanche's names and with its defaults where it has any."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from seu_bench.config import LEARNING_RATES, BackboneOptions, TuningGrid

#: Images kept of all earlier tasks together, unless an option says otherwise: Avalanche's default.
MEMORY = 200


class PlainOptions(BackboneOptions):
    """Options of a strategy that has none of its own. Avalanche selects no weights: the last ones are kept."""


class LwfOptions(PlainOptions):
    """Learning without forgetting."""

    tuning_grid: ClassVar[TuningGrid] = {"alpha": (0.3, 1.0, 3.0, 10.0), "learning_rate": LEARNING_RATES}

    alpha: NonNegativeFloat = Field(1.0, description="weight of the distillation loss")
    temperature: PositiveFloat = Field(2.0, description="temperature of the distilled softmax")


class SiOptions(PlainOptions):
    """Synaptic intelligence; the defaults are those of Avalanche's reproduction of Zenke et al. on split MNIST."""

    tuning_grid: ClassVar[TuningGrid] = {
        "si_lambda": (100.0, 1_000.0, 10_000.0, 100_000.0),
        "learning_rate": LEARNING_RATES,
    }

    si_lambda: NonNegativeFloat = Field(1.0, description="weight of the penalty (Avalanche caps importances at .001)")
    eps: PositiveFloat = Field(0.1, description="damping of the importances")


class MasOptions(PlainOptions):
    """Memory-aware synapses."""

    tuning_grid: ClassVar[TuningGrid] = {"lambda_reg": (0.001, 0.01, 0.1, 1.0), "learning_rate": LEARNING_RATES}

    lambda_reg: NonNegativeFloat = Field(1.0, description="weight of the penalty")
    alpha: Annotated[float, Field(ge=0, le=1)] = Field(0.5, description="share of earlier tasks in the importances")


class RwalkOptions(PlainOptions):
    """Riemannian walk, without replay."""

    tuning_grid: ClassVar[TuningGrid] = {"ewc_lambda": (0.1, 1.0, 10.0), "learning_rate": LEARNING_RATES}

    ewc_lambda: NonNegativeFloat = Field(0.1, description="weight of the penalty")
    ewc_alpha: Annotated[float, Field(ge=0, le=1)] = Field(0.9, description="share of the newest batch in the Fisher")
    delta_t: PositiveInt = Field(10, description="batches between two updates of the scores")


class EpisodicOptions(PlainOptions):
    """A memory with a fixed share for each task."""

    patterns_per_experience: PositiveInt | None = Field(
        None, description=f"images kept per task; {MEMORY} divided by the number of tasks if absent"
    )


class GemOptions(EpisodicOptions):
    """Gradient episodic memory."""

    tuning_grid: ClassVar[TuningGrid] = {"memory_strength": (0.0, 0.5, 1.0), "learning_rate": LEARNING_RATES}

    memory_strength: NonNegativeFloat = Field(0.5, description="margin of the projection, in favour of old tasks")


class AgemOptions(EpisodicOptions):
    """Averaged gradient episodic memory."""

    sample_size: PositiveInt = Field(64, description="images of the reference gradient")


class MemoryOptions(PlainOptions):
    """A memory that all tasks share."""

    mem_size: PositiveInt = Field(MEMORY, description="images kept of all tasks together")


class ReplayOptions(MemoryOptions):
    """Experience replay."""

    batch_size_mem: PositiveInt | None = Field(
        None, description="images of the memory per batch; as many as new ones if absent"
    )


class MirOptions(ReplayOptions):
    """Maximally interfered retrieval."""

    subsample: PositiveInt = Field(50, description="images of the memory to choose from (Aljundi et al. 2019)")


class ErAceOptions(MemoryOptions):
    """Experience replay with asymmetric cross-entropy."""

    tuning_grid: ClassVar[TuningGrid] = {"batch_size_mem": (10, 32), "learning_rate": LEARNING_RATES}

    batch_size_mem: PositiveInt = Field(10, description="images of the memory per batch")
