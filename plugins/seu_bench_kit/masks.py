"""Binary masks, kept as one bit for each weight or unit.

What a mask costs is counted apart from parameters, as :attr:`~seu_bench.models.MultiHeadModel.mask_bits`: one bit for
each thing that a task takes or leaves. Masks of real numbers that are learned, such as embeddings, are parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def pack_bits(mask: Tensor) -> Tensor:
    """Pack a mask, bool of any shape, eight elements to a byte: uint8 ``[ceil(n / 8)]``; unused bits are 0."""
    flat = mask.flatten().to(torch.uint8)
    padded = torch.nn.functional.pad(flat, (0, -len(flat) % 8)).view(-1, 8)
    return (padded << _places(mask.device)).sum(dim=1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, shape: Sequence[int]) -> Tensor:
    """Undo :func:`pack_bits` for a mask of some shape."""
    bits = (packed[:, None] >> _places(packed.device)) & 1
    return bits.flatten()[: math.prod(shape)].view(*shape).bool()


def packed_bytes(elements: int) -> int:
    """Bytes that a mask of so many elements takes."""
    return -(-elements // 8)


def _places(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)
