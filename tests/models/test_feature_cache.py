"""Outputs of frozen layers are computed once for each image while there is room, and are the same whatever there is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.features import CHUNK, TEST, TRAIN, Frozen, all_of, answers, batches, cache, equal
from support.tiny import all_threads, one_thread
from torch import Tensor, nn

from seu_bench.data.images import sample_ids_of, tag_batch

setup_module, teardown_module = one_thread, all_threads


# --- what is computed -----------------------------------------------------------------------------------------------


def test_each_image_once() -> None:
    """While all fits: over epochs, batch sizes and parts each image is computed once, always in chunks; those of the
    last chunk that is short are computed with images before them."""
    kept, frozen = cache(), Frozen()
    images = kept.number(TRAIN)
    expected = frozen(all_of(TRAIN))
    frozen.seen, frozen.sizes = 0, set()
    for epoch in range(3):
        for size in (CHUNK, 5, 64):
            for x in batches(images, size, epoch):
                numbers = sample_ids_of(x).numbers  # type: ignore[union-attr]
                for got, value in zip(kept.get(x, "key", frozen), expected, strict=True):
                    assert torch.allclose(got, value[numbers], atol=1e-6)
    for x in batches(images.halves()[1]):
        kept.get(x, "key", frozen)
    assert frozen.seen == 12 * CHUNK
    assert frozen.sizes == {CHUNK}
    assert kept.bytes == kept.peak_bytes == 90 * frozen.row


@pytest.mark.parametrize("innermost", [False, True])
@pytest.mark.parametrize("channels", [2, 5])
@pytest.mark.parametrize("limits", [(0,), (1,), (15_000,), (8_000, 13_000), (0, 30_000), (10**6,), (9_000, 10**6)])
def test_any_budget_gives_the_same(limits: tuple[int, ...], channels: int, innermost: bool) -> None:
    """Bit by bit and in layout, over epochs of any batch size, within the budget."""
    frozen = Frozen(channels, innermost=innermost)
    kept, reference = cache(*limits), cache()
    ours, theirs = kept.number(TRAIN), reference.number(TRAIN)
    frozen.seen = 0
    for epoch, size in enumerate((CHUNK, 3, 13, 1, 100)):
        for one, other in zip(batches(ours, size, epoch), batches(theirs, size, epoch), strict=True):
            assert equal(kept.get(one, "key", frozen), reference.get(other, "key", frozen))
            assert kept.bytes <= sum(limits)
    assert kept.peak_bytes <= sum(limits)
    assert frozen.sizes == {CHUNK}


def test_only_what_has_no_place_is_computed() -> None:
    """Of a partial table the rows that are there are read."""
    frozen = Frozen()
    kept = cache(5 * CHUNK * frozen.row + 100)
    images = kept.number(TRAIN)
    for x in batches(images):
        kept.get(x, "key", frozen)
    assert kept.bytes == 5 * CHUNK * frozen.row
    frozen.seen = 0
    kept.get(images.gather(torch.arange(40))[0], "key", frozen)
    assert frozen.seen == 0
    kept.get(images.gather(torch.tensor([3, 39, 40, 41, 89, 0]))[0], "key", frozen)
    assert frozen.seen == CHUNK
    for epoch in range(3):
        frozen.seen, batch = 0, 30
        for x in batches(images, batch, epoch):
            kept.get(x, "key", frozen)
        # Fifty images in three batches, each filled up to whole chunks.
        assert 50 <= frozen.seen < 50 + 3 * CHUNK


def test_two_splits() -> None:
    """Training and validation images have the same numbers and tables of their own."""
    kept, frozen = cache(), Frozen()
    train, valid = kept.number(TRAIN), kept.number(TEST)
    for _ in range(2):
        for images in (train, valid):
            for x, _ in images.batches(64, shuffle=False):
                (maps, _), (plain, _) = kept.get(x, "key", frozen), frozen(x.clone())
                frozen.seen -= len(x)
                assert torch.allclose(maps, plain, atol=1e-6)
    assert frozen.seen == 12 * CHUNK + 5 * CHUNK
    assert kept.bytes == (90 + 36) * frozen.row


def test_unknown_images_are_computed() -> None:
    """Test images, changed batches and those of another cache: as they are, in one batch, and nothing is kept."""
    kept, other, frozen = cache(), cache(), Frozen()
    numbered, foreign = kept.number(TRAIN), other.number(TRAIN)
    changed, _ = numbered.gather(torch.arange(11))
    changed += 1
    for x in (
        all_of(TEST.part(0, 11)),
        all_of(foreign.part(0, 11)),
        changed,
        tag_batch(changed.clone(), slots_of_nobody()),
    ):
        frozen.sizes = set()
        assert equal(kept.get(x, "key", frozen), frozen(x))
        assert frozen.sizes == {11}
    assert kept.peak_bytes == 0


def slots_of_nobody() -> Any:
    """Marks of someone else's."""
    from seu_bench.data.images import SampleIds

    return SampleIds("nobody", torch.arange(11))


def test_no_gradient() -> None:
    """Neither through what is read nor through what is computed; what is computed of it has one."""
    for kept in (cache(), cache(0), cache(20_000)):
        weight = torch.ones(3, requires_grad=True)

        def compute(x: Tensor, weight: Tensor = weight) -> tuple[Tensor]:
            return (x.flatten(1)[:, :3] * weight,)

        for images in (kept.number(TRAIN), TEST):
            x = all_of(images.part(0, 12)).requires_grad_()
            (value,) = kept.get(x, "key", compute)
            assert not value.requires_grad
            (value @ weight).sum().backward()
            assert weight.grad is not None and x.grad is None


@pytest.mark.parametrize("budget", [0, 20_000, 30_000])
def test_half_precision_with_any_budget(budget: int) -> None:
    """Features without a place are rounded as those with one: results do not depend on memory here either."""
    frozen = Frozen()
    which = torch.randperm(90)
    caches = [cache(dtype=torch.bfloat16), cache(budget, dtype=torch.bfloat16)]
    assert equal(*answers(caches, frozen, which))


@pytest.mark.parametrize("budget", [0, 9_000, 10**6])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 1, 1), (1, 1, 1), (1, 8, 1), (3, 8, 1)])
@pytest.mark.parametrize("innermost", [False, True])
def test_layouts_that_can_be_read_in_two_ways(shape: tuple[int, ...], innermost: bool, budget: int) -> None:
    """Maps of one channel or of one pixel: torch sees either layout in them, and computes accordingly."""
    channels, height, width = shape

    def compute(x: Tensor) -> tuple[Tensor]:
        y = x.expand(-1, channels, -1, -1)[:, :, :height, :width].contiguous()
        return (y.contiguous(memory_format=torch.channels_last) if innermost else y,)

    for size in (CHUNK, 3, 20):
        which = torch.randperm(90)[:size]
        torch.manual_seed(0)
        following = nn.Conv2d(channels, 5, 3, padding=1)
        one, other = answers([cache(), cache(budget)], compute, which)
        assert equal(one, other)
        assert torch.equal(following(one[0]), following(other[0]))
