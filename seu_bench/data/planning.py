"""Tasks of a benchmark, their order and sizes, from its specification and a seed: without data and without torch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Evaluation
from seu_bench.config.streams import DrawnTasks, InputSpec, Scenario
from seu_bench.data.class_pools import class_counts
from seu_bench.data.classes import class_names, place_of
from seu_bench.data.dataset import DatasetInfo
from seu_bench.data.task_parts import TaskPart, dataset_names, ordered_tasks
from seu_bench.errors import RequestError


@dataclass(frozen=True)
class TaskPlan:
    """One task of a stream before its data is loaded.

    Attributes:
        num_classes: outputs of its head; those that it adds, where one head answers with the classes of all tasks.
        num_train, num_valid, num_test: images per split.
        stored_channels: of an image as its data set has it; ``None``: those of the network's input.
        class_names: of these outputs, in their order; outputs without a class are at the end. Numbers where the data
            set names none.
        labels: of its images, which are the outputs that answer for its classes. Where one head answers with the
            classes of all tasks, they are numbered in the order in which they are first learned, and a class that comes
            back has the number that it has; otherwise they are ``0 .. num_classes-1``.
        is_one_class: whether all of its images are of one class, and no other can be answered: every answer is right.
    """

    name: str
    num_classes: int
    num_train: int
    num_valid: int
    num_test: int
    stored_channels: int | None = None
    class_names: tuple[str, ...] = ()
    is_one_class: bool = False
    labels: tuple[int, ...] = ()


@dataclass(frozen=True)
class StreamPlan:
    """The shape of a stream: what a model must fit and what a run will cost.

    Attributes:
        channels, height, width: of the network's input.
        tasks: in the order in which they are learned.
        order: the benchmark's own index of each of ``tasks``.
        scenario: whether learners are told the task of an image, and what they are asked.
    """

    channels: int
    height: int
    width: int
    tasks: tuple[TaskPlan, ...]
    order: tuple[int, ...]
    scenario: Scenario = "task"

    @property
    def classes_per_task(self) -> tuple[int, ...]:
        """Classes of each task, which are the outputs of its head where it has one of its own."""
        return tuple(task.num_classes for task in self.tasks)

    @property
    def repeats_classes(self) -> bool:
        """Whether a class comes back in a later task, where one head answers with the classes of all tasks."""
        return any(len(task.labels) > task.num_classes for task in self.tasks)

    @property
    def one_class_tasks(self) -> tuple[int, ...]:
        """Places of the tasks whose images are of one class."""
        return tuple(place for place, task in enumerate(self.tasks) if task.is_one_class)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know of the tasks before they are learned."""
        return stream_warnings([task.name for task in self.tasks], self.one_class_tasks)

    def stored_shape(self, task: int) -> tuple[int, int, int]:
        """Channels, height and width of an image of a task as it is stored: grey ones are repeated in batches only."""
        return self.tasks[task].stored_channels or self.channels, self.height, self.width


def stream_warnings(names: Sequence[str], one_class_tasks: Sequence[int]) -> tuple[str, ...]:
    """What a user should know of tasks of these names, of which those at some places have one class."""
    found = [names[place] for place in one_class_tasks]
    if not found:
        return ()
    which = f"task {found[0]!r} has" if len(found) == 1 else f"{len(found)} of {len(names)} tasks have"
    return (
        f"warning: {which} images of one class only: the same answer is always right, 100 % by construction; "
        "such runs are never ranked",
    )


def withheld(validation: int, evaluation: Evaluation) -> int:
    """How many of a task's validation images are measured on, and not learned with."""
    return validation // 2 if evaluation == "validation" else 0


def plan_stream(
    spec: BenchmarkSpec,
    infos: Mapping[str, DatasetInfo],
    limits: ImageLimits,
    seed: int,
    *,
    first_tasks: int | None = None,
    evaluation: Evaluation = "test",
) -> StreamPlan:
    """Shape and sizes of a stream, or of its first tasks; withheld validation images count as test images."""
    parts = ordered_tasks(spec, infos, seed)
    if first_tasks is not None and first_tasks > len(parts):
        raise RequestError(
            f"benchmark {spec.name!r} has {len(parts)} tasks, fewer than {first_tasks}",
            where="first_tasks",
            remedy=f"give a number from 1 to {len(parts)}",
        )
    counts = class_counts(parts, {name: _per_class(info) for name, info in infos.items()})[:first_tasks]
    parts = parts[:first_tasks]
    shapes = {part.name: _input_shape(infos[part.dataset], part.input) for part in parts}
    if len(set(shapes.values())) > 1:
        raise RequestError(
            f"the tasks of benchmark {spec.name!r} differ in shape: "
            + ", ".join(f"{name} {shape}" for name, shape in shapes.items()),
            where="; ".join(place_of(spec, name, "input") for name in dataset_names(spec)),
            remedy="bring them to one shape with input.pad and input.channels",
        )
    channels, height, width = shapes[parts[0].name]
    scenario = spec.stream.scenario
    if scenario == "domain" and len(widths := sorted({part.head for part in parts})) > 1:
        raise RequestError(
            f"the tasks of benchmark {spec.name!r} have {' or '.join(map(str, widths))} classes, not the same ones",
            where=place_of(spec, parts[0].dataset, "stream.scenario"),
            remedy="choose the scenario 'task' or 'class', or tasks of as many classes each",
        )
    tasks: list[TaskPlan] = []
    outputs: dict[Hashable, int] = {}
    for part, by_class in zip(parts, counts, strict=True):
        info = infos[part.dataset]
        if part.per_class is not None:
            learned, valid = (sum(count[side] for count in by_class.values()) for side in (0, 1))
        else:
            pool = _images(info.num_train, info.train_per_class, info.num_classes, part.classes)
            valid = _validation_images(spec, part, pool)
            learned = pool - valid
        test = withheld(valid, evaluation)
        bounds = [(learned, limits.train), (valid - test, limits.valid)]
        if evaluation == "test":
            test = _test_images(info, part)
        bounds.append((test, limits.test))
        train, held, tested = (min(count, limit or count) for count, limit in bounds)
        labels = added = list(part.labels)
        numbers = list(range(part.head))
        if scenario == "class":
            keys = part.class_keys(info)
            added = [label for label, key in zip(labels, keys, strict=True) if key not in outputs]
            numbers = [outputs.setdefault(key, len(outputs)) for key in keys]
        each = info.train_per_class
        present = [label for label in labels if each is None or (label < len(each) and each[label])]
        names = class_names(info, added) or tuple(map(str, added))
        is_trivial = len(present) < 2 and scenario != "class"
        own = train, held, tested, _stored_channels(info, part.input), names, is_trivial
        tasks.append(TaskPlan(part.name, len(added), *own, labels=tuple(numbers)))
    return StreamPlan(channels, height, width, tuple(tasks), tuple(part.index for part in parts), scenario)


def _validation_images(spec: BenchmarkSpec, part: TaskPart, pool: int) -> int:
    """How many of a task's images validate it: at least one, and two are left to learn from."""
    share = validation_share(spec)
    valid = int(share * pool)
    task = f"task {part.name!r} of benchmark {spec.name!r}"
    if pool and not valid:
        raise RequestError(
            f"{task} has no validation images: it has {pool} images, and {share:g} of them validate",
            where=place_of(spec, part.dataset, "stream.validation"),
            remedy="raise the share of validation images, e.g. -o benchmark.stream.validation=0.2, or bring images",
        )
    if 0 < pool < valid + 2:
        raise RequestError(
            f"{task} has {pool - valid} training image",
            where=place_of(spec, part.dataset, "stream.validation"),
            remedy="a task needs two at least: searching and creating learn on one half and judge on the other",
        )
    return valid


def validation_share(spec: BenchmarkSpec) -> float:
    """The share of a task's images that validates, where it does not ask for images of each class."""
    return 0.0 if isinstance(spec.stream, DrawnTasks) else spec.stream.validation


def _per_class(info: DatasetInfo) -> Sequence[int]:
    """Training images of each class; where they are not known, as if they were balanced."""
    known = info.train_per_class or (info.num_train // info.num_classes,) * info.num_classes
    return (*known, *[0] * (info.num_classes - len(known)))


def _test_images(info: DatasetInfo, part: TaskPart) -> int:
    if part.test_per_class is None:
        return _images(info.num_test, info.test_per_class, info.num_classes, part.classes)
    known = info.test_per_class or (info.num_test // info.num_classes,) * info.num_classes
    return sum(min(part.test_per_class, known[label]) for label in part.labels if label < len(known))


def _stored_channels(info: DatasetInfo, spec: InputSpec) -> int:
    """Channels of an image as it is kept: a grey one is repeated in batches only, a coloured one is stored."""
    return info.channels if spec.color is None else 3


def _input_shape(info: DatasetInfo, spec: InputSpec) -> tuple[int, int, int]:
    channels = spec.channels or (3 if spec.color is not None else info.channels)
    if spec.color is not None and info.channels != 1:
        raise RequestError(
            f"data set {info.name!r} has {info.channels} channels: only grey images can be given a colour",
            where="input.color",
            remedy="leave it out, or choose grey images",
        )
    if info.channels not in (channels, 1):
        raise RequestError(
            f"data set {info.name!r} has {info.channels} channels, which cannot be repeated to {channels}",
            where="input.channels",
            remedy="input.channels repeats grey images only",
        )
    return channels, info.height + 2 * spec.pad, info.width + 2 * spec.pad


def _images(total: int, per_class: tuple[int, ...] | None, num_classes: int, chosen: tuple[int, ...] | None) -> int:
    if chosen is None:
        return total
    return total * len(chosen) // num_classes if per_class is None else sum(per_class[label] for label in chosen)
