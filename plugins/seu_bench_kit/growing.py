"""Networks whose layers grow by units: each task adds some, and computes with those that there were when it was
learned.

This is what time-stamped inference means (Yoon et al., ICLR 2018, section 3.4), and how new units read old ones without
changing them (Xu & Zhu, NeurIPS 2018, section 3). Weights are kept in blocks by the task that added them, so that a
block can be frozen by itself, and what a task computes does not change by a bit when a later one adds units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from seu_bench.models.modes import freeze
from seu_bench.models.multihead import MultiHeadModel, not_learned, out_of_turn
from seu_bench.models.sizes import count_parameters, state_bytes
from seu_bench.training import evaluation_passes, on_meta
from seu_bench.training.interfaces import Cost, StageCost, StrategyContext
from seu_bench.training.method import Method
from seu_bench.training.stage import TaskData
from seu_bench_kit.chain import ChainLayer, run_chain
from seu_bench_kit.costing import task_macs


class GrowingLayer(nn.Module):
    """A layer whose inputs and units were added in steps.

    Step k has the weights of the units that it added, from all inputs that there were then (``own``), and those from
    the inputs that it added to the units of earlier steps (``across``). A block without elements does not exist.

    Args:
        layer: of the chain that it grows like; its size and its weights do not matter.
    """

    def __init__(self, layer: ChainLayer) -> None:
        super().__init__()
        self.layer = layer
        #: Inputs and units that each step added.
        self.added: list[tuple[int, int]] = []
        self.own = nn.ParameterDict()
        self.across = nn.ParameterDict()
        self.biases = nn.ParameterDict()

    def size(self, step: int) -> tuple[int, int]:
        """Inputs and units as of a step; -1: before the first."""
        taken = self.added[: step + 1]
        return sum(inputs for inputs, _ in taken), sum(units for _, units in taken)

    def grow(self, inputs: int, units: int) -> None:
        """Add a step, its weights as torch draws them for a layer with all inputs that there are then.

        Args:
            inputs: units that the layer before, or the image, has more now.
            units: to add.
        """
        step = len(self.added)
        read, computed = self.size(step - 1)
        self.added.append((inputs, units))
        name = str(step)
        if units and read + inputs:
            made = self.layer.like(read + inputs, units)
            self.own[name] = nn.Parameter(made.weight.detach())
            if made.bias is not None:
                self.biases[name] = nn.Parameter(made.bias.detach())
        if inputs and computed:
            made = self.layer.like(read + inputs, computed)
            self.across[name] = nn.Parameter(made.weight.detach()[:, read * self.layer.spread :].clone())

    def widen(self, inputs: int, units: int) -> None:
        """Add to the newest step, behind what it has, its weights as :meth:`grow` draws them.

        Args:
            inputs: units that the layer before has more now.
            units: to add.
        """
        step = len(self.added) - 1
        read, computed = self.size(step)
        if not inputs and not units:
            return
        made = self.layer.like(read + inputs, computed + units)
        weight = made.weight.detach().clone()
        bias = None if made.bias is None else made.bias.detach().clone()
        if computed and read:
            old, known = self.weight(step), self.bias(step)
            weight, bias = weight.to(old.device), None if bias is None else bias.to(old.device)
            weight[:computed, : read * self.layer.spread] = old.detach()
            if bias is not None and known is not None:
                bias[:computed] = known.detach()
        self._renew((inputs + self.added[step][0], units + self.added[step][1]), weight, bias)

    def keep(self, inputs: Tensor, units: Tensor) -> None:
        """Remove inputs and units that the newest step added.

        Args:
            inputs: which of them stay, bool.
            units: which of them stay, bool.
        """
        step = len(self.added) - 1
        read, computed = self.size(step - 1)
        if bool(inputs.all()) and bool(units.all()):
            return
        rows = torch.cat([units.new_ones(computed), units])
        columns = torch.cat([inputs.new_ones(read), inputs]).repeat_interleave(self.layer.spread)
        bias = self.bias(step)
        self._renew(
            (int(inputs.sum()), int(units.sum())),
            self.weight(step).detach()[rows][:, columns],
            None if bias is None else bias.detach()[rows],
        )

    def _renew(self, added: tuple[int, int], weight: Tensor, bias: Tensor | None) -> None:
        """Let the newest step have added so much, with blocks that are cut out of the whole layer's weights."""
        step = len(self.added) - 1
        self.added[step] = added
        for part in (self.own, self.across, self.biases):
            if str(step) in part:
                del part[str(step)]
        read, computed = self.size(step - 1)
        inputs, units = added
        cut = read * self.layer.spread
        if units and read + inputs:
            self.own[str(step)] = nn.Parameter(weight[computed:].clone())
            if bias is not None:
                self.biases[str(step)] = nn.Parameter(bias[computed:].clone())
        if inputs and computed:
            self.across[str(step)] = nn.Parameter(weight[:computed, cut:].clone())

    def parts(self, step: int, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Cut what belongs to a whole layer's weights into its blocks, the inverse of :meth:`weight` and :meth:`bias`.

        Args:
            step: as of which the layer is whole.
            weight: of the shape of :meth:`weight`; of any type, such as bool for a mask.
            bias: of the shape of :meth:`bias`.

        Yields:
            Each parameter up to the step, and a view of its part.
        """
        for at in range(step + 1):
            name, (read, computed), (_, units) = str(at), self.size(at - 1), self.added[at]
            known = self.size(at)[0] * self.layer.spread
            if name in self.own:
                yield self.own[name], weight[computed : computed + units, :known]
            if name in self.across:
                yield self.across[name], weight[:computed, read * self.layer.spread : known]
            if name in self.biases and bias is not None:
                yield self.biases[name], bias[computed : computed + units]

    def assign(self, step: int, weight: Tensor, bias: Tensor | None) -> None:
        """Write a whole layer's weights, as of a step, into its blocks."""
        with torch.no_grad():
            for parameter, part in self.parts(step, weight, bias):
                parameter.copy_(part)

    def weight(self, step: int) -> Tensor:
        """The weights as of a step, ``[units, inputs, k, k]`` or ``[units, inputs * spread]``."""
        found: Tensor | None = None
        for name in map(str, range(step + 1)):
            if found is not None and name in self.across:
                found = torch.cat([found, self.across[name]], dim=1)
            if name in self.own:
                found = self.own[name] if found is None else torch.cat([found, self.own[name]])
        if found is None:
            raise ValueError("a layer without units has no weights")
        return found

    def bias(self, step: int) -> Tensor | None:
        """The biases ``[units]`` as of a step; ``None``: there are none."""
        parts = [self.biases[name] for name in map(str, range(step + 1)) if name in self.biases]
        return torch.cat(parts) if len(parts) > 1 else next(iter(parts), None)

    def forward(self, x: Tensor, step: int) -> Tensor:
        """The units as of a step, before their activation; ``x`` has the inputs as of the same step."""
        return self.layer.compute(x, self.weight(step), self.bias(step))

    def blocks(self, steps: Sequence[int]) -> Iterator[nn.Parameter]:
        """The parameters that some steps added."""
        for name in map(str, steps):
            yield from (part[name] for part in (self.own, self.across, self.biases) if name in part)


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
        return cast(GrowingLayer, self.layers[index])

    def head(self, task: int) -> nn.Linear:
        """The head of a task."""
        return cast(nn.Linear, self.heads[task])

    def added_units(self, task: int) -> tuple[int, ...]:
        """Units that a task added to each layer."""
        return tuple(self.layer(index).added[task][1] for index in range(len(self.layers)))

    @property
    def first_units(self) -> tuple[int, ...]:
        """Units of each layer that the first task gets: the chain's own."""
        return tuple(layer.units for layer in self.chain)

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
            self.to(device, non_blocking=True)

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
        if task < 0 or tuple(len(stay) for stay in units) != self.added_units(task):
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
            "added": [list(self.added_units(task)) for task in range(len(self.heads))],
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


class GrowingMethod(Method):
    """Base of methods whose tasks add units to the layers of a chain, and a head."""

    scenarios = ("task",)
    model: GrowingNetwork

    def grow(self, task: TaskData, units: Sequence[int]) -> None:
        """Add a task's units, in the order of the stream."""
        if task.index != len(self.model.heads):
            raise out_of_turn(task.index, len(self.model.heads))
        with self.drawing("grow", task):
            self.model.grow(units, self.device)

    @classmethod
    def bounded_cost(
        cls, context: StrategyContext, most: Callable[[GrowingNetwork], Sequence[int]], stages: Sequence[StageCost]
    ) -> Cost:
        """Forecast sizes as a range, for how many units a task adds is not known before; at least it is none.

        Args:
            context: of the run.
            most: units of each layer that the next task of a network adds at most.
            stages: image passes of learning.
        """

        def sizes(added: Callable[[GrowingNetwork], Sequence[int]]) -> list[tuple[int, ...]]:
            network = cast(GrowingNetwork, on_meta(lambda: cls.make_model(context)))
            found = []
            for task in range(len(context.plan.tasks)):
                on_meta(partial(network.grow, added(network) if task else network.first_units))
                found.append((count_parameters(network), state_bytes(network)))
            return [*zip(*found, strict=True), task_macs(network, context.plan)]

        params, memory, macs = sizes(most)
        params_min, memory_min, macs_min = sizes(lambda network: (0,) * len(network.chain))
        every = (*stages, *evaluation_passes(context.plan))
        return Cost(params, params_min, macs, macs_min, every, memory, memory_min)
