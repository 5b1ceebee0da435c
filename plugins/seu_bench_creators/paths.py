"""Paths through a super model, as creators compare them."""

from __future__ import annotations

from typing import TypeAlias

from seu_bench.training import GrowingModel

Path: TypeAlias = tuple[int, ...]


def earlier_paths(model: GrowingModel, task: int) -> list[Path]:
    """The different paths of the tasks learned before ``task``, the latest first."""
    tasks = sorted((earlier for earlier in model.paths if earlier != task), reverse=True)
    return list(dict.fromkeys(model.paths[earlier] for earlier in tasks))


def newest_path(model: GrowingModel) -> Path:
    """The last candidate of each layer: the new unit; where all tasks share a stem, the shared one."""
    return tuple(count - 1 for count in model.candidates)
