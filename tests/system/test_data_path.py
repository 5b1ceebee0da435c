"""Images given to strategies equal another reading of the same files, image by image, on whole benchmarks.

The reading here shares nothing with the project's: ``struct`` and ``pickle`` on the raw bytes, pixels placed by index
arithmetic, normalised in float64 with constants written out again. Random numbers are not recovered from the data but
drawn anew by the rule that docs/reference/benchmarks.md states, with ``sklearn.utils.shuffle``, which the paper's code
calls. The cut into validation and training images is checked for itself as well: disjoint, together all images of the
classes.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.utils import shuffle
from torch.utils.data import DataLoader

from seu_bench.config.run import Request
from seu_bench.data.avalanche import BatchLoader, task_images
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.plugin.registry import Registry

ROOT = Path(os.environ.get("SEU_BENCH_DATA", "."))

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.slow,
    pytest.mark.skipif("SEU_BENCH_DATA" not in os.environ, reason="SEU_BENCH_DATA says where real data sets are"),
]

Raw = NDArray[np.uint8]
Rows = NDArray[np.int64]
Numbers = NDArray[np.float64]

#: float32 pixels differ from float64 ones by rounding alone: values below 4 in four operations. One grey level is
#: 1 / 255 / std, which is 0.011 or more.
ROUNDING = 2e-6


@dataclass(frozen=True)
class Reading:
    """A data set: images ``[N, C, H, W]`` as bytes and labels ``[N]``, in the order of the files."""

    train: Raw
    train_labels: Rows
    test: Raw
    test_labels: Rows


@dataclass(frozen=True)
class Expected:
    """A split of a task: rows of a data set, its labels within the task, and where each pixel is taken from."""

    images: Raw
    rows: Rows
    labels: Rows
    pixels: Rows | None = None


def idx_images(path: Path) -> Raw:
    """The format of yann.lecun.com: magic 2051, count, height, width, big-endian; then bytes row by row."""
    content = path.read_bytes()
    magic, count, height, width = struct.unpack_from(">iiii", content)
    assert (magic, height, width, len(content)) == (2051, 28, 28, 16 + count * 784)
    return np.array(memoryview(content)[16:]).reshape(count, 1, height, width)


def idx_labels(path: Path) -> Rows:
    """Magic 2049 and count, then a byte for each label."""
    content = path.read_bytes()
    assert struct.unpack_from(">ii", content) == (2049, len(content) - 8)
    return np.array(list(content[8:]), dtype=np.int64)


def mnist_family(folder: str) -> Reading:
    raw = ROOT / folder / "raw"
    train, test = raw / "train-images-idx3-ubyte", raw / "t10k-images-idx3-ubyte"
    labels = [idx_labels(raw / f"{name}-labels-idx1-ubyte") for name in ("train", "t10k")]
    return Reading(idx_images(train), labels[0], idx_images(test), labels[1])


def cifar100() -> Reading:
    """Each row has 1024 bytes of red, of green and of blue, each row by row (cs.toronto.edu/~kriz/cifar.html)."""
    parts: list[Any] = []
    for name in ("train", "test"):
        with (ROOT / "cifar-100-python" / name).open("rb") as file:
            content = pickle.load(file, encoding="bytes")
        channel, y, x = np.ogrid[:3, :32, :32]
        parts += [content[b"data"][:, 1024 * channel + 32 * y + x], np.array(content[b"fine_labels"], dtype=np.int64)]
    return Reading(*parts)


def cut(count: int, seed: int) -> tuple[list[int], list[int]]:
    """Positions of the training and of the validation images: a tenth of the shuffled positions is validation."""
    drawn = [int(position) for position in shuffle(range(count), random_state=seed)]
    valid, train = drawn[: count // 10], drawn[count // 10 :]
    assert not set(train) & set(valid) and sorted(train + valid) == list(range(count))
    return train, valid


def class_tasks(data: Reading, classes: int, per_task: int, seed: int) -> list[dict[str, Expected]]:
    """Consecutive classes, tasks in a drawn order; every task cuts its own images."""
    tasks = []
    for group in shuffle(range(classes // per_task), random_state=seed):
        members = [row for row, label in enumerate(data.train_labels) if label // per_task == group]
        held_out = np.array([row for row, label in enumerate(data.test_labels) if label // per_task == group])
        task = {"test": Expected(data.test, held_out, data.test_labels[held_out] % per_task)}
        for name, positions in zip(("train", "valid"), cut(len(members), seed), strict=True):
            rows = np.array([members[position] for position in positions])
            task[name] = Expected(data.train, rows, data.train_labels[rows] % per_task)
        tasks.append(task)
    return tasks


def permuted_tasks(data: Reading, seed: int) -> list[dict[str, Expected]]:
    """All images in each task; the pixels of task i, drawn as r, are shuffled by the seed 100 r + i."""
    tasks = []
    train, valid = (np.array(positions) for positions in cut(len(data.train), seed))
    for place, drawn in enumerate(shuffle(range(10), random_state=seed)):
        pixels = np.array(shuffle(range(784), random_state=100 * drawn + place))
        assert sorted(pixels) == list(range(784)) != pixels.tolist()
        task = {"test": Expected(data.test, np.arange(len(data.test)), data.test_labels, pixels)}
        for name, rows in (("train", train), ("valid", valid)):
            task[name] = Expected(data.train, rows, data.train_labels[rows], pixels)
        tasks.append(task)
    return tasks


@dataclass(frozen=True)
class Case:
    """A benchmark: its reading, constants of normalisation per channel, images of each split of each task."""

    read: Callable[[], Reading]
    tasks: Callable[[Reading, int], list[dict[str, Expected]]]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sizes: dict[str, int]


CASES = {
    "split_cifar100": Case(
        cifar100,
        lambda data, seed: class_tasks(data, 100, 20, seed),
        (125.3 / 255, 123.0 / 255, 113.9 / 255),
        (63.0 / 255, 62.1 / 255, 66.7 / 255),
        {"train": 9000, "valid": 1000, "test": 2000},
    ),
    "pmnist": Case(
        lambda: mnist_family("MNIST"),
        permuted_tasks,
        (0.1307,),
        (0.3081,),
        {"train": 54000, "valid": 6000, "test": 10000},
    ),
    "split_fashion": Case(
        lambda: mnist_family("FashionMNIST"),
        lambda data, seed: class_tasks(data, 10, 2, seed),
        (0.2860406,),
        (0.3530242,),
        {"train": 10800, "valid": 1200, "test": 2000},
    ),
}


def pixels_of(part: Expected, case: Case, start: int, stop: int) -> Numbers:
    """Images of the reading as a network's input, float64 ``[n, C, H, W]``."""
    raw = part.images[part.rows[start:stop]].astype(np.float64)
    for channel, (mean, std) in enumerate(zip(case.mean, case.std, strict=True)):
        raw[:, channel] = raw[:, channel] / 255 / std - mean / std
    if part.pixels is None:
        return raw
    flat = raw.reshape(len(raw), 784)
    return np.stack([flat[:, source] for source in part.pixels], axis=1).reshape(raw.shape)


def differences(batches: Iterator[Any], part: Expected, case: Case, task: int) -> list[str]:
    """Where batches ``[x, y, t]`` in the split's order differ from the reading."""
    found: list[str] = []
    start = 0
    for x, y, tasks in batches:
        stop = start + len(y)
        if stop > len(part.rows):
            return [*found, "images that are too many"]
        wrong = np.abs(x.double().numpy() - pixels_of(part, case, start, stop)).max(axis=(1, 2, 3)) > ROUNDING
        found += [f"image {start + place}" for place in np.flatnonzero(wrong)]
        found += [f"label {start + place}" for place in np.flatnonzero(y.numpy() != part.labels[start:stop])]
        found += ["task label"] * int((tasks != task).any())
        start = stop
    return found if start == len(part.rows) else [*found, "images that are missing"]


def given(benchmark: str, seed: int) -> Any:
    """The Avalanche benchmark that a strategy gets under the full protocol."""
    run = resolve(
        Registry(), Request(strategy="naive", benchmark=benchmark, protocol="paper", seed=seed, data_root=ROOT)
    )
    stream = build_stream(run.spec.benchmark, run.load, run.limits, run.spec.seed)
    return stream.avalanche()


def in_order(experience: Any, task: int) -> Iterator[Any]:
    """The batches that our strategies validate and test on."""
    images = task_images(experience.dataset, task, torch.device("cpu"))
    return iter(BatchLoader(images, 500, shuffle=False))


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("benchmark", CASES)
def test_whole_benchmark(benchmark: str, seed: int) -> None:
    """All images and labels of all splits of all tasks, in order."""
    case = CASES[benchmark]
    scenario = given(benchmark, seed)
    expected = case.tasks(case.read(), seed)
    for name, size in case.sizes.items():
        experiences = scenario.streams[name]
        assert len(experiences) == len(expected)
        for task, (experience, parts) in enumerate(zip(experiences, expected, strict=True)):
            assert len(experience.dataset) == len(parts[name].rows) == size
            assert differences(in_order(experience, task), parts[name], case, task) == []


@pytest.mark.parametrize("benchmark", CASES)
def test_shuffled_epoch(benchmark: str) -> None:
    """An epoch of training is every training image once with its own label, by our loader and by torch's."""
    case = CASES[benchmark]
    experience = given(benchmark, 0).streams["train"][1]
    part = case.tasks(case.read(), 0)[1]["train"]
    wanted: Counter[tuple[bytes, int]] = Counter()
    for start in range(0, len(part.rows), 500):
        levels = pixels_of(part, case, start, start + 500)
        wanted.update(keys(levels, part.labels[start : start + 500], case))
    images = task_images(experience.dataset, 1, torch.device("cpu"))
    dataset = experience.dataset
    theirs = DataLoader(dataset, batch_size=500, shuffle=True, collate_fn=dataset.collate_fn)
    for loader in (BatchLoader(images, 500, shuffle=True), theirs):
        found: Counter[tuple[bytes, int]] = Counter()
        for x, y, _ in loader:
            found.update(keys(x.double().numpy(), y.numpy(), case))
        assert found == wanted


def keys(images: Numbers, labels: Rows, case: Case) -> list[tuple[bytes, int]]:
    """Each image as its bytes before normalisation, with its label."""
    shape = (1, -1, 1, 1)
    levels = 255 * (images * np.reshape(case.std, shape) + np.reshape(case.mean, shape))
    return [(image.round().astype(np.uint8).tobytes(), int(label)) for image, label in zip(levels, labels, strict=True)]


@pytest.mark.parametrize("benchmark", CASES)
def test_one_grey_level_is_seen(benchmark: str) -> None:
    """The comparison finds what it must: one bit of one pixel, one label, two images or two pixels exchanged."""
    case = CASES[benchmark]
    experience = given(benchmark, 0).streams["valid"][0]
    part = case.tasks(case.read(), 0)[0]["valid"]

    def found(changed: Expected) -> list[str]:
        return differences(in_order(experience, 0), changed, case, 0)

    assert found(part) == []
    images = part.images.copy()
    images[part.rows[777], -1, 27, 5] ^= 1
    assert found(replace(part, images=images)) == ["image 777"]
    labels = part.labels.copy()
    labels[-1] ^= 1
    assert found(replace(part, labels=labels)) == [f"label {len(labels) - 1}"]
    rows = part.rows.copy()
    rows[[3, 4]] = rows[[4, 3]]
    assert found(replace(part, rows=rows)) == ["image 3", "image 4"]
    if part.pixels is not None:
        pixels = part.pixels.copy()
        middle = [int(np.flatnonzero(pixels == place)[0]) for place in (14 * 28 + 14, 14 * 28 + 15)]
        pixels[middle] = pixels[middle[::-1]]
        assert len(found(replace(part, pixels=pixels))) > len(part.rows) / 2
    assert found(replace(part, rows=part.rows[:-1], labels=part.labels[:-1])) == ["images that are too many"]
    rows, labels = np.append(part.rows, 0), np.append(part.labels, 0)
    assert found(replace(part, rows=rows, labels=labels)) == ["images that are missing"]
