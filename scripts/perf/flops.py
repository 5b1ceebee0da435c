"""Arithmetic throughput of the stages' steps, compared with a matrix product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from scripts.perf.comparison import Result, Size, Table
from scripts.perf.plain import plain
from scripts.perf.steps import STEPS, Scale, Step
from scripts.perf.timing import interleaved, median, ratio

MATRICES = "product of matrices"


def measure(_: str, size: Size) -> Result:
    """One step of each stage and one product in each round."""
    scale = Scale(0.125, 3, 4, 16, 16) if size.quick else Scale()
    side, rounds = 1024, size.count(7, 1)
    a, b = torch.randn(side, side), torch.randn(side, side)
    counted: dict[str, float] = {MATRICES: 2 * side**3}
    ways: dict[str, Step] = {MATRICES: partial(_product, a, b)}
    for name, make in STEPS.items():
        torch.manual_seed(0)
        with plain():
            counted[name] = step_flops(make(scale))
        torch.manual_seed(0)
        ways[name] = make(scale)
    taken = interleaved(ways, rounds)
    rows = [
        [
            name,
            counted[name] / 1e9,
            1000 * median(taken, name),
            counted[name] / median(taken, name) / 1e9,
            counted[name] / counted[MATRICES] * ratio(taken, MATRICES, name),
        ]
        for name in ways
    ]
    columns = ("step", "GFLOP", "ms", "GFLOP/s", "share of the product's")
    return Result(
        {"side of the matrices": side, "rounds": rounds, **vars(scale)},
        {},
        (Table("Steps", columns, rows, columns[-1]),),
    )


def _product(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.mm(a, b)


def step_flops(step: Step) -> int:
    """Operations of a step whose frozen features are there already."""
    step()
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: _backward}) as counter:
        step()
    return int(counter.get_total_flops())


def _backward(
    gradient: Sequence[int],
    _x: Sequence[int],
    weight: Sequence[int],
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    _transposed: bool,
    _output_padding: Any,
    _groups: int,
    needed: Sequence[bool],
    **_: Any,
) -> int:
    """Products of the two gradients, each as many as the convolution's; torch counts the second's groups times over."""
    forward = 2 * gradient[0] * math.prod(gradient[2:]) * math.prod(weight)
    return forward * (bool(needed[0]) + bool(needed[1]))
