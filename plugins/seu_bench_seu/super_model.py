"""The super model: layers of units, one path through them per task, one head per task (paper, section III-B)."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from seu_bench.models.multihead import not_learned
from seu_bench_kit import ExtensionUnit, Genotype, SearchSpace, Stem, Unit
from seu_bench_kit.search_space import cell_plans
from seu_bench_kit.units import UnitModel


class SuperModel(UnitModel):
    """Grows from nothing: :meth:`expand` adds a new unit per layer, :meth:`keep` deletes those that were not chosen,
    :meth:`freeze` ends a task.

    Layer 0 holds the stems, layers 1 to L the extension units; a path has L + 1 indices in creation order.

    Args:
        image_channels: of the input.
        classes: outputs of each task's head.
        cells, channels: L and C.
        space: how units are built.
        stem: whether each task brings a stem to choose from, or all share the first.
    """

    has_frozen_layers = True

    def __init__(
        self,
        image_channels: int,
        classes: Sequence[int],
        cells: int,
        channels: int,
        space: SearchSpace,
        stem: Literal["selectable", "shared"] = "selectable",
    ) -> None:
        super().__init__(classes)
        self.image_channels = image_channels
        self.channels = channels
        self.space = space
        self.stem = stem
        self.plans = cell_plans(cells, channels)
        self.layers = nn.ModuleList(nn.ModuleList() for _ in range(cells + 1))
        self.heads = nn.ModuleList(nn.Linear(self.plans[-1].output, width) for width in classes)
        self.paths: dict[int, tuple[int, ...]] = {}
        self.unit_tasks: list[list[int]] = [[] for _ in range(cells + 1)]
        self.unit_genotypes: list[list[Genotype]] = [[] for _ in range(cells + 1)]

    # ------------------------------------------------------------------ growing

    def expand(self, genotype: Genotype, task: int) -> None:
        """Add one new unit of ``genotype`` to every layer (paper, algorithm 3)."""
        for layer in range(len(self.layers)):
            if layer == 0 and self.stem == "shared" and self.unit_tasks[0]:
                continue
            self._add_unit(layer, genotype, task)

    def keep(self, task: int, path: Sequence[int]) -> None:
        """Make ``path`` the task's own and delete new units that are not on it (paper, equations 21, 22)."""
        self.set_path(task, path)
        for layer, chosen in enumerate(path):
            if self.has_new[layer] and chosen != self.candidates[layer] - 1:
                del self._units(layer)[-1]
                self.unit_tasks[layer].pop()
                self.unit_genotypes[layer].pop()

    def renew(self, task: int) -> None:
        """Replace the new units on the task's path, and its head's weights, by freshly initialised ones."""
        for layer, index in enumerate(self.paths[task]):
            if not self.unit(layer, index).frozen:
                self._units(layer)[index] = self._make_unit(layer, self.unit_genotypes[layer][index])
        cast(nn.Linear, self.heads[task]).reset_parameters()

    def freeze(self) -> None:
        """Nothing that exists now trains again."""
        for _, _, unit in self._all_units():
            unit.freeze()

    # ------------------------------------------------------------------ what a creator sees

    @property
    def candidates(self) -> list[int]:
        """Number of units in each layer."""
        return [len(tasks) for tasks in self.unit_tasks]

    @property
    def has_new(self) -> list[bool]:
        """Whether the last unit of each layer still trains."""
        return [not self.unit(layer, -1).frozen for layer in range(len(self.layers))]

    def set_path(self, task: int, path: Sequence[int]) -> None:
        """Compute ``task`` by ``path``.

        Raises:
            ValueError: the path does not fit the layers.
        """
        if (fault := self.path_fault(path)) is not None:
            raise ValueError(fault)
        self.paths[task] = tuple(int(index) for index in path)

    def path_fault(self, path: object) -> str | None:
        """Fault of a path that does not name a unit for each layer; ``None`` if it is valid."""
        try:
            # Not isinstance: every tensor has __index__, whatever it holds.
            indices = [operator.index(index) for index in path] if isinstance(path, Sequence) else None
        except TypeError:
            indices = None
        if not isinstance(path, Sequence) or indices is None:
            return f"{path!r} is no path: a path has a whole number for each layer"
        if len(indices) != len(self.layers) or any(
            not 0 <= index < count for index, count in zip(indices, self.candidates, strict=True)
        ):
            return f"path {tuple(path)} does not fit layers of {self.candidates} units"
        return None

    def frozen_state(self) -> dict[str, str]:
        """SHA-256 of everything that no later task may change: units, heads and paths of the tasks learned."""
        return {name: _checksum(tensor) for name, tensor in self._frozen_tensors()}

    def frozen_fault(self, before: Mapping[str, str]) -> str | None:
        """Which of it is not, bit by bit, what it was in ``before``; ``None``: all are."""
        now = self.frozen_state()
        for name, checksum in before.items():
            if now.get(name) != checksum:
                return f"it changed {name}, which earlier tasks are computed by"
        return None

    def new_units(self, task: int) -> nn.ModuleList:
        """All new units and the task's head."""
        new = [self.unit(layer, -1) for layer, is_new in enumerate(self.has_new) if is_new]
        return nn.ModuleList([*new, self.heads[task]])

    # ------------------------------------------------------------------ computing

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]`` on the task's path; other heads are not computed.

        Raises:
            RunError: the task was not learned yet.
        """
        if task_label not in self.paths:
            raise not_learned(task_label)
        logits: Tensor = self.heads[task_label](self.features(x, self.paths[task_label]))
        return logits

    def features(self, x: Tensor, path: Sequence[int]) -> Tensor:
        """Extract features ``[N, F]`` of images ``[N, C, H, W]`` on ``path``: the last layer's output, averaged."""
        frozen = next((at for at, index in enumerate(path) if not self.unit(at, index).frozen), len(path))
        if frozen:
            older, newer = self._frozen_outputs(x, tuple(path[:frozen]))
        else:
            older = newer = self.run_unit(self.unit(0, path[0]), x)
        for layer in range(max(1, frozen), len(path)):
            older, newer = newer, self.run_unit(self.unit(layer, path[layer]), older, newer)
        averaged: Tensor = newer.mean(dim=(2, 3))
        return averaged

    def _frozen_outputs(self, x: Tensor, prefix: tuple[int, ...], *, keep: bool = True) -> tuple[Tensor, Tensor]:
        """Outputs of the last two layers of a frozen prefix."""

        def compute(x: Tensor) -> tuple[Tensor, ...]:
            unit = self.unit(len(prefix) - 1, prefix[-1])
            if len(prefix) == 1:
                return (self.run_unit(unit, x),)
            older, newer = self._frozen_outputs(x, prefix[:-1], keep=False)
            return newer, self.run_unit(unit, older, newer)

        outputs = self.cached_features(x, ("prefix", *prefix), compute, keep=keep)
        return outputs[0], outputs[-1]

    def task_module(self, task: int) -> nn.Module:
        """The units of the task's path, and its head."""
        return nn.ModuleList([*self._on_path(task), self.heads[task]])

    def trainable_module(self, task: int) -> nn.Module:
        """The new units of the task's path, and its head."""
        return nn.ModuleList([*(unit for unit in self._on_path(task) if not unit.frozen), self.heads[task]])

    def _on_path(self, task: int) -> list[Unit]:
        return [self.unit(layer, index) for layer, index in enumerate(self.paths[task])]

    # ------------------------------------------------------------------ the architecture as plain values

    def architecture(self) -> dict[str, Any]:
        """Units with the tasks and genotypes they were made for, which of them are frozen, and the paths."""
        return {
            "unit_tasks": [list(tasks) for tasks in self.unit_tasks],
            "unit_genotypes": [[genotype.to_dict() for genotype in layer] for layer in self.unit_genotypes],
            "frozen": [
                [self.unit(layer, index).frozen for index in range(count)]
                for layer, count in enumerate(self.candidates)
            ],
            "paths": {str(task): list(path) for task, path in sorted(self.paths.items())},
        }

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give an empty super model the units and paths of ``architecture``.

        Raises:
            ValueError: it has another number of layers, or a path that does not fit.
        """
        layers = list(
            zip(architecture["unit_tasks"], architecture["unit_genotypes"], architecture["frozen"], strict=True)
        )
        if len(layers) != len(self.layers) or any(self.candidates):
            raise ValueError(f"units of {len(layers)} layers do not fit {len(self.layers)} empty ones")
        for layer, units in enumerate(layers):
            for task, genotype, frozen in zip(*units, strict=True):
                self._add_unit(layer, Genotype.from_dict(genotype), task)
                if frozen:
                    self.unit(layer, -1).freeze()
        for task, path in architecture["paths"].items():
            self.set_path(int(task), path)

    def _frozen_tensors(self) -> Iterator[tuple[str, Tensor]]:
        for layer, index, unit in self._all_units():
            if unit.frozen:
                for name, tensor in unit.state_dict().items():
                    yield f"unit {index} of layer {layer} ({name})", tensor
        for task in self.paths:
            for name, tensor in self.heads[task].state_dict().items():
                yield f"the head of task {task} ({name})", tensor
            yield f"the path of task {task}", torch.tensor(self.paths[task])

    def _add_unit(self, layer: int, genotype: Genotype, task: int) -> None:
        self._units(layer).append(self._make_unit(layer, genotype))
        self.unit_tasks[layer].append(task)
        self.unit_genotypes[layer].append(genotype)

    def _make_unit(self, layer: int, genotype: Genotype) -> Unit:
        stem = Stem(self.image_channels, self.channels) if layer == 0 else None
        unit: Unit = stem or ExtensionUnit(genotype, self.plans[layer - 1], self.space)
        return unit.to(next(self.heads.parameters()).device)

    def _all_units(self) -> Iterator[tuple[int, int, Unit]]:
        for layer, count in enumerate(self.candidates):
            yield from ((layer, index, self.unit(layer, index)) for index in range(count))

    def _units(self, layer: int) -> nn.ModuleList:
        units = self.layers[layer]
        if not isinstance(units, nn.ModuleList):
            raise TypeError("a layer is a list of units")
        return units

    def unit(self, layer: int, index: int) -> Unit:
        """A unit by layer and index in creation order; -1 is the newest."""
        unit = self._units(layer)[index]
        if not isinstance(unit, Unit):
            raise TypeError("a layer holds units")
        return unit


def _checksum(tensor: Tensor) -> str:
    raw = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(repr(tuple(tensor.shape)).encode() + raw.tobytes()).hexdigest()
