"""Streams as validated values: of which images tasks are made, in which order, and what learners are told of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from seu_bench.config.augmentation import Augmentation
from seu_bench.config.options import Frozen

Fraction: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Color: TypeAlias = tuple[Share, Share, Share]


class InputSpec(Frozen):
    """Preprocessing of raw 8-bit images into a network's input.

    Constant zero padding comes first (in raw pixels), then division by 255, then the colour of the background, then
    ``(x - mean) / std`` per channel, then a single grey channel is repeated to ``channels``.
    """

    mean: tuple[float, ...] | None = Field(None, description="per channel, of pixels in [0, 1]; computed if not given")
    std: tuple[PositiveFloat, ...] | None = Field(None, description="per channel; computed if not given")
    pad: NonNegativeInt = Field(0, description="zero pixels added on each side")
    channels: PositiveInt | None = Field(None, description="repeat a grey image to so many channels")
    color: Literal["random"] | Color | None = Field(
        None,
        description="colour of the background of grey images, red, green and blue in [0, 1]: x + (1 - x) * color; "
        "'random': drawn by the run's seed and the task",
    )
    augment: Augmentation = Field(Augmentation(), description="what is drawn anew for each training image")

    @field_validator("std")
    @classmethod
    def _beside_mean(cls, std: tuple[float, ...] | None, info: ValidationInfo) -> tuple[float, ...] | None:
        mean = info.data.get("mean", std)
        if (mean is None) != (std is None):
            raise ValueError("mean and std go together: give both, or none to have them computed")
        if mean is not None and std is not None and len(mean) != len(std):
            raise ValueError("mean and std need the same number of channels")
        return std

    @field_validator("color")
    @classmethod
    def _of_three_channels(cls, color: Any, info: ValidationInfo) -> Any:
        if color is not None and info.data.get("channels") not in (None, 3):
            raise ValueError("coloured images have 3 channels: give channels = 3, or no channels")
        return color


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

    Classes may be given by name. :func:`seu_bench.data.tasks.numbered` puts labels in their place, so that a
    run is the same however its classes were given.
    """

    kind: Literal["classes"]
    dataset: str
    classes_per_task: PositiveInt | None = Field(
        None,
        validation_alias=AliasChoices("classes_per_task", "then"),
        description="consecutive classes per task, or per task after the first; the last task has what is left",
    )
    first: PositiveInt | None = Field(None, description="classes of the first task; classes_per_task if not given")
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
        if groups and info.data.get("first"):
            raise ValueError("groups name the classes of each task: first is for classes_per_task")
        if not all(groups or ()) or groups == ():
            raise ValueError("each group needs a class at least")
        for group in groups or ():
            if twice := [label for label, count in Counter(group).items() if count > 1]:
                raise ValueError(f"a group has each class once, but {', '.join(map(repr, twice))} is in one twice")
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
    """One task of :class:`DatasetSequence`: a data set of its own, or some of its classes and images."""

    dataset: str
    classes: PositiveInt | None = Field(None, description="outputs of the head; the data set's classes if not given")
    label_offset: NonNegativeInt = Field(0, description="subtracted from every label")
    labels: Annotated[tuple[ClassLabel, ...], Field(min_length=1)] | None = Field(
        None, description="the classes that it has, by label or name, numbered from 0 in this order; all if not given"
    )
    draw_classes: PositiveInt | None = Field(None, description="so many classes, drawn by the run's seed")
    rotate_labels: NonNegativeInt = Field(0, description="added to every label, modulo the number of classes")
    train_per_class: PositiveInt | None = Field(None, description="training images of each class, at most")
    valid_per_class: PositiveInt | None = Field(None, description="validation images of each class, at most")
    test_per_class: PositiveInt | None = Field(None, description="test images of each class, at most")
    input: InputSpec = InputSpec()

    @field_validator("labels", "draw_classes")
    @classmethod
    def _one_choice(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and (info.data.get("classes") or info.data.get("label_offset") or info.data.get("labels")):
            raise ValueError("give one of labels, draw_classes, and classes with label_offset")
        if isinstance(value, tuple) and (twice := [each for each, count in Counter(value).items() if count > 1]):
            raise ValueError(f"a task has each class once, but {', '.join(map(repr, twice))} is there twice")
        return value

    @field_validator("valid_per_class")
    @classmethod
    def _beside_train(cls, valid: int | None, info: ValidationInfo) -> int | None:
        if (valid is None) != (info.data.get("train_per_class", valid) is None):
            raise ValueError("give both train_per_class and valid_per_class, or none of them")
        return valid


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


class TaskSize(Frozen):
    """Images of each class of a task, at most."""

    train_per_class: PositiveInt
    valid_per_class: PositiveInt


class LargeTasks(Frozen):
    """How often tasks are large ones, up to one of them."""

    until: PositiveInt = Field(description="the last task, from 1, for which this holds")
    share: Share = Field(description="probability that a task is a large one")


class DrawnTasks(Stream):
    """Every task is some classes of a data set, both drawn by the run's seed, and has few images or many."""

    kind: Literal["drawn"]
    tasks: Annotated[int, Field(ge=1, le=1000)] = 100
    classes_per_task: PositiveInt
    sources: Annotated[dict[str, InputSpec], Field(min_length=1)] = Field(description="inputs by name of a data set")
    large: TaskSize
    small: TaskSize
    large_tasks: tuple[LargeTasks, ...] = Field((), description="by ascending 'until'; later tasks are small ones")
    test_per_class: PositiveInt | None = Field(None, description="test images of each class, at most")

    @field_validator("large_tasks")
    @classmethod
    def _ascending(cls, large_tasks: tuple[LargeTasks, ...]) -> tuple[LargeTasks, ...]:
        if any(later.until <= earlier.until for earlier, later in pairwise(large_tasks)):
            raise ValueError("the values of 'until' must ascend")
        return large_tasks


StreamSpec: TypeAlias = Annotated[ClassSplit | Permutation | DatasetSequence | DrawnTasks, Field(discriminator="kind")]

#: Keys of later versions and their defaults, by the table that has them.
_LATER_STREAM: Final = {"scenario": "task", "class_order": "natural", "first": None}
_LATER_TASK: Final = {
    **{"labels": None, "draw_classes": None, "rotate_labels": 0},
    **{"train_per_class": None, "valid_per_class": None, "test_per_class": None},
}
_LATER_SOURCE: Final = {"augment": Augmentation().model_dump(mode="json")}
_LATER_INPUT: Final = {"color": None, **_LATER_SOURCE}


def stream_identity(stream: Stream) -> dict[str, Any]:
    """Values of a stream that tell it from another; keys of later versions only where they change something."""
    values = _without(stream.model_dump(mode="json"), _LATER_STREAM)
    tables = values.get("tasks") if isinstance(stream, DatasetSequence) else None
    if tables is not None:
        values["tasks"] = {
            name: {**_without(task, _LATER_TASK), "input": _without(task["input"], _LATER_INPUT)}
            for name, task in tables.items()
        }
    elif "input" in values:
        values["input"] = _without(values["input"], _LATER_INPUT)
    if isinstance(stream, DrawnTasks):
        values["sources"] = {name: _without(source, _LATER_SOURCE) for name, source in values["sources"].items()}
    return values


def _without(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in defaults or value != defaults[key]}
