"""Bytes of tensors: each byte of memory counted once, whoever shares it, on the meta device as on any other."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seu_bench.models import count_bytes, state_bytes


def test_element_size_times_number() -> None:
    """By the type of the elements, whatever the shape; nothing is nothing."""
    assert count_bytes([torch.zeros(3, 5)]) == 60
    assert count_bytes([torch.zeros(7, dtype=torch.uint8), torch.zeros((), dtype=torch.int64)]) == 7 + 8
    assert count_bytes([]) == count_bytes([torch.zeros(0, 4)]) == 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_shared_memory_counts_once(device: str) -> None:
    """Views of one storage count the bytes that any of them reaches; copies count by themselves."""
    whole = torch.zeros(10, 4, device=device)
    assert count_bytes([whole, whole, whole.view(40), whole[2:5]]) == 160
    assert count_bytes([whole[:3], whole[2:5]]) == 5 * 16
    assert count_bytes([whole[:3], whole[8:]]) == 5 * 16
    assert count_bytes([whole[0].expand(100, 4)]) == 16
    assert count_bytes([whole, whole.clone()]) == 320
    assert count_bytes([whole.t()]) == 160


def test_state_of_modules() -> None:
    """Parameters and buffers, tied ones once; what a state leaves out is no state."""
    layer = nn.Linear(3, 2)
    tied = nn.Linear(3, 2)
    tied.weight = layer.weight
    assert state_bytes(layer, tied) == 4 * (6 + 2 + 2)
    assert state_bytes(nn.BatchNorm2d(5)) == 4 * 4 * 5 + 8
    layer.register_buffer("derived", torch.zeros(100), persistent=False)
    assert state_bytes(layer) == 4 * 8
