"""Layers that compute with channels innermost in memory, torch's ``channels_last``: convolution, dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def channels_last(images: Tensor) -> Tensor:
    """Lay out images ``[N, C, H, W]`` with channels innermost in memory, unless ``torch.func`` is at work.

    Depthwise convolutions and pooling run up to 2.5 times faster so on a CPU (``make perf``), and every layer behind
    keeps the layout.
    """
    if torch._C._are_functorch_transforms_active():
        return images
    return images.contiguous(memory_format=torch.channels_last)


def in_order_of(x: Tensor, numbers: Tensor) -> Tensor:
    """``numbers``, ``[x.numel()]``, in the shape of ``x``, each in the place in memory where ``x`` has one too, if
    ``x`` has no gaps."""
    if x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last):
        images, channels, height, width = x.shape
        return numbers.view(images, height, width, channels).permute(0, 3, 1, 2)
    return numbers.view(x.shape)


class ChannelsLastConv2d(nn.Conv2d):
    """The first convolution of a network that computes with channels innermost.

    Its output is given that layout too, for of images with one channel, which have none themselves, torch makes a
    contiguous one.
    """

    def forward(self, x: Tensor) -> Tensor:
        """``[N, C, H, W] -> [N, out_channels, H', W']``."""
        return channels_last(super().forward(channels_last(x)))


#: A mask's element is 16 random bits, so probabilities are multiples of this many-th part.
_STEPS = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout as :func:`torch.nn.functional.dropout`; on a CPU ``p`` is rounded to a multiple of 2^-16.

    Kept elements are divided by the rounded probability of keeping, so that expectations stay exact.
    """
    dropped = round(p * _STEPS)
    if not training or x.device.type != "cpu" or not 0 < dropped < _STEPS:
        return nn.functional.dropout(x, p, training)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    # From -2^15 on, uniformly: as many of the 2^16 values lie below as are to be dropped.
    kept = in_order_of(x, draws.view(torch.int16)[: x.numel()]) >= dropped - _STEPS // 2
    return x * kept.to(x.dtype).mul_(_STEPS / (_STEPS - dropped))


class Dropout(nn.Dropout):
    """:func:`dropout` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """``x`` with elements set to 0, the rest scaled, in training; ``x`` itself in evaluation."""
        return dropout(x, self.p, self.training)
