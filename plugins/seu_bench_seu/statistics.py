"""Running statistics that a task has of its own for the units that it reuses: buffers beside the units, which stay as
they are and are shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from seu_bench.training.recalibration import normalising_by_batch, running_norms


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

    def layers(self) -> dict[str, list[int]]:
        """Of which layers each task has some, as plain values."""
        return {task: list(self.of(int(task))) for task in self.tasks}
