"""The modular network: layers of modules, and for each task a path through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.errors import RunError
from seu_bench.models import ChainLayer, MultiHeadModel, freeze, is_frozen, pack_bits, packed_bytes
from seu_bench.models.multihead import not_learned
from seu_bench_pathnet.evolution import Path, distinct
from seu_bench_pathnet.sizing import module_widths


class ModularNetwork(MultiHeadModel):
    """A chain each of whose layers is M modules, and a head for each task.

    A module is a layer of the chain's sort, narrower (:func:`~seu_bench_pathnet.sizing.module_widths`), and what comes
    behind it: activation, dropout, pooling. The outputs of the modules on a path are summed. Modules of kept paths are
    frozen, and nothing trains them or draws them anew.

    Args:
        chain: whose layers are replaced.
        classes: outputs of each task's head.
        modules: M, in each layer.

    Attributes:
        paths: of the tasks that were learned, by task.
        tried: paths that tasks are computed on as long as none was kept for them; in no state.
        masks: ``[tasks learned, bytes]``, the kept paths as packed bits, one for each module of each layer.
    """

    masks: Tensor

    def __init__(self, chain: Sequence[ChainLayer], classes: Sequence[int], modules: int) -> None:
        super().__init__(classes)
        # With modules of their own between the layers: they have a mode.
        self.chain = tuple(replace(each, before=deepcopy(each.before), after=deepcopy(each.after)) for each in chain)
        self.between = nn.ModuleList(part for each in self.chain for part in (each.before, each.after))
        self.modules_per_layer = modules
        self.widths = module_widths(chain, modules, classes)
        self.layers = nn.ModuleList(
            nn.ModuleList(self._fresh(index) for _ in range(modules)) for index in range(len(self.chain))
        )
        self.heads = nn.ModuleList(nn.Linear(self.widths[-1], width) for width in classes)
        self.paths: dict[int, Path] = {}
        self.tried: dict[int, Path] = {}
        self.register_buffer("masks", torch.zeros((0, packed_bytes(self.path_bits)), dtype=torch.uint8))

    @property
    def path_bits(self) -> int:
        """Bits of a path: one for each module."""
        return len(self.layers) * self.modules_per_layer

    def module_at(self, layer: int, index: int) -> nn.Module:
        """A module by its layer and its index there."""
        modules = self.layers[layer]
        if not isinstance(modules, nn.ModuleList):
            raise TypeError("the network consists of layers of modules")
        return modules[index]

    def try_path(self, task: int, path: Path) -> None:
        """Compute ``task`` on ``path`` from now on, until one is kept.

        Raises:
            RunError: the task was learned: its path stays.
        """
        if task in self.paths:
            raise RunError(
                f"task {task} was learned already, and its path is frozen",
                remedy="train on each experience of benchmark.train_stream once, with a strategy made for it",
            )
        self.tried[task] = distinct(path)

    def keep(self, task: int) -> None:
        """Keep the path that was tried last for good: its modules and the head of ``task`` are frozen."""
        path = self.paths[task] = self.tried.pop(task)
        bits = torch.zeros((len(self.layers), self.modules_per_layer), dtype=torch.bool)
        for layer, indices in enumerate(path):
            bits[layer, list(indices)] = True
        self.masks = torch.cat([self.masks, pack_bits(bits).to(self.masks.device)[None]])
        self.mask_bits = len(self.paths) * self.path_bits
        freeze(*self._on_path(task), self.heads[task])

    def packed_masks(self) -> Sequence[Tensor]:
        """A bit for each module and kept path."""
        return (self.masks,)

    def renew(self) -> None:
        """Draw the weights of every module anew that is on no kept path, by torch's global generator.

        They do not depend on which others are frozen.
        """
        for layer, index in self._places():
            module, fresh = self.module_at(layer, index), self._fresh(layer)
            if not is_frozen(module):
                module.load_state_dict(fresh.state_dict())

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]`` on the task's path.

        Raises:
            RunError: the task was not learned, and no path is tried for it.
        """
        for index, (layer, used) in enumerate(zip(self.chain, self._path(task_label), strict=True)):
            inputs = layer.before(x)
            first, *others = (layer.after(self.module_at(index, module)(inputs)) for module in used)
            x = sum(others, start=first)
        logits: Tensor = self.heads[task_label](x)
        return logits

    def task_module(self, task: int) -> nn.Module:
        """The modules on the task's path, and its head."""
        return nn.ModuleList([*self._on_path(task), self.heads[task]])

    def trainable_module(self, task: int) -> nn.Module:
        """Those of them that are not frozen."""
        return nn.ModuleList(module for module in [*self._on_path(task), self.heads[task]] if not is_frozen(module))

    def free_module(self, task: int) -> nn.Module:
        """All that paths of ``task`` may train: every module that is not frozen, and the task's head."""
        modules = (self.module_at(*place) for place in self._places())
        return nn.ModuleList([*(module for module in modules if not is_frozen(module)), self.heads[task]])

    def architecture(self) -> dict[str, Any]:
        """The kept paths by task, in the order in which they were learned; what they use is frozen."""
        return {"paths": {str(task): [list(layer) for layer in path] for task, path in self.paths.items()}}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Keep the paths of another network.

        Raises:
            ValueError: this one has paths, or they do not fit it.
        """
        if self.paths:
            raise ValueError("this network has paths already")
        for name, layers in architecture["paths"].items():
            task, path = int(name), tuple(tuple(int(index) for index in layer) for layer in layers)
            indices = [index for layer in path for index in layer]
            fits = len(path) == len(self.layers) and all(path) and 0 <= task < len(self.heads)
            if not fits or not 0 <= min(indices) <= max(indices) < self.modules_per_layer:
                raise ValueError(
                    f"the path {path} of task {task} does not fit {len(self.layers)} layers of "
                    f"{self.modules_per_layer} modules and {len(self.heads)} tasks"
                )
            self.try_path(task, path)
            self.keep(task)

    def _path(self, task: int) -> Path:
        path = self.paths.get(task) or self.tried.get(task)
        if path is None:
            raise not_learned(task)
        return path

    def _on_path(self, task: int) -> list[nn.Module]:
        return [self.module_at(layer, index) for layer, used in enumerate(self._path(task)) for index in used]

    def _places(self) -> Iterator[tuple[int, int]]:
        return ((layer, index) for layer in range(len(self.layers)) for index in range(self.modules_per_layer))

    def _fresh(self, layer: int) -> nn.Module:
        inputs = self.widths[layer - 1] if layer else self.chain[0].inputs
        return self.chain[layer].like(inputs, self.widths[layer])
