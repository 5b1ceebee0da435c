"""Made-up data: right shapes, the same every time, learnable but not trivially."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seu_bench.data import synthetic
from seu_bench.data.dataset import DatasetInfo, RawDataset
from seu_bench.data.synthetic import synthetic_dataset
from seu_bench_benchmarks.datasets import DATASETS


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


def test_not_trivial() -> None:
    info = DATASETS["cifar100"].info(None)
    assert np.mean([nearest_mean_accuracy(synthetic_dataset(info, seed)) for seed in range(2)]) < 0.999
    info = DATASETS["mnist"].info(None)
    assert np.mean([nearest_mean_accuracy(synthetic_dataset(info, seed)) for seed in range(4)]) < 1


def test_same_seed_same_pixels_other_seed_or_name_others() -> None:
    info = DATASETS["fashion_mnist"].info(None)
    first = synthetic_dataset(info, seed=1)
    assert first.checksum() == synthetic_dataset(info, seed=1).checksum()
    assert first.checksum() != synthetic_dataset(info, seed=2).checksum()
    kmnist = synthetic_dataset(DATASETS["kmnist"].info(None), seed=1)
    assert first.checksum() != kmnist.checksum()


def test_only_occurring_classes_occur() -> None:
    data = synthetic_dataset(DATASETS["emnist_letters"].info(None), seed=0)
    for split in (data.train, data.test):
        assert sorted(np.unique(split.labels)) == list(range(1, 27))


def test_proportions_and_least_sizes() -> None:
    info = DatasetInfo("uneven", 1, 10, 12, 3, 7100, 710, (5000, 2000, 100), (500, 200, 10))
    data = synthetic_dataset(info, seed=0, scale=0.1)
    assert data.info.train_per_class == (500, 200, 30)
    assert data.info.test_per_class == (50, 20, 10)


def test_sizes_without_counts_are_balanced() -> None:
    data = synthetic_dataset(DatasetInfo("plain", 3, 16, 9, 4, 1000, 400), seed=0, scale=0.2)
    assert data.info.train_per_class == (50,) * 4
    assert data.info.test_per_class == (20,) * 4
    assert data.train.images.shape[1:] == (3, 16, 9)


def test_chunks_fill_every_image() -> None:
    data = synthetic_dataset(DatasetInfo("many", 1, 8, 8, 2, 5000, 20), seed=0, scale=1.0)
    assert len(data.train) == 5000
    assert data.train.images.reshape(5000, -1).std(axis=1).min() > 0


def test_images_are_made_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not image by image: 3000 training images of CIFAR-100 in two chunks, 1000 test images in one."""
    sizes: list[int] = []

    def pictures(prototypes: Any, labels: Any, *more: Any) -> Any:
        sizes.append(len(labels))
        return made(prototypes, labels, *more)

    made = synthetic._pictures
    monkeypatch.setattr(synthetic, "_pictures", pictures)
    synthetic_dataset(DATASETS["cifar100"].info(None), seed=0)
    assert sizes == [synthetic.CHUNK, 3000 - synthetic.CHUNK, 1000]


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_scale_must_be_positive(scale: float) -> None:
    with pytest.raises(ValueError, match="scale must be positive"):
        synthetic_dataset(DATASETS["mnist"].info(None), seed=0, scale=scale)
