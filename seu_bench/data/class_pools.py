"""Images of a class shared out among the tasks that ask for so many of each class.

The training images of a class are cut into a pool that trains and one that validates, in an order drawn by the seed, so
that no image trains one task and validates another. Tasks take theirs in the order of the stream: while there are
fresh images a later task gets these, and where a pool is used up it begins again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seu_bench.data.classes import shuffled
from seu_bench.data.task_parts import TaskPart

Rows = NDArray[np.int64]


@dataclass
class _Demand:
    """What all tasks of a stream ask of one class."""

    train: list[int] = field(default_factory=list)
    valid: list[int] = field(default_factory=list)


def pool_sizes(available: int, train: Sequence[int], valid: Sequence[int]) -> tuple[int, int]:
    """Training and validation images of a class.

    Where there are enough for every task to have its own, there are so many validation images as are asked for in all.
    Otherwise each pool has what the largest task asks for, and the rest goes to both in proportion to what they lack;
    where not even this fits, all are divided in proportion to the largest tasks' numbers.

    Args:
        available: images of the class.
        train: training images that each task asks for.
        valid: validation images, likewise.

    Returns:
        How many of the images train, and how many validate; together ``available``.

    Example:
        >>> pool_sizes(600, [400, 40], [200, 20]), pool_sizes(5000, [400, 40], [200, 20]), pool_sizes(30, [400], [200])
        ((400, 200), (4780, 220), (20, 10))
    """
    most, held = max(train), max(valid)
    spare = available - most - held
    if spare < 0:
        size = max(1, available * held // (most + held)) if available > 1 else 0
    else:
        lacking = sum(valid) - held
        size = held + min(lacking, spare * lacking // max(1, lacking + sum(train) - most))
    return available - size, size


def class_counts(parts: Sequence[TaskPart], available: Mapping[str, Sequence[int]]) -> list[dict[int, tuple[int, int]]]:
    """Training and validation images of each class of each task.

    Args:
        parts: all tasks of the stream.
        available: training images by label, for each data set; outputs beyond have none.

    Returns:
        A table by label for each task; empty for tasks that do not ask by class.
    """
    sizes = {
        (dataset, label): pool_sizes(sum(available[dataset][label : label + 1]), demand.train, demand.valid)
        for (dataset, label), demand in _demands(parts).items()
    }
    found: list[dict[int, tuple[int, int]]] = []
    for part in parts:
        counts = {}
        if part.per_class is not None:
            for label in part.labels:
                train, valid = sizes[part.dataset, label]
                counts[label] = min(part.per_class[0], train), min(part.per_class[1], valid)
        found.append(counts)
    return found


def class_rows(parts: Sequence[TaskPart], labels: Mapping[str, Rows], seed: int) -> list[tuple[Rows, Rows] | None]:
    """Training and validation images of each task, in an order drawn by the seed; ``None`` where it is not by class.

    Args:
        parts: all tasks of the stream, in its order.
        labels: of the training images of each data set.
        seed: of the run.
    """
    available = {
        name: np.bincount(of, minlength=1 + max(_highest(parts, name), int(of.max(initial=0)))).tolist()
        for name, of in labels.items()
    }
    pools: dict[tuple[str, int], tuple[Rows, Rows]] = {}
    for (dataset, label), demand in _demands(parts).items():
        images = np.flatnonzero(labels[dataset] == label)
        images = images[shuffled(len(images), seed)]
        train, _ = pool_sizes(len(images), demand.train, demand.valid)
        pools[dataset, label] = images[:train], images[train:]
    taken: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    found: list[tuple[Rows, Rows] | None] = []
    for part, counts in zip(parts, class_counts(parts, available), strict=True):
        if part.per_class is None:
            found.append(None)
            continue
        split: list[Rows] = []
        for side in (0, 1):
            rows = [np.zeros(0, dtype=np.int64)]
            for label, count in counts.items():
                pool, key = pools[part.dataset, label][side], (part.dataset, label)
                start = taken[key][side]
                rows.append(pool[(start + np.arange(count[side])) % max(1, len(pool))])
                taken[key][side] = start + count[side]
            chosen = np.concatenate(rows)
            split.append(chosen[shuffled(len(chosen), seed)])
        found.append((split[0], split[1]))
    return found


def _demands(parts: Sequence[TaskPart]) -> dict[tuple[str, int], _Demand]:
    found: defaultdict[tuple[str, int], _Demand] = defaultdict(_Demand)
    for part in parts:
        if part.per_class is not None:
            for label in part.labels:
                found[part.dataset, label].train.append(part.per_class[0])
                found[part.dataset, label].valid.append(part.per_class[1])
    return dict(found)


def _highest(parts: Sequence[TaskPart], dataset: str) -> int:
    """The greatest label that a task of a data set has."""
    return max((max(part.labels) for part in parts if part.dataset == dataset), default=0)
