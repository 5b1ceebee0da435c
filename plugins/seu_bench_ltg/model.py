"""An AlexNet variant of growing layers, with a path through them for each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.models import AlexNetShape, MultiHeadModel, freeze, is_frozen
from seu_bench.models.multihead import not_learned
from seu_bench_ltg.layer import Choice, Decision, GrowingLayer, Position, Stop


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
            modules = self.layer(index).modules_at(stop)
            if not is_frozen(*modules):
                break
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
        stops = enumerate(self.paths[task])
        return [module for index, stop in stops for module in self.layer(index).modules_at(stop)]
