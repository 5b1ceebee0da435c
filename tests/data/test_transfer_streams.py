"""Streams that measure transfer: how many images of which class, none in two splits, and what hangs on the seed."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import registry

from benchmarks.datasets import DATASETS
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Request
from seu_bench.data.dataset import DatasetInfo, RawDataset, RawSplit
from seu_bench.data.images import TaskImages
from seu_bench.data.planning import StreamPlan, plan_stream, pool_sizes
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.testing.streams import benchmark

LARGE, SMALL, TINY = (400, 200), (40, 20), (5, 3)
#: Training and validation images of each class of each task.
SIZES = {
    "s_minus": [LARGE, SMALL, SMALL, SMALL, SMALL, SMALL],
    "s_plus": [SMALL, SMALL, SMALL, SMALL, SMALL, LARGE],
    "s_in": [LARGE, SMALL, SMALL, SMALL, SMALL, TINY],
    "s_out": [LARGE, SMALL, SMALL, SMALL, SMALL, SMALL],
    "s_pl": [SMALL, SMALL, SMALL, SMALL, LARGE],
}
ORDERS = {
    "s_minus": "cifar10 mnist dtd fashion_mnist {} cifar10",
    "s_plus": "cifar10 mnist dtd fashion_mnist {} cifar10",
    "s_in": "mnist cifar10 dtd fashion_mnist {} mnist",
    "s_out": "cifar10 mnist dtd fashion_mnist {} cifar10",
    "s_pl": "mnist dtd fashion_mnist {} cifar10",
}


@cache
def numbered_set(name: str, train_per_class: int | None = None) -> RawDataset:
    """A set with the classes and numbers of images of a real one, tiny: its first three pixels number an image."""
    info = DATASETS[name].info(None)
    side = 32 if info.height == 32 else 28
    each = info.train_per_class or ()
    sizes = each if train_per_class is None else [min(count, train_per_class) for count in each]
    splits = []
    for first, counts in ((0, sizes), (100_000, info.test_per_class or ())):
        labels = np.random.default_rng(first).permutation(np.repeat(np.arange(len(counts)), counts))
        numbers = first + np.arange(len(labels))
        images = np.zeros((len(labels), info.channels, 4 if side == 28 else 8, 4 if side == 28 else 8), dtype=np.uint8)
        for place in range(3):
            images[:, :, 0, place] = (numbers // 256**place % 256)[:, None]
        splits.append(RawSplit(images, labels.astype(np.int64)))
    train, test = splits
    shape = info.channels, *train.images.shape[2:]
    per_class = tuple(np.bincount(train.labels).tolist()), tuple(np.bincount(test.labels).tolist())
    return RawDataset(
        DatasetInfo(name, *shape, info.num_classes, len(train), len(test), *per_class, info.class_names), train, test
    )


def spec_of(name: str) -> Any:
    return resolve(registry(), Request(strategy="naive", benchmark=name, synthetic=True)).spec.benchmark


@cache
def built(name: str, seed: int = 0, train_per_class: int | None = None) -> TaskStream:
    """A benchmark's stream of sets with numbered images."""
    return build_stream(spec_of(name), lambda it: numbered_set(it, train_per_class), ImageLimits(), seed)


def planned(name: str, seed: int = 0) -> StreamPlan:
    spec = spec_of(name)
    names = {"cifar10", "cifar100", "mnist", "fashion_mnist", "kmnist", "svhn", "dtd"}
    return plan_stream(spec, {it: numbered_set(it).info for it in names}, ImageLimits(), seed)


def per_class(images: TaskImages) -> list[int]:
    counts = Counter(images.labels.tolist())
    return [counts[label] for label in range(max(counts) + 1)]


@pytest.mark.parametrize("family", ["ctrl", "transfer"])
@pytest.mark.parametrize("stream", list(SIZES))
def test_images_of_every_class(family: str, stream: str) -> None:
    """So many of every class of every split as published; sizes are as planned."""
    found, plan = built(f"{family}_{stream}"), planned(f"{family}_{stream}")
    order = ORDERS[stream].format("svhn" if family == "ctrl" else "kmnist").split()
    for task, dataset, (train, valid) in zip(found.tasks, order, SIZES[stream], strict=True):
        assert per_class(task.train) == [train] * 10
        assert per_class(task.valid) == [valid] * 10
        tested = numbered_set(dataset).info.test_per_class
        if dataset != "dtd":  # ten of its classes, which have 40 each
            assert per_class(task.test) == [min(1000, count) for count in tested or ()] or stream == "s_out"
        assert sum(per_class(task.test)) >= 400
    assert found.plan == plan
    assert found.plan.classes_per_task == (10,) * len(order)


@pytest.mark.parametrize("name", [*(f"ctrl_{stream}" for stream in SIZES), "ctrl_s_long"])
def test_no_image_is_in_two_splits_or_twice(name: str) -> None:
    """Within a task, and between tasks of one set: what trains one validates none. Fresh images come first."""
    spec = spec_of(name)
    sources = [task.dataset for task in spec.stream.tasks.values()] if name != "ctrl_s_long" else None
    trained: dict[int, set[int]] = {}
    held: dict[int, set[int]] = {}
    for place, task in enumerate(built(name).tasks):
        rows = [task.train.rows.tolist(), task.valid.rows.tolist(), task.test.rows.tolist()]
        flat = [row for split in rows for row in split]
        assert len(flat) == len(set(flat))
        # Tasks of one set share a store, unless their colours differ.
        store = id(task.train.store)
        assert not held.get(store, set()) & set(rows[0]) and not trained.get(store, set()) & set(rows[1])
        if sources is not None:
            assert not trained.get(store, set()) & set(rows[0])
        trained.setdefault(store, set()).update(rows[0])
        held.setdefault(store, set()).update(rows[1])
        assert place < 100


def content(stream: TaskStream) -> list[bytes]:
    return [
        part.numpy().tobytes()
        for task in stream.tasks
        for images in (task.train, task.valid, task.test)
        for part in images.gather(torch.arange(min(64, len(images))))
    ]


@pytest.mark.parametrize("name", ["ctrl_s_minus", "transfer_s_in", "ctrl_s_long"])
def test_the_seed_decides(name: str) -> None:
    """The same seed gives the same stream byte by byte, another one another."""
    spec = spec_of(name)
    again = build_stream(spec, numbered_set, ImageLimits(), 0)
    assert content(again) == content(built(name))
    assert again.fingerprint == built(name, 1).fingerprint
    other = built(name, 1)
    assert content(other)[::6] != content(again)[::6]
    shorter = build_stream(spec, numbered_set, ImageLimits(), 0, first_tasks=2)
    assert content(shorter) == content(again)[: len(content(shorter))]


def test_colors() -> None:
    """x + (1 - x) * colour, another one for each of the two tasks, and normalised by what all coloured images have."""
    stream = {
        "kind": "datasets",
        "tasks": {
            "red": {"dataset": "mnist", "input": {"pad": 2, "color": [1.0, 0.0, 0.25]}},
            "drawn": {"dataset": "mnist", "input": {"pad": 2, "color": "random", "mean": [0, 0, 0], "std": [1, 1, 1]}},
            "other": {"dataset": "mnist", "input": {"pad": 2, "color": "random", "mean": [0, 0, 0], "std": [1, 1, 1]}},
        },
    }
    data = numbered_set("mnist", 50)
    red, drawn, other = build_stream(benchmark(stream), lambda _: data, ImageLimits(), 3).tasks
    (x, _), (y, _), (z, _) = (task.train.gather(torch.arange(len(task.train))) for task in (red, drawn, other))
    grey = torch.nn.functional.pad(torch.from_numpy(data.train.images), (2,) * 4).double() / 255
    color = torch.tensor([1.0, 0.0, 0.25], dtype=torch.float64).view(1, 3, 1, 1)
    unpadded = color + (1 - color) * torch.from_numpy(data.train.images).double() / 255
    expected = color + (1 - color) * grey[red.train.rows]
    for channel in range(1, 3):
        wanted = (expected[:, channel] - unpadded[:, channel].mean()) / unpadded[:, channel].std(correction=0)
        torch.testing.assert_close(x[:, channel].double(), wanted, atol=1e-4, rtol=1e-4)
    assert torch.equal(x[:, 0], torch.zeros_like(x[:, 0]))  # red is 1 everywhere
    backgrounds = [tuple(part[0, :, -1, -1].tolist()) for part in (y, z)]  # of the margin, where x is 0
    assert len(set(backgrounds)) == 2 and all(0 <= value <= 1 for value in sum(backgrounds, ()))


def test_a_class_that_comes_back_has_one_output() -> None:
    """In the class-incremental scenario: CIFAR-10 comes back; MNIST and SVHN have the same digits."""
    for name, outputs in (("transfer_s_minus", 50), ("transfer_s_out", 50), ("ctrl_s_minus", 40)):
        spec = spec_of(name)
        spec = spec.model_copy(update={"stream": spec.stream.model_copy(update={"scenario": "class"})})
        infos = {task.dataset: numbered_set(task.dataset).info for task in spec.stream.tasks.values()}
        plan = plan_stream(spec, infos, ImageLimits(), 0)
        assert sum(plan.classes_per_task) == outputs and set(plan.tasks[-1].labels) == set(plan.tasks[0].labels)


def test_drawn_tasks() -> None:
    """A hundred tasks of five classes: large ones by half and by a quarter, then never; all sets and sizes as drawn."""
    plan = planned("ctrl_s_long")
    large = [task.num_train > 25 for task in plan.tasks]
    assert len(plan.tasks) == 100 and set(plan.classes_per_task) == {5}
    shares = [sum(large[start:stop]) for start, stop in ((0, 33), (33, 66), (66, 100))]
    assert 8 <= shares[0] <= 25 and 2 <= shares[1] <= 16 and shares[2] == 0
    assert {task.num_train for task, is_large in zip(plan.tasks, large, strict=True) if not is_large} == {25}
    assert {task.name.split()[1] for task in plan.tasks} == {"mnist", "svhn", "cifar10", "fashion_mnist", "cifar100"}
    # CIFAR-100 has 500 of a class: two thirds train, as of 1,000 and 500.
    cifar100 = [task for task in plan.tasks if task.name.split()[1] == "cifar100" and task.num_train > 25]
    assert {(task.num_train, task.num_valid) for task in cifar100} == {(1670, 830)}


@given(st.integers(2, 3000), st.lists(st.tuples(st.integers(1, 900), st.integers(1, 500)), min_size=1, max_size=6))
def test_pools(available: int, asked: list[tuple[int, int]]) -> None:
    """Both pools together are all images; where there are enough, every task has its own, and else the largest has."""
    train, valid = (list(side) for side in zip(*asked, strict=True))
    pools = pool_sizes(available, train, valid)
    assert sum(pools) == available and min(pools) >= 0
    if available >= sum(train) + sum(valid):
        assert pools[1] == sum(valid)
    if available >= max(train) + max(valid):
        assert pools[0] >= max(train) and pools[1] >= max(valid)
    else:
        assert pools[1] >= 1
