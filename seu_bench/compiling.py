"""Units compiled by ``torch.compile``, where a training is long enough to be worth the wait.

Compiled are the forward and backward passes of single units, for batches of one size; a batch of another size, such as
the last of an epoch, and evaluation are computed as ever. A unit is compiled again for every task that trains it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.computing import Compilation

#: Images that a stage must pass forward to train for its units to be compiled by ``auto`` (docs/performance.md).
WORTHWHILE = 100_000


class CompiledUnits:
    """Computes units, compiled where that is possible.

    Args:
        batch: the size of batches that units are compiled for.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self._made: dict[int, Callable[..., Any]] = {}

    def __call__(self, unit: nn.Module, *inputs: Tensor) -> Tensor:
        """``unit(*inputs)``."""
        if len(inputs[0]) != self.batch or not torch.is_grad_enabled():
            output: Tensor = unit(*inputs)
            return output
        if id(unit) not in self._made:
            self._made[id(unit)] = torch.compile(unit, dynamic=False)
        try:
            output = self._made[id(unit)](*inputs)
        except torch._dynamo.exc.TorchDynamoException as error:
            # Whatever keeps it from being compiled, a compiler that is missing most likely, must not end the run.
            warnings.warn(f"units are not compiled: {str(error).splitlines()[0]}", RuntimeWarning, stacklevel=2)
            self.batch = 0
            output = unit(*inputs)
        return output


def is_worthwhile(compilation: Compilation, passes: int, device: torch.device) -> bool:
    """Whether units are compiled.

    Args:
        passes: images that the stage will pass forward to train units; 0: it trains none.
    """
    if not passes:
        return False
    if compilation == "auto":
        return passes >= WORTHWHILE and has_compiler(device)
    return compilation == "always"


def has_compiler(device: torch.device) -> bool:
    """Whether torch finds what it compiles with: a C++ compiler, and Triton on an accelerator."""
    known = [os.environ.get("CXX"), "g++", "clang++", "cl"]
    is_there = any(shutil.which(name) for name in known if name)
    return is_there and (device.type == "cpu" or importlib.util.find_spec("triton") is not None)
