"""The list of tasks that a benchmark is: of each, which classes of which data set, seen how, in which order.

All else is read off this list: sizes (:mod:`seu_bench.data.planning`), images and the fingerprint
(:mod:`seu_bench.data.streams`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.options import did_you_mean
from seu_bench.config.streams import ClassSplit, DatasetSequence, DrawnTasks, InputSpec, Permutation, Stream
from seu_bench.data.dataset import DatasetInfo
from seu_bench.errors import RequestError

#: Letters that the names of a task's classes may take together in the name of the task.
_LONGEST: Final = 40
#: Class names that a message lists.
_MOST_NAMES: Final = 200


@dataclass(frozen=True)
class TaskSpec:
    """The part of a data set that a task is.

    Attributes:
        name: of the task.
        index: the benchmark's own index of the task.
        dataset: name of its data set.
        input: what makes inputs of its images.
        labels: of its classes, in the order of its head's outputs.
        takes_all: whether it has all images of the data set, which are all of these classes.
        permutation_seed: of the order in which it sees the pixels; ``None`` for the natural one.
        per_class: largest numbers of training and of validation images of each class; ``None``: all images of the
            classes, of which a share validates.
        test_per_class: largest number of test images of each class; ``None``: all.
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

    def class_keys(self, info: DatasetInfo) -> list[Hashable]:
        """What tells each of its classes from other classes of the stream.

        The name, whatever the data set; where a class has none, or shares it with another one, the data set and the
        label. Under another permutation of the pixels a class is another one.
        """
        names = info.class_names or ()
        counts = Counter(names)
        return [
            names[label]
            if label < len(names) and counts[names[label]] == 1 and self.permutation_seed is None
            else (self.dataset, label, self.permutation_seed)
            for label in self.labels
        ]


def shuffled(count: int, seed: int) -> NDArray[np.int64]:
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


def ordered_tasks(spec: BenchmarkSpec, infos: Mapping[str, DatasetInfo], seed: int) -> list[TaskSpec]:
    """The tasks of a benchmark in the order in which ``seed`` learns them."""
    spec = numbered(spec, infos)
    stream = spec.stream
    if isinstance(stream, DatasetSequence):
        tasks = [_dataset_task(spec, stream, index, infos, seed) for index in range(len(stream.tasks))]
    elif isinstance(stream, DrawnTasks):
        tasks = _drawn_tasks(spec, stream, infos, seed)
    elif isinstance(stream, Permutation):
        source = stream.dataset, stream.input, tuple(range(infos[stream.dataset].num_classes)), True
        tasks = [TaskSpec(f"permutation {index}", index, *source) for index in range(stream.tasks)]
    else:
        info = infos[stream.dataset]
        tasks = [
            TaskSpec(task_title(group, info), index, stream.dataset, stream.input, group)
            for index, group in enumerate(class_groups(spec, stream, info, seed))
        ]
    if stream.scenario == "domain":
        tasks = _with_common_classes(spec, tasks, infos)
    if isinstance(stream, ClassSplit) or (isinstance(stream, DatasetSequence) and stream.scenario == "class"):
        tasks = _split_by_class(tasks, infos, stream.validation)
    order = _learning_order(stream, tasks, seed)
    if sorted(order) != list(range(len(tasks))):
        raise RequestError(
            f"stream.order of benchmark {spec.name!r} is {order}",
            where=place_of(spec, dataset_names(spec)[0], "stream.order"),
            remedy=f"name each of the tasks 0 to {len(tasks) - 1} once",
        )
    tasks = [tasks[index] for index in order]
    if isinstance(stream, Permutation):
        return [replace(task, permutation_seed=100 * task.index + place) for place, task in enumerate(tasks)]
    return tasks


def _learning_order(stream: Stream, tasks: Sequence[TaskSpec], seed: int) -> list[int]:
    """Indices of tasks in the order in which ``seed`` learns them."""
    order = getattr(stream, "order", None)
    if isinstance(stream, DatasetSequence) and isinstance(order, tuple):
        return [list(stream.tasks).index(name) for name in order]
    if isinstance(order, tuple):
        return [int(task) for task in order]
    if order != "shuffled" and not isinstance(stream, Permutation):
        return list(range(len(tasks)))
    drawn: list[int] = shuffled(len(tasks), seed).tolist()
    if not isinstance(stream, ClassSplit) or stream.groups is not None:
        return drawn
    # A first task of another size stays the first one, and what was left for the last task the last one.
    first = 0 if stream.first is not None else None
    last = len(tasks) - 1 if len(tasks[-1].labels) < (stream.classes_per_task or 1) else None
    return sorted(drawn, key=lambda index: (index == last) - (index == first))


def _split_by_class(tasks: Sequence[TaskSpec], infos: Mapping[str, DatasetInfo], validation: float) -> list[TaskSpec]:
    """Tasks of which those that share a class with another one take the validation images of each class, so that no
    image trains one task and validates another."""
    having = Counter((task.dataset, label) for task in tasks for label in task.labels)
    found = []
    for task in tasks:
        images = infos[task.dataset].num_train
        # More than any class has: all of its images, of which this share validates.
        held = max(1, int(validation * images))
        shares = task.per_class is None and any(having[task.dataset, label] > 1 for label in task.labels)
        found.append(replace(task, per_class=(max(1, images - held), held)) if shares else task)
    return found


def _with_common_classes(
    spec: BenchmarkSpec, tasks: Sequence[TaskSpec], infos: Mapping[str, DatasetInfo]
) -> list[TaskSpec]:
    """Tasks that share their outputs, their classes in one order: a class has the same output in all of them.

    Groups of classes name which classes share an output, by their places. Other tasks have the same classes, by name
    where they have names, and by place where they have none.
    """
    if len({len(task.labels) for task in tasks}) > 1 or isinstance(spec.stream, Permutation):
        return list(tasks)
    places: dict[Hashable, int] = {}
    found: list[TaskSpec] = []
    for task in tasks:
        given = task.class_keys(infos[task.dataset])
        keys = sorted(given, key=places.__getitem__) if places.keys() >= set(given) else given
        found.append(replace(task, labels=tuple(task.labels[given.index(key)] for key in keys)))
        names, known = ([key for key in group if isinstance(key, str)] for group in (keys, places))
        by_name = bool(known) and not isinstance(spec.stream, ClassSplit)
        added = [name for name in names if by_name and name not in known]
        moved = [key for place, key in enumerate(keys) if places.get(key, place) != place]
        if added or moved:
            what = f"{_listed(added or moved)}, where earlier ones have {_listed(set(known) - set(names))}"
            if not added:
                what = f"{_listed(moved)} at another place than earlier ones"
            raise RequestError(
                f"the tasks of benchmark {spec.name!r} share their classes, but task {task.name!r} has {what}",
                where=place_of(spec, task.dataset, "stream.scenario"),
                remedy="give the classes the same names in all tasks, and each the same place; "
                "or choose the scenario 'class', e.g. -o benchmark.stream.scenario=class",
            )
        places.update(zip(keys, range(len(keys)), strict=True))
    return found


def _listed(keys: Iterable[Hashable]) -> str:
    """Classes as messages have them: by name, or by label where they have none."""
    shown = sorted(str(key[1]) if isinstance(key, tuple) else repr(key) for key in keys)
    return ", ".join(shown[:20]) + (f", ... ({len(shown)} in all)" if len(shown) > 20 else "")


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
        each = {"per_class": (size.train_per_class, size.valid_per_class), "test_per_class": stream.test_per_class}
        source = _with_color(stream.sources[dataset], draws)
        tasks.append(TaskSpec(name, index, dataset, source, labels, **each))  # type: ignore[arg-type]
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
        raise RequestError(
            f"benchmark {spec.name!r} draws {count} classes of {info.name!r}, which has {len(present)}",
            where=place_of(spec, info.name, key),
            remedy=f"draw {len(present)} at most",
        )
    return tuple(present[place] for place in draws.permutation(len(present))[:count].tolist())


def class_groups(
    spec: BenchmarkSpec, stream: ClassSplit, info: DatasetInfo, seed: int = 0
) -> tuple[tuple[int, ...], ...]:
    """Labels of each task of a numbered ``stream``, in the benchmark's order; ``seed`` is that of the run.

    Raises:
        RequestError: the classes cannot be divided so, or there is no such label.
    """
    if stream.groups is None:
        width = stream.classes_per_task or 1
        first = stream.first or width
        if (most := max(first, width)) > info.num_classes:
            raise RequestError(
                f"benchmark {spec.name!r} has tasks of {most} classes, but {stream.dataset!r} has {info.num_classes}",
                where=place_of(spec, stream.dataset, f"stream.{'first' if first > width else 'classes_per_task'}"),
                remedy=f"give {info.num_classes} at most",
            )
        labels = list(range(info.num_classes))
        if stream.class_order != "natural":
            labels = shuffled(len(labels), seed if stream.class_order == "shuffled" else stream.class_order).tolist()
        cuts = [0, *range(first, len(labels), width), len(labels)]
        return tuple(tuple(labels[start:stop]) for start, stop in pairwise(cuts))
    groups = tuple(tuple(int(label) for label in group) for group in stream.groups)
    if unknown := sorted({label for group in groups for label in group if label >= info.num_classes}):
        raise RequestError(
            f"benchmark {spec.name!r} names classes {unknown} but {stream.dataset!r} has {info.num_classes}",
            where=place_of(spec, stream.dataset, "stream.groups"),
            remedy=f"classes are numbered 0 to {info.num_classes - 1}{_names(info)}",
        )
    return groups


def place_of(spec: BenchmarkSpec, dataset: str, key: str) -> str:
    """Where a fault is: the key of the benchmark, and the data set with the folder or file of the user's own."""
    path = getattr(spec.datasets.get(dataset), "path", None)
    return f"{key} of benchmark {spec.name!r}, data set {dataset!r}" + (f" in {path}" if path else "")


# ----------------------------------------------------------------------------------------------------- names of classes


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
    if len(joined) > _LONGEST and len(names) > 2:
        joined = f"{names[0]} ... {names[-1]} ({len(names)} classes)"
    return f"classes {joined}" if any(name.isdigit() for name in names) else joined


def names_classes(spec: BenchmarkSpec) -> bool:
    """Whether a benchmark gives a class by its name."""
    stream = spec.stream
    if isinstance(stream, DatasetSequence):
        groups: list[Any] = [task.labels or () for task in stream.tasks.values()]
    elif isinstance(stream, ClassSplit):
        groups = [*(stream.groups or ()), stream.order if isinstance(stream.order, tuple) else ()]
    else:
        return False
    return any(isinstance(label, str) for group in groups for label in group)


def numbered(spec: BenchmarkSpec, infos: Mapping[str, DatasetInfo]) -> BenchmarkSpec:
    """The benchmark with labels in place of class names, and tasks by index in its order.

    Args:
        spec: the benchmark; it is returned as it is where it names no class.
        infos: of its data sets.

    Raises:
        RequestError: a name is unknown or that of several classes; all are listed.

    Example:
        ``groups = [["cat", "dog"], [0]]`` of CIFAR-10 are ``[[3, 5], [0]]``.
    """
    stream = spec.stream
    if isinstance(stream, DatasetSequence) and names_classes(spec):
        tasks = dict(stream.tasks)
        for name, task in tasks.items():
            if task.labels is not None:
                labels = _numbers([task.labels], spec, infos[task.dataset], f"tasks.{name}.labels")
                tasks[name] = task.model_copy(update={"labels": labels[0]})
        return spec.model_copy(update={"stream": stream.model_copy(update={"tasks": tasks})})
    if not isinstance(stream, ClassSplit) or not names_classes(spec):
        return spec
    info = infos[stream.dataset]
    if stream.groups is not None:
        stream = stream.model_copy(update={"groups": _numbers(stream.groups, spec, info, "groups")})
    if isinstance(stream.order, tuple):
        cut = class_groups(spec, stream, info)
        order = []
        for entry, label in zip(stream.order, *_numbers([stream.order], spec, info, "order", once=False), strict=True):
            tasks_of = [label] if entry == label else [index for index, group in enumerate(cut) if label in group]
            if len(tasks_of) != 1:
                which = "several tasks" if tasks_of else "no task"
                raise RequestError(
                    f"stream.order of benchmark {spec.name!r} names a class of {which}: {entry!r}",
                    where=place_of(spec, stream.dataset, "stream.order"),
                    remedy="name a class that one task alone has, or give the tasks by index from 0",
                )
            order += tasks_of
        stream = stream.model_copy(update={"order": tuple(order)})
    return spec.model_copy(update={"stream": stream})


def numbered_overrides(overrides: Mapping[str, Any], benchmark: BenchmarkSpec) -> dict[str, Any]:
    """Values of ``-o benchmark.KEY`` with labels in place of class names, so that records of a run are all the same."""
    stream = benchmark.model_dump(mode="json")["stream"]
    keys = ("groups", "order")
    return {**overrides, **{f"stream.{key}": stream[key] for key in keys if f"stream.{key}" in overrides}}


def _numbers(
    groups: Sequence[Sequence[int | str]], spec: BenchmarkSpec, info: DatasetInfo, key: str, *, once: bool = True
) -> tuple[tuple[int, ...], ...]:
    """Labels of classes that are given by number or by name, each ``once`` in a group."""
    numbers: dict[str, list[int]] = {}
    for label, name in enumerate(info.class_names or ()):
        numbers.setdefault(name, []).append(label)
    given = list(chain.from_iterable(groups))
    if info.class_names is None:  # a number in quotes cannot be anything else
        numbers = {name: [int(name)] for name in map(str, given) if name.isascii() and name.isdigit()}
    faults = [
        f"{name!r} is no class of it{did_you_mean(name, numbers)}"
        if name not in numbers
        else f"{name!r} is the name of classes {', '.join(map(str, numbers[name]))}: give the number"
        for name in dict.fromkeys(entry for entry in given if isinstance(entry, str))
        if len(numbers.get(name, ())) != 1
    ]
    found = tuple(
        tuple(numbers[it][0] if isinstance(it, str) and it in numbers else it for it in group) for group in groups
    )
    if not faults and once:
        twice = sorted({label for group in found for label in group if group.count(label) > 1})
        faults = [" ".join([f"{label}", *class_names(info, [int(label)]), "is twice in a group"]) for label in twice]
    if faults:
        raise RequestError(
            f"benchmark {spec.name!r} names classes that data set {info.name!r} has not: {'; '.join(faults)}",
            where=place_of(spec, info.name, f"stream.{key}"),
            remedy=f"its classes are numbered 0 to {info.num_classes - 1}{_names(info) or ' and have no names'}",
        )
    return found  # type: ignore[return-value]


def _names(info: DatasetInfo) -> str:
    """The names of all classes, for the end of a sentence."""
    if info.class_names is None:
        return ""
    more = f", ... ({len(info.class_names)} in all)" if len(info.class_names) > _MOST_NAMES else ""
    return f", and called {', '.join(info.class_names[:_MOST_NAMES])}{more}"
