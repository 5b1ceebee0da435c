"""Units compiled by ``torch.compile`` for their training, if the user asks for it.

Compiled are the forward and backward passes of single units, for batches of one size; a batch of another size, such as
the last of an epoch, and evaluation are computed eagerly. A unit is compiled again for every task that trains it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class CompiledUnits:
    """Units compiled, where possible, for batches of ``batch`` images."""

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
            with warnings.catch_warnings():
                # The compiler looks at inputs as if they were leaves, and torch warns of that.
                warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", UserWarning)
                output = self._made[id(unit)](*inputs)
        except torch._dynamo.exc.TorchDynamoException as error:
            # A failure to compile, most likely a missing compiler, must not end the run.
            warnings.warn(f"units are not compiled: {str(error).splitlines()[0]}", RuntimeWarning, stacklevel=2)
            self.batch = 0
            output = unit(*inputs)
        return output
