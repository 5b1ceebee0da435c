"""An AlexNet variant whose layers hold units to choose from, and adapters beside the units of convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.errors import RunError
from seu_bench.models.alexnet import AlexNetShape
from seu_bench.models.layers import channels_last, dropout
from seu_bench.models.multihead import MultiHeadModel

Position: TypeAlias = Literal["pre", "post"]


@dataclass(frozen=True)
class Choice:
    """What a task does in a layer. ``unit`` is an index in creation order; with ``new``, that of the new unit."""

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
        """What a new task may do: reuse each unit, adapt each (convolutions), or take a new one, in this order.

        An existing unit is meant with all adapters that it has by now.
        """
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

    # ------------------------------------------------------------------ computing

    def forward(self, x: Tensor, stop: Stop) -> Tensor:
        """``[N, inputs, H, W] -> [N, outputs, H // 2, W // 2]``, or ``[N, ...] -> [N, outputs]`` where linear."""
        return self.finish(self.body(x, stop))

    def body(self, x: Tensor, stop: Stop) -> Tensor:
        """The sum of the terms of the unit and its adapters."""
        total = self.term(self.units[stop.unit], x)
        for adapter in list(self.adapters_of(stop.unit))[: stop.adapters]:
            total = total + self.term(adapter, x)
        return total

    def term(self, module: nn.Module, x: Tensor) -> Tensor:
        """What a unit or an adapter adds to the sum."""
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


class GrowingAlexNet(MultiHeadModel):
    """Five growing layers, a path through them per task, all heads made at the start.

    Args:
        shape: widths, image size and dropout.
        classes: outputs of each task's head.
        position: see :class:`GrowingLayer`.
    """

    has_frozen_layers = True

    def __init__(self, shape: AlexNetShape, classes: Sequence[int], position: Position = "pre") -> None:
        super().__init__(classes)
        first, second, third = shape.convolutions
        widths = [
            (shape.image_channels, first),
            (first, second),
            (second, third),
            (shape.flat, shape.linear),
            (shape.linear, shape.linear),
        ]
        self.layers = nn.ModuleList(
            GrowingLayer(inputs, outputs, linear=index >= 3, dropout=dropout, position=position)
            for index, ((inputs, outputs), dropout) in enumerate(zip(widths, shape.dropout, strict=True))
        )
        self.heads = nn.ModuleList(nn.Linear(shape.linear, width) for width in classes)
        self.paths: dict[int, tuple[Stop, ...]] = {}
        self.choices: dict[int, tuple[Choice, ...]] = {}

    def layer(self, index: int) -> GrowingLayer:
        """A layer by index."""
        layer = self.layers[index]
        if not isinstance(layer, GrowingLayer):
            raise TypeError("the network consists of growing layers")
        return layer

    def grow(self, task: int, decisions: Sequence[Decision]) -> None:
        """Add what was decided for each layer, and make it the task's path.

        Raises:
            ValueError: a decision does not fit its layer.
        """
        device = self.device
        stops = []
        for index, decision in enumerate(decisions):
            if decision.module is not None:
                decision.module.to(device)
            stops.append(self.layer(index).grow(decision, task))
        self.paths[task] = tuple(stops)
        self.choices[task] = tuple(decision.choice for decision in decisions)

    def grow_anew(self, task: int) -> None:
        """A new unit in every layer, by torch's global generator."""
        layers = [self.layer(index) for index in range(len(self.layers))]
        self.grow(task, [Decision(layer.candidates()[-1], layer.make_unit()) for layer in layers])

    def architecture(self) -> dict[str, Any]:
        """Units with the tasks they were made for and their adapters, the paths, and how much of it is frozen."""
        layers = [self.layer(index) for index in range(len(self.layers))]
        return {
            "unit_tasks": [list(layer.unit_tasks) for layer in layers],
            "adapters": [[len(layer.adapters_of(unit)) for unit in range(len(layer.units))] for layer in layers],
            "trainable": [name for name, weight in self.layers.named_parameters() if weight.requires_grad],
            "paths": {str(task): [[stop.unit, stop.adapters] for stop in path] for task, path in self.paths.items()},
            "choices": {
                str(task): [[choice.kind, choice.unit] for choice in choices] for task, choices in self.choices.items()
            },
        }

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give a model without units those of ``architecture``.

        Raises:
            ValueError: it has another number of layers, or does not fit them.
        """
        layers = list(zip(architecture["unit_tasks"], architecture["adapters"], strict=True))
        if len(layers) != len(self.layers) or self.paths:
            raise ValueError(f"units of {len(layers)} layers do not fit {len(self.layers)} empty ones")
        for index, (tasks, adapters) in enumerate(layers):
            layer = self.layer(index)
            for unit, (task, count) in enumerate(zip(tasks, adapters, strict=True)):
                layer.grow(Decision(Choice("new", unit), layer.make_unit()), int(task))
                for _ in range(0 if layer.linear else count):
                    layer.grow(Decision(Choice("adapt", unit), layer.make_adapter()), int(task))
        self.layers.to(self.device)
        trainable = set(architecture["trainable"])
        for name, weight in self.layers.named_parameters():
            weight.requires_grad_(name in trainable)
        self.paths = {
            int(task): tuple(Stop(int(unit), int(count)) for unit, count in path)
            for task, path in architecture["paths"].items()
        }
        self.choices = {
            int(task): tuple(Choice(kind, int(unit)) for kind, unit in choices)
            for task, choices in architecture["choices"].items()
        }

    def freeze(self) -> None:
        """No unit and no adapter that exists now trains again."""
        self.layers.requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.heads.parameters()).device

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]`` on the task's path.

        Raises:
            RunError: the task was not learned yet.
        """
        if task_label not in self.paths:
            raise RunError(
                f"task {task_label} has no path yet: it was not learned",
                remedy="evaluate learned tasks only, e.g. strategy.eval(benchmark.test_stream[: task + 1])",
            )
        path = self.paths[task_label]
        frozen = self._frozen_layers(path)
        if frozen:
            x = self.layer(frozen - 1).finish(self.frozen_body(x, path[:frozen]))
        for layer, stop in list(zip(self.layers, path, strict=True))[frozen:]:
            x = layer(x, stop)
        logits: Tensor = self.heads[task_label](x)
        return logits

    def frozen_body(self, x: Tensor, stops: Sequence[Stop]) -> Tensor:
        """The sum of terms in the last of the layers that a path begins with, computed once for each image.

        Args:
            x: images ``[N, C, H, W]``.
            stops: of frozen units and adapters, as many as :meth:`never_random` allows.
        """

        def compute(x: Tensor) -> tuple[Tensor, ...]:
            for layer, stop in zip(self.layers, stops[:-1], strict=False):
                x = layer(x, stop)
            return (self.layer(len(stops) - 1).body(x, stops[-1]),)

        return self.cached_features(x, ("body", *stops), compute)[0]

    @property
    def never_random(self) -> int:
        """How many of the first layers' sums of terms no dropout has touched: one while training, or none where it
        acts on each term; all of them in evaluation."""
        if not self.training:
            return len(self.layers)
        return int(self.layer(0).position == "pre")

    def _frozen_layers(self, path: Sequence[Stop]) -> int:
        """The number of layers at the path's beginning that nothing trains in, and no dropout comes before."""
        count = 0
        for index, stop in enumerate(path[: self.never_random]):
            layer = self.layer(index)
            modules = [layer.units[stop.unit], *list(layer.adapters_of(stop.unit))[: stop.adapters]]
            if any(parameter.requires_grad for module in modules for parameter in module.parameters()):
                break
            count += 1
        return count

    def task_module(self, task: int) -> nn.Module:
        """Units and adapters of the task's path, and its head."""
        return nn.ModuleList([*self._on_path(task), self.heads[task]])

    def trainable_module(self, task: int) -> nn.Module:
        """Those of them that are not frozen."""
        new = [module for module in self._on_path(task) if any(p.requires_grad for p in module.parameters())]
        return nn.ModuleList([*new, self.heads[task]])

    def _on_path(self, task: int) -> list[nn.Module]:
        modules: list[nn.Module] = []
        for index, stop in enumerate(self.paths[task]):
            layer = self.layer(index)
            modules += [layer.units[stop.unit], *list(layer.adapters_of(stop.unit))[: stop.adapters]]
        return modules
