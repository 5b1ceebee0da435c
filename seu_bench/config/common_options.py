"""Options that strategies or searchers share: derive a plugin's own options from these."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PlainValidator,
    PositiveFloat,
    PositiveInt,
)

from seu_bench.config.options import Options, TuningGrid
from seu_bench.config.protocol import FIRST, DropoutFactor, Milestones, OptimizerName, ScheduleOptions, ScheduleT
from seu_bench.errors import OptionError
from seu_bench.utils.reading import open_file

#: Learning rates that a strategy is tuned over: that of the standard protocols, and a factor of about three either way.
LEARNING_RATES: Final[tuple[float, ...]] = (0.008, 0.025, 0.08)


class UntrainedOptions(Options):
    """Options of a method that is computed and not trained; published records have those of training, too."""

    removed: ClassVar[Mapping[str, Any]] = {**dict.fromkeys(ScheduleOptions.model_fields), "lr_schedule": "cosine"}


class TrainingOptions(ScheduleOptions):
    """Options of the training stage of :class:`~seu_bench.training.strategy.StagedStrategy`.

    One that is given holds for all tasks, unless the same layer gives that of the first.
    """

    tuning_grid: ClassVar[TuningGrid] = {"learning_rate": LEARNING_RATES}

    lr_schedule: Literal["cosine", "constant"] = Field(
        "cosine", description="learning rate over the epochs of a task, where it has no milestones"
    )
    optimizer: OptimizerName | None = Field(
        None, description="of training; Adam's first beta is momentum, and its rate better a tenth of SGD's or less"
    )
    milestones: Milestones | None = Field(
        None, description="epochs, or shares of them below 1, after which the rate is multiplied by gamma; []: none"
    )
    gamma: PositiveFloat | None = Field(None, description="factor of the learning rate at milestones")
    warmup_epochs: NonNegativeInt | None = Field(None, description="epochs at first over which the rate rises linearly")
    first_epochs: PositiveInt | None = Field(None, description="epochs of the first task")
    first_milestones: Milestones | None = Field(None, description="milestones of the first task")
    first_weight_decay: NonNegativeFloat | None = Field(None, description="weight decay of the first task")

    @classmethod
    def prepare(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Let what is given for all tasks replace what an earlier layer has for the first."""
        replaced = {f"first_{key}": None for key in FIRST if values.get(key) is not None}
        return replaced | super().prepare(values)

    def applied_to(self, schedule: ScheduleT) -> ScheduleT:
        """A copy of ``schedule`` with every value that is set here in place of its own, in the first task too."""
        own = {name: getattr(self, name) for name in type(schedule).model_fields if hasattr(self, name)}
        replaced = {f"first_{key}": None for key in FIRST if own.get(key) is not None}
        return schedule.model_copy(update=replaced | {name: it for name, it in own.items() if it is not None})


class SelectingOptions(TrainingOptions):
    """Options of a strategy that can select weights on validation images."""

    restore: Literal["best_valid", "last"] = Field(
        "best_valid", description="weights kept: lowest validation loss, or last"
    )


class WidthOptions(TrainingOptions):
    """Options of a strategy on a network of fixed shape, whose hidden layers can be scaled."""

    width: PositiveFloat | None = Field(None, description="factor of the widths of the network's hidden layers")
    dropout: DropoutFactor | None = Field(None, description="factor of the network's dropout rates")


@dataclass(frozen=True)
class Weights:
    """A file of weights: its path, unknown where a record names it, and digits of its SHA-256, its part of run ids."""

    path: Path | None
    sha256: str

    def __str__(self) -> str:
        return f"sha256:{self.sha256}"

    @classmethod
    def parse(cls, given: Any) -> Weights:
        """Read a path, or the text of :meth:`__str__`; a ValueError where there is no such file."""
        if isinstance(given, Weights):
            return given
        if not isinstance(given, str | Path) or not str(given):
            raise ValueError("give the path of a file of weights")
        if found := re.fullmatch(r"sha256:([0-9a-f]{16})", str(given)):
            return cls(None, found[1])
        try:
            path = Path(given).expanduser().resolve()
            with open_file(path) as file:
                return cls(path, digest_of(file))
        except (OSError, ValueError, RuntimeError) as error:
            raise ValueError(f"{given} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def digest_of(file: BufferedIOBase) -> str:
    """The digits by which :class:`Weights` tells files apart."""
    return hashlib.file_digest(file, "sha256").hexdigest()[:16]


WeightsFile: TypeAlias = Annotated[
    Weights, PlainValidator(Weights.parse), PlainSerializer(str, return_type=str, when_used="always")
]


class BackboneOptions(WidthOptions):
    """Options of a strategy that takes any backbone."""

    backbone: str = Field("alexnet", description="network below the heads (seu-bench list backbones), or timm:NAME")
    weights: WeightsFile | None = Field(
        None, description="file of the backbone's weights: torch's tensors, or safetensors"
    )
    frozen: bool = Field(False, description="the backbone stays as it is, and only heads are learned")


class SpaceOptions(Options):
    """Options of a strategy that is made of extension units."""

    space: str = Field("darts_cell", description="search space of the units (seu-bench list spaces)")


class BudgetOptions(Options):
    """Options of a strategy whose images of earlier tasks are counted in all, or by the option ``memory_share``.

    Of the two the one that is given last holds.
    """

    memory_share: ClassVar[str]

    memory: PositiveInt | None = Field(200, description="images kept of all tasks together")

    @classmethod
    def prepare(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Let each of the two ways to give the budget replace the other of an earlier layer."""
        given = [name for name in ("memory", cls.memory_share) if values.get(name) is not None]
        if len(given) > 1:
            raise OptionError(f"'memory' and {cls.memory_share!r} are both given", remedy="give 'memory' alone")
        return {**values, **{name: None for name in ("memory", cls.memory_share) if given and name not in given}}

    def identity(self) -> dict[str, Any]:
        """Leave out the one that the other replaces: run ids are older than this."""
        return {key: value for key, value in super().identity().items() if value is not None}


class MemoryOptions(BudgetOptions):
    """Options of a strategy that keeps images of earlier tasks: ``memory`` in all, or ``memory_per_class``."""

    id_names: ClassVar[Mapping[str, str]] = {"memory": "mem_size"}
    memory_share: ClassVar[str] = "memory_per_class"

    memory_per_class: PositiveInt | None = Field(None, description="images kept of each class, in place of memory")


#: By what a path is chosen where the task of an image is not known.
Certainty: TypeAlias = Literal["entropy", "energy"]


class TaskInferenceOptions(Options):
    """Options of a strategy that needs the task of an image, and can do without by choosing among its paths."""

    infer_task: Certainty | None = Field(
        None,
        description="where no task is known: the most certain path answers, by entropy or energy; all are computed",
    )


class ScoringOptions(ScheduleOptions):
    """Options of a searcher or creator that trains networks a little and compares them by their accuracy."""

    recalibration_images: NonNegativeInt = Field(
        1024, description="training images from which statistics of BatchNorm are estimated anew before scoring; 0: not"
    )


#: Fewer than three cells have no place for two reductions.
Cells: TypeAlias = Annotated[int, Field(ge=3)]


class NetworkOptions(ScheduleOptions):
    """Options of a searcher that builds networks of the protocol's search size, and trains them or not."""

    cells: Cells | None = Field(None, description="cells of the proxy network")
    channels: PositiveInt | None = Field(None, description="initial channels of the proxy network")
