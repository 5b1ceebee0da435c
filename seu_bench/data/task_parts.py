"""Tasks of a stream before their images are chosen: which classes of which data set, seen how, in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.streams import ClassSplit, DatasetSequence, DrawnTasks, InputSpec, Permutation, Stream
from seu_bench.data.classes import class_groups, numbered, place_of, shuffled, task_title
from seu_bench.data.dataset import DatasetInfo
from seu_bench.errors import RequestError

#: Classes that a message lists.
_MOST_NAMES: Final = 20


@dataclass(frozen=True)
class TaskPart:
    """The part of a data set that a task is.

    Attributes:
        index: the benchmark's own index of the task.
        classes: the labels that belong to it; ``None`` for all.
        label_offset: subtracted from labels where ``classes`` is ``None``; otherwise they are numbered by position.
        head: outputs of its head.
        permutation_seed: of the order in which it sees the pixels; ``None`` for the natural one.
        per_class: largest numbers of training and of validation images of each class; ``None``: all images of the
            classes, of which a share validates.
        test_per_class: largest number of test images of each class; ``None``: all.
    """

    name: str
    index: int
    dataset: str
    input: InputSpec
    classes: tuple[int, ...] | None
    label_offset: int
    head: int
    permutation_seed: int | None = None
    per_class: tuple[int, int] | None = None
    test_per_class: int | None = None

    @property
    def labels(self) -> Sequence[int]:
        """The labels that belong to it, in the order of its head's outputs."""
        return range(self.label_offset, self.label_offset + self.head) if self.classes is None else self.classes

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


def dataset_names(spec: BenchmarkSpec) -> tuple[str, ...]:
    """The data sets that a benchmark names, each once."""
    if isinstance(spec.stream, DrawnTasks):
        return tuple(spec.stream.sources)
    if isinstance(spec.stream, DatasetSequence):
        return tuple(dict.fromkeys(task.dataset for task in spec.stream.tasks.values()))
    return (spec.stream.dataset,)


def ordered_tasks(spec: BenchmarkSpec, infos: Mapping[str, DatasetInfo], seed: int) -> list[TaskPart]:
    """The tasks of a benchmark in the order in which ``seed`` learns them."""
    spec = numbered(spec, infos)
    stream = spec.stream
    if isinstance(stream, DatasetSequence):
        parts = [
            _dataset_part(spec, name, index, infos[task.dataset], seed)
            for index, (name, task) in enumerate(stream.tasks.items())
        ]
    elif isinstance(stream, DrawnTasks):
        parts = _drawn_parts(spec, stream, infos, seed)
    elif isinstance(stream, Permutation):
        source = stream.dataset, stream.input, None, 0, infos[stream.dataset].num_classes
        parts = [TaskPart(f"permutation {index}", index, *source) for index in range(stream.tasks)]
    else:
        parts = []
        info = infos[stream.dataset]
        for index, group in enumerate(class_groups(spec, stream, info, seed)):
            name = task_title(group, info)
            parts.append(TaskPart(name, index, stream.dataset, stream.input, group, 0, len(group)))
    if stream.scenario == "domain":
        parts = _with_common_classes(spec, parts, infos)
    if isinstance(stream, ClassSplit) or (isinstance(stream, DatasetSequence) and stream.scenario == "class"):
        parts = _split_by_class(parts, infos, stream.validation)
    order = _learning_order(stream, parts, seed)
    if sorted(order) != list(range(len(parts))):
        raise RequestError(
            f"stream.order of benchmark {spec.name!r} is {order}",
            where=place_of(spec, dataset_names(spec)[0], "stream.order"),
            remedy=f"name each of the tasks 0 to {len(parts) - 1} once",
        )
    parts = [parts[index] for index in order]
    if isinstance(stream, Permutation):
        return [replace(part, permutation_seed=100 * part.index + place) for place, part in enumerate(parts)]
    return parts


def _learning_order(stream: Stream, parts: Sequence[TaskPart], seed: int) -> list[int]:
    """Indices of tasks in the order in which ``seed`` learns them."""
    order = getattr(stream, "order", None)
    if isinstance(stream, DatasetSequence) and isinstance(order, tuple):
        return [list(stream.tasks).index(name) for name in order]
    if isinstance(order, tuple):
        return [int(task) for task in order]
    if order != "shuffled" and not isinstance(stream, Permutation):
        return list(range(len(parts)))
    drawn: list[int] = shuffled(len(parts), seed).tolist()
    if not isinstance(stream, ClassSplit) or stream.groups is not None:
        return drawn
    # A first task of another size stays the first one, and what was left for the last task the last one.
    first = 0 if stream.first is not None else None
    last = len(parts) - 1 if len(parts[-1].labels) < (stream.classes_per_task or 1) else None
    return sorted(drawn, key=lambda index: (index == last) - (index == first))


def _with_common_classes(
    spec: BenchmarkSpec, parts: Sequence[TaskPart], infos: Mapping[str, DatasetInfo]
) -> list[TaskPart]:
    """Tasks that share their outputs, their classes in one order: a class has the same output in all of them.

    Groups of classes name which classes share an output, by their places. Other tasks have the same classes, by name
    where they have names, and by place where they have none.
    """
    if len({part.head for part in parts}) > 1 or isinstance(spec.stream, Permutation):
        return list(parts)
    places: dict[Hashable, int] = {}
    found: list[TaskPart] = []
    for part in parts:
        keys = part.class_keys(infos[part.dataset])
        if places.keys() >= set(keys) and (by_place := sorted(keys, key=places.__getitem__)) != keys:
            classes = tuple(part.labels[keys.index(key)] for key in by_place)
            found.append(replace(part, classes=classes, label_offset=0))
            keys = by_place
        else:
            found.append(part)
        names, known = ([key for key in group if isinstance(key, str)] for group in (keys, places))
        by_name = bool(known) and not isinstance(spec.stream, ClassSplit)
        added = [name for name in names if by_name and name not in known]
        moved = [key for place, key in enumerate(keys) if places.get(key, place) != place]
        if added or moved:
            what = f"{_listed(moved)} at another place than earlier ones"
            if added:
                what = f"{_listed(added)}, where earlier ones have {_listed(set(known) - set(names))}"
            raise RequestError(
                f"the tasks of benchmark {spec.name!r} share their classes, but task {part.name!r} has {what}",
                where=place_of(spec, part.dataset, "stream.scenario"),
                remedy=("give the classes the same names in all tasks" if added else "give a class one place")
                + "; or choose the scenario 'class', e.g. -o benchmark.stream.scenario=class",
            )
        places.update(zip(keys, range(len(keys)), strict=True))
    return found


def _listed(keys: Iterable[Hashable]) -> str:
    """Classes as messages have them: by name, or by label where they have none."""
    shown = sorted(str(key[1]) if isinstance(key, tuple) else repr(key) for key in keys)
    return ", ".join(shown[:_MOST_NAMES]) + (f", ... ({len(shown)} in all)" if len(shown) > _MOST_NAMES else "")


def _split_by_class(parts: Sequence[TaskPart], infos: Mapping[str, DatasetInfo], validation: float) -> list[TaskPart]:
    """Tasks of which those that share a class with another one take the validation images of each class, so that no
    image trains one task and validates another."""
    tasks = Counter((part.dataset, label) for part in parts for label in part.labels)
    found = []
    for part in parts:
        images = infos[part.dataset].num_train
        if part.per_class is None and any(tasks[part.dataset, label] > 1 for label in part.labels):
            # More than any class has: all of its images, of which this share validates.
            held = max(1, int(validation * images))
            found.append(replace(part, per_class=(max(1, images - held), held)))
        else:
            found.append(part)
    return found


def _dataset_part(spec: BenchmarkSpec, name: str, index: int, info: DatasetInfo, seed: int) -> TaskPart:
    """A task of a sequence of data sets; what it draws hangs on the seed and on its place in the file."""
    if not isinstance(spec.stream, DatasetSequence):
        raise TypeError("only a sequence of data sets has tasks by name")
    task = spec.stream.tasks[name]
    draws = np.random.RandomState((seed % 2**32, index))
    classes: tuple[int, ...] | None = None
    if task.labels is not None:
        classes = tuple(int(label) for label in task.labels)
    elif task.draw_classes is not None:
        classes = _draw_classes(spec, task.draw_classes, info, draws, f"stream.tasks.{name}.draw_classes")
    head = task.classes or info.num_classes - task.label_offset
    if classes is None and task.rotate_labels:
        classes = tuple(range(task.label_offset, task.label_offset + head))
    if classes is not None:
        head, shift = len(classes), len(classes) - task.rotate_labels % len(classes)
        classes = classes[shift:] + classes[:shift]  # the label at place p is the number p + rotate_labels
    source = _with_color(task.input, draws)
    per_class = None
    if task.train_per_class is not None and task.valid_per_class is not None:
        per_class = task.train_per_class, task.valid_per_class
    return TaskPart(
        name,
        index,
        task.dataset,
        source,
        classes,
        0 if classes is not None else task.label_offset,
        head,
        per_class=per_class,
        test_per_class=task.test_per_class,
    )


def _drawn_parts(
    spec: BenchmarkSpec, stream: DrawnTasks, infos: Mapping[str, DatasetInfo], seed: int
) -> list[TaskPart]:
    """All tasks of a drawn stream: its first ones are the same however many there are."""
    draws, names = np.random.RandomState(seed % 2**32), list(stream.sources)
    parts = []
    for index in range(stream.tasks):
        dataset = names[draws.randint(len(names))]
        share = next((entry.share for entry in stream.large_tasks if index < entry.until), 0.0)
        is_large = draws.random_sample() < share
        classes = _draw_classes(spec, stream.classes_per_task, infos[dataset], draws, "stream.classes_per_task")
        size = stream.large if is_large else stream.small
        parts.append(
            TaskPart(
                f"{index + 1}: {dataset} {task_title(classes, infos[dataset])}",
                index,
                dataset,
                _with_color(stream.sources[dataset], draws),
                classes,
                0,
                len(classes),
                per_class=(size.train_per_class, size.valid_per_class),
                test_per_class=stream.test_per_class,
            )
        )
    return parts


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
    present = [
        label for label in range(info.num_classes) if info.train_per_class is None or info.train_per_class[label]
    ]
    if count > len(present):
        raise RequestError(
            f"benchmark {spec.name!r} draws {count} classes of {info.name!r}, which has {len(present)}",
            where=place_of(spec, info.name, key),
            remedy=f"draw {len(present)} at most",
        )
    return tuple(present[place] for place in draws.permutation(len(present))[:count].tolist())
