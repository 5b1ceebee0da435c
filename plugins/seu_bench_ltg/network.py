"""An AlexNet variant of growing layers, and the mixture of all that a new task may do in each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.models import MultiHeadModel, channels_last, count_parameters, dropout, freeze, is_frozen
from seu_bench.models.multihead import not_learned
from seu_bench_kit import AlexNetShape


class Choice(NamedTuple):
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


class Stop(NamedTuple):
    """A layer of a task's path: a unit, and how many of its adapters, oldest first."""

    unit: int
    adapters: int = 0


#: Computes the sum of terms of a unit and its adapters.
Body: TypeAlias = Callable[[Tensor, Stop], Tensor]


class GrowingLayer(nn.Module):
    """A layer of units of one shape, with ReLU, dropout and, behind convolutions, pooling.

    A unit may have adapters: 1x1 convolutions of the same input, whose outputs are added to its own before ReLU. A
    path takes the first so many of them, so what is added later changes no earlier path.

    Args:
        inputs, outputs: channels of a 3x3 convolution, or numbers of a linear layer.
        linear: whether units are linear layers; those have no adapters.
        dropout: rate.
    """

    def __init__(self, inputs: int, outputs: int, *, linear: bool, dropout: float) -> None:
        super().__init__()
        self.inputs = inputs
        self.outputs = outputs
        self.linear = linear
        self.dropout = dropout
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
        return cast(nn.ModuleList, self.adapters[unit])

    def modules_at(self, stop: Stop) -> list[nn.Module]:
        """The unit of a path and its adapters."""
        return [self.units[stop.unit], *list(self.adapters_of(stop.unit))[: stop.adapters]]

    def forward(self, x: Tensor, stop: Stop) -> Tensor:
        """``[N, inputs, H, W] -> [N, outputs, H // 2, W // 2]``, or ``[N, ...] -> [N, outputs]`` where linear."""
        return self.activate(self.body(x, stop))

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
        return out

    def activate(self, x: Tensor) -> Tensor:
        """The layer's output, from the sum of terms: ReLU, dropout and, behind convolutions, 2x2 pooling."""
        x = dropout(functional.relu(x), self.dropout, self.training)
        return x if self.linear else functional.max_pool2d(x, 2)


class GrowingAlexNet(MultiHeadModel):
    """Five growing layers, a path through them per task, all heads made at the start.

    Args:
        shape: widths, image size and dropout.
        classes: outputs of each task's head.
    """

    has_frozen_layers = paths_stay = True

    def __init__(self, shape: AlexNetShape, classes: Sequence[int]) -> None:
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
            GrowingLayer(inputs, outputs, linear=index >= 3, dropout=dropout)
            for index, ((inputs, outputs), dropout) in enumerate(zip(widths, shape.dropout, strict=True))
        )
        self.heads = nn.ModuleList(nn.Linear(shape.linear, width) for width in classes)
        self.paths: dict[int, tuple[Stop, ...]] = {}
        self.choices: dict[int, tuple[Choice, ...]] = {}

    def layer(self, index: int) -> GrowingLayer:
        """A layer by index."""
        return cast(GrowingLayer, self.layers[index])

    @property
    def all_layers(self) -> list[GrowingLayer]:
        """All layers, in order."""
        return cast(list[GrowingLayer], list(self.layers))

    def grow(self, task: int, decisions: Sequence[Decision]) -> None:
        """Add what was decided for each layer, and make it the task's path.

        Raises:
            ValueError: a decision does not fit its layer.
        """
        for decision in decisions:
            if decision.module is not None:
                decision.module.to(self.device)
        growing = zip(self.all_layers, decisions, strict=True)
        self.paths[task] = tuple(layer.grow(decision, task) for layer, decision in growing)
        self.choices[task] = tuple(decision.choice for decision in decisions)

    def grow_anew(self, task: int) -> None:
        """A new unit in every layer, by torch's global generator."""
        self.grow(task, [Decision(layer.candidates()[-1], layer.make_unit()) for layer in self.all_layers])

    def architecture(self) -> dict[str, Any]:
        """Units with the tasks they were made for and their adapters, the paths, and how much of it is frozen."""
        layers = self.all_layers
        return {
            "unit_tasks": [list(layer.unit_tasks) for layer in layers],
            "adapters": [[len(layer.adapters_of(unit)) for unit in range(len(layer.units))] for layer in layers],
            "trainable": [name for name, weight in self.layers.named_parameters() if weight.requires_grad],
            "paths": {str(task): [list(stop) for stop in path] for task, path in self.paths.items()},
            "choices": {str(task): [list(choice) for choice in choices] for task, choices in self.choices.items()},
        }

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give a model without units those of ``architecture``.

        Raises:
            ValueError: it has another number of layers, or does not fit them.
        """
        layers = list(zip(architecture["unit_tasks"], architecture["adapters"], strict=True))
        if len(layers) != len(self.layers) or self.paths:
            raise ValueError(f"units of {len(layers)} layers do not fit {len(self.layers)} empty ones")
        for layer, (tasks, adapters) in zip(self.all_layers, layers, strict=True):
            for unit, (task, count) in enumerate(zip(tasks, adapters, strict=True)):
                layer.grow(Decision(Choice("new", unit), layer.make_unit()), int(task))
                for _ in range(0 if layer.linear else count):
                    layer.grow(Decision(Choice("adapt", unit), layer.make_adapter()), int(task))
        self.layers.to(self.device)
        trainable = set(architecture["trainable"])
        for name, weight in self.layers.named_parameters():
            weight.requires_grad_(name in trainable)
        self.paths = {
            int(task): tuple(Stop(*map(int, stop)) for stop in path) for task, path in architecture["paths"].items()
        }
        self.choices = {
            int(task): tuple(Choice(kind, int(unit)) for kind, unit in choices)
            for task, choices in architecture["choices"].items()
        }

    def freeze(self) -> None:
        """No unit and no adapter that exists now trains again."""
        freeze(self.layers)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.heads.parameters()).device

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]`` on the task's path.

        Raises:
            RunError: the task was not learned yet.
        """
        if task_label not in self.paths:
            raise not_learned(task_label)
        path = self.paths[task_label]
        frozen = self._frozen_layers(path)
        if frozen:
            x = self.layer(frozen - 1).activate(self.frozen_body(x, path[:frozen]))
        for layer, stop in zip(self.layers[frozen:], path[frozen:], strict=True):
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
        """How many of the first layers' sums of terms no dropout has touched: one while training, else all."""
        return 1 if self.training else len(self.layers)

    def _frozen_layers(self, path: Sequence[Stop]) -> int:
        """The number of layers at the path's beginning that nothing trains in, and no dropout comes before."""
        count = 0
        while count < self.never_random and is_frozen(*self.layer(count).modules_at(path[count])):
            count += 1
        return count

    def task_module(self, task: int) -> nn.Module:
        """Units and adapters of the task's path, and its head."""
        return nn.ModuleList([*self._on_path(task), self.heads[task]])

    def trainable_module(self, task: int) -> nn.Module:
        """Unfrozen units and adapters of the task's path, and its head."""
        new = [module for module in self._on_path(task) if not is_frozen(module)]
        return nn.ModuleList([*new, self.heads[task]])

    def _on_path(self, task: int) -> list[nn.Module]:
        stops = zip(self.all_layers, self.paths[task], strict=True)
        return [module for layer, stop in stops for module in layer.modules_at(stop)]


class MixedLayer(nn.Module):
    """Candidates of one layer, with an architecture weight for each (after DARTS, Liu et al., 2019).

    It holds what is new only: frozen units stay in the model, so that neither optimisers nor states of the search
    contain them. Drawn by torch's global generator: adapters, unit, then the architecture weights from U(0, 1).
    """

    def __init__(self, layer: GrowingLayer) -> None:
        super().__init__()
        self.candidates = layer.candidates()
        self.adapters = nn.ModuleList([] if layer.linear else [layer.make_adapter() for _ in layer.units])
        self.unit = layer.make_unit()
        self.architecture = nn.Parameter(torch.rand(len(self.candidates)))
        added = [count_parameters(it) if it else 0 for it in map(self.addition, range(len(self.candidates)))]
        self.sizes: Tensor
        self.register_buffer("sizes", torch.tensor([math.log10(1 + number) for number in added]), persistent=False)

    def addition(self, candidate: int) -> nn.Module | None:
        """The module that a candidate adds."""
        choice = self.candidates[candidate]
        if choice.kind == "reuse":
            return None
        return self.unit if choice.kind == "new" else self.adapters[choice.unit]

    def forward(self, layer: GrowingLayer, x: Tensor, body_of: Body | None = None) -> Tensor:
        """The candidates' outputs, weighted by the softmax of the architecture weights."""
        outputs = torch.stack(self.outputs(layer, x, body_of))
        mixed: Tensor = torch.tensordot(self.architecture.softmax(0).to(outputs.dtype), outputs, dims=1)
        return mixed

    def outputs(self, layer: GrowingLayer, x: Tensor, body_of: Body | None = None) -> list[Tensor]:
        """Every candidate's output; a unit is computed once, whether it is reused or adapted."""
        body_of = body_of or layer.body
        reused, adapted = [], []
        for index in range(len(layer.units)):
            body = body_of(x, Stop(index, len(layer.adapters_of(index))))
            reused.append(layer.activate(body))
            if not layer.linear:
                adapted.append(layer.activate(body + layer.term(self.adapters[index], x)))
        return [*reused, *adapted, layer.activate(layer.term(self.unit, x))]

    def penalty(self) -> Tensor:
        """Expected size of the addition: the softmax weights' sum of log10(1 + parameters added)."""
        return self.architecture.softmax(0) @ self.sizes

    def decision(self) -> Decision:
        """The candidate of the largest weight; of equal ones the first."""
        weights = self.architecture.tolist()
        best = weights.index(max(weights))
        return Decision(self.candidates[best], self.addition(best))


class Mixture(nn.Module):
    """A mixed layer for each layer of ``model``, and the head of ``task``, which is the model's own."""

    def __init__(self, model: GrowingAlexNet, task: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(MixedLayer, model.all_layers))
        self.head = model.heads[task]
        self.to(model.device)

    def forward(self, model: GrowingAlexNet, x: Tensor) -> Tensor:
        """Logits ``[N, num_classes]``."""
        for index, (mixed, layer) in enumerate(zip(self.layers, model.layers, strict=True)):
            x = mixed(layer, x, None if index else lambda x, stop: model.frozen_body(x, (stop,)))
        logits: Tensor = self.head(x)
        return logits

    def mixed_layers(self) -> list[MixedLayer]:
        """The layers."""
        return cast(list[MixedLayer], list(self.layers))

    def penalty(self) -> Tensor:
        """The expected size of all layers' additions, a scalar."""
        return torch.stack([layer.penalty() for layer in self.mixed_layers()]).sum()

    def decisions(self) -> tuple[Decision, ...]:
        """The best candidate of each layer."""
        return tuple(layer.decision() for layer in self.mixed_layers())

    def architecture(self) -> list[nn.Parameter]:
        """The architecture weights of each layer."""
        return [layer.architecture for layer in self.mixed_layers()]

    def weights(self) -> list[nn.Parameter]:
        """All other parameters: new units, new adapters, head."""
        other = {id(parameter) for parameter in self.architecture()}
        return [parameter for parameter in self.parameters() if id(parameter) not in other]
