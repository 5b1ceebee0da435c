"""Arrays of a data set, given and made up: converted where nothing has to be guessed, and refused otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.tiny import raw_dataset

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.data.dataset import DatasetInfo, RawDataset, RawSplit, require_memory
from seu_bench.data.sources import definition_source
from seu_bench.data.synthetic import synthetic_dataset
from seu_bench.errors import DataError
from seu_bench_benchmarks.datasets import DATASETS

DATA = raw_dataset([6] * 3, [2] * 3, channels=3, size=8)
IMAGES: NDArray[np.uint8] = DATA.train.images[:]
LABELS = DATA.train.labels


def with_train(images: Any, labels: Any = LABELS) -> RawDataset:
    return RawDataset(DATA.info, RawSplit(images, labels), DATA.test).check()


@pytest.mark.parametrize("kind", ["int32", "uint16", ">i2", "uint64"])
def test_labels_of_any_width(kind: str) -> None:
    data = with_train(IMAGES, LABELS.astype(kind)[:, None])
    assert data.checksum() == DATA.checksum() and data.train.labels.dtype == np.int64


FAULTS: list[tuple[Any, Any, str]] = [
    (IMAGES.astype(np.float32), LABELS, "train images are float32 of shape"),
    (IMAGES.astype(np.int64), LABELS, "train images are int64 of shape"),
    (IMAGES.transpose(0, 2, 3, 1), LABELS, r"shape \(18, 8, 8, 3\); needed are uint8 of \(18, 3, 8, 8\)"),
    (IMAGES[:, 0], LABELS, r"shape \(18, 8, 8\); needed"),
    (IMAGES[1:], LABELS, r"shape \(17, 3, 8, 8\); needed are uint8 of \(18"),
    (IMAGES, LABELS[1:], r"labels are int64 of shape \(17,\); needed are integers of \(18,\)"),
    (IMAGES, LABELS.astype(np.float32), r"labels are float32 of shape"),
    (IMAGES, np.eye(3, dtype=np.int64)[LABELS], r"labels are int64 of shape \(18, 3\)"),
    (IMAGES, LABELS - 1, "labels are from -1 to 1, for 3 classes"),
    (IMAGES, LABELS + 1, "labels are from 1 to 3, for 3 classes"),
]


@pytest.mark.parametrize(("images", "labels", "said"), FAULTS, ids=[said[:40] for *_, said in FAULTS])
def test_arrays_that_would_be_learned_as_noise(images: Any, labels: Any, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        with_train(images, labels)
    assert "'tiny'" in caught.value.what and caught.value.remedy


def test_data_of_a_size_that_no_memory_has(tmp_path: Path) -> None:
    """Refused with their size before any of them is made: made-up ones, those of a definition, inputs."""
    huge = DatasetInfo("huge", 3, 224, 224, 10, num_train=10**8, num_test=10)
    with pytest.raises(DataError, match="2,000,100 images of 3 x 224 x 224 take 301,071,052,800 bytes"):
        synthetic_dataset(huge, 0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"{number}.png").touch()
    for cache in ("memory", "disk"):
        table = {"kind": "folder", "path": tmp_path, "size": 10**6, "cache": cache}
        with pytest.raises(DataError, match="images of 3 x 1000000 x 1000000 take"):
            definition_source(FolderDefinition.model_validate(table), "mine").load(tmp_path / "root")
    require_memory("small", 2, (3, 4, 4))


def nearest_mean_accuracy(data: RawDataset) -> float:
    train, test = (split.images.reshape(len(split), -1).astype(float) for split in (data.train, data.test))
    classes = np.unique(data.train.labels)
    means = np.stack([train[data.train.labels == label].mean(axis=0) for label in classes])
    distance = (means**2).sum(axis=1) - 2 * test @ means.T
    return float((classes[distance.argmin(axis=1)] == data.test.labels).mean())


@pytest.mark.parametrize("name", DATASETS)
def test_learnable_and_of_the_real_shape(name: str) -> None:
    info = DATASETS[name].info(None)
    data = synthetic_dataset(info, seed=0)
    assert data.train.images.shape[1:] == (info.channels, info.height, info.width)
    assert data.train.images.dtype == np.uint8 and data.train.labels.dtype == np.int64
    assert (data.info.num_train, data.info.num_test) == (len(data.train), len(data.test))
    assert data.info.num_classes == info.num_classes
    assert nearest_mean_accuracy(data) > 0.9


def test_same_seed_same_pixels_other_seed_or_name_others() -> None:
    info = DATASETS["fashion_mnist"].info(None)
    first = synthetic_dataset(info, seed=1)
    assert first.checksum() == synthetic_dataset(info, seed=1).checksum()
    assert first.checksum() != synthetic_dataset(info, seed=2).checksum()
    kmnist = synthetic_dataset(DATASETS["kmnist"].info(None), seed=1)
    assert first.checksum() != kmnist.checksum()
