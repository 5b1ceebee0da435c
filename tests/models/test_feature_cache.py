"""Outputs of frozen layers are computed once for each image while there is room, and are the same whatever there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.features import CHUNK, TEST, TRAIN, Frozen, all_of, answers, batches, cache, epoch_of, equal
from support.tiny import CPU, all_threads, one_thread
from torch import Tensor, nn

from seu_bench.data.images import sample_ids_of, tag_batch
from seu_bench.models.feature_cache import Form, Table, Tier, Values, feature_tiers
from seu_bench.utils import hardware
from seu_bench.utils.hardware import free_host_memory

setup_module, teardown_module = one_thread, all_threads


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


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "added in place": lambda x: x.add_(1),
    "a part set": lambda x: _set(x),
    "in place by a view": lambda x: (x.view(-1).mul_(2), x)[1],
    "in place, detached": lambda x: (x.detach().zero_(), x)[1],
    "copied": lambda x: x.clone(),
    "detached": lambda x: x.detach(),
    "sum": lambda x: x + 0.1,
    "a view": lambda x: x.view_as(x),
    "first": lambda x: x[:1],
    "flipped": lambda x: x.flip(3),
    "other numbers": lambda x: x.double(),
    "parameter": lambda x: nn.Parameter(x),
    "concatenated": lambda x: torch.cat([x]),
}


def _set(x: Tensor) -> Tensor:
    x[0, 0, 0, 0] = 3
    return x


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_loses_the_mark(change: Callable[[Tensor], Tensor]) -> None:
    """The result of any operation on a batch is not taken for the images it came from."""
    images = cache().number(TRAIN)
    x, _ = images.gather(torch.arange(4))
    assert sample_ids_of(x) is not None
    assert sample_ids_of(change(x)) is None


def test_idle_tables_make_room() -> None:
    """A table that was not used for longer than all images take to go by gives way to a new one."""
    frozen = Frozen()
    kept = cache(100 * frozen.row)
    images = kept.number(TRAIN)
    epoch_of(kept, "first", frozen, images)
    # Not idle yet: the second gets the little that is left.
    assert epoch_of(kept, "second", frozen, images) > 80
    # By now the first is; and the second gets all the room.
    for _ in range(2):
        epoch_of(kept, "second", frozen, images)
        assert kept.bytes <= 100 * frozen.row
    kept.begin_stage()
    epoch_of(kept, "second", frozen, images)
    assert epoch_of(kept, "second", frozen, images) == 0
    assert kept.bytes == 90 * frozen.row
    assert epoch_of(kept, "first", frozen, images) > 80


@pytest.mark.parametrize("keys", [1, 2, 4])
def test_validation_stays_whatever_training_asks(keys: int) -> None:
    """Used once in each epoch, however many functions are asked of each training batch in between."""
    frozen, other = Frozen(), Frozen()
    # Room for all of the training tables and most of the validation images.
    kept = cache((90 * keys + 35) * frozen.row)
    train, valid = kept.number(TRAIN), kept.number(TEST)
    computed = []
    for epoch in range(4):
        for x in batches(train, seed=epoch):
            for key in range(keys):
                kept.get(x, key, other)
        computed.append(epoch_of(kept, "valid", frozen, valid))
    # Four images have no place; those of a batch are filled up to a chunk.
    assert max(computed[1:]) <= 4 * CHUNK, computed


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def innermost(value: Tensor) -> Tensor:
    return value.contiguous(memory_format=torch.channels_last)


def filled(
    values: Values, chunk: int, limits: Sequence[int] = (10**9,), dtype: torch.dtype | None = None
) -> tuple[Table, list[Tier]]:
    """A table of all rows of ``values`` that there is room for, written chunk by chunk."""
    tiers = [Tier(CPU, limit) for limit in limits]
    table = Table([Form.of(value, dtype) for value in values], len(values[0]), chunk, tiers)
    for number in range(-(-table.rows // chunk)):
        table.write(number, tuple(value[number * chunk : (number + 1) * chunk] for value in values))
    return table, tiers


def read(table: Table, wanted: Tensor) -> Values:
    """Values of images that all have a row."""

    def beyond(places: Tensor) -> Values:
        raise AssertionError(f"{places} have a row")

    return table.read(wanted, CPU, beyond)


def layout(value: Tensor) -> tuple[bool, bool]:
    return value.is_contiguous(), value.is_contiguous(memory_format=torch.channels_last)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_sizes(data: st.DataObject) -> None:
    """For any sizes: a beginning of the images is cached, no tier gives more than it has, all of it comes back."""
    images, chunk = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 7))
    maps = numbers(images, 2, data.draw(st.integers(1, 3)), 2)
    values = (innermost(maps) if data.draw(st.booleans()) else maps, numbers(images, data.draw(st.integers(1, 3))))
    row = sum(value[0].nbytes for value in values)
    limits = data.draw(st.lists(st.integers(0, images * row + 5), min_size=1, max_size=3))
    table, tiers = filled(values, chunk, limits)
    assert all(tier.left >= 0 for tier in tiers)
    assert sum(tier.limit - tier.left for tier in tiers) == table.rows * row
    assert table.rows == images or table.rows % chunk == 0
    # No tier has room left for another chunk, or for all that is missing.
    if table.rows < images:
        assert all(tier.left < row * min(chunk, images - table.rows) for tier in tiers)
    if table.rows:
        wanted = torch.tensor(data.draw(st.lists(st.integers(0, table.rows - 1), min_size=1, max_size=9)))
        for found, value in zip(read(table, wanted), values, strict=True):
            assert torch.equal(found, value[wanted])
            assert layout(found) == layout(value)
    table.free()
    assert [tier.left for tier in tiers] == limits


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder where a container's limit is looked for; empty."""
    monkeypatch.setattr(hardware, "_CONTAINER", tmp_path)
    yield tmp_path


def limited(container: Path, limit: object, used: object) -> None:
    (container / "memory.max").write_text(f"{limit}\n")
    (container / "memory.current").write_text(f"{used}\n")


def test_half_of_a_container(container: Path) -> None:
    """A container's limit, less what it uses, of which pages of files can be had back at any time."""
    limited(container, 10_000_000, 4_000_000)
    assert free_host_memory() == 6_000_000
    limited(container, 10_000_000, 9_000_000)
    (container / "memory.stat").write_text("anon 4000000\nactive_file 2000000\ninactive_file 3000000\n")
    assert free_host_memory() == 6_000_000
    (tier,) = feature_tiers(CPU, None)
    assert tier.limit == 3_000_000
    (tier,) = feature_tiers(CPU, 5_000_000)
    assert tier.limit == 5_000_000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_budget_on_a_gpu() -> None:
    """The GPU's memory first, at most half of what is free there; the rest in the host's."""
    device = torch.device("cuda")
    free = torch.cuda.mem_get_info(device)[0]
    on_device, host = feature_tiers(device, 1000)
    assert (on_device.device.type, on_device.limit, host.device, host.limit) == ("cuda", 1000, CPU, 0)
    on_device, host = feature_tiers(device, free)
    assert on_device.limit == pytest.approx(free / 2, rel=0.2)
    assert on_device.limit + host.limit == free


def slots_of_nobody() -> Any:
    """Marks of someone else's."""
    from seu_bench.data.images import SampleIds

    return SampleIds("nobody", torch.arange(11))


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
