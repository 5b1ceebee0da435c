"""Classes of tasks: their numbers where a benchmark names them, and their names where a data set has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.options import did_you_mean
from seu_bench.config.streams import ClassSplit, DatasetSequence, DatasetTask
from seu_bench.data.dataset import DatasetInfo
from seu_bench.errors import RequestError

#: Letters that the names of a task's classes may take together in the name of the task.
_LONGEST: Final = 40
#: Class names that a message lists.
_MOST_NAMES: Final = 200


def shuffled(count: int, seed: int) -> NDArray[np.int64]:
    """``0 .. count-1`` shuffled by NumPy's legacy generator; equals ``sklearn.utils.shuffle`` (published code)."""
    order = np.arange(count, dtype=np.int64)
    np.random.RandomState(seed % 2**32).shuffle(order)
    return order


def names_classes(spec: BenchmarkSpec) -> bool:
    """Whether a benchmark gives a class by its name."""
    stream = spec.stream
    if isinstance(stream, DatasetSequence):
        return any(isinstance(label, str) for task in stream.tasks.values() for label in task.labels or ())
    if not isinstance(stream, ClassSplit):
        return False
    listed = [label for group in stream.groups or () for label in group]
    return any(
        isinstance(label, str) for label in [*listed, *(stream.order if isinstance(stream.order, tuple) else ())]
    )


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
        tasks = {name: _numbered_task(spec, name, task, infos) for name, task in stream.tasks.items()}
        return spec.model_copy(update={"stream": stream.model_copy(update={"tasks": tasks})})
    if not isinstance(stream, ClassSplit) or not names_classes(spec):
        return spec
    info = infos[stream.dataset]
    groups = stream.groups
    if groups is not None:
        flat = _labels([label for group in groups for label in group], spec, info, "groups")
        following = iter(flat)
        groups = tuple(tuple(next(following) for _ in group) for group in groups)
        if twice := sorted({label for group in groups for label in group if group.count(label) > 1}):
            raise RequestError(
                f"benchmark {spec.name!r} has classes twice in a group: {_listed(twice, info)}",
                where=place_of(spec, stream.dataset, "stream.groups"),
                remedy="give each class of a task once, by its number or by its name",
            )
        stream = stream.model_copy(update={"groups": groups})
        spec = spec.model_copy(update={"stream": stream})
    if isinstance(stream.order, tuple):
        named = [entry for entry in stream.order if isinstance(entry, str)]
        labels = dict(zip(named, _labels(named, spec, info, "order"), strict=True))
        cut = class_groups(spec, stream, info)
        tasks_of = {name: [at for at, group in enumerate(cut) if label in group] for name, label in labels.items()}
        if unclear := [name for name, tasks in tasks_of.items() if len(tasks) != 1]:
            which = "several tasks" if tasks_of[unclear[0]] else "no task"
            raise RequestError(
                f"stream.order of benchmark {spec.name!r} names classes of {which}: {', '.join(map(repr, unclear))}",
                where=place_of(spec, stream.dataset, "stream.order"),
                remedy="name a class that one task alone has, or give the tasks by index from 0",
            )
        order = tuple(tasks_of[entry][0] if isinstance(entry, str) else entry for entry in stream.order)
        spec = spec.model_copy(update={"stream": stream.model_copy(update={"order": order})})
    return spec


def _numbered_task(spec: BenchmarkSpec, name: str, task: DatasetTask, infos: Mapping[str, DatasetInfo]) -> DatasetTask:
    if task.labels is None:
        return task
    labels = _labels(task.labels, spec, infos[task.dataset], f"tasks.{name}.labels")
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise RequestError(
            f"task {name!r} of benchmark {spec.name!r} has classes twice: {_listed(twice, infos[task.dataset])}",
            where=place_of(spec, task.dataset, f"stream.tasks.{name}.labels"),
            remedy="give each class once, by its number or by its name",
        )
    return task.model_copy(update={"labels": tuple(labels)})


def numbered_overrides(overrides: Mapping[str, Any], benchmark: BenchmarkSpec) -> dict[str, Any]:
    """Values of ``-o benchmark.KEY`` with labels in place of class names, so that records of a run are all the same."""
    stream = benchmark.model_dump(mode="json")["stream"]
    keys = ("groups", "order")
    return {**overrides, **{f"stream.{key}": stream[key] for key in keys if f"stream.{key}" in overrides}}


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
    unknown = sorted({label for group in groups for label in group if label >= info.num_classes})
    if unknown:
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


def class_names(info: DatasetInfo, labels: Iterable[int]) -> tuple[str, ...]:
    """Names of labels, as far as the data set has them."""
    known = info.class_names or ()
    return tuple(known[label] for label in labels if label < len(known))


def _labels(given: Sequence[int | str], spec: BenchmarkSpec, info: DatasetInfo, key: str) -> list[int]:
    """Labels of classes that are given by number or by name."""
    known = info.class_names
    numbers: dict[str, list[int]] = {}
    for label, name in enumerate(known or ()):
        numbers.setdefault(name, []).append(label)
    if known is None:  # a number in quotes cannot be anything else
        numbers = {name: [int(name)] for name in map(str, given) if name.isascii() and name.isdigit()}
    faults = []
    for name in dict.fromkeys(entry for entry in given if isinstance(entry, str)):
        found = numbers.get(name, [])
        if not found:
            faults.append(f"{name!r} is no class of it{did_you_mean(name, numbers)}")
        elif len(found) > 1:
            faults.append(f"{name!r} is the name of classes {', '.join(map(str, found))}: give the number")
    if faults:
        raise RequestError(
            f"benchmark {spec.name!r} names classes that data set {info.name!r} has not: {'; '.join(faults)}",
            where=place_of(spec, info.name, f"stream.{key}"),
            remedy=f"its classes are numbered 0 to {info.num_classes - 1}{_names(info) or ' and have no names'}",
        )
    return [numbers[entry][0] if isinstance(entry, str) else entry for entry in given]


def _listed(labels: Iterable[int], info: DatasetInfo) -> str:
    return ", ".join(f"{label}{''.join(f' ({name!r})' for name in class_names(info, [label]))}" for label in labels)


def _names(info: DatasetInfo) -> str:
    """The names of all classes, for the end of a sentence."""
    if info.class_names is None:
        return ""
    more = f", ... ({len(info.class_names)} in all)" if len(info.class_names) > _MOST_NAMES else ""
    return f", and called {', '.join(info.class_names[:_MOST_NAMES])}{more}"
