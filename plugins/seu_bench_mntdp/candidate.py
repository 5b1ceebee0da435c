"""Paths through the modular network, its modules, and a path that is tried with new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torch import Tensor, nn

from seu_bench.models import Unit

#: The module of each place from the input on, the head last, by its number there.
Path: TypeAlias = tuple[int, ...]
#: The same, with ``None`` where a new module is made.
Choices: TypeAlias = tuple[int | None, ...]


class Module(Unit):
    """A module of the network: a part of it, which never trains again once its task is over.

    Args:
        part: ``[N, inputs, H, W] -> [N, outputs, H', W']``, or the head, ``[N, channels] -> [N, classes]``.
    """

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        """The part's output."""
        output: Tensor = self.part(x)
        return output


class Candidate(nn.Module):
    """A path that is tried, with new modules.

    Args:
        choices: module of each place; where it is ``None`` the new one is computed.
        modules: new ones by their place. There may be one where a kept module is chosen; it is not computed then.
    """

    def __init__(self, choices: Choices, modules: Mapping[int, Module]) -> None:
        super().__init__()
        self.choices = choices
        self.new = nn.ModuleDict({str(place): module for place, module in modules.items()})

    def new_at(self, place: int) -> nn.Module:
        """The new module of a place."""
        return self.new[str(place)]

    @property
    def places(self) -> list[int]:
        """Places with a new module."""
        return [int(place) for place in self.new]

    def trim(self) -> None:
        """Forget the new modules of places whose kept module is chosen."""
        for place, choice in enumerate(self.choices):
            if choice is not None and str(place) in self.new:
                del self.new[str(place)]


def where_new(choices: Sequence[int | None]) -> list[int]:
    """Places that a new module is made for."""
    return [place for place, choice in enumerate(choices) if choice is None]
