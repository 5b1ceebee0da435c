"""Sizes of models: parameters and bytes, each counted once, and multiply-accumulates per image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from seu_bench.models.flops import FlopCounter, counted_as
from seu_bench.models.walk import parameters_of


def count_parameters(*modules: nn.Module) -> int:
    """Count the parameters of ``modules``, each shared one counted once."""
    return sum(parameter.numel() for parameter in parameters_of(nn.ModuleList(modules)))


def count_bytes(tensors: Iterable[Tensor]) -> int:
    """Count the bytes that dense tensors take on any device, ``meta`` included, memory that several share once."""
    spans: defaultdict[object, set[tuple[int, int]]] = defaultdict(set)
    for tensor in tensors:
        if count := tensor.numel():
            start, size = tensor.data_ptr(), tensor.element_size()
            place: object = tensor.device
            if tensor.is_meta:  # which has no addresses: by the storage itself
                start, place = int(tensor.storage_offset()) * size, tensor.untyped_storage()._cdata
            if not tensor.is_contiguous():
                count = 1 + sum((rows - 1) * step for rows, step in zip(tensor.shape, tensor.stride(), strict=True))
            spans[place].add((start, start + count * size))
    total = 0
    for parts in spans.values():
        end = 0
        for start, stop in sorted(parts):
            total += max(0, stop - max(start, end))
            end = max(end, stop)
    return total


def state_bytes(*modules: nn.Module) -> int:
    """Count the bytes of the parameters and buffers of ``modules``, shared ones once."""
    state = nn.ModuleList(modules).state_dict().values()
    return count_bytes(value for value in state if isinstance(value, Tensor))


def count_macs(
    forward: Callable[[Tensor], object],
    shape: Iterable[int],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> int:
    """Count the multiply-accumulates of ``forward`` on one sample of a shape, e.g. ``(C, H, W)``, made on a device.

    Convolutions and linear layers count, biases, normalisation and pooling do not.
    """
    sample = torch.zeros((1, *shape), dtype=dtype, device=device)
    # A search may measure networks that it does not compute with.
    with counted_as(lambda: 0), torch.no_grad(), FlopCounter() as counter:
        forward(sample)
    return counter.flops // 2
