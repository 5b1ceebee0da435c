"""Made-up data: right shapes, the same every time, learnable but not trivially."""

from __future__ import annotations

import numpy as np
import pytest

from seu_bench.data.dataset import RawDataset
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
