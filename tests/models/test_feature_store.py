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
def test_table(value: Tensor) -> None:
    """The same through a table, in any order and with repetitions."""
    table, _ = filled((value,), 3)
    wanted = torch.tensor([6, 0, 3, 3, 5])
    (found,) = read(table, wanted)
    assert found.dtype == value.dtype
    assert torch.equal(found, value[wanted])
    if value.dim() == 4:
        assert layout(found) == layout(value)


# --- how much is kept ------------------------------------------------------------------------------------------------


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
