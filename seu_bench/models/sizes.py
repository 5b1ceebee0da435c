"""Sizes of models: parameters counted once, multiply-accumulates per image."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def count_parameters(*modules: nn.Module) -> int:
    """Count the parameters of ``modules``, each shared one counted once.

    Returns:
        Number of parameters.

    Example:
        ``count_parameters(model.task_module(0))``
    """
    return sum(parameter.numel() for parameter in nn.ModuleList(modules).parameters())


def count_macs(forward: Callable[[Tensor], object], shape: Iterable[int], device: torch.device) -> int:
    """Count the multiply-accumulates of ``forward`` on one image.

    Convolutions and linear layers count, biases, normalisation and pooling do not (torch.utils.flop_counter counts two
    operations per multiply-accumulate).

    Args:
        forward: called with images ``[1, C, H, W]``.
        shape: ``(C, H, W)``.
        device: where the image is made; ``meta`` allocates nothing.

    Returns:
        Multiply-accumulates.
    """
    image = torch.zeros((1, *shape), device=device)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        forward(image)
    return int(counter.get_total_flops()) // 2
