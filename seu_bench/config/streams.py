"""Streams as validated values: of which images tasks are made, in which order, and what learners are told of them.

docs/reference/benchmarks.md describes every key.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from seu_bench.config.options import Frozen, Identified

Fraction: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
#: The share of training images that validates; 0: none does.
Validation: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Color: TypeAlias = tuple[Share, Share, Share]


class Augmentation(Frozen):
    """What is drawn anew for each training image in each batch, in this order; nothing by default."""

    crop: NonNegativeInt = 0  # black pixels added on each side, of which a place of the old size is cut out
    flip: bool = False  # half of the images are mirrored, left to right
    brightness: Annotated[float, Field(ge=0, lt=1)] = 0.0  # factor from 1 - brightness to 1 + brightness
    contrast: Annotated[float, Field(ge=0, lt=1)] = 0.0  # factor of pixels' distances to the image's mean


class InputSpec(Identified):
    """Preprocessing of raw 8-bit images: ``pad`` zero pixels on each side, division by 255, the ``color`` of a grey
    image's background, ``x + (1 - x) * color``, which may be drawn by the run's seed and the task, ``(x - mean) / std``
    per channel, which are computed if not given, and a single grey channel repeated to ``channels``.

    They are computed from all training images of the data set, or, where nothing may look ahead (``normalise =
    "first_task"``), from those that the stream's first task is trained on, for all tasks.

    ``resize`` brings images to so many pixels on each side before they are normalised. Where an ``encoder``, a
    pretrained network, is named (``seu-bench list encoders``), images are normalised as it was trained, and methods get
    its features, of the ``layers`` named, by default of the last one.

    Of features ``(x - mean) / std`` per column is all that is done, and of tokens nothing."""

    later: ClassVar[frozenset[str]] = frozenset({"color", "augment", "normalise", "resize", "encoder", "layers"})

    mean: tuple[float, ...] | None = None
    std: tuple[PositiveFloat, ...] | None = None
    pad: NonNegativeInt = 0
    channels: PositiveInt | None = None
    color: Literal["random"] | Color | None = None
    augment: Augmentation = Augmentation()
    normalise: Literal["data_set", "first_task"] = "data_set"
    resize: PositiveInt | None = None
    encoder: str | None = None
    layers: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_channels(self) -> Self:
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std go together: give both, or none to have them computed")
        if self.mean is not None and self.std is not None and len(self.mean) != len(self.std):
            raise ValueError("mean and std need the same number of channels")
        if self.layers is not None and self.encoder is None:
            raise ValueError("layers are those of an encoder: give input.encoder, or leave layers out")
        if self.encoder is not None and (self.augment != Augmentation() or self.channels not in (None, 3)):
            raise ValueError("an encoder takes coloured images as they are: leave augment and channels out")
        if self.color is not None and self.channels not in (None, 3):
            raise ValueError("coloured images have 3 channels: give channels = 3, or no channels")
        return self


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

#: By label, by the run's seed, by one of its own, or as listed.
ClassOrder: TypeAlias = Literal["natural", "shuffled"] | NonNegativeInt | tuple[ClassLabel, ...]

#: What a sample is: pixels, numbers, or ids of tokens.
InputKind: TypeAlias = Literal["image", "features", "tokens"]

#: What is known of an image at test time, and what is asked (van de Ven, Tuytelaars & Tolias, "Three types of
#: incremental learning", Nature Machine Intelligence 2022). ``task``: its task is known, and each task has a head of
#: its own. ``class``: it is not known, and one head answers with a class of any task seen so far. ``domain``: it is not
#: known, and one head answers with a class that all tasks share.
Scenario: TypeAlias = Literal["task", "class", "domain"]
SCENARIOS: Final[tuple[Scenario, ...]] = ("task", "class", "domain")


def title_of(name: str, scenario: Scenario) -> str:
    """The name of a benchmark in a scenario, with the scenario where that is neither ``task`` nor in the name."""
    is_told = scenario == "task" or name.endswith(f"_{scenario}")
    return name if is_told else f"{name}-{scenario}"


def _find_repeats(labels: tuple[int | str, ...]) -> str:
    return ", ".join(repr(label) for label, count in Counter(labels).items() if count > 1)


class Stream(Identified):
    """What all streams of tasks have."""

    later: ClassVar[frozenset[str]] = frozenset({"scenario"})

    scenario: Scenario = "task"

    @property
    def validates(self) -> bool:
        """Whether tasks have validation images."""
        return getattr(self, "validation", None) != 0


class ClassSplit(Stream):
    """Tasks are groups of classes of one data set, by label or name; labels are renumbered from 0 within a task."""

    later: ClassVar[frozenset[str]] = frozenset({"scenario", "class_order", "first", "sessions"})

    kind: Literal["classes"]
    dataset: str
    classes_per_task: PositiveInt | None = Field(None, validation_alias=AliasChoices("classes_per_task", "then"))
    first: PositiveInt | None = Field(None, validation_alias=AliasChoices("first", "first_task"))
    groups: tuple[tuple[ClassLabel, ...], ...] | None = None
    class_order: ClassOrder = "natural"
    sessions: PositiveInt = 1
    order: Literal["shuffled", "fixed"] | tuple[NonNegativeInt, ...] = "shuffled"
    validation: Validation = 0.10
    input: InputSpec = InputSpec()

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        if (self.classes_per_task is None) == (self.groups is None):
            raise ValueError("give either classes_per_task or groups")
        if self.class_order != "natural" and isinstance(self.order, tuple):
            raise ValueError("class_order decides which classes a task has: give order as fixed or shuffled")
        if self.groups is None:
            return self
        if self.first is not None or self.class_order != "natural":
            keys = "first (first_task) and class_order"
            raise ValueError(f"groups name the classes of each task: {keys} are for classes_per_task")
        if not self.groups or not all(self.groups):
            raise ValueError("each group needs a class at least")
        for group in self.groups:
            if twice := _find_repeats(group):
                raise ValueError(f"a group has each class once, but {twice} is in one twice")
        return self


class Permutation(Stream):
    """Every task is the whole data set with its pixels permuted, a different permutation per task."""

    kind: Literal["permutation"]
    dataset: str
    tasks: Annotated[int, Field(ge=1, le=1000)] = 10
    validation: Validation = 0.10
    input: InputSpec = InputSpec()


class DatasetTask(Identified):
    """One task of :class:`DatasetSequence`: a data set of its own, or some of its classes and images."""

    later: ClassVar[frozenset[str]] = frozenset(
        {"labels", "draw_classes", "rotate_labels", "train_per_class", "valid_per_class", "test_per_class"}
    )

    dataset: str
    classes: PositiveInt | None = None
    label_offset: NonNegativeInt = 0
    labels: Annotated[tuple[ClassLabel, ...], Field(min_length=1)] | None = None
    draw_classes: PositiveInt | None = None
    rotate_labels: NonNegativeInt = 0
    train_per_class: PositiveInt | None = None
    valid_per_class: NonNegativeInt | None = None
    test_per_class: PositiveInt | None = None
    input: InputSpec = InputSpec()

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        if sum(map(bool, (self.labels, self.draw_classes, self.classes or self.label_offset))) > 1:
            raise ValueError("give one of labels, draw_classes, and classes with label_offset")
        if twice := _find_repeats(self.labels or ()):
            raise ValueError(f"a task has each class once, but {twice} is there twice")
        if (self.train_per_class is None) != (self.valid_per_class is None):
            raise ValueError("give both train_per_class and valid_per_class, or none of them")
        return self


class DatasetSequence(Stream):
    """Every task is another data set; ``input`` is that of tasks that have none of their own."""

    kind: Literal["datasets"]
    tasks: Annotated[dict[str, DatasetTask], Field(min_length=1)]
    order: tuple[str, ...] | Literal["shuffled"] | None = None  # names of the tasks; the file's order if not given
    validation: Validation = 0.10
    input: InputSpec = Field(InputSpec(), exclude=True)  # which each task has when it is validated

    @model_validator(mode="before")
    @classmethod
    def _share_input(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(shared := values.get("input"), dict):
            return values
        tasks = values.get("tasks")
        if not isinstance(tasks, dict) or not all(isinstance(task, dict) for task in tasks.values()):
            return values
        own = {name: task | {"input": shared | task.get("input", {})} for name, task in tasks.items()}
        return values | {"tasks": own}

    @property
    def validates(self) -> bool:
        """Whether every task has validation images."""
        counts = (task.valid_per_class for task in self.tasks.values())
        return all(self.validation if count is None else count for count in counts)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if isinstance(self.order, tuple) and sorted(self.order) != sorted(self.tasks):
            raise ValueError(f"order must name each of {', '.join(self.tasks)} once")
        return self


class TaskSize(Frozen):
    """Images of each class of a task, at most."""

    train_per_class: PositiveInt
    valid_per_class: PositiveInt


class LargeTasks(Frozen):
    """Up to task ``until``, from 1, each task is a large one by the probability ``share``."""

    until: PositiveInt
    share: Share


class DrawnTasks(Stream):
    """Every task is some classes of a data set, both drawn by the run's seed, and has few images or many."""

    kind: Literal["drawn"]
    tasks: Annotated[int, Field(ge=1, le=1000)] = 100
    classes_per_task: PositiveInt
    sources: Annotated[dict[str, InputSpec], Field(min_length=1)]
    large: TaskSize
    small: TaskSize
    large_tasks: tuple[LargeTasks, ...] = ()
    test_per_class: PositiveInt | None = None

    @model_validator(mode="after")
    def _check_large_tasks(self) -> Self:
        if any(later.until <= earlier.until for earlier, later in pairwise(self.large_tasks)):
            raise ValueError("the values of 'until' in large_tasks must ascend")
        return self


class OnlineStream(Stream):
    """Each image of a data set once, in segments that share classes (i-Blurry; H. Koh et al., "Online Continual
    Learning on Class Incremental Blurry Task Configuration with Anytime Inference", ICLR 2022).

    Of the classes the share ``disjoint`` is in one segment each. Each other class has one, too, in which most of its
    images come; the share ``blur`` of them comes in the other segments, in each as many.
    """

    validation: ClassVar[float] = 0.0  # nothing is selected

    kind: Literal["online"]
    scenario: Literal["class"] = "class"
    dataset: str
    tasks: Annotated[int, Field(ge=2, le=1000)] = 5
    disjoint: Share = 0.5
    blur: Share = 0.1
    class_order: ClassOrder = "shuffled"
    input: InputSpec = InputSpec()


StreamSpec: TypeAlias = Annotated[
    ClassSplit | Permutation | DatasetSequence | DrawnTasks | OnlineStream, Field(discriminator="kind")
]


def stream_inputs(stream: Stream) -> list[InputSpec]:
    """The inputs of all tasks of a stream."""
    if isinstance(stream, DatasetSequence):
        return [task.input for task in stream.tasks.values()]
    if isinstance(stream, DrawnTasks):
        return [*stream.sources.values()]
    return [stream.input] if isinstance(stream, ClassSplit | Permutation | OnlineStream) else []


def stream_identity(stream: Stream) -> dict[str, Any]:
    """Values of a stream that tell it from another; keys of later versions only where they change something."""
    values = stream.model_dump(mode="json")
    for source in values.get("sources", {}).values():
        source.setdefault("color", None)  # which is as old as these streams are
    return values
