"""Networks whose layers grow by units: each task adds some, and computes with those that there were when it was
learned.

This is what time-stamped inference means (Yoon et al., ICLR 2018, section 3.4), and how new units read old ones without
changing them (Xu & Zhu, NeurIPS 2018, section 3). Weights are kept in blocks by the task that added them, so that a
block can be frozen by itself, and what a task computes does not change by a bit when a later one adds units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.models.chain import ChainLayer, run_chain
from seu_bench.models.growing_layer import GrowingLayer
from seu_bench.models.modes import freeze
from seu_bench.models.multihead import MultiHeadModel, not_learned


class GrowingNetwork(MultiHeadModel):
    """A chain of growing layers; each task is a step, with a head on the units that there are then.

    Args:
        chain: layers to grow like; their numbers of units do not matter.
        classes: outputs of each task's head.
    """

    def __init__(self, chain: Sequence[ChainLayer], classes: Sequence[int]) -> None:
        super().__init__(classes)
        # With modules of their own between the layers: they have a mode.
        self.chain = tuple(replace(each, before=deepcopy(each.before), after=deepcopy(each.after)) for each in chain)
        self.between = nn.ModuleList(part for each in self.chain for part in (each.before, each.after))
        self.layers = nn.ModuleList(GrowingLayer(layer) for layer in self.chain)
        self.heads = nn.ModuleList()

    def layer(self, index: int) -> GrowingLayer:
        """A layer by index."""
        layer = self.layers[index]
        if not isinstance(layer, GrowingLayer):
            raise TypeError("the network consists of growing layers")
        return layer

    def head(self, task: int) -> nn.Linear:
        """The head of a task."""
        head = self.heads[task]
        if not isinstance(head, nn.Linear):
            raise TypeError("the heads are linear layers")
        return head

    def added(self, task: int) -> tuple[int, ...]:
        """Units that a task added to each layer."""
        return tuple(self.layer(index).added[task][1] for index in range(len(self.layers)))

    def widths(self, task: int) -> tuple[int, ...]:
        """Units of each layer as of a task; -1: before the first."""
        return tuple(self.layer(index).size(task)[1] for index in range(len(self.layers)))

    def grow(self, units: Sequence[int], device: torch.device | None = None) -> None:
        """Add the units and the head of the next task, by torch's global generator.

        Args:
            units: for each layer, how many to add; the first task needs some in each.
            device: to put them on; where they are made by default.

        Raises:
            ValueError: all tasks have their units, or the numbers do not fit.
        """
        task = len(self.heads)
        if task >= len(self.classes_per_task) or len(units) != len(self.layers):
            raise ValueError(f"task {task} cannot add units {tuple(units)} to {len(self.layers)} layers")
        if min(units) < 0 or (task == 0 and not min(units)):
            raise ValueError(f"task {task} cannot add units {tuple(units)}: each layer of the first task needs some")
        inputs = self.chain[0].inputs if task == 0 else 0
        for index, count in enumerate(units):
            self.layer(index).grow(inputs, count)
            inputs = count
        self.heads.append(nn.Linear(self.widths(task)[-1], self.classes_per_task[task]))
        if device is not None:
            self.to(device)

    def widen(self, units: Sequence[int]) -> None:
        """Add to the units of the newest task, behind those that it has, by torch's global generator.

        Args:
            units: for each layer, how many to add.

        Raises:
            ValueError: there is no task yet, or the numbers do not fit.
        """
        task = len(self.heads) - 1
        if task < 0 or len(units) != len(self.layers) or min(units) < 0:
            raise ValueError(f"task {task} cannot add units {tuple(units)} to {len(self.layers)} layers")
        inputs = 0
        for index, count in enumerate(units):
            self.layer(index).widen(inputs, count)
            inputs = count
        if inputs:
            old = self.head(task)
            made = nn.Linear(old.in_features + inputs, old.out_features).to(old.weight.device)
            with torch.no_grad():
                made.weight[:, :-inputs] = old.weight
                made.bias.copy_(old.bias)
            self.heads[task] = made

    def keep(self, units: Sequence[Tensor]) -> None:
        """Remove units of the newest task, with all weights that read them.

        Args:
            units: for each layer, which of the units that the task added stay, bool.

        Raises:
            ValueError: there is no task yet, the numbers do not fit, or a layer would be without units.
        """
        task = len(self.heads) - 1
        if task < 0 or tuple(len(stay) for stay in units) != self.added(task):
            raise ValueError(f"task {task} did not add {[len(stay) for stay in units]} units")
        if task == 0 and not all(bool(stay.any()) for stay in units):
            raise ValueError("each layer of the first task needs some units")
        image = self.layer(0).added[task][0]
        inputs = torch.ones(image, dtype=torch.bool, device=units[0].device)
        for index, stay in enumerate(units):
            self.layer(index).keep(inputs, stay)
            inputs = stay
        if not bool(inputs.all()):
            old = self.head(task)
            columns = torch.cat([inputs.new_ones(old.in_features - len(inputs)), inputs])
            made = nn.Linear(int(columns.sum()), old.out_features).to(old.weight.device)
            with torch.no_grad():
                made.weight.copy_(old.weight[:, columns])
                made.bias.copy_(old.bias)
            self.heads[task] = made

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]``, by the units that there were when the task was learned.

        Raises:
            RunError: the task was not learned yet.
        """
        if not 0 <= task_label < len(self.heads):
            raise not_learned(task_label, "units")
        logits: Tensor = self.heads[task_label](self.features(x, task_label))
        return logits

    def features(self, x: Tensor, task: int) -> Tensor:
        """The last layer's units ``[N, F]`` as of a task."""
        return run_chain(self.chain, x, lambda index, inputs: self.layer(index)(inputs, task))

    def task_module(self, task: int) -> nn.Module:
        """All blocks up to the task's, and its head."""
        return nn.ModuleList([nn.ParameterList(self._blocks(range(task + 1))), self.heads[task]])

    def trainable_module(self, task: int) -> nn.Module:
        """Those of them that are not frozen."""
        blocks = [block for block in self._blocks(range(task + 1)) if block.requires_grad]
        return nn.ModuleList([nn.ParameterList(blocks), self.heads[task]])

    def _blocks(self, steps: Sequence[int]) -> list[nn.Parameter]:
        return [block for index in range(len(self.layers)) for block in self.layer(index).blocks(steps)]

    def freeze(self) -> None:
        """No block and no head that exists now trains again."""
        freeze(self.layers, self.heads)

    def architecture(self) -> dict[str, Any]:
        """Units that each task added, and the names of the parameters that train."""
        return {
            "added": [list(self.added(task)) for task in range(len(self.heads))],
            "trainable": [name for name, parameter in self.named_parameters() if parameter.requires_grad],
        }

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Grow a network without units as another was grown.

        Raises:
            ValueError: it has units already, or other layers.
        """
        if len(self.heads):
            raise ValueError("this network has units already")
        device = next((parameter.device for parameter in self.parameters()), None)
        for units in architecture["added"]:
            self.grow([int(count) for count in units], device)
        trainable = set(architecture["trainable"])
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name in trainable)
