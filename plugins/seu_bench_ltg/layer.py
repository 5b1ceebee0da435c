"""Layer of units to choose from, with adapters beside the units of convolutions, and what a task may do in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from seu_bench.models import channels_last, dropout

Position: TypeAlias = Literal["pre", "post"]


@dataclass(frozen=True)
class Choice:
    """A task's choice in a layer. ``unit`` is an index in creation order; with ``new``, that of the new unit."""

    kind: Literal["reuse", "adapt", "new"]
    unit: int

    def __str__(self) -> str:
        return self.kind if self.kind == "new" else f"{self.kind} {self.unit}"


@dataclass(frozen=True)
class Decision:
    """A choice and the module that it adds: a unit, an adapter, or nothing."""

    choice: Choice
    module: nn.Module | None = None


@dataclass(frozen=True)
class Stop:
    """A layer of a task's path: a unit, and how many of its adapters, oldest first."""

    unit: int
    adapters: int = 0


class GrowingLayer(nn.Module):
    """A layer of units of one shape, with ReLU, dropout and, behind convolutions, pooling.

    A unit may have adapters: 1x1 convolutions of the same input, whose outputs are added to its own. They stack. A
    path takes the first so many of them, so what is added later changes no earlier path.

    Args:
        inputs, outputs: channels of a 3x3 convolution, or numbers of a linear layer.
        linear: whether units are linear layers; those have no adapters.
        dropout: rate.
        position: adapters are added before ReLU (``pre``), or each goes through ReLU, dropout and pooling by itself
            and is added then (``post``).
    """

    def __init__(self, inputs: int, outputs: int, *, linear: bool, dropout: float, position: Position) -> None:
        super().__init__()
        self.inputs = inputs
        self.outputs = outputs
        self.linear = linear
        self.dropout = dropout
        self.position: Position = "pre" if linear else position
        self.units = nn.ModuleList()
        self.adapters = nn.ModuleList()
        self.unit_tasks: list[int] = []

    def make_unit(self) -> nn.Module:
        """A fresh unit, by torch's global generator."""
        if self.linear:
            return nn.Linear(self.inputs, self.outputs)
        return nn.Conv2d(self.inputs, self.outputs, 3, padding=1)

    def make_adapter(self) -> nn.Module:
        """A fresh adapter of a convolution, by torch's global generator."""
        return nn.Conv2d(self.inputs, self.outputs, 1)

    def candidates(self) -> tuple[Choice, ...]:
        """Choices of a new task, in order: reuse each unit with its adapters, adapt each convolution, add a unit."""
        count = len(self.units)
        reuse = [Choice("reuse", unit) for unit in range(count)]
        adapt = [] if self.linear else [Choice("adapt", unit) for unit in range(count)]
        return (*reuse, *adapt, Choice("new", count))

    def grow(self, decision: Decision, task: int) -> Stop:
        """Add what was decided; returns where the task's path stops.

        Raises:
            ValueError: the decision is none of :meth:`candidates`, or has a module too many or too few.
        """
        choice, module = decision.choice, decision.module
        if choice not in self.candidates() or (module is None) != (choice.kind == "reuse"):
            raise ValueError(f"{choice} with module {module} does not fit a layer of {len(self.units)} units")
        if module is not None and choice.kind == "new":
            self.units.append(module)
            self.adapters.append(nn.ModuleList())
            self.unit_tasks.append(task)
        elif module is not None:
            self.adapters_of(choice.unit).append(module)
        return Stop(choice.unit, len(self.adapters_of(choice.unit)))

    def adapters_of(self, unit: int) -> nn.ModuleList:
        """The adapters of a unit, oldest first."""
        adapters = self.adapters[unit]
        if not isinstance(adapters, nn.ModuleList):
            raise TypeError("a unit has a list of adapters")
        return adapters

    def modules_at(self, stop: Stop) -> list[nn.Module]:
        """The unit of a path and its adapters."""
        return [self.units[stop.unit], *list(self.adapters_of(stop.unit))[: stop.adapters]]

    def forward(self, x: Tensor, stop: Stop) -> Tensor:
        """``[N, inputs, H, W] -> [N, outputs, H // 2, W // 2]``, or ``[N, ...] -> [N, outputs]`` where linear."""
        return self.finish(self.body(x, stop))

    def body(self, x: Tensor, stop: Stop) -> Tensor:
        """The sum of the terms of the unit and its adapters."""
        unit, *adapters = self.modules_at(stop)
        total = self.term(unit, x)
        for adapter in adapters:
            total = total + self.term(adapter, x)
        return total

    def term(self, module: nn.Module, x: Tensor) -> Tensor:
        """Contribution of a unit or an adapter to the sum."""
        # Max pooling, of which there is one per candidate, is several times faster so on a CPU; images of one channel
        # have no such layout, so it is the outputs that get it.
        out: Tensor = module(x.flatten(1)) if self.linear else channels_last(module(x))
        return out if self.position == "pre" else self.activate(out)

    def finish(self, body: Tensor) -> Tensor:
        """The layer's output, from the sum of terms."""
        return self.activate(body) if self.position == "pre" else body

    def activate(self, x: Tensor) -> Tensor:
        """ReLU, dropout and, behind convolutions, 2x2 pooling."""
        x = dropout(functional.relu(x), self.dropout, self.training)
        return x if self.linear else functional.max_pool2d(x, 2)
