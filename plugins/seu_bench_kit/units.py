"""Models that consist of units, which may be compiled while they are trained for long."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.models.flops import active_counter
from seu_bench.models.multihead import MultiHeadModel


class CompiledUnits:
    """Units of a model, compiled by ``torch.compile`` for their training, if the user asks for it.

    Compiled are forward and backward passes of single units for batches of ``batch`` images; another batch, such as the
    last of an epoch, evaluation, and the one whose operations are counted are computed eagerly. A unit is compiled
    again for every task that trains it.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self._made: dict[int, Callable[..., Any]] = {}

    def __call__(self, unit: nn.Module, *inputs: Tensor) -> Any:
        if len(inputs[0]) != self.batch or not torch.is_grad_enabled() or active_counter() is not None:
            return unit(*inputs)
        if id(unit) not in self._made:
            self._made[id(unit)] = torch.compile(unit, dynamic=False)
        try:
            with warnings.catch_warnings():
                # The compiler looks at inputs as if they were leaves, and torch warns of that.
                warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", UserWarning)
                return self._made[id(unit)](*inputs)
        except torch._dynamo.exc.TorchDynamoException as error:
            # A failure to compile, most likely a missing compiler, must not end the run.
            warnings.warn(f"units are not compiled: {str(error).splitlines()[0]}", RuntimeWarning, stacklevel=2)
            self.batch = 0
            return unit(*inputs)


class UnitModel(MultiHeadModel):
    """Base of models that consist of units, of which those that train are computed by :meth:`run_unit`.

    Attributes:
        compiled: computes the units while they are trained for long; ``None``: eagerly.
    """

    compiled: CompiledUnits | None = None

    def run_unit(self, unit: nn.Module, *inputs: Tensor) -> Tensor:
        """Compute ``unit(*inputs)``, compiled where the run asked for it."""
        output: Tensor = unit(*inputs) if self.compiled is None else self.compiled(unit, *inputs)
        return output

    @contextmanager
    def compiling(self, batch: int) -> Iterator[None]:
        """Compile units for batches of one size, for the length of a ``with`` block."""
        self.compiled = CompiledUnits(batch)
        try:
            yield
        finally:
            self.compiled = None
            # There is a limit to what torch remembers to have compiled, beyond which it silently does not.
            torch._dynamo.reset()
