"""Sizes of a benchmark's tasks, from its specification and a seed: without data and without torch.

Where tasks ask for so many images of each class, the training images of a class are cut into a pool that trains and one
that validates, in an order drawn by the seed: no image trains one task and validates another.
Tasks take fresh images in the order of the stream; where a pool is used up it begins again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Evaluation
from seu_bench.config.streams import DrawnTasks, InputKind, InputSpec, OnlineStream, Permutation, Scenario
from seu_bench.data.dataset import DatasetInfo, InputShape
from seu_bench.data.tasks import TaskSpec, class_names, ordered_tasks, refusal, shuffle_indices
from seu_bench.errors import RequestError

if TYPE_CHECKING:
    from seu_bench.data.encoding import StreamEncoder

Rows: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class TaskPlan:
    """One task of a stream before its data is loaded.

    Attributes:
        num_classes: outputs of its head; those that it adds, where one head answers with the classes of all tasks.
        num_train, num_valid, num_test: images per split.
        stored_channels: of an image as its data set has it; ``None``: those of the network's input.
        class_names: of these outputs, in their order; numbers where the data set names none.
        labels: of its images, which are the outputs that answer for its classes: ``0 .. num_classes-1``, or numbered
            over all tasks as they are first learned, where one head answers with the classes of all tasks.
        tested: number of its first ``labels`` that it has test images of; ``None``: all.
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
    tested: int | None = None

    @property
    def test_labels(self) -> tuple[int, ...]:
        """Labels of its test images."""
        return self.labels[: self.tested]


@dataclass(frozen=True)
class StreamPlan:
    """The shape of a stream: what a model must fit and what a run will cost.

    Attributes:
        channels, height, width: of an image as the network takes it; of other samples their length, 1 and 1.
        tasks: in the order in which they are learned.
        order: the benchmark's own index of each of ``tasks``.
        scenario: whether learners are told the task of an image, and what they are asked.
        kind, vocabulary: of a sample, as of :class:`~seu_bench.data.dataset.InputShape`.
        open_ended: whether further tasks may follow, so that nothing may hang on how many there are.
        online: whether each image is seen once, and nothing may hang on where a task begins or ends.
    """

    channels: int
    height: int
    width: int
    tasks: tuple[TaskPlan, ...]
    order: tuple[int, ...]
    scenario: Scenario = "task"
    kind: InputKind = "image"
    vocabulary: int | None = None
    open_ended: bool = False
    online: bool = False

    @property
    def input(self) -> InputShape:
        """What a sample is, as the network takes it."""
        shape = (self.channels, self.height, self.width)[: 3 if self.kind == "image" else 1]
        return InputShape(self.kind, shape, self.vocabulary)

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

    def stored_shape(self, task: int) -> tuple[int, ...]:
        """Shape of a sample of a task as it is stored: grey images are repeated in batches only."""
        return (self.tasks[task].stored_channels or self.channels, *self.input.shape[1:])


def stream_warnings(names: Sequence[str], one_class_tasks: Sequence[int]) -> tuple[str, ...]:
    """What a user should know of tasks of these names, of which those at some places have one class."""
    if not one_class_tasks:
        return ()
    which = f"task {names[one_class_tasks[0]]!r} has"
    if len(one_class_tasks) > 1:
        which = f"{len(one_class_tasks)} of {len(names)} tasks have"
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
    encoder: StreamEncoder | None = None,
) -> StreamPlan:
    """Shape and sizes of a stream, or of its first tasks; withheld validation images count as test images."""
    tasks = ordered_tasks(spec, infos, seed, limits)
    if first_tasks is not None and first_tasks > len(tasks):
        remedy = f"give a number from 1 to {len(tasks)}"
        raise refusal(
            spec, tasks[0].dataset, "first_tasks", f"has {len(tasks)} tasks, fewer than {first_tasks}", remedy
        )
    pools = class_pools(tasks, {name: _per_class(info, "train") for name, info in infos.items()})
    tasks = tasks[:first_tasks]
    shapes = {task.name: _input_shape(infos[task.dataset], task.input, encoder) for task in tasks}
    if isinstance(spec.stream, Permutation) and infos[spec.stream.dataset].kind == "tokens":
        what = "permutes samples that are tokens, whose place means nothing without their order"
        raise refusal(spec, spec.stream.dataset, "stream.kind", what, "choose another kind of stream, e.g. 'classes'")
    if isinstance(spec.stream, Permutation) and encoder is not None:
        what = "permutes pixels, of which no encoder makes features"
        raise refusal(spec, spec.stream.dataset, "stream.input.encoder", what, "leave the encoder out")
    if len(set(shapes.values())) > 1:
        told = (f"{name} {it.shape if it.kind == 'image' else it}" for name, it in shapes.items())
        what = f"has tasks that differ in shape: {', '.join(told)}"
        remedy = "bring them to one shape with input.pad and input.channels (images), or one vocabulary (tokens)"
        raise refusal(spec, tasks[0].dataset, "input", what, remedy)
    scenario = spec.stream.scenario
    if scenario == "domain" and len(widths := sorted({len(task.labels) for task in tasks})) > 1:
        what = f"has tasks of {' or '.join(map(str, widths))} classes, not the same ones"
        remedy = "choose the scenario 'task' or 'class', or tasks of as many classes each"
        raise refusal(spec, tasks[0].dataset, "stream.scenario", what, remedy)
    plans: list[TaskPlan] = []
    outputs: dict[Hashable, int] = {}
    for task in tasks:
        info = infos[task.dataset]
        if task.per_class is not None:
            sizes = [
                [len(range(it)[task.part(place, it)]) for it in pools[task.dataset, label]]
                for place, label in enumerate(task.labels)
            ]
            learned, valid = (sum(min(task.per_class[side], pool[side]) for pool in sizes) for side in (0, 1))
            if task.session[1] > 1 and not (all(pool[0] for pool in sizes) and (valid or not spec.stream.validates)):
                what = f"has a task {task.name!r} with {learned} training and {valid} validation images"
                remedy = "give fewer sessions, so that each has images of every class; or bring images"
                raise refusal(spec, task.dataset, "stream.sessions", what, remedy)
        else:
            pool = _images(info, "train", task)
            valid = _validation_images(spec, task, pool)
            learned = pool - valid
        test = withheld(valid, evaluation)
        tested = _images(info, "test", task) if evaluation == "test" else test
        train, held, tests = (
            min(count, limit or count)
            for count, limit in ((learned, limits.train), (valid - test, limits.valid), (tested, limits.test))
        )
        added, numbers = list(task.labels), list(range(len(task.labels)))
        if scenario == "class":
            keys = task.class_keys(info)
            added = [label for label, key in zip(task.labels, keys, strict=True) if key not in outputs]
            numbers = [outputs.setdefault(key, len(outputs)) for key in keys]
        plans.append(
            TaskPlan(
                task.name,
                len(added),
                train,
                held,
                tests,
                # A grey image is repeated in batches only, a coloured one is stored.
                stored_channels=None if encoder else info.channels if task.input.color is None else 3,
                class_names=class_names(info, added) or tuple(map(str, added)),
                is_one_class=scenario != "class" and sum(map(bool, _each(info, "train", task.labels))) < 2,
                labels=tuple(numbers),
                tested=task.tested,
            )
        )
    sample = shapes[tasks[0].name]
    return StreamPlan(
        *sample.sides,
        tuple(plans),
        tuple(task.index for task in tasks),
        scenario,
        sample.kind,
        sample.vocabulary,
        open_ended=all(task.input.normalise == "first_task" for task in tasks),
        online=isinstance(spec.stream, OnlineStream),
    )


def _validation_images(spec: BenchmarkSpec, task: TaskSpec, pool: int) -> int:
    """How many of a task's images validate it: none, or at least one, and two are left to learn from."""
    share = validation_share(spec)
    valid = int(share * pool)
    if share and pool and not 0 < valid <= pool - 2:
        what = f"has a task {task.name!r} of {pool} images, of which {valid} validate: needed are one, and two others"
        remedy = "change the share, e.g. by -o benchmark.stream.validation=0.2, or bring images"
        raise refusal(spec, task.dataset, "stream.validation", what, remedy)
    return valid


def validation_share(spec: BenchmarkSpec) -> float:
    """The share of a task's images that validates, where it does not ask for images of each class."""
    return 0.0 if isinstance(spec.stream, DrawnTasks) else spec.stream.validation


def _per_class(info: DatasetInfo, split: str) -> Sequence[int]:
    """Images of each class; where they are not known, as if they were balanced."""
    known: Sequence[int] | None = getattr(info, f"{split}_per_class")
    return known or (getattr(info, f"num_{split}") // info.num_classes,) * info.num_classes


def _each(info: DatasetInfo, split: str, labels: Sequence[int]) -> list[int]:
    """Images of these labels, of which a head may have more than the data set."""
    known = _per_class(info, split)
    return [known[label] if label < len(known) else 0 for label in labels]


def _images(info: DatasetInfo, split: str, task: TaskSpec) -> int:
    """Images of a task in a split of its data set."""
    total, most = getattr(info, f"num_{split}"), task.test_per_class if split == "test" else None
    if most is None and task.takes_all:
        return int(total)
    if most is None and getattr(info, f"{split}_per_class") is None:
        return int(total * len(task.test_labels) // info.num_classes)
    return sum(min(count, most or count) for count in _each(info, split, task.test_labels))


def _input_shape(info: DatasetInfo, spec: InputSpec, encoder: StreamEncoder | None) -> InputShape:
    if info.kind != "image":
        known = ("mean", "std", "normalise") if info.kind == "features" else ("normalise",)
        if asked := [f"input.{key}" for key in spec.model_dump(exclude_defaults=True) if key not in known]:
            what = f"data set {info.name!r} has {info.input}, and {', '.join(asked)} cannot be done to them"
            raise RequestError(what, where=", ".join(asked), remedy="leave it out: it is for images")
        return info.input
    channels = spec.channels or (3 if spec.color is not None or encoder is not None else info.channels)
    if info.channels not in (channels, 1) or (spec.color is not None and info.channels != 1):
        raise RequestError(
            f"data set {info.name!r} has {info.channels} channels, which cannot be repeated to {channels} or coloured",
            where="input.channels, input.color",
            remedy="leave them out: they are for grey images only",
        )
    if encoder is not None and encoder.makes_samples:
        return InputShape("features", (len(encoder.columns(spec.layers)),))
    return InputShape("image", (channels, *(spec.resize or side + 2 * spec.pad for side in (info.height, info.width))))


def pool_sizes(available: int, train: Sequence[int], valid: Sequence[int]) -> tuple[int, int]:
    """Share out the ``available`` images of a class: how many train, and how many validate.

    Where there are enough for every task to have its own, there are so many validation images as are asked for in all.
    Otherwise each pool has what the largest task asks for, and the rest goes to both in proportion to what they lack;
    where not even this fits, all are divided in proportion to the largest tasks' numbers.

    Example:
        >>> pool_sizes(600, [400, 40], [200, 20]), pool_sizes(5000, [400, 40], [200, 20]), pool_sizes(30, [400], [200])
        ((400, 200), (4780, 220), (20, 10))
    """
    most, held = max(train), max(valid)
    spare = available - most - held
    if spare < 0:
        size = max(1, available * held // (most + held)) if available > 1 and held else 0
    else:
        lacking = sum(valid) - held
        size = held + min(lacking, spare * lacking // max(1, lacking + sum(train) - most))
    return available - size, size


def class_pools(
    tasks: Sequence[TaskSpec], available: Mapping[str, Sequence[int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """Training and validation images by data set and label, of the classes of which tasks ask for so many.

    ``available`` are training images by label, for each data set; outputs beyond have none.
    """
    asked: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for task in tasks:
        for label in task.labels if task.per_class is not None else ():
            asked[task.dataset, label].append(task.per_class or (0, 0))
    return {
        (dataset, label): pool_sizes(sum(available[dataset][label : label + 1]), *zip(*sizes, strict=True))
        for (dataset, label), sizes in asked.items()
    }


def class_rows(tasks: Sequence[TaskSpec], labels: Mapping[str, Rows], seed: int) -> list[tuple[Rows, Rows] | None]:
    """Training and validation images of each task, in an order drawn by the seed; ``None`` where it is not by class.

    ``labels`` are those of the training images of each data set.
    """
    pools = {}
    available = {name: np.bincount(of).tolist() for name, of in labels.items()}
    for (dataset, label), (train, _) in class_pools(tasks, available).items():
        images = np.flatnonzero(labels[dataset] == label)
        images = images[shuffle_indices(len(images), seed)]
        pools[dataset, label] = images[:train], images[train:]
    taken: defaultdict[tuple[str, int, int], int] = defaultdict(int)

    def take(task: TaskSpec, side: int, most: int) -> Rows:
        rows = [np.zeros(0, dtype=np.int64)]
        for place, label in enumerate(task.labels):
            pool = pools[task.dataset, label][side]
            pool = pool[task.part(place, len(pool))]
            count, start = min(most, len(pool)), taken[task.dataset, label, side]
            rows.append(pool[(start + np.arange(count)) % max(1, len(pool))])
            taken[task.dataset, label, side] += count
        chosen = np.concatenate(rows)
        return chosen[shuffle_indices(len(chosen), seed)]

    return [
        None if task.per_class is None else (take(task, 0, task.per_class[0]), take(task, 1, task.per_class[1]))
        for task in tasks
    ]
