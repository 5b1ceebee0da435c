"""Paths, and the tournament by which they evolve: two are trained in turn, the better one overwrites the other, which
is mutated. Nothing here knows of networks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self, TypeAlias

import torch
from torch import Tensor

#: For each layer the indices of its modules. While a path evolves it has N in each layer, and one may be there twice;
#: a path that is computed or kept has each once, in order.
Path: TypeAlias = tuple[tuple[int, ...], ...]

#: Paths in a tournament.
CONTENDERS: Final = 2

#: A mutation moves an index by at most so much.
STEP: Final = 2


def drawn_path(layers: int, modules: int, active: int) -> Path:
    """Draw a path by torch's global generator.

    Args:
        layers: of the network.
        modules: in each layer.
        active: indices in each layer, all different.

    Returns:
        The path.
    """
    return tuple(tuple(torch.randperm(modules)[:active].tolist()) for _ in range(layers))


def mutated(path: Path, modules: int) -> Path:
    """Move each index with probability 1 / (N L) by -2, -1, 0, 1 or 2, modulo the number of modules.

    Args:
        path: N indices in each of L layers.
        modules: in each layer.

    Returns:
        Another path, by torch's global generator, which may have an index twice in a layer.
    """
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

    Args:
        epochs: of each path.
        generations: in each of which both paths are trained in turn; at most one for each epoch.

    Returns:
        ``2 * epochs`` turns.

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
        """Note a contender's loss.

        Returns:
            Whether it is the lowest so far, so that the contender is the champion.
        """
        if not loss < self.loss:
            return False
        self.champion, self.loss = contender, loss
        return True

    def breed(self, modules: int) -> None:
        """End a generation: the champion's path, :func:`mutated`, overwrites the other."""
        self.paths[1 - self.champion] = mutated(self.paths[self.champion], modules)

    def forget(self) -> None:
        """Let the next generation decide by its own losses alone."""
        self.loss = math.inf

    def state_dict(self) -> dict[str, Any]:
        """Plain values only."""
        return {
            "paths": [[list(layer) for layer in path] for path in self.paths],
            "champion": self.champion,
            "loss": self.loss,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.paths = [_as_path(torch.tensor(path)) for path in state["paths"]]
        self.champion, self.loss = int(state["champion"]), float(state["loss"])


def _as_path(indices: Tensor) -> Path:
    return tuple(tuple(layer) for layer in indices.tolist())
