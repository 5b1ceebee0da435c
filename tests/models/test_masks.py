"""Masks of one bit, and freezing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seu_bench.models import freeze, is_frozen
from seu_bench_kit import pack_bits, packed_bytes, unpack_bits


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (9,), (3, 5), (2, 3, 3, 3), (0,)])
def test_there_and_back(shape: tuple[int, ...]) -> None:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5
    packed = pack_bits(mask)
    assert (packed.dtype, packed.nbytes) == (torch.uint8, packed_bytes(mask.numel()))
    assert torch.equal(unpack_bits(packed, shape), mask)


def test_bits_are_in_order() -> None:
    assert pack_bits(torch.tensor([True, False, True, *[False] * 5, True])).tolist() == [5, 1]


def test_all_bits() -> None:
    assert pack_bits(torch.ones(8, dtype=torch.bool)).tolist() == [255]


def test_freezing_frees_gradients() -> None:
    frozen, other, parameter = nn.Linear(2, 2), nn.Linear(2, 2), nn.Parameter(torch.ones(2))
    (other(frozen(torch.ones(1, 2))) * parameter).sum().backward()
    freeze(frozen, parameter)
    assert is_frozen(frozen, parameter) and not is_frozen(frozen, other) and is_frozen(nn.ReLU())
    assert frozen.weight.grad is None and parameter.grad is None and other.weight.grad is not None
