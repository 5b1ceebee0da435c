"""Paths and the tournament by which they evolve, and the network of modules that they lead through."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Self, TypeAlias, cast

import torch
from torch import Tensor, nn

from seu_bench.errors import RunError
from seu_bench.models import MultiHeadModel, freeze, is_frozen
from seu_bench.models.multihead import not_learned
from seu_bench_kit import ChainLayer, pack_bits, packed_bytes

#: For each layer the indices of its modules. While a path evolves it has N in each layer, and one may be there twice;
#: a path that is computed or kept has each once, in order.
Path: TypeAlias = tuple[tuple[int, ...], ...]

#: Paths in a tournament.
CONTENDERS: Final = 2

#: A mutation moves an index by at most so much.
STEP: Final = 2


def drawn_path(layers: int, modules: int, active: int) -> Path:
    """Draw a path by torch's global generator."""
    return tuple(tuple(torch.randperm(modules)[:active].tolist()) for _ in range(layers))


def mutate(path: Path, modules: int) -> Path:
    """Move each index with probability 1 / (N L) by -2, -1, 0, 1 or 2, modulo the number of modules."""
    indices = torch.tensor(path)
    moves = torch.rand(indices.shape) < 1 / indices.numel()
    steps = torch.randint(-STEP, STEP + 1, indices.shape)
    return _as_path((indices + moves * steps) % modules)


def distinct(path: Path) -> Path:
    """The modules that a path uses, each once and in order."""
    return tuple(tuple(sorted(set(layer))) for layer in path)


@dataclass(frozen=True)
class Turn:
    """An epoch of a search.

    Attributes:
        contender: which of the two paths is trained.
        epoch: of its own epochs, from 0; both have as many.
        begins, ends: whether it is the contender's first or last epoch in this generation.
    """

    contender: int
    epoch: int
    begins: bool
    ends: bool


def turns(epochs: int, generations: int) -> tuple[Turn, ...]:
    """Divide epochs among generations, as evenly as they can be.

    Example:
        >>> [(turn.contender, turn.epoch) for turn in turns(3, 2)]
        [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (1, 2)]
    """
    generations = min(generations, epochs)
    bounds = pairwise(generation * epochs // generations for generation in range(generations + 1))
    return tuple(
        Turn(contender, epoch, epoch == start, epoch == stop - 1)
        for start, stop in bounds
        for contender in range(CONTENDERS)
        for epoch in range(start, stop)
    )


class Tournament:
    """Two paths, and the champion: the one of the lowest loss so far.

    Args:
        paths: the two.

    Attributes:
        champion: 0 or 1; 0 before a loss was offered, and of equal ones the first.
        loss: the champion's.
    """

    def __init__(self, paths: tuple[Path, Path]) -> None:
        self.paths = list(paths)
        self.champion = 0
        self.loss = math.inf

    @classmethod
    def drawn(cls, layers: int, modules: int, active: int) -> Self:
        """One of two paths by torch's global generator; see :func:`drawn_path`."""
        return cls((drawn_path(layers, modules, active), drawn_path(layers, modules, active)))

    def offer(self, contender: int, loss: float) -> bool:
        """Note a contender's loss."""
        if not loss < self.loss:
            return False
        self.champion, self.loss = contender, loss
        return True

    def breed(self, modules: int) -> None:
        """End a generation: the champion's path, :func:`mutate`, overwrites the other."""
        self.paths[1 - self.champion] = mutate(self.paths[self.champion], modules)

    def forget(self) -> None:
        """Let the next generation decide by its own losses alone."""
        self.loss = math.inf

    def state_dict(self) -> dict[str, Any]:
        """Plain values only."""
        return {**vars(self), "paths": list(self.paths)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.paths = [_as_path(torch.tensor(path)) for path in state["paths"]]
        self.champion, self.loss = int(state["champion"]), float(state["loss"])


def _as_path(indices: Tensor) -> Path:
    return tuple(tuple(layer) for layer in indices.tolist())


def module_factor(chain: Sequence[ChainLayer], modules: int, classes: Sequence[int]) -> float:
    """The factor f on all widths by which M modules in each layer have as many parameters as the chain, heads included.

    With u units in a layer, w weights from each unit of the layer before to each of its own, and inputs of the first
    layer that stay as they are, M modules of f u units in each layer and the heads have

        f^2 M sum_{l>1} u_{l-1} u_l w_l  +  f (M (u_0 u_1 w_1 + sum_l u_l) + u_L sum_t c_t)  +  sum_t c_t

    parameters, the sum of the u_l being that of the biases. It is the positive root at which they are those of the
    chain with heads of its own.
    """
    first, *others = chain
    quadratic = sum(layer.inputs * layer.units * _weights(layer) for layer in others)
    linear = first.inputs * first.units * _weights(first)
    linear += sum(layer.units for layer in chain if layer.weighted.bias is not None)
    heads = chain[-1].units * sum(classes)
    total = quadratic + linear + heads
    a, b = modules * quadratic, modules * linear + heads
    # The stable form of the root, which holds for a = 0 as well.
    return 2 * total / (b + math.sqrt(b * b + 4 * a * total))


def module_widths(chain: Sequence[ChainLayer], modules: int, classes: Sequence[int]) -> tuple[int, ...]:
    """Units of a module in each layer: those of the chain's times :func:`module_factor`, rounded down, at least 1.

    Rounded down, the network has at most the parameters of the chain with its heads, unless a layer is so narrow that
    one unit is too many.
    """
    factor = module_factor(chain, modules, classes)
    # A factor of 1 may come out one rounding error below it.
    return tuple(max(1, math.floor(factor * layer.units + 1e-9)) for layer in chain)


def _weights(layer: ChainLayer) -> int:
    """Weights from one unit of the layer before to one of its own: of a kernel, or of the numbers it is read by."""
    return layer.weighted.weight.numel() // (layer.inputs * layer.units)


class ModularNetwork(MultiHeadModel):
    """A chain each of whose layers is M modules, and a head for each task.

    A module is a layer of the chain's sort, narrower (:func:`module_widths`), and what comes
    behind it: activation, dropout, pooling. The outputs of the modules on a path are summed. Modules of kept paths are
    frozen, and nothing trains them or draws them anew.

    Args:
        chain: whose layers are replaced.
        classes: outputs of each task's head.
        modules: M, in each layer.
        open_ended: whether tasks may be added: then the widths are those for the first task alone.

    Attributes:
        paths: of the tasks that were learned, by task.
        tried: paths that tasks are computed on as long as none was kept for them; in no state.
        masks: ``[tasks learned, bytes]``, the kept paths as packed bits, one for each module of each layer.
    """

    masks: Tensor
    paths_stay = True

    def __init__(
        self, chain: Sequence[ChainLayer], classes: Sequence[int], modules: int, *, open_ended: bool = False
    ) -> None:
        super().__init__(classes)
        # With modules of their own between the layers: they have a mode.
        self.chain = tuple(replace(each, before=deepcopy(each.before), after=deepcopy(each.after)) for each in chain)
        self.between = nn.ModuleList(part for each in self.chain for part in (each.before, each.after))
        self.modules_per_layer = modules
        self.widths = module_widths(chain, modules, classes[:1] if open_ended else classes)
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
        return cast(nn.ModuleList, self.layers[layer])[index]

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
