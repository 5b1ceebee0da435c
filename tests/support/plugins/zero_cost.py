"""Searches and networks for scores at initialisation."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

SHAPE = (1, 8, 8)


def batch(count: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


class Outputs(TorchFunctionMode):
    """Keeps what every call of ReLU gives, wherever it is made: no hooks, no list of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        if func is nn.functional.relu:
            self.kept.append(given.detach().clone())
        return given


def determinant(matrix: list[list[int]]) -> int:
    """Of whole numbers, exactly (Bareiss)."""
    rows, sign, before = [list(row) for row in matrix], 1, 1
    for at in range(len(rows) - 1):
        pivot = next((row for row in range(at, len(rows)) if rows[row][at]), None)
        if pivot is None:
            return 0
        if pivot != at:
            rows[at], rows[pivot], sign = rows[pivot], rows[at], -sign
        for row in range(at + 1, len(rows)):
            for column in range(at + 1, len(rows)):
                product = rows[row][column] * rows[at][at] - rows[row][at] * rows[at][column]
                rows[row][column] = product // before
        before = rows[at][at]
    return sign * rows[-1][-1]


def naswot_directly(outputs: Iterable[Tensor]) -> float:
    """By explicit loops over pairs of images, the determinant in whole numbers."""
    parts = [output.reshape(len(output), -1).tolist() for output in outputs]
    codes = [[value > 0 for part in parts for value in part[image]] for image in range(len(parts[0]))]
    kernel = [[sum(a == b for a, b in zip(one, other, strict=True)) for other in codes] for one in codes]
    value = determinant(kernel)
    return math.log(value) if value > 0 else -math.inf


def synflow_directly(network: nn.Module) -> float:
    """On a copy whose parameters are made positive in place, by plain autograd."""
    copied = copy.deepcopy(network).double().eval()
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.abs_()
    copied(torch.ones(1, *SHAPE, dtype=torch.float64)).sum().backward()
    return math.log(
        sum(float((p.detach() * p.grad).sum()) for p in copied.parameters() if p.grad is not None),
    )
