"""Sessions: the same classes in several tasks, each time with other images; and orders of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.streams import ALL, classes_spec, everything, made
from support.tiny import raw_dataset

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.data.dataset import RawDataset
from seu_bench.data.images import TaskImages
from seu_bench.data.planning import StreamPlan, plan_stream
from seu_bench.data.tasks import ordered_tasks
from seu_bench.errors import RequestError, SpecError
from seu_bench_benchmarks.datasets import DATASETS

#: The classes of CIFAR-100 as the literature's class-incremental streams have them (options of PODNet and of PyCIL).
PUBLISHED = """
68 56 78 8 23 84 90 65 74 76 40 89 3 92 55 9 26 80 43 38 58 70 77 1 85 19 17 50 28 53 13 81 45 82 6 59 83 16 15 44 91 41
72 60 79 52 20 10 31 54 37 95 14 71 96 98 97 2 64 66 42 22 35 86 24 34 87 21 99 0 88 27 18 94 11 12 47 25 30 46 62 69 36
61 7 63 75 5 32 4 51 48 73 93 39 67 29 49 57 33
"""
COUNTS = (61, 60, 42, 39)


def data() -> RawDataset:
    """Images of four classes that hold their numbers."""
    found = raw_dataset(COUNTS, [4, 3, 2, 1])
    for split in (found.train, found.test):
        split.images[:] = np.arange(len(split))[:, None, None, None]
    return found


def numbers(images: TaskImages) -> list[int]:
    """Which images of a split these are."""
    return (everything(images)[0][:, 0, 0, 0] * 255).round().int().tolist()


@pytest.mark.parametrize("validation", [0.0, 0.2])
@pytest.mark.parametrize("groups", [[[2, 0], [1, 3]], [[0, 1, 2, 3]], [[0, 1], [1, 2]]])
def test_each_image_is_in_one_session(groups: list[list[int]], validation: float) -> None:
    """Each has a third of a class's images, its test images are in each of its tasks, and groups of one session that
    share a class share its images."""
    raw, seen = data(), dict[tuple[int, int], set[int]]()
    spec = classes_spec(groups=groups, order="fixed", sessions=3, validation=validation, scenario="class")
    stream = made(spec, raw, 5)
    assert stream.plan == plan_stream(spec, {"tiny": raw.info}, ALL, 5)
    assert stream.plan.order == tuple(range(3 * len(groups)))
    for place, (task, plan) in enumerate(zip(stream.tasks, stream.plan.tasks, strict=True)):
        session, group = divmod(place, len(groups))
        assert plan.name.endswith(f"session {session + 1}")
        train, valid = numbers(task.train), numbers(task.valid)
        assert len({*train, *valid}) == len(train) + len(valid)
        assert numbers(task.test) == [row for row, it in enumerate(raw.test.labels) if it in groups[group]]
        for split in ("train", "valid"):
            images = getattr(task, split)
            own = raw.train.labels[numbers(images)].tolist()
            outputs = [plan.labels[groups[group].index(label)] for label in own]
            assert everything(images)[1].tolist() == outputs
        for label in groups[group]:
            held = sum(int(raw.train.labels[row]) == label for row in valid)
            assert abs(held - validation * COUNTS[label] / 3) < 1 + bool(validation)
            mine = {row for row in [*train, *valid] if raw.train.labels[row] == label}
            assert abs(len(mine) - COUNTS[label] / 3) < 2
            assert seen.setdefault((session, label), mine) == mine
    for label in {it for group in groups for it in group}:
        parts = [seen[session, label] for session in range(3)]
        assert sorted(row for part in parts for row in part) == np.flatnonzero(raw.train.labels == label).tolist()
    assert [it.num_classes for it in stream.plan.tasks[len(groups) :]] == [0] * (2 * len(groups))


def test_the_seed_draws_sessions_and_orders_groups() -> None:
    """In every session in the same order; limits are of each task."""
    raw = data()
    spec = classes_spec(classes_per_task=1, sessions=2, validation=0.2, scenario="domain")
    order = [3, 1, 0, 2]
    np.random.RandomState(7).shuffle(drawn := np.arange(4))
    assert plan_stream(spec, {"tiny": raw.info}, ALL, 7).order == (*drawn, *(drawn + 4))
    given = classes_spec(classes_per_task=1, sessions=2, order=order, validation=0.2)
    one, other = made(given, raw, 0), made(given, raw, 1)
    assert one.plan.order == (3, 1, 0, 2, 7, 5, 4, 6)
    assert numbers(one.tasks[0].train) != numbers(other.tasks[0].train)
    limits = ImageLimits(train_per_class=2, valid_per_class=1, test_per_class=1)
    limited = made(given, raw, 0, limits)
    assert limited.plan == plan_stream(given, {"tiny": raw.info}, limits, 0)
    assert [(it.num_train, it.num_valid, it.num_test) for it in limited.plan.tasks] == [(2, 1, 1)] * 8
    for first, second in zip(limited.tasks[:4], limited.tasks[4:], strict=True):
        assert not {*numbers(first.train), *numbers(first.valid)} & {*numbers(second.train), *numbers(second.valid)}
    assert given.identity() != classes_spec(classes_per_task=1, order=order, validation=0.2).identity()
    assert "sessions" not in str(classes_spec(classes_per_task=1).identity())


@pytest.mark.parametrize(("sessions", "validation"), [(40, 0.0), (3, 0.05), (40, 0.1)])
def test_sessions_without_images_are_refused(sessions: int, validation: float) -> None:
    """Of each class one trains, and one validates where any do."""
    spec = classes_spec(groups=[[0, 1], [3]], sessions=sessions, validation=validation)
    with pytest.raises(RequestError, match=r"training and .* validation images") as error:
        plan_stream(spec, {"tiny": data().info}, ALL, 0)
    assert "stream.sessions" in str(error.value.where)


def cifar(seed: int = 0, **stream: Any) -> StreamPlan:
    """The plan of CIFAR-100."""
    table = {"kind": "classes", "dataset": "cifar100", "order": "fixed", "scenario": "class", **stream}
    spec = BenchmarkSpec.model_validate({"name": "c", "stream": table, "protocols": {"paper": {}}})
    return plan_stream(spec, {"cifar100": DATASETS["cifar100"].info(None)}, ALL, seed)


@pytest.mark.parametrize("seed", [0, 3])
def test_published_order_of_classes(seed: int) -> None:
    """1993 is NumPy's legacy permutation of that seed, whatever the run's; a list is what it says."""
    order = [int(it) for it in PUBLISHED.split()]
    assert np.random.RandomState(1993).permutation(100).tolist() == order
    known = DATASETS["cifar100"].info(None).class_names or ()
    names = [known[label] for label in order]
    for class_order in (1993, order, names):
        plan = cifar(seed, first_task=50, classes_per_task=10, class_order=class_order)
        assert [name for task in plan.tasks for name in task.class_names] == names
        assert [task.num_classes for task in plan.tasks] == [50, 10, 10, 10, 10, 10]


def test_a_first_task_has_two_names() -> None:
    """One stream, of one identity; the one that is asked for takes the place of the other."""
    info = {"tiny": data().info}
    keys: list[dict[str, Any]] = [{"first": 2, "then": 1}, {"first_task": 2, "classes_per_task": 1}]
    one, other = (classes_spec(**each) for each in keys)
    assert one.identity() == other.identity()
    assert [len(it.labels) for it in ordered_tasks(other, info, 0)] == [2, 1, 1]
    source = BenchmarkSpec.of({"kind": "classes", "dataset": "digits", "first": 4, "classes_per_task": 2}, name="mine")
    asked = source.load({"stream.first_task": 6, "stream.then": 4})
    assert asked == BenchmarkSpec.of({"kind": "classes", "dataset": "digits", "first": 6, "then": 4}, name="mine")
    with pytest.raises(SpecError, match="first_task"):
        source.load({"stream.first_task": 0})
    with pytest.raises(RequestError) as error:
        ordered_tasks(classes_spec(first_task=5, then=1), info, 0)
    assert "stream.first (first_task)" in str(error.value.where)


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 4]])
def test_orders_that_are_none(order: list[int]) -> None:
    """Each class is in it once."""
    with pytest.raises(RequestError, match="an order of") as error:
        ordered_tasks(classes_spec(classes_per_task=2, class_order=order), {"tiny": data().info}, 0)
    assert "stream.class_order" in str(error.value.where)
