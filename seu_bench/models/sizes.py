"""What a model costs: parameters counted once, multiply-accumulates per image."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def count_parameters(*modules: nn.Module) -> int:
    """Parameters of ``modules``, each shared one counted once."""
    seen: dict[int, int] = {}
    for module in modules:
        for parameter in module.parameters():
            seen[id(parameter)] = parameter.numel()
    return sum(seen.values())


def count_macs(forward: Callable[[Tensor], object], shape: Iterable[int], device: torch.device) -> int:
    """Multiply-accumulates of ``forward`` on one image of ``shape`` ``(C, H, W)``.

    Convolutions and linear layers count, biases, normalisation and pooling do not (torch.utils.flop_counter counts two
    operations per multiply-accumulate). Works on the meta device, where nothing is allocated.
    """
    image = torch.zeros((1, *shape), device=device)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        forward(image)
    return int(counter.get_total_flops()) // 2
