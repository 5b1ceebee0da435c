"""Options of Avalanche's strategies, under Avalanche's names and with its defaults where it has any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from seu_bench.config import LEARNING_RATES, BackboneOptions, TuningGrid
from seu_bench.errors import OptionError

#: Images kept of all tasks together, unless an option says otherwise: Avalanche's default.
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

    memory: PositiveInt | None = Field(
        MEMORY, description="images kept of all tasks together, as many of each, rounded down"
    )
    patterns_per_experience: PositiveInt | None = Field(None, description="images kept of each task, replaces memory")

    @classmethod
    def renamed(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Also let each of the two ways to give the size replace the other of an earlier layer."""
        found = super().renamed(values)
        total, each = found.get("memory"), found.get("patterns_per_experience")
        if total is not None and each is not None:
            raise OptionError("'memory' and 'patterns_per_experience' are both given", remedy="give 'memory' alone")
        if total is not None:
            return {**found, "patterns_per_experience": None}
        return {**found, "memory": None} if each is not None else found

    def identity(self) -> dict[str, Any]:
        """Leave out the memory that another option replaces: run ids are older than it."""
        return {key: value for key, value in super().identity().items() if value is not None}


class GemOptions(EpisodicOptions):
    """Gradient episodic memory."""

    tuning_grid: ClassVar[TuningGrid] = {"memory_strength": (0.0, 0.5, 1.0), "learning_rate": LEARNING_RATES}

    memory_strength: NonNegativeFloat = Field(0.5, description="margin of the projection, in favour of old tasks")


class AgemOptions(EpisodicOptions):
    """Averaged gradient episodic memory."""

    sample_size: PositiveInt = Field(64, description="images of the reference gradient")


class MemoryOptions(PlainOptions):
    """A memory that all tasks share."""

    older_names: ClassVar[Mapping[str, str]] = {"mem_size": "memory"}

    memory: PositiveInt = Field(MEMORY, description="images kept of all tasks together")


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
