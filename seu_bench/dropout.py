"""Dropout whose masks are cheap on a CPU.

torch draws each element of a mask by itself there, which takes a quarter of the AlexNet variant's training time. Here
four elements share one 64-bit draw.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seu_bench.layout import in_order_of

#: A mask's element is 16 random bits, so probabilities are multiples of this many-th part.
_STEPS = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """As :func:`torch.nn.functional.dropout`; on a CPU ``p`` is rounded to a multiple of 2^-16.

    What is kept is divided by the rounded probability of keeping, so that expectations stay exact.
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
