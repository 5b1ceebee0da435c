"""What a task has of its own for the units that it reuses: running statistics, or whole BatchNorms, beside the units,
which stay as they are and are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from seu_bench_kit import Unit
from seu_bench_kit.sampling import normalising_by_batch, running_norms


class UnitStatistics(nn.Module):
    """Running mean, running variance and number of batches of each BatchNorm of a unit, as before any batch.

    Only buffers: the unit itself is given whenever it is to be computed.

    Args:
        unit: whose BatchNorms they are for; it is not kept.
    """

    def __init__(self, unit: nn.Module) -> None:
        super().__init__()
        self._names: dict[str, str] = {}
        for place, norm in running_norms(unit):
            for name, buffer in norm.named_buffers():
                fresh = torch.ones_like(buffer) if name == "running_var" else torch.zeros_like(buffer)
                own = f"{place}.{name}".replace(".", "__")  # torch wants names without dots
                self._names[f"{place}.{name}"] = own
                self.register_buffer(own, fresh)

    def forward(self, unit: nn.Module, *inputs: Tensor) -> Tensor:
        """``unit(*inputs)`` with these statistics in place of the unit's own."""
        output: Tensor = functional_call(
            unit, {name: self.get_buffer(own) for name, own in self._names.items()}, inputs
        )
        return output

    @contextmanager
    def estimated_by(self, unit: nn.Module) -> Iterator[None]:
        """While this lasts :meth:`forward` normalises by the batch it is given, and these become the means of what
        each batch had: its mean and its unbiased variance per channel, every batch with the same weight."""
        norms = [norm for _, norm in running_norms(unit)]
        with normalising_by_batch(norms):
            for norm in norms:
                norm.momentum = None
            yield


class UnitNorms(UnitStatistics, Unit):
    """BatchNorms of a unit that a task trains for itself: statistics, scales and shifts, which begin as the unit's.

    Source: parameters of normalisation as what tasks on one frozen network have of their own: H. Bilen & A. Vedaldi,
    "Universal representations", 2017; P. K. Mudrakarta et al., "K for the Price of 1", ICLR 2019.

    Args:
        unit: whose BatchNorms they replace; it is not kept.
    """

    def __init__(self, unit: nn.Module) -> None:
        super().__init__(unit)
        for place, norm in running_norms(unit):
            for name, parameter in norm.named_parameters():
                own = f"{place}.{name}".replace(".", "__")
                self._names[f"{place}.{name}"] = own
                self.register_parameter(own, nn.Parameter(parameter.detach().clone()))
        for name, own in self._names.items():
            if own in self._buffers:
                self.get_buffer(own).copy_(unit.get_buffer(name))

    def forward(self, unit: nn.Module, *inputs: Tensor) -> Tensor:
        """``unit(*inputs)`` with these in place of its BatchNorms; in training the batch normalises."""
        norms = [norm for _, norm in running_norms(unit)]
        own = self._parameters | self._buffers
        replaced = {name: value for name, key in self._names.items() if (value := own[key]) is not None}
        with normalising_by_batch(norms) if self.training else nullcontext():
            output: Tensor = functional_call(unit, replaced, inputs)
        return output

    def beside(self, unit: nn.Module) -> nn.ParameterList:
        """The parameters of the unit that the task computes with: all but those of its BatchNorms."""
        return nn.ParameterList(weight for name, weight in unit.named_parameters() if name not in self._names)


class TaskStatistics(nn.Module):
    """The statistics of all tasks that have some of their own, by task and by layer of the task's path."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = nn.ModuleDict()

    def add(self, task: int, statistics: Mapping[int, UnitStatistics]) -> None:
        """Give ``task`` those of some layers of its path; none is none."""
        if statistics:
            self.tasks[str(task)] = nn.ModuleDict({str(layer): own for layer, own in sorted(statistics.items())})

    def of(self, task: int | None) -> dict[int, UnitStatistics]:
        """Statistics of a task by layer; empty where it uses those of the units."""
        if str(task) not in self.tasks:
            return {}
        layers = self.tasks[str(task)]
        if not isinstance(layers, nn.ModuleDict):
            raise TypeError("a task has statistics by layer")
        return {int(layer): own for layer, own in layers.items() if isinstance(own, UnitStatistics)}

    def training_layers(self, task: int | None) -> dict[int, UnitNorms]:
        """Those of a task that train, by layer."""
        return {layer: own for layer, own in self.of(task).items() if isinstance(own, UnitNorms) and not own.frozen}

    def freeze(self) -> None:
        """None of the BatchNorms that exist now trains again."""
        for norms in self.modules():
            if isinstance(norms, UnitNorms):
                norms.freeze()

    def architecture(self) -> dict[str, dict[str, list[int]]]:
        """For which layers each task has statistics, and for which BatchNorms, as plain values; kinds that exist."""
        found: dict[str, dict[str, list[int]]] = {}
        for task in self.tasks:
            for layer, own in self.of(int(task)).items():
                found.setdefault(_KINDS[type(own)], {}).setdefault(task, []).append(layer)
        return found

    def load_architecture(self, architecture: Mapping[str, Any], unit: Callable[[int, int], nn.Module]) -> None:
        """Add what :meth:`architecture` names, which belongs to tasks that were learned; ``unit(task, layer)`` finds
        the unit of a task's path."""
        for kind, name in _KINDS.items():
            for task, layers in architecture.get(name, {}).items():
                self.add(int(task), {layer: kind(unit(int(task), layer)) for layer in layers})
        self.freeze()


#: What a task may have of its own, by its name in an architecture.
_KINDS: Final[Mapping[type[UnitStatistics], str]] = {UnitStatistics: "statistics", UnitNorms: "norms"}
