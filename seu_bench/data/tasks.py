"""The list of tasks that a benchmark is: of each, which classes of which data set, seen how, in which order.

Sizes (:mod:`seu_bench.data.planning`), images and the fingerprint (:mod:`seu_bench.data.streams`) are read off it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.options import did_you_mean
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.streams import (
    ClassSplit,
    DatasetSequence,
    DrawnTasks,
    InputSpec,
    OnlineStream,
    Permutation,
    Stream,
)
from seu_bench.data.dataset import DatasetInfo
from seu_bench.errors import RequestError

_UNLIMITED: Final = ImageLimits()


@dataclass(frozen=True)
class TaskSpec:
    """The part of a data set that a task is.

    Attributes:
        index: the benchmark's own index of the task.
        labels: of its classes, in the order of its head's outputs.
        takes_all: whether it has all images of the data set, which are all of these classes.
        permutation_seed: of the order in which it sees the pixels; ``None`` for the natural one.
        per_class: most training and validation images of each class; ``None``: all, of which a share validates.
        test_per_class: most test images of each class; ``None``: all.
        session: which part of its classes' images it learns, and how many parts they are cut into.
        spans: of each class where the part of its images that it learns begins and ends, as shares; in place of
            ``session``. Those of ``per_class`` are then of all tasks together.
        tested: number of its first classes that it has test images of; ``None``: all.
    """

    name: str
    index: int
    dataset: str
    input: InputSpec
    labels: tuple[int, ...]
    takes_all: bool = False
    permutation_seed: int | None = None
    per_class: tuple[int, int] | None = None
    test_per_class: int | None = None
    session: tuple[int, int] = (0, 1)
    spans: tuple[tuple[float, float], ...] | None = None
    tested: int | None = None

    @property
    def test_labels(self) -> tuple[int, ...]:
        """Labels of its test images."""
        return self.labels[: self.tested]

    def part(self, place: int, images: int) -> slice:
        """Which of so many images of the class at a place it learns."""
        if self.spans is not None:
            images = min(images, self.per_class[0]) if self.per_class else images
            start, stop = self.spans[place]
            return slice(round(start * images), round(stop * images))
        turn, count = self.session
        return slice(images * turn // count, images * (turn + 1) // count)

    def class_keys(self, info: DatasetInfo) -> list[Hashable]:
        """Return what tells each of its classes from other classes of the stream.

        The name, whatever the data set; where a class has none, or shares it with another one, the data set and the
        label. Under another permutation of the pixels a class is another one.
        """
        names = list(info.class_names or ()) if self.permutation_seed is None else []
        own = [names[label] if label < len(names) else "" for label in self.labels]
        return [
            name if names.count(name) == 1 else (self.dataset, label, self.permutation_seed)
            for name, label in zip(own, self.labels, strict=True)
        ]


def shuffle_indices(count: int, seed: int) -> NDArray[np.int64]:
    """``0 .. count-1`` shuffled by NumPy's legacy generator; equals ``sklearn.utils.shuffle`` (published code)."""
    order = np.arange(count, dtype=np.int64)
    np.random.RandomState(seed % 2**32).shuffle(order)
    return order


def dataset_names(spec: BenchmarkSpec) -> tuple[str, ...]:
    """The data sets that a benchmark names, each once."""
    if isinstance(spec.stream, DrawnTasks):
        return tuple(spec.stream.sources)
    if isinstance(spec.stream, DatasetSequence):
        return tuple(dict.fromkeys(task.dataset for task in spec.stream.tasks.values()))
    return (spec.stream.dataset,)


def learned_datasets(spec: BenchmarkSpec, seed: int, learned: int) -> frozenset[str]:
    """The data sets whose training images nothing needs where so many tasks are ``learned``: other tasks have none of
    them, and the first task, by whose images all are normalised, has not either."""
    stream = spec.stream
    if not isinstance(stream, DatasetSequence) or any(it.input.normalise == "data_set" for it in stream.tasks.values()):
        return frozenset()
    tasks = list(stream.tasks.values())
    names = [tasks[place].dataset for place in _learning_order(stream, tasks, seed)]
    return frozenset(names[1:learned]) - {*names[:1], *names[max(learned, 1) :]}


def ordered_tasks(
    spec: BenchmarkSpec, infos: Mapping[str, DatasetInfo], seed: int, limits: ImageLimits = _UNLIMITED
) -> list[TaskSpec]:
    """The tasks of a benchmark in the order in which ``seed`` learns them, with images of each class within limits."""
    return [_limit_classes(task, limits) for task in _ordered_tasks(spec, infos, seed)]


def _limit_classes(task: TaskSpec, limits: ImageLimits) -> TaskSpec:
    """The task with images of each class within limits, where it has any; of those of its own the least count."""
    most, tested = limits.per_class, limits.test_per_class
    if most is not None and task.per_class is not None:
        most = min(most[0], task.per_class[0]), min(most[1], task.per_class[1])
    tests = [it for it in (tested, task.test_per_class) if it is not None]
    return replace(task, per_class=most or task.per_class, test_per_class=min(tests, default=None))


def _ordered_tasks(spec: BenchmarkSpec, infos: Mapping[str, DatasetInfo], seed: int) -> list[TaskSpec]:
    spec = number_classes(spec, infos.__getitem__)
    stream = spec.stream
    if isinstance(stream, DatasetSequence):
        tasks = [_dataset_task(spec, stream, index, infos, seed) for index in range(len(stream.tasks))]
    elif isinstance(stream, DrawnTasks):
        tasks = _drawn_tasks(spec, stream, infos, seed)
    elif isinstance(stream, Permutation):
        labels, name = tuple(range(infos[stream.dataset].num_classes)), stream.dataset
        tasks = [
            TaskSpec(f"permutation {index}", index, name, stream.input, labels, takes_all=True)
            for index in range(stream.tasks)
        ]
    elif isinstance(stream, OnlineStream):
        tasks = _segments(spec, stream, infos[stream.dataset], seed)
    else:
        info = infos[stream.dataset]
        groups = class_groups(spec, stream, info, seed)
        tasks = [
            TaskSpec(task_title(group, info), index, stream.dataset, stream.input, group)
            for index, group in enumerate(groups)
        ]
    if stream.scenario == "domain":
        tasks = _share_outputs(spec, tasks, infos)
    order = _learning_order(stream, tasks, seed)
    if sorted(order) != list(range(len(tasks))):
        remedy = f"name each of the tasks 0 to {len(tasks) - 1} once"
        raise refusal(spec, dataset_names(spec)[0], "stream.order", f"has the order {order}", remedy)
    if isinstance(stream, ClassSplit) and stream.sessions > 1:
        order = [len(tasks) * session + index for session in range(stream.sessions) for index in order]
        tasks = [_in_session(task, session, len(tasks), stream) for session in range(stream.sessions) for task in tasks]
    if isinstance(stream, ClassSplit) or (isinstance(stream, DatasetSequence) and stream.scenario == "class"):
        tasks = _split_by_class(tasks, infos, stream.validation)
    tasks = [tasks[index] for index in order]
    if isinstance(stream, Permutation):
        return [replace(task, permutation_seed=100 * task.index + place) for place, task in enumerate(tasks)]
    return tasks


def _in_session(task: TaskSpec, session: int, tasks: int, stream: ClassSplit) -> TaskSpec:
    name, index = f"{task.name}, session {session + 1}", session * tasks + task.index
    return replace(task, name=name, index=index, session=(session, stream.sessions))


def _learning_order(stream: Stream, tasks: Sequence[Any], seed: int) -> list[int]:
    order = getattr(stream, "order", None)
    if isinstance(stream, DatasetSequence) and isinstance(order, tuple):
        return [list(stream.tasks).index(name) for name in order]
    if isinstance(order, tuple):
        return list(order)
    if order != "shuffled" and not isinstance(stream, Permutation):
        return list(range(len(tasks)))
    drawn: list[int] = shuffle_indices(len(tasks), seed).tolist()
    if not isinstance(stream, ClassSplit) or stream.groups is not None:
        return drawn
    # A first task of another size stays the first one, and what was left for the last task the last one.
    first = 0 if stream.first is not None else None
    last = len(tasks) - 1 if len(tasks[-1].labels) < (stream.classes_per_task or 1) else None
    return sorted(drawn, key=lambda index: (index == last) - (index == first))


def _split_by_class(tasks: Sequence[TaskSpec], infos: Mapping[str, DatasetInfo], validation: float) -> list[TaskSpec]:
    """Have tasks that share a class with another one take the validation images of each class, so that no image trains
    one task and validates another."""
    having = Counter((task.dataset, label) for task in tasks for label in task.labels)
    found = []
    for task in tasks:
        images = infos[task.dataset].num_train
        # More than any class has: all of its images, of which this share validates.
        held = max(1, int(validation * images)) if validation else 0
        shares = task.per_class is None and any(having[task.dataset, label] > 1 for label in task.labels)
        found.append(replace(task, per_class=(max(1, images - held), held)) if shares else task)
    return found


def _share_outputs(spec: BenchmarkSpec, tasks: list[TaskSpec], infos: Mapping[str, DatasetInfo]) -> list[TaskSpec]:
    """Bring the classes of tasks that share their outputs into one order: a class has the same output in all of them.

    Groups of classes name which classes share an output, by their places. Other tasks have the same classes, by name
    where they have names, and by place where they have none.
    """
    if len({len(task.labels) for task in tasks}) > 1 or isinstance(spec.stream, Permutation):
        return tasks
    places: dict[Hashable, int] = {}
    found: list[TaskSpec] = []
    for task in tasks:
        given = task.class_keys(infos[task.dataset])
        keys = sorted(given, key=places.__getitem__) if places.keys() >= set(given) else given
        found.append(replace(task, labels=tuple(task.labels[given.index(key)] for key in keys)))
        is_named = any(isinstance(key, str) for key in places) and not isinstance(spec.stream, ClassSplit)
        added = [key for key in keys if is_named and isinstance(key, str) and key not in places]
        moved = [key for place, key in enumerate(keys) if places.get(key, place) != place]
        if other := [str(key[1]) if isinstance(key, tuple) else repr(key) for key in added or moved]:
            what = f"has tasks that share their classes, but task {task.name!r} has {', '.join(other[:20])}"
            remedy = "give the classes the same names and places in all tasks; or choose the scenario 'class'"
            what += ", which earlier ones do not have, or have at another place"
            raise refusal(spec, task.dataset, "stream.scenario", what, remedy)
        places.update(zip(keys, range(len(keys)), strict=True))
    return found


def _dataset_task(
    spec: BenchmarkSpec, stream: DatasetSequence, index: int, infos: Mapping[str, DatasetInfo], seed: int
) -> TaskSpec:
    """A task of a sequence of data sets; what it draws hangs on the seed and on its place in the file."""
    name, task = list(stream.tasks.items())[index]
    info, draws = infos[task.dataset], np.random.RandomState((seed % 2**32, index))
    first, takes_all = task.label_offset, False
    if task.labels is not None:
        labels = tuple(int(label) for label in task.labels)
    elif task.draw_classes is not None:
        labels = _draw_classes(spec, task.draw_classes, info, draws, f"stream.tasks.{name}.draw_classes")
    else:
        labels = tuple(range(first, first + (task.classes or info.num_classes - first)))
        takes_all = not task.rotate_labels
    shift = len(labels) - task.rotate_labels % max(1, len(labels))
    labels = labels[shift:] + labels[:shift]  # the label at place p is the number p + rotate_labels
    per_class = None
    if task.train_per_class is not None and task.valid_per_class is not None:
        per_class = task.train_per_class, task.valid_per_class
    source = _with_color(task.input, draws)
    return TaskSpec(
        name, index, task.dataset, source, labels, takes_all, per_class=per_class, test_per_class=task.test_per_class
    )


def _drawn_tasks(
    spec: BenchmarkSpec, stream: DrawnTasks, infos: Mapping[str, DatasetInfo], seed: int
) -> list[TaskSpec]:
    """All tasks of a drawn stream: its first ones are the same however many there are."""
    draws, names = np.random.RandomState(seed % 2**32), list(stream.sources)
    tasks = []
    for index in range(stream.tasks):
        dataset = names[draws.randint(len(names))]
        share = next((entry.share for entry in stream.large_tasks if index < entry.until), 0.0)
        size = stream.large if draws.random_sample() < share else stream.small
        labels = _draw_classes(spec, stream.classes_per_task, infos[dataset], draws, "stream.classes_per_task")
        name = f"{index + 1}: {dataset} {task_title(labels, infos[dataset])}"
        source, sizes = _with_color(stream.sources[dataset], draws), (size.train_per_class, size.valid_per_class)
        task = TaskSpec(name, index, dataset, source, labels, per_class=sizes, test_per_class=stream.test_per_class)
        tasks.append(task)
    return tasks


def _with_color(source: InputSpec, draws: np.random.RandomState) -> InputSpec:
    """The input with the colour that ``draws`` gives, where it is to be random."""
    if source.color != "random":
        return source
    color = tuple(round(float(value), 3) for value in draws.random_sample(3))
    return source.model_copy(update={"color": color})


def _draw_classes(
    spec: BenchmarkSpec, count: int, info: DatasetInfo, draws: np.random.RandomState, key: str
) -> tuple[int, ...]:
    """``count`` of the classes that have images, in the order in which they are drawn."""
    each = info.train_per_class
    present = [label for label in range(info.num_classes) if each is None or each[label]]
    if count > len(present):
        what = f"draws {count} classes of {info.name!r}, which has {len(present)}"
        raise refusal(spec, info.name, key, what, f"draw {len(present)} at most")
    return tuple(present[place] for place in draws.permutation(len(present))[:count].tolist())


def class_groups(spec: BenchmarkSpec, stream: ClassSplit, info: DatasetInfo, seed: int) -> list[tuple[int, ...]]:
    """Labels of each task of a numbered ``stream``, in the benchmark's order; ``seed`` is that of the run."""
    if stream.groups is not None:
        groups = [tuple(int(label) for label in group) for group in stream.groups]
        if unknown := sorted({label for group in groups for label in group if label >= info.num_classes}):
            what = f"names classes {unknown}, but {stream.dataset!r} has {info.num_classes}"
            raise refusal(spec, stream.dataset, "stream.groups", what, "classes are numbered from 0")
        return groups
    width = stream.classes_per_task or 1
    first = stream.first or width
    if (most := max(first, width)) > info.num_classes:
        what = f"has tasks of {most} classes, but {stream.dataset!r} has {info.num_classes}"
        key = "stream.first (first_task)" if first > width else "stream.classes_per_task (then)"
        raise refusal(spec, stream.dataset, key, what, f"give {info.num_classes} at most")
    labels = _ordered_labels(spec, stream, info, seed)
    return [tuple(labels[slice(*cut)]) for cut in pairwise([0, *range(first, len(labels), width), len(labels)])]


def _ordered_labels(spec: BenchmarkSpec, stream: ClassSplit | OnlineStream, info: DatasetInfo, seed: int) -> list[int]:
    """All labels in the order in which a stream cuts them into tasks."""
    labels = list(range(info.num_classes))
    if isinstance(stream.class_order, tuple):
        if sorted(order := [int(label) for label in stream.class_order]) != labels:
            what = f"has an order of {len(order)} classes that is not one of the {len(labels)} of {stream.dataset!r}"
            raise refusal(spec, stream.dataset, "stream.class_order", what, f"name each of 0 to {labels[-1]} once")
        return order
    if stream.class_order != "natural":
        labels = shuffle_indices(len(labels), seed if stream.class_order == "shuffled" else stream.class_order).tolist()
    return labels


def _segments(spec: BenchmarkSpec, stream: OnlineStream, info: DatasetInfo, seed: int) -> list[TaskSpec]:
    """The segments of an online stream, each with the classes of its own first, of which it has test images.

    Classes go to segments in turn, first all disjoint ones. Each image is in one segment: of a blurry class the first
    images are in its own, the others in the segments that follow it, and then in those before it.
    """
    count, labels = stream.tasks, _ordered_labels(spec, stream, info, seed)
    if count > len(labels):
        what = f"has {count} tasks, and {stream.dataset!r} has {len(labels)} classes, of which each needs one at least"
        raise refusal(spec, stream.dataset, "stream.tasks", what, f"give {len(labels)} at most")
    first_blurry = round(stream.disjoint * len(labels))
    bounds = [0.0, *(1 - stream.blur * (1 - turn / (count - 1)) for turn in range(count))]
    tasks = []
    for index in range(count):
        spans = {labels[place]: (0.0, 1.0) for place in range(index, first_blurry, count)}
        for turn in range(count if stream.blur else 1):
            places = range((index - turn) % count, len(labels), count)
            spans |= {labels[place]: (bounds[turn], bounds[turn + 1]) for place in places if place >= first_blurry}
        tested = len(range(index, len(labels), count))
        name = f"{index + 1}: {task_title([*spans][:tested], info)}"
        task = TaskSpec(name, index, stream.dataset, stream.input, tuple(spans), per_class=(info.num_train, 0))
        tasks.append(replace(task, spans=tuple(spans.values()), tested=tested))
    return tasks


def refusal(spec: BenchmarkSpec, dataset: str, key: str, what: str, remedy: str) -> RequestError:
    """The error of a benchmark that does not fit a data set: ``what`` it has, by which ``key`` of it."""
    path = getattr(spec.datasets.get(dataset), "path", None)
    where = f"{key} of benchmark {spec.name!r}, data set {dataset!r}" + (f" in {path}" if path else "")
    return RequestError(f"benchmark {spec.name!r} {what}", where=where, remedy=remedy)


def class_names(info: DatasetInfo, labels: Iterable[int]) -> tuple[str, ...]:
    """Names of labels, as far as the data set has them."""
    known = info.class_names or ()
    return tuple(known[label] for label in labels if label < len(known))


def task_title(labels: Sequence[int], info: DatasetInfo) -> str:
    """Name of a task by its classes: ``daisy, rose``, ``apple ... bed (20 classes)``, or by numbers ``classes 0-1``."""
    names = class_names(info, labels)
    if len(names) < len(labels) or names == tuple(map(str, labels)):
        if list(labels) == list(range(labels[0], labels[0] + len(labels))):
            return "classes " + "-".join(map(str, dict.fromkeys((labels[0], labels[-1]))))
        names = tuple(map(str, labels))
    joined = ", ".join(names)
    if len(joined) > 40 and len(names) > 2:
        joined = f"{names[0]} ... {names[-1]} ({len(names)} classes)"
    return f"classes {joined}" if any(name.isdigit() for name in names) else joined


def number_classes(spec: BenchmarkSpec, info_of: Callable[[str], DatasetInfo]) -> BenchmarkSpec:
    """The benchmark with labels in place of the names of classes: ``[["cat", "dog"], [0]]`` is ``[[3, 5], [0]]``.

    ``info_of`` describes a data set by name; it is asked for those alone of which a class is named.
    """
    stream = spec.stream
    if isinstance(stream, ClassSplit | OnlineStream) and isinstance(stream.class_order, tuple):
        ordered = _labels(spec, stream.dataset, stream.class_order, "class_order", info_of)
        return spec.model_copy(update={"stream": stream.model_copy(update={"class_order": ordered})})
    if isinstance(stream, ClassSplit) and stream.groups is not None:
        groups = tuple(_labels(spec, stream.dataset, group, "groups", info_of) for group in stream.groups)
        return spec.model_copy(update={"stream": stream.model_copy(update={"groups": groups})})
    if isinstance(stream, DatasetSequence):
        tasks = dict(stream.tasks)
        for name, task in tasks.items():
            if task.labels is not None:
                labels = _labels(spec, task.dataset, task.labels, f"tasks.{name}.labels", info_of)
                tasks[name] = task.model_copy(update={"labels": labels})
        return spec.model_copy(update={"stream": stream.model_copy(update={"tasks": tasks})})
    return spec


def _labels(
    spec: BenchmarkSpec, dataset: str, given: Sequence[int | str], key: str, info_of: Callable[[str], DatasetInfo]
) -> tuple[int, ...]:
    if not any(isinstance(entry, str) for entry in given):
        return tuple(map(int, given))
    names = info_of(dataset).class_names or ()
    faults = [
        f"{entry!r} is {'the name of several classes' if entry in names else 'no class of it'}"
        f"{did_you_mean(entry, names)}"
        for entry in given
        if isinstance(entry, str) and names.count(entry) != 1
    ]
    found = () if faults else tuple(names.index(it) if isinstance(it, str) else it for it in given)
    faults += [
        f"{label} {names[label]!r} is there twice" for label in sorted({it for it in found if found.count(it) > 1})
    ]
    if faults:
        what = f"names classes that data set {dataset!r} has not: {'; '.join(faults)}"
        remedy = f"its classes are called {', '.join(names[:200])}" if names else "its classes have no names"
        raise refusal(spec, dataset, f"stream.{key}", what, remedy + (", ..." if names[200:] else ""))
    return found
