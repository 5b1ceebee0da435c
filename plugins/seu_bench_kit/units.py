"""Units of a network, which may be compiled while they are trained for long, and what a task adds to an old one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, Self

import torch
from torch import Tensor, nn

from seu_bench.models.flops import active_counter
from seu_bench.models.layers import ChannelsLastConv2d
from seu_bench.models.modes import freeze
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.models.walk import make_ledger


class Unit(nn.Module):
    """A module that a layer of the super model can choose. A frozen unit never trains again."""

    frozen = False

    def freeze(self) -> None:
        """Stop training for good: no gradients, BatchNorm with the statistics it has."""
        self.frozen = True
        freeze(self)
        self.eval()
        self._ledger = make_ledger(self)

    def train(self, mode: bool = True) -> Self:
        """Switch to training, unless frozen: an Avalanche strategy calls this on the whole model."""
        return self if self.frozen and not self.training else super().train(mode and not self.frozen)


class Stem(Unit):
    """First layer on images: a 3x3 convolution and BatchNorm. It can be chosen but is not searched.

    Args:
        image_channels: of the images.
        outputs: channels of the output, 3C in the paper.
    """

    def __init__(self, image_channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = ChannelsLastConv2d(image_channels, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, images: Tensor) -> Tensor:
        """``[N, image_channels, H, W] -> [N, outputs, H, W]``."""
        features: Tensor = self.norm(self.conv(images))
        return features


@dataclass(frozen=True)
class Adapted:
    """An old unit of a layer, computed through a module of the task's own: what a creator may put on a path.

    Two are equal where they adapt the same unit in the same way, whatever their weights.

    Attributes:
        old: index of the old unit, which stays as it is.
        genotype: plain values for JSON, of which the creator's factory makes the module again
            (:class:`~seu_bench_kit.CreatorFactory`, ``wrap``).
        module: called with the old unit and its inputs; its parameters and buffers are stored, and train, for the task.

    Example:
        ``Adapted(old=0, genotype={"kind": "conv1x1"}, module=MyAdapter(channels))``
    """

    old: int
    genotype: Mapping[str, Any]
    module: nn.Module = field(compare=False, repr=False)


class AdaptedUnit(Unit):
    """What an :class:`Adapted` adds to the super model, as it is stored; it does not hold the old unit."""

    def __init__(self, adapted: Adapted) -> None:
        super().__init__()
        self.old, self.genotype, self.module = adapted.old, dict(adapted.genotype), adapted.module


def pool(features: Tensor) -> Tensor:
    """Features ``[N, F]`` of the last layer's output: the mean over an image's pixels."""
    return features.mean(dim=(2, 3)) if features.dim() == 4 else features


def blend(chosen: int | Tensor, operations: Sequence[Callable[[], Tensor]]) -> Tensor:
    """The output of the operation ``chosen``, or the sum of all, multiplied by their weights ``[operations]``.

    Example:
        ``blend(sample[0], [lambda: torch.relu(x), lambda: torch.tanh(x)])``
    """
    if not isinstance(chosen, Tensor):
        return operations[chosen]()
    output: Tensor = reduce(add, (weight * compute() for weight, compute in zip(chosen, operations, strict=True)))
    return output


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
