"""Tasks are cut, ordered, split and numbered as the specification says, and what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.streams import ALL, UNCHANGED, classes_spec, everything, made
from support.tiny import all_threads, benchmark, one_thread, raw_dataset

import seu_bench_benchmarks
from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.benchmark_file import BenchmarkFile
from seu_bench.config.protocol import ImageLimits
from seu_bench.data.dataset import RawDataset
from seu_bench.data.images import TaskImages
from seu_bench.data.planning import dataset_names, ordered_tasks, plan_stream
from seu_bench.data.streams import build_stream, fingerprint
from seu_bench.errors import RequestError
from seu_bench_benchmarks.datasets import DATASETS

setup_module, teardown_module = one_thread, all_threads


def shipped(name: str) -> BenchmarkSpec:
    return BenchmarkFile(Path(seu_bench_benchmarks.__file__).resolve().parent / f"{name}.toml").load()


def distinct(data: RawDataset) -> RawDataset:
    """The same with the position of each image written into its first pixel."""
    for split in (data.train, data.test):
        split.images[:, 0, 0, 0] = np.arange(len(split))
    return data


def positions(images: TaskImages) -> list[int]:
    """Which images of a data set of :func:`distinct` these are."""
    return (everything(images)[0][:, 0, 0, 0] * 255).round().int().tolist()


# --- orders and sizes of the shipped benchmarks -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["split_cifar10", "split_cifar100", "split_digits"])
def test_orders_of_five_tasks(name: str, tmp_path: Path) -> None:
    """Seeds 0 to 4 learn five tasks in the published orders."""
    spec = shipped(name)
    infos = {each: DATASETS[each].info(tmp_path) for each in dataset_names(spec)}
    orders = [plan_stream(spec, infos, ALL, seed).order for seed in range(5)]
    assert orders == [(2, 0, 1, 3, 4), (2, 1, 4, 0, 3), (2, 4, 1, 3, 0), (3, 4, 1, 0, 2), (0, 3, 1, 4, 2)]


def test_order_of_ten_tasks(tmp_path: Path) -> None:
    """Seed 0 learns ten permutations in the published order, each by its own seed."""
    spec, infos = shipped("pmnist"), {"mnist": DATASETS["mnist"].info(tmp_path)}
    order = [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]
    assert list(plan_stream(spec, infos, ALL, 0).order) == order
    seeds = [part.permutation_seed for part in ordered_tasks(spec, infos, 0)]
    assert seeds == [100 * drawn + position for position, drawn in enumerate(order)]


@pytest.mark.parametrize(
    ("name", "shape", "sizes"),
    [
        ("pmnist", (1, 28, 28), [(10, 54_000, 6_000, 10_000)] * 10),
        ("split_cifar10", (3, 32, 32), [(2, 9_000, 1_000, 2_000)] * 5),
        ("split_cifar100", (3, 32, 32), [(20, 9_000, 1_000, 2_000)] * 5),
        (
            "mixture",
            (3, 32, 32),
            [
                (28, 106_080, 18_720, 20_800),
                (10, 51_000, 9_000, 10_000),
                (10, 62_269, 10_988, 26_032),
                (10, 51_000, 9_000, 10_000),
                (10, 51_000, 9_000, 10_000),
            ],
        ),
    ],
)
def test_sizes_of_the_shipped_benchmarks(
    name: str, shape: tuple[int, int, int], sizes: list[tuple[int, int, int, int]], tmp_path: Path
) -> None:
    """Heads, training, validation and test images of every task are the published ones, for every seed."""
    spec = shipped(name)
    infos = {each: DATASETS[each].info(tmp_path) for each in dataset_names(spec)}
    for seed in (0, 3):
        plan = plan_stream(spec, infos, ALL, seed)
        assert (plan.channels, plan.height, plan.width) == shape
        assert [(task.num_classes, task.num_train, task.num_valid, task.num_test) for task in plan.tasks] == sizes


# --- splits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 5])
def test_split_is_the_published_shuffle(seed: int) -> None:
    """The first int(fraction * N) of the indices shuffled by the run's seed validate, the rest trains, in order."""
    data = distinct(raw_dataset([21, 20, 11, 12], [5, 4, 3, 2]))
    stream = made(classes_spec(groups=[[0, 1], [3, 2]], order="fixed", validation=0.15), data, seed)
    for task, classes in zip(stream.tasks, ((0, 1), (2, 3)), strict=True):
        pool = np.array([row for row, label in enumerate(data.train.labels) if label in classes])
        order = np.arange(len(pool))
        np.random.RandomState(seed).shuffle(order)
        cut = {41: 6, 23: 3}[len(pool)]
        assert positions(task.valid) == pool[order[:cut]].tolist()
        assert positions(task.train) == pool[order[cut:]].tolist()
        assert not set(positions(task.valid)) & set(positions(task.train))
        assert sorted(positions(task.valid) + positions(task.train)) == pool.tolist()
        assert positions(task.test) == [row for row, label in enumerate(data.test.labels) if label in classes]


def test_limits() -> None:
    """Limits take the first images of the splits as they would be, and the same test images for every seed."""
    data = distinct(raw_dataset([30, 30], [20, 20]))
    spec = classes_spec(groups=[[0], [1]], order="fixed", validation=0.2)
    limits = ImageLimits(train=7, valid=3, test=5)
    tests = []
    for seed in range(3):
        full, limited = made(spec, data, seed), made(spec, data, seed, limits)
        for whole, part, sizes in zip(full.tasks, limited.tasks, limited.plan.tasks, strict=True):
            assert positions(part.train) == positions(whole.train)[:7]
            assert positions(part.valid) == positions(whole.valid)[:3]
            assert set(positions(part.test)) < set(positions(whole.test))
            assert (sizes.num_train, sizes.num_valid, sizes.num_test) == (7, 3, 5)
        infos = {"tiny": data.info}
        assert limited.plan == plan_stream(spec, infos, limits, seed)
        tests.append([positions(task.test) for task in limited.tasks])
    assert tests[0] == tests[1] == tests[2]
    assert positions(full.tasks[0].train) != positions(made(spec, data, 0).tasks[0].train)


def test_labels_are_numbered_within_the_task() -> None:
    """Labels are positions in the task's group; images keep their own."""
    data = distinct(raw_dataset([6] * 6, [3] * 6))
    stream = made(classes_spec(groups=[[5, 0], [2, 3, 1]], order=[1, 0], validation=0.2), data)
    assert stream.plan.order == (1, 0) and stream.plan.classes_per_task == (3, 2)
    for task, group in zip(stream.tasks, ([2, 3, 1], [5, 0]), strict=True):
        for images, source in ((task.train, data.train), (task.valid, data.train), (task.test, data.test)):
            labels = [group[label] for label in everything(images)[1].tolist()]
            assert labels == source.labels[positions(images)].tolist()
    offset = benchmark({"kind": "datasets", "tasks": {"a": {"dataset": "tiny", "label_offset": 2, "input": UNCHANGED}}})
    shifted = made(offset, raw_dataset([0, 0, 6, 6], [0, 0, 3, 3]))
    assert shifted.plan.classes_per_task == (2,) and sorted(set(shifted.tasks[0].test.labels.tolist())) == [0, 1]


# --- what does not fit --------------------------------------------------------------------------------------------


def datasets_spec(**tasks: dict[str, Any]) -> BenchmarkSpec:
    return benchmark(
        {"kind": "datasets", "tasks": {name: {"input": UNCHANGED, **task} for name, task in tasks.items()}}
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (datasets_spec(a={"dataset": "grey", "classes": 2}), "labels 0 to 2 but its head has 2"),
        (datasets_spec(a={"dataset": "grey", "label_offset": 1}), "has labels -1 to 1 but its head has 2"),
        (datasets_spec(a={"dataset": "grey"}, b={"dataset": "colour"}), "differ in shape: a .1, 8, 8., b .3, 8, 8."),
        (datasets_spec(a={"dataset": "grey"}, b={"dataset": "large"}), "differ in shape"),
        (datasets_spec(a={"dataset": "colour", "input": {**UNCHANGED, "channels": 1}}), "cannot be repeated to 1"),
        (datasets_spec(a={"dataset": "colour", "input": {"mean": [0, 0], "std": [1, 1]}}), "2 means for images of 3"),
        (classes_spec(groups=[[0], [7]]), r"names classes \[7\] but 'tiny' has 3"),
        (classes_spec(classes_per_task=4), "has tasks of 4 classes, but 'tiny' has 3"),
        (classes_spec(classes_per_task=1, order=[0, 1]), r"stream.order of benchmark 'tiny' is \[0, 1\]"),
    ],
)
def test_what_does_not_fit(spec: BenchmarkSpec, message: str) -> None:
    """Heads, shapes, classes and orders that do not fit the data are a request's fault, and named."""
    data = {
        "grey": raw_dataset([8] * 3, [4] * 3, name="grey"),
        "tiny": raw_dataset([8] * 3, [4] * 3),
        "colour": raw_dataset([8] * 3, [4] * 3, channels=3, name="colour"),
        "large": raw_dataset([8] * 3, [4] * 3, size=9, name="large"),
    }
    with pytest.raises(RequestError, match=message):
        build_stream(spec, data.__getitem__, ALL, 0)


def test_padding_brings_sizes_together() -> None:
    """Data sets of different sizes make one stream where padding and repeating fit them to each other."""
    small, large = raw_dataset([8, 8], [4, 4]), raw_dataset([8] * 3, [4] * 3, size=10, channels=3)
    spec = datasets_spec(
        a={"dataset": "small", "input": {**UNCHANGED, "pad": 1, "channels": 3}}, b={"dataset": "large"}
    )
    stream = build_stream(spec, {"small": small, "large": large}.__getitem__, ALL, 0)
    assert [everything(task.test)[0].shape[1:] for task in stream.tasks] == [(3, 10, 10)] * 2
    assert stream.plan.classes_per_task == (2, 3)


# --- identity and the Avalanche benchmark -------------------------------------------------------------------------


def test_fingerprint() -> None:
    """It is the same for every seed, and another one for another pixel, label or way of cutting."""
    data, spec = raw_dataset([10, 10], [4, 4]), classes_spec(groups=[[0], [1]])
    first = made(spec, data, 0).fingerprint
    assert len(first) == 64
    assert made(spec, data, 1).fingerprint == made(spec, data, 0, ImageLimits(test=2)).fingerprint == first
    assert fingerprint(spec, {"tiny": raw_dataset([10, 10], [4, 4])}) == first
    others = {first, fingerprint(classes_spec(groups=[[1], [0]]), {"tiny": data})}
    others.add(fingerprint(classes_spec(groups=[[0], [1]], validation=0.2), {"tiny": data}))
    others.add(fingerprint(classes_spec(groups=[[0], [1]], input={"mean": [0.1], "std": [1.0]}), {"tiny": data}))
    for change in ("images", "labels"):
        for split in ("train", "test"):
            part = getattr(data, split)
            array = getattr(part, change).copy()
            array.flat[-1] ^= 1
            other = replace(data, **{split: replace(part, **{change: array})})
            others.add(fingerprint(spec, {"tiny": other}))
    assert len(others) == 8
