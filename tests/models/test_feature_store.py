"""Rows of features come back as they went in, from one kind of memory or several, and the bytes are counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import CPU, all_threads, one_thread
from torch import Tensor

from seu_bench.models.feature_cache import Form, Table, Tier, Values

setup_module, teardown_module = one_thread, all_threads


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


# --- forms ----------------------------------------------------------------------------------------------------------

VALUES = {
    "flat": numbers(7, 5),
    "maps": numbers(7, 3, 4, 2),
    "channels_last": innermost(numbers(7, 3, 4, 2)),
    "sequences": numbers(7, 3, 4),
    "one number": numbers(7),
    "positions": torch.arange(14).view(7, 2),
    "truths": numbers(7, 3) > 0,
    "doubles": numbers(7, 3).double(),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_form(value: Tensor) -> None:
    """Rows and back: the same numbers, kind of number and layout; a row has as many bytes as a value."""
    form = Form.of(value, None)
    rows = form.flat(value)
    assert rows.shape == (7, form.numbers)
    assert rows.is_contiguous()
    assert form.bytes * 7 == value.nbytes
    back = form.shaped(rows)
    assert back.dtype == value.dtype
    assert torch.equal(back, value)
    if value.dim() == 4:
        assert layout(back) == layout(value)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_table(value: Tensor) -> None:
    """The same through a table, in any order and with repetitions."""
    table, _ = filled((value,), 3)
    wanted = torch.tensor([6, 0, 3, 3, 5])
    (found,) = read(table, wanted)
    assert found.dtype == value.dtype
    assert torch.equal(found, value[wanted])
    if value.dim() == 4:
        assert layout(found) == layout(value)


def test_several_values() -> None:
    """A function may give several tensors for an image, each of a shape of its own."""
    values = (VALUES["channels_last"], VALUES["flat"], VALUES["positions"], VALUES["maps"])
    table, (tier,) = filled(values, 4)
    assert tier.limit - tier.left == sum(value.nbytes for value in values)
    wanted = torch.tensor([1, 6, 0])
    for found, value in zip(read(table, wanted), values, strict=True):
        assert torch.equal(found, value[wanted])


def test_half_precision() -> None:
    """Floating point is kept in the type that was given, half of the bytes; other numbers stay as they are."""
    values = (VALUES["channels_last"], VALUES["positions"])
    table, (tier,) = filled(values, 3, dtype=torch.bfloat16)
    assert tier.limit - tier.left == values[0].nbytes // 2 + values[1].nbytes
    maps, positions = read(table, torch.arange(7))
    assert maps.dtype == torch.float32
    assert torch.equal(maps, values[0].to(torch.bfloat16).float())
    assert not torch.equal(maps, values[0])
    assert layout(maps) == layout(values[0])
    assert torch.equal(positions, values[1])


def test_what_is_read_is_nobodys() -> None:
    """Who changes what was read does not change the table."""
    value = VALUES["flat"]
    table, _ = filled((value,), 3)
    for limits in ((10**9,), (3 * 20, 10**9)):
        table, _ = filled((value,), 3, limits)
        read(table, torch.arange(7))[0].fill_(7)
        assert torch.equal(read(table, torch.arange(7))[0], value)


# --- how much is kept ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "rows"),
    [(0, 0), (2, 0), (3, 3), (5, 3), (6, 6), (9, 9), (10, 10), (100, 10), (-1, 0)],
)
def test_partial_tables(room: int, rows: int) -> None:
    """Of ten rows in chunks of three: whole chunks while there is no room for all; then all."""
    value = numbers(10, 4)
    table, (tier,) = filled((value,), 3, (room * 16 + 7 if room >= 0 else room,))
    assert table.rows == rows
    assert tier.limit - tier.left == rows * 16
    if rows:
        assert torch.equal(read(table, torch.arange(rows))[0], value[:rows])


def test_tiers_in_order() -> None:
    """The first kind of memory takes what it can in whole chunks, the next what is left."""
    value = numbers(10, 4)
    table, tiers = filled((value,), 3, (16 * 4, 16 * 2, 16 * 5, 10**9))
    assert [tier.limit - tier.left for tier in tiers] == [16 * 3, 0, 16 * 3, 16 * 4]
    assert table.rows == 10
    table, tiers = filled((value,), 3, (10**9, 10**9))
    assert [tier.limit - tier.left for tier in tiers] == [16 * 10, 0]
    table, tiers = filled((value,), 3, (16 * 4, 16 * 5))
    assert [tier.limit - tier.left for tier in tiers] == [16 * 3, 16 * 3]
    assert table.rows == 6


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


def test_missing_chunks() -> None:
    """Which chunks were not written, among those of some rows; the last may be short."""
    value = numbers(10, 4)
    table = Table([Form.of(value, None)], 10, 3, [Tier(CPU, 10**9)])
    assert table.missing(torch.tensor([4, 9, 5, 4])) == [1, 3]
    table.write(3, (value[9:],))
    table.write(1, (value[3:6],))
    assert table.missing(torch.arange(10)) == [0, 2]
    assert table.missing(torch.tensor([9, 3])) == []
    assert torch.equal(read(table, torch.tensor([9, 5, 3]))[0], value[[9, 5, 3]])


def test_a_chunk_across_tiers() -> None:
    """All rows fit, and the last, short chunk begins the second tier: nothing is written where it does not belong."""
    value = numbers(8, 4)
    table, tiers = filled((value,), 3, (16 * 7, 16 * 2))
    assert [tier.limit - tier.left for tier in tiers] == [16 * 6, 16 * 2]
    assert torch.equal(read(table, torch.tensor([7, 5, 6, 0, 7]))[0], value[[7, 5, 6, 0, 7]])


def test_free() -> None:
    """Memory of a table can be taken by the next."""
    value = numbers(9, 4)
    tiers = [Tier(CPU, 16 * 3), Tier(CPU, 16 * 6)]
    first = Table([Form.of(value, None)], 9, 3, tiers)
    assert (first.rows, [tier.left for tier in tiers]) == (9, [0, 0])
    assert Table([Form.of(value, None)], 9, 3, tiers).rows == 0
    first.free()
    assert (first.rows, [tier.left for tier in tiers]) == (0, [16 * 3, 16 * 6])
    assert Table([Form.of(value, None)], 9, 3, tiers).rows == 9
