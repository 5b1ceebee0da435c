"""Benchmarks as validated values: which data sets, cut into which tasks, in which order, under which protocols.

:mod:`seu_bench.config.benchmark_file` reads one from a TOML file. Rules between keys are validators of the last key
that they concern, so that pydantic lists their faults beside all others; they are omitted where an earlier key of
theirs is itself at fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo, field_validator

from seu_bench.config.options import Frozen
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.config.toml_file import OwnPath

Fraction: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=60)]


class InputSpec(Frozen):
    """Preprocessing of raw 8-bit images into a network's input.

    Constant zero padding comes first (in raw pixels), then division by 255, then ``(x - mean) / std`` per channel,
    then a single grey channel is repeated to ``channels``.
    """

    mean: tuple[float, ...] | None = Field(None, description="per channel, of pixels in [0, 1]; computed if not given")
    std: tuple[PositiveFloat, ...] | None = Field(None, description="per channel; computed if not given")
    pad: NonNegativeInt = Field(0, description="zero pixels added on each side")
    channels: PositiveInt | None = Field(None, description="repeat a grey image to so many channels")

    @field_validator("std")
    @classmethod
    def _beside_mean(cls, std: tuple[float, ...] | None, info: ValidationInfo) -> tuple[float, ...] | None:
        mean = info.data.get("mean", std)
        if (mean is None) != (std is None):
            raise ValueError("mean and std go together: give both, or none to have them computed")
        if mean is not None and std is not None and len(mean) != len(std):
            raise ValueError("mean and std need the same number of channels")
        return std


def _class(value: Any) -> Any:
    """Refuse what is neither the number nor the name of a class."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError('must be a class: its number, such as 0, or its name in quotes, such as "daisy"')
    if value < 0:
        raise ValueError("must be at least 0: classes are numbered from 0")
    return int(value)


#: A class by its label, or by its name in the data set.
ClassLabel: TypeAlias = Annotated[int | str, BeforeValidator(_class)]


#: What is known of an image at test time, and what is asked (van de Ven, Tuytelaars & Tolias, "Three types of
#: incremental learning", Nature Machine Intelligence 2022). ``task``: its task is known, and each task has a head of
#: its own. ``class``: it is not known, and one head answers with a class of any task seen so far. ``domain``: it is not
#: known, and one head answers with a class that all tasks share.
Scenario: TypeAlias = Literal["task", "class", "domain"]
SCENARIOS: Final[tuple[Scenario, ...]] = ("task", "class", "domain")


def titled(name: str, scenario: Scenario) -> str:
    """The name of a benchmark in a scenario, with the scenario where that is neither ``task`` nor in the name."""
    is_told = scenario == "task" or name.endswith(f"_{scenario}")
    return name if is_told else f"{name}-{scenario}"


class Stream(Frozen):
    """What all streams of tasks have."""

    scenario: Scenario = Field("task", description="whether the task of a test image is known, and what is asked of it")


class ClassSplit(Stream):
    """Tasks are groups of classes of one data set; labels are renumbered from 0 within a task.

    Classes may be given by name. :func:`seu_bench.data.classes.numbered` puts labels in their place, so that a
    run is the same however its classes were given.
    """

    kind: Literal["classes"]
    dataset: str
    classes_per_task: PositiveInt | None = Field(None, description="consecutive classes per task")
    groups: tuple[tuple[ClassLabel, ...], ...] | None = Field(
        None, description="classes of each task, in full: labels, names or both"
    )
    class_order: Literal["natural", "shuffled"] | NonNegativeInt = Field(
        "natural",
        description="order of the classes before they are cut by classes_per_task: that of their labels, shuffled by "
        "the run's seed, or by a seed of its own for all runs, such as 1993 (the field's usual one)",
    )
    order: Literal["shuffled", "fixed"] | tuple[ClassLabel, ...] = Field(
        "shuffled", description="tasks by index, or by the name of a class of theirs"
    )
    validation: Fraction = 0.10
    input: InputSpec = InputSpec()

    @field_validator("order")
    @classmethod
    def _of_known_tasks(cls, order: Any, info: ValidationInfo) -> Any:
        if isinstance(order, tuple) and info.data.get("class_order", "natural") != "natural":
            raise ValueError("class_order decides which classes a task has: give order as fixed or shuffled")
        return order

    @field_validator("groups")
    @classmethod
    def _one_way(cls, groups: Any, info: ValidationInfo) -> Any:
        if "classes_per_task" in info.data and (info.data["classes_per_task"] is None) == (groups is None):
            raise ValueError("give either classes_per_task or groups")
        flat = [label for group in groups or () for label in group]
        if not all(groups or ()) or groups == ():
            raise ValueError("each group needs a class at least")
        if twice := [label for label, count in Counter(flat).items() if count > 1]:
            raise ValueError(f"groups share no class, but {', '.join(map(repr, twice))} is in them twice")
        return groups

    @field_validator("class_order")
    @classmethod
    def _before_a_cut(cls, class_order: Any, info: ValidationInfo) -> Any:
        if class_order != "natural" and info.data.get("groups"):
            raise ValueError("groups name the classes of each task: class_order is for classes_per_task")
        return class_order


class Permutation(Stream):
    """Every task is the whole data set with its pixels permuted, a different permutation per task."""

    kind: Literal["permutation"]
    dataset: str
    tasks: Annotated[int, Field(ge=1, le=1000)] = 10
    validation: Fraction = 0.10
    input: InputSpec = InputSpec()


class DatasetTask(Frozen):
    """One task of :class:`DatasetSequence`: a data set of its own."""

    dataset: str
    classes: PositiveInt | None = Field(None, description="outputs of the head; the data set's classes if not given")
    label_offset: NonNegativeInt = Field(0, description="subtracted from every label")
    input: InputSpec = InputSpec()


class DatasetSequence(Stream):
    """Every task is another data set."""

    kind: Literal["datasets"]
    tasks: Annotated[dict[str, DatasetTask], Field(min_length=1)]
    order: tuple[str, ...] | Literal["shuffled"] | None = Field(
        None, description="names of the tasks in order; the file's order if not given"
    )
    validation: Fraction = 0.10

    @field_validator("order")
    @classmethod
    def _known(cls, order: Any, info: ValidationInfo) -> Any:
        tasks = info.data.get("tasks", order)
        if isinstance(order, tuple) and sorted(order) != sorted(tasks):
            raise ValueError(f"order must name each of {', '.join(tasks)} once")
        return order


StreamSpec: TypeAlias = Annotated[ClassSplit | Permutation | DatasetSequence, Field(discriminator="kind")]


class FolderDefinition(Frozen):
    """A folder of class folders of images; with sub-folders ``train`` and ``test``, or one that is split here."""

    kind: Literal["folder"]
    path: OwnPath
    size: PositiveInt | tuple[PositiveInt, PositiveInt] = Field(description="height and width of every image")
    channels: Literal[1, 3] = 3
    test_fraction: Fraction = Field(0.20, description="held out per class where there is no test folder")


class NpzDefinition(Frozen):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test``, ``y_test``."""

    kind: Literal["npz"]
    path: OwnPath
    test_fraction: Fraction = Field(0.20, description="held out per class where the file has no test arrays")
    label_offset: NonNegativeInt | None = Field(
        None, description="subtracted from every label; if not given, labels must begin at 0"
    )


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


class BenchmarkSpec(Frozen):
    """A benchmark: data sets, their cut into tasks, and the protocols it is learned with.

    Attributes:
        stream: tasks, their order and how images become inputs.
        datasets: the user's own, by name.
        protocols: by name; ``default_protocol`` is one of them.
    """

    name: Name
    version: PositiveInt = 1
    summary: str = ""
    citation: str = ""
    default_protocol: str = "paper"
    stream: StreamSpec
    datasets: dict[Name, DatasetDefinition] = Field(default_factory=dict)
    protocols: dict[Name, ProtocolSpec]

    @field_validator("protocols")
    @classmethod
    def _default_exists(cls, protocols: dict[str, ProtocolSpec], info: ValidationInfo) -> dict[str, ProtocolSpec]:
        default = info.data.get("default_protocol", next(iter(protocols), None))
        if default not in protocols:
            raise ValueError(f"default_protocol {default!r} is not one of {', '.join(protocols)}")
        return protocols

    @property
    def title(self) -> str:
        """Its name, with the scenario where that is neither ``task`` nor in the name."""
        return titled(self.name, self.stream.scenario)

    def identity(self) -> dict[str, Any]:
        """Values that make two benchmarks the same: all but texts, protocols and where the user's files lie."""
        texts = dict.fromkeys(("summary", "citation", "protocols", "default_protocol"), True)
        identity = self.model_dump(mode="json", exclude={**texts, "datasets": {"__all__": {"path"}}})
        identity["stream"] = self.stream_identity()
        for table in identity["datasets"].values():
            if not table.get("label_offset"):  # a later key: where it changes nothing, runs are those that they were
                table.pop("label_offset", None)
        return identity

    def stream_identity(self) -> dict[str, Any]:
        """Values of the stream that tell it from another; keys of later versions only where they change something."""
        later = {"scenario": "task", "class_order": "natural"}
        stream = self.stream.model_dump(mode="json")
        return {key: value for key, value in stream.items() if key not in later or value != later[key]}


class BenchmarkSource(Protocol):
    """A benchmark that is loaded when it is needed; ``register_benchmarks`` offers such."""

    @property
    def summary(self) -> str:
        """One line that says what it is."""

    def load(self, overrides: Mapping[str, Any] | None = None) -> BenchmarkSpec:
        """The benchmark, with keys such as ``stream.validation`` replaced.

        Raises:
            SpecError: the file is missing or has faults.
        """
