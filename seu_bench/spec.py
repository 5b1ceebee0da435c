"""What a run is made of, as validated values: :class:`BenchmarkSpec`, :class:`ProtocolSpec` and :class:`RunSpec`.

A benchmark is a TOML file (:mod:`seu_bench.benchmark_file` reads it): which data set, cut into tasks how, in which
order, normalised how, and the named protocols that say for how long and with which hyper-parameters it is learned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypeVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from seu_bench.computing import Precision
from seu_bench.options import Frozen, Options

Fraction: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=60)]


class InputSpec(Frozen):
    """How raw 8-bit images become a network's input.

    Constant zero padding comes first (in raw pixels), then division by 255, then ``(x - mean) / std`` per channel,
    then a single grey channel is repeated to ``channels``.
    """

    mean: tuple[float, ...] | None = Field(None, description="per channel, of pixels in [0, 1]; computed if absent")
    std: tuple[PositiveFloat, ...] | None = Field(None, description="per channel; computed if absent")
    pad: NonNegativeInt = Field(0, description="zero pixels added on each side")
    channels: PositiveInt | None = Field(None, description="repeat a grey image to so many channels")

    @model_validator(mode="after")
    def _together(self) -> InputSpec:
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std go together: give both, or none to have them computed")
        if self.mean is not None and self.std is not None and len(self.mean) != len(self.std):
            raise ValueError("mean and std need the same number of channels")
        return self


class ClassSplit(Frozen):
    """Tasks are groups of classes of one data set; labels are renumbered from 0 within a task."""

    kind: Literal["classes"]
    dataset: str
    classes_per_task: PositiveInt | None = Field(None, description="consecutive classes per task")
    groups: tuple[tuple[NonNegativeInt, ...], ...] | None = Field(None, description="classes of each task, in full")
    order: Literal["shuffled", "fixed"] | tuple[NonNegativeInt, ...] = "shuffled"
    validation: Fraction = 0.10
    input: InputSpec = InputSpec()

    @model_validator(mode="after")
    def _one_way(self) -> ClassSplit:
        if (self.classes_per_task is None) == (self.groups is None):
            raise ValueError("give either classes_per_task or groups")
        if self.groups is not None:
            flat = [label for group in self.groups for label in group]
            if len(flat) != len(set(flat)) or not all(self.groups):
                raise ValueError("groups must be non-empty and share no class")
        return self


class Permutation(Frozen):
    """Every task is the whole data set with its pixels permuted, a different permutation per task."""

    kind: Literal["permutation"]
    dataset: str
    tasks: Annotated[int, Field(ge=1, le=1000)] = 10
    validation: Fraction = 0.10
    input: InputSpec = InputSpec()


class DatasetTask(Frozen):
    """One task of :class:`DatasetSequence`: a data set of its own."""

    dataset: str
    classes: PositiveInt | None = Field(None, description="outputs of the head; the data set's classes if absent")
    label_offset: NonNegativeInt = Field(0, description="subtracted from every label")
    input: InputSpec = InputSpec()


class DatasetSequence(Frozen):
    """Every task is another data set."""

    kind: Literal["datasets"]
    tasks: Annotated[dict[str, DatasetTask], Field(min_length=1)]
    order: tuple[str, ...] | Literal["shuffled"] | None = Field(
        None, description="names of the tasks in order; the file's order if absent"
    )
    validation: Fraction = 0.10

    @model_validator(mode="after")
    def _known(self) -> DatasetSequence:
        if isinstance(self.order, tuple) and sorted(self.order) != sorted(self.tasks):
            raise ValueError(f"order must name each of {', '.join(self.tasks)} once")
        return self


StreamSpec: TypeAlias = Annotated[ClassSplit | Permutation | DatasetSequence, Field(discriminator="kind")]


class FolderDefinition(Frozen):
    """A folder of class folders of images; with sub-folders ``train`` and ``test``, or one that is split here."""

    kind: Literal["folder"]
    path: Path
    size: PositiveInt | tuple[PositiveInt, PositiveInt] = Field(description="height and width of every image")
    channels: Literal[1, 3] = 3
    test_fraction: Fraction = Field(0.20, description="held out per class where there is no test folder")


class NpzDefinition(Frozen):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test``, ``y_test``."""

    kind: Literal["npz"]
    path: Path
    test_fraction: Fraction = Field(0.20, description="held out per class where the file has no test arrays")


class TorchvisionDefinition(Frozen):
    """Any classification set of ``torchvision.datasets`` by class name."""

    kind: Literal["torchvision"]
    class_name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = Field(None, description="resize every image to this")
    channels: Literal[1, 3] | None = None
    train: dict[str, Any] | None = Field(None, description="constructor arguments of the training set")
    test: dict[str, Any] | None = Field(None, description="constructor arguments of the test set")
    test_fraction: Fraction = Field(0.20, description="held out per class where the set has no test split")


DatasetDefinition: TypeAlias = Annotated[
    FolderDefinition | NpzDefinition | TorchvisionDefinition, Field(discriminator="kind")
]


class Schedule(Frozen):
    """One stage's optimisation: SGD with momentum, learning rate by cosine from ``learning_rate`` to
    ``min_learning_rate`` over the epochs (the paper's, section III)."""

    epochs: PositiveInt = 50
    batch_size: PositiveInt = 128
    learning_rate: PositiveFloat = 0.025
    min_learning_rate: NonNegativeFloat = 0.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegativeFloat = 3e-4
    clip_norm: PositiveFloat | None = 5.0


class SearchSchedule(Schedule):
    """The search for an extension unit on a small proxy network."""

    epochs: PositiveInt = 100
    batch_size: PositiveInt = 512
    min_learning_rate: NonNegativeFloat = 1e-3
    cells: Annotated[int, Field(ge=3)] = 4
    channels: PositiveInt = 16


class CreationSchedule(Schedule):
    """The choice of a unit in each layer; ``old_unit_epochs`` is the epoch count that old units start with."""

    epochs: PositiveInt = 100
    min_learning_rate: NonNegativeFloat = 1e-3
    old_unit_epochs: NonNegativeInt = 30


ScheduleT = TypeVar("ScheduleT", bound=Schedule)


class ScheduleOptions(Options):
    """Base of the options of whatever trains: parts of the protocol's schedule that a user may replace."""

    epochs: PositiveInt | None = Field(None, description="epochs of the stage")
    batch_size: PositiveInt | None = Field(None, description="images per training batch")
    learning_rate: PositiveFloat | None = Field(None, description="learning rate of the first epoch")
    min_learning_rate: NonNegativeFloat | None = Field(None, description="where the cosine schedule ends")
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = Field(None, description="momentum of SGD")
    weight_decay: NonNegativeFloat | None = Field(None, description="weight decay of SGD")
    clip_norm: PositiveFloat | None = Field(None, description="largest norm of the gradient")

    def applied_to(self, schedule: ScheduleT) -> ScheduleT:
        """``schedule`` with what is set here in place of its own."""
        values = {name: getattr(self, name, None) for name in type(schedule).model_fields}
        return schedule.model_copy(update={name: value for name, value in values.items() if value is not None})


class ModelSize(Frozen):
    """Sizes of networks: cells and initial channels of the super model, width of fixed backbones."""

    cells: Annotated[int, Field(ge=3)] = 6
    channels: PositiveInt = 36
    width: PositiveFloat = Field(1.0, description="factor of the hidden widths of fixed backbones")


class ImageLimits(Frozen):
    """At most so many images per task; ``None`` is all of them."""

    train: PositiveInt | None = None
    valid: PositiveInt | None = None
    test: PositiveInt | None = None

    def lowered_to(self, limit: int | None) -> ImageLimits:
        """These limits, none of them above ``limit``."""
        if limit is None:
            return self
        return ImageLimits(
            **{name: limit if value is None else min(value, limit) for name, value in self.model_dump().items()}
        )


class ProtocolSpec(Frozen):
    """For how long, with which hyper-parameters and on how many images a benchmark is learned."""

    summary: str = ""
    ranked: bool = Field(True, description="whether its records enter leaderboards")
    images: ImageLimits = ImageLimits()
    eval_batch_size: PositiveInt = 512
    training: Schedule = Schedule()
    search: SearchSchedule = SearchSchedule()
    creation: CreationSchedule = CreationSchedule()
    model: ModelSize = ModelSize()
    strategies: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options by strategy")
    searchers: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options by searcher")
    creators: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options by creator")


class BenchmarkSpec(Frozen):
    """What is learned, in which order."""

    name: Name
    version: PositiveInt = 1
    summary: str = ""
    citation: str = ""
    default_protocol: str = "paper"
    stream: StreamSpec
    datasets: dict[Name, DatasetDefinition] = Field(default_factory=dict)
    protocols: dict[Name, ProtocolSpec]

    @model_validator(mode="after")
    def _default_exists(self) -> BenchmarkSpec:
        if self.default_protocol not in self.protocols:
            raise ValueError(f"default_protocol {self.default_protocol!r} is not one of {', '.join(self.protocols)}")
        return self

    def identity(self) -> dict[str, Any]:
        """What makes two benchmarks the same: everything but texts, protocols and where the user's files lie."""
        document = self.model_dump(mode="json", exclude={"summary", "citation", "protocols", "default_protocol"})
        for definition in document["datasets"].values():
            definition.pop("path", None)
        return document


class BenchmarkSource(Protocol):
    """What ``register_benchmarks`` offers: something that can be loaded when it is needed."""

    @property
    def summary(self) -> str:
        """One line that says what it is."""

    def load(self, overrides: Mapping[str, Any] | None = None) -> BenchmarkSpec:
        """The benchmark, with keys such as ``stream.validation`` replaced.

        Raises:
            SpecError: the file is missing or has faults.
        """


class RunSpec(Frozen):
    """Everything that decides a run, resolved and validated."""

    strategy: str
    benchmark: BenchmarkSpec
    protocol_name: str
    searcher: str | None = None
    creator: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    searcher_options: dict[str, Any] = Field(default_factory=dict)
    creator_options: dict[str, Any] = Field(default_factory=dict)
    seed: NonNegativeInt = 0
    limit: PositiveInt | None = None
    synthetic: bool = False
    precision: Precision = "float32"
    local_data: dict[str, str] = Field(default_factory=dict, description="checksums of the user's own data files")

    @property
    def protocol(self) -> ProtocolSpec:
        """The protocol that is learned by."""
        return self.benchmark.protocols[self.protocol_name]

    @property
    def run_id(self) -> str:
        """A readable slug and a hash of what determines the result (not of the device, folders or versions)."""
        # Left out at its default, like options: ids of before it was there stay what they are.
        left_out = {"benchmark"} | ({"precision"} if self.precision == "float32" else set())
        decisive = self.model_dump(mode="json", exclude=left_out) | {
            "benchmark": self.benchmark.identity(),
            # Options by strategy, searcher and creator are among this run's own, where they concern it.
            "protocol": self.protocol.model_dump(
                mode="json", exclude={"summary", "ranked", "strategies", "searchers", "creators"}
            ),
        }
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:10]
        parts = [self.benchmark.name, self.protocol_name, self.strategy]
        parts += [part for part in (self.searcher, self.creator) if part and part != "mdl"]
        parts += [f"limit{self.limit}"] if self.limit else []
        parts += ["synthetic"] if self.synthetic else []
        parts += [self.precision] if self.precision != "float32" else []
        slug = "-".join(parts)[:150]  # the name of a folder; the hash tells apart what is cut off
        return f"{slug}-seed{self.seed}-{digest}"
