"""Sizes of models: parameters and bytes, each counted once, and multiply-accumulates per image."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from seu_bench.models.flops import FlopCounter, counted_as
from seu_bench.models.walk import parameters_of


def count_parameters(*modules: nn.Module) -> int:
    """Count the parameters of ``modules``, each shared one counted once."""
    return sum(parameter.numel() for parameter in parameters_of(nn.ModuleList(modules)))


def count_bytes(tensors: Iterable[Tensor], spans: dict[object, set[tuple[int, int]]] | None = None) -> int:
    """Count the bytes that dense tensors take on any device, ``meta`` included, memory that several share once, and
    that of others, whose ``spans`` by device are given: theirs come to these."""
    spans = {} if spans is None else spans
    for tensor in tensors:
        if size := tensor.nbytes:
            place: object
            start, place = tensor.data_ptr(), tensor.is_cpu or tensor.device
            if tensor.is_meta:  # which has no addresses: by the storage itself
                start, place = int(tensor.storage_offset()) * tensor.element_size(), tensor.untyped_storage()._cdata
            if not tensor.is_contiguous():
                steps = sum((rows - 1) * step for rows, step in zip(tensor.shape, tensor.stride(), strict=True))
                size = (1 + steps) * tensor.element_size()
            spans.setdefault(place, set()).add((start, start + size))
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
