"""Tasks are cut, ordered, split, numbered and normalised as the specification says; what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.streams import ALL, UNCHANGED, classes_spec, everything, made, permuted_spec
from support.tiny import all_threads, benchmark, one_thread, raw_dataset
from torchvision.transforms import Compose, Normalize, ToTensor

import seu_bench_benchmarks
from seu_bench.config.benchmark import BenchmarkFile, BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.data.dataset import RawDataset
from seu_bench.data.images import TaskImages
from seu_bench.data.planning import plan_stream
from seu_bench.data.streams import build_stream, fingerprint
from seu_bench.data.tasks import dataset_names, ordered_tasks
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


def test_limits_of_each_class() -> None:
    """Every class has as many images where it has enough, of others all; splits share no image."""
    data = distinct(raw_dataset([30, 30, 5], [20, 20, 2]))
    spec = classes_spec(groups=[[0], [1, 2]], order="fixed", validation=0.2)
    limits = ImageLimits(train_per_class=7, valid_per_class=3, test_per_class=4)
    stream = made(spec, data, 1, limits)
    counts = [np.bincount(everything(it)[1]).tolist() for task in stream.tasks for it in (task.train, task.valid)]
    assert counts == [[7], [3], [7, 4], [3, 1]]  # of five images seven and three parts in ten
    assert [len(task.test) for task in stream.tasks] == [4, 6]
    assert not any(set(positions(task.train)) & set(positions(task.valid)) for task in stream.tasks)
    assert stream.plan == plan_stream(spec, {"tiny": data.info}, limits, 1)
    assert [len(it.test) for it in made(spec, data, 2, limits.lowered_to(3)).tasks] == [3, 3]
    with pytest.raises(ValueError, match="go together"):
        ImageLimits(train_per_class=7)


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
        (datasets_spec(a={"dataset": "grey", "classes": 2}), "labels 0 to 2, but its head has 2"),
        (datasets_spec(a={"dataset": "grey", "label_offset": 1}), "of labels -1 to 1, but its head has 2"),
        (datasets_spec(a={"dataset": "grey"}, b={"dataset": "colour"}), "differ in shape: a .1, 8, 8., b .3, 8, 8."),
        (datasets_spec(a={"dataset": "grey"}, b={"dataset": "large"}), "differ in shape"),
        (datasets_spec(a={"dataset": "colour", "input": {**UNCHANGED, "channels": 1}}), "cannot be repeated to 1"),
        (datasets_spec(a={"dataset": "colour", "input": {"mean": [0, 0], "std": [1, 1]}}), "2 means for images of 3"),
        (classes_spec(groups=[[0], [7]]), r"names classes \[7\], but 'tiny' has 3"),
        (classes_spec(classes_per_task=4), "has tasks of 4 classes, but 'tiny' has 3"),
        (classes_spec(classes_per_task=1, order=[0, 1]), r"benchmark 'tiny' has the order \[0, 1\]"),
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


@pytest.mark.parametrize("seed", [0, 1])
def test_permutations(seed: int) -> None:
    """Task i, drawn as r, sees the flattened pixels shuffled by RandomState(100 r + i), in all three splits."""
    data = raw_dataset([12, 12], [4, 4])
    spec = permuted_spec(tasks=3, validation=0.25)
    stream = made(spec, data, seed)
    order = np.arange(3)
    np.random.RandomState(seed).shuffle(order)
    shuffle = np.arange(24)
    np.random.RandomState(seed).shuffle(shuffle)
    seen = []
    for position, (task, drawn) in enumerate(zip(stream.tasks, order, strict=True)):
        pixels = np.arange(64)
        np.random.RandomState(100 * int(drawn) + position).shuffle(pixels)
        seen.append(pixels.tolist())
        expected = (data.train.images.reshape(24, 64)[shuffle] / np.float32(255)).astype(np.float32)
        for images, rows in ((task.valid, expected[:6]), (task.train, expected[6:])):
            found = everything(images)[0].reshape(len(rows), 64).numpy()
            for image, original in zip(found, rows, strict=True):
                assert [image[place] for place in range(64)] == [original[pixels[place]] for place in range(64)]
        test = (data.test.images.reshape(8, 64) / np.float32(255)).astype(np.float32)[:, pixels]
        assert np.array_equal(everything(task.test)[0].reshape(8, 64).numpy(), test)
        assert pixels.tolist() != list(range(64))
    assert seen[0] != seen[1] != seen[2]
    assert stream.plan.order == tuple(order.tolist())


@pytest.mark.parametrize(
    ("channels", "mean", "std"), [(1, [0.1307], [0.3081]), (3, [0.49, 0.48, 0.45], [0.2, 0.3, 0.4])]
)
def test_normalisation_equals_torchvisions(channels: int, mean: list[float], std: list[float]) -> None:
    """Pixels are those of torchvision's ToTensor and Normalize, bit by bit."""
    data = raw_dataset([8, 8], [4, 4], channels=channels)
    spec = classes_spec(groups=[[0, 1]], input={"mean": mean, "std": std})
    x = everything(made(spec, data).tasks[0].test)[0]
    transform = Compose([ToTensor(), Normalize(mean, std)])
    for image, raw in zip(x, data.test.images, strict=True):
        picture = Image.fromarray(raw[0] if channels == 1 else np.ascontiguousarray(raw.transpose(1, 2, 0)))
        assert torch.equal(image, transform(picture))
    assert x.dtype == torch.float32


def test_padding_and_grey_to_colour() -> None:
    """Raw zeros are added on every side before normalising, then the grey channel is repeated."""
    data = raw_dataset([8, 8], [4, 4])
    spec = classes_spec(groups=[[0, 1]], input={"mean": [0.25], "std": [0.5], "pad": 2, "channels": 3})
    stream = made(spec, data)
    assert (stream.plan.channels, stream.plan.height, stream.plan.width) == (3, 12, 12)
    x = everything(stream.tasks[0].test)[0]
    padded = np.zeros((8, 12, 12), dtype=np.uint8)
    padded[:, 2:-2, 2:-2] = data.test.images[:, 0]
    expected = (torch.from_numpy(padded).float() / 255 - 0.25) / 0.5
    for channel in range(3):
        assert torch.equal(x[:, channel], expected)
    assert bool((x[:, :, 0] == -0.5).all())


DATA = raw_dataset([40] * 6, [10] * 6)
SPEC = classes_spec(classes_per_task=2, validation=0.25)
VALIDATION: Any = {"evaluation": "validation"}


class Forbidden:
    """Images that must not be read."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"test images were read: {name}")

    def __len__(self) -> int:
        raise AssertionError("test images were counted")


SEALED = replace(DATA)
object.__setattr__(SEALED, "test", Forbidden())  # a data set looks at its arrays when it is made


def rows(images: Any) -> set[bytes]:
    """The images of a split, by their pixels."""
    everything, _ = images.gather(torch.arange(len(images)))
    return {image.numpy().tobytes() for image in everything}


@pytest.mark.parametrize("spec", [SPEC, permuted_spec(tasks=3, validation=0.25)])
def test_halves(spec: Any) -> None:
    """One half of the validation images is learned with, the other one is measured on; training stays what it was."""
    whole = build_stream(spec, lambda _: DATA, ImageLimits(), 3)
    part = build_stream(spec, lambda _: SEALED, ImageLimits(), 3, **VALIDATION)
    planned = plan_stream(spec, {"tiny": DATA.info}, ImageLimits(), 3, **VALIDATION)
    assert part.plan == planned
    for full, half in zip(whole.tasks, part.tasks, strict=True):
        assert rows(half.train) == rows(full.train)
        assert rows(half.valid) | rows(half.test) == rows(full.valid)
        assert not rows(half.valid) & rows(half.test)
        assert len(half.test) == len(full.valid) // 2
    with pytest.raises(AssertionError, match="test images were"):
        build_stream(spec, lambda _: SEALED, ImageLimits(), 3)


def test_first_tasks() -> None:
    """The first tasks in the order of the seed; what they are compared with is another stream."""
    whole = build_stream(SPEC, lambda _: DATA, ImageLimits(), 2)
    part = build_stream(SPEC, lambda _: DATA, ImageLimits(), 2, first_tasks=2)
    assert part.plan.order == whole.plan.order[:2]
    assert part.plan.tasks == whole.plan.tasks[:2]
    assert rows(part.tasks[1].test) == rows(whole.tasks[1].test)
    prints = {
        build_stream(SPEC, lambda _: DATA, ImageLimits(), seed, **kind).fingerprint
        for kind in ({}, {"first_tasks": 1}, {"first_tasks": 2}, VALIDATION, {"first_tasks": 2, **VALIDATION})
        for seed in (0, 1)
    }
    assert len(prints) == 5
    with pytest.raises(RequestError, match="3 tasks, fewer than 4"):
        build_stream(SPEC, lambda _: DATA, ImageLimits(), 2, first_tasks=4)


def test_computed_statistics() -> None:
    """Without a mean the training images give it, all of them, per channel."""
    data = raw_dataset([10, 10], [4, 4], channels=3)
    data.train.images[:, 2] = 51
    spec = classes_spec(groups=[[0], [1]], order="fixed", input={})
    stream = made(spec, data)
    x = torch.cat([everything(part)[0] for task in stream.tasks for part in (task.train, task.valid)]).double()
    assert x.shape[0] == 20
    torch.testing.assert_close(x.mean(dim=(0, 2, 3)), torch.zeros(3).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(x.std(dim=(0, 2, 3), correction=0)[:2], torch.ones(2).double(), atol=1e-6, rtol=0)
    assert bool(torch.isfinite(x).all())
