"""Augmentation: what each change does to pixels, whom it reaches, and that it hangs on the seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seu_bench.config.streams import Augmentation
from seu_bench.data import TaskDataset, TaskImages
from seu_bench.data.images import Augmenter, SampleIds, sample_ids_of

MEAN, STD = torch.tensor([0.2, 0.4, 0.5]), torch.tensor([0.1, 0.2, 0.5])


def augmenter(**asked: Any) -> Augmenter:
    return Augmenter(Augmentation(**asked), MEAN, STD, -MEAN / STD)


def pixels_of(images: Tensor) -> Tensor:
    return images * STD.view(1, 3, 1, 1) + MEAN.view(1, 3, 1, 1)


def some_images(count: int = 40, size: int = 6) -> Tensor:
    pixels = 0.1 + 0.8 * torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(3))
    return (pixels - MEAN.view(1, 3, 1, 1)) / STD.view(1, 3, 1, 1)


def test_flip_mirrors_about_half() -> None:
    images = some_images(400)
    found = augmenter(flip=True)(images)
    same = (found == images).flatten(1).all(1)
    mirrored = (found == images.flip(-1)).flatten(1).all(1)
    assert bool((same ^ mirrored).all()) and 150 < int(mirrored.sum()) < 250


def test_crop_is_a_place_of_the_padded_image() -> None:
    """Every place occurs; what lies outside is black."""
    images = some_images(300, 4)
    found = pixels_of(augmenter(crop=1)(images))
    padded = torch.nn.functional.pad(pixels_of(images), (1, 1, 1, 1))
    places = set()
    for before, after in zip(padded, found, strict=True):
        [place] = [
            (top, left)
            for top in range(3)
            for left in range(3)
            if torch.allclose(before[:, top : top + 4, left : left + 4], after, atol=1e-6)
        ]
        places.add(place)
    assert len(places) == 9


def test_brightness_is_one_factor_for_each_image() -> None:
    images = some_images()
    pixels, found = pixels_of(images), pixels_of(augmenter(brightness=0.1)(images))
    factors = (found / pixels).flatten(1)
    assert torch.allclose(factors, factors[:, :1].expand_as(factors), atol=1e-6)
    assert 0.9 <= float(factors.min()) < 0.93 and 1.07 < float(factors.max()) <= 1.1001


def test_contrast_keeps_the_mean() -> None:
    images = some_images()
    pixels, found = pixels_of(images), pixels_of(augmenter(contrast=0.1)(images))
    assert torch.allclose(pixels.mean((1, 2, 3)), found.mean((1, 2, 3)), atol=1e-6)
    spread = found.std((1, 2, 3)) / pixels.std((1, 2, 3))
    assert 0.9 <= float(spread.min()) < 0.95
    assert 1.05 < float(spread.max()) <= 1.1001


def test_same_seed_same_images() -> None:
    change = augmenter(crop=2, flip=True, brightness=0.2, contrast=0.2)
    torch.manual_seed(5)
    first, other = change(some_images()), change(some_images())
    torch.manual_seed(5)
    assert torch.equal(change(some_images()), first) and not torch.equal(first, other)


@pytest.fixture
def task() -> TaskImages:
    images = some_images(30)
    ids = SampleIds(object(), torch.arange(30))
    return TaskImages(images, torch.arange(30), torch.arange(30), 0, 3, sample_ids=ids, augmenter=augmenter(crop=3))


def test_only_what_trains_is_changed(task: TaskImages) -> None:
    """Shuffled batches and Avalanche's data sets are; batches in order and single gathers are not. What is changed is
    never taken for the image that features are cached of."""
    for x, y in task.batches(8, shuffle=False):
        assert torch.equal(x, task.store[y]) and sample_ids_of(x) is not None
    changed = [(x, y) for x, y in task.batches(8, shuffle=True)]
    assert all(sample_ids_of(x) is None for x, _ in changed)
    assert sum(bool((x != task.store[y]).any()) for x, y in changed) >= 3
    assert torch.equal(task.gather(torch.arange(30))[0], task.store)
    x, y, _ = TaskDataset.of(task).__getitems__(range(30)).tensors
    assert not torch.equal(x, task.store[y]) and sample_ids_of(x) is None
    assert not torch.equal(torch.stack([TaskDataset.of(task)[i][0] for i in range(30)]), task.store)


def test_permuted_pixels_are_cut_before(task: TaskImages) -> None:
    """An image is cropped as an image; its pixels change places afterwards."""
    order = torch.randperm(3 * 36)
    permuted = TaskImages(task.store, task.rows, task.labels, 0, 3, order, augmenter=task.augmenter)
    torch.manual_seed(1)
    plain, _ = task.training_batch(torch.arange(30))
    torch.manual_seed(1)
    found, _ = permuted.training_batch(torch.arange(30))
    assert torch.equal(found.flatten(1), plain.flatten(1)[:, order])
