"""Paths through a super model, as creators compare them; and the creation that takes all new units."""

from __future__ import annotations

from typing import TypeAlias

from seu_bench.training import EpochlessStage
from seu_bench_creators import AllNewOptions
from seu_bench_kit import CreationTask, GrowingModel

Path: TypeAlias = tuple[int, ...]


def earlier_paths(model: GrowingModel, task: int) -> list[Path]:
    """The different paths of the tasks learned before ``task``, the latest first."""
    tasks = sorted((earlier for earlier in model.paths if earlier != task), reverse=True)
    return list(dict.fromkeys(model.paths[earlier] for earlier in tasks))


def newest_path(model: GrowingModel) -> Path:
    """The last candidate of each layer: the new unit; where all tasks share a stem, the shared one."""
    return tuple(count - 1 for count in model.candidates)


def prefixes(old: Path, new: Path) -> list[Path]:
    """The different paths that begin as an old one does and go on with new units, from all new to all old."""
    return list(dict.fromkeys(old[:length] + new[length:] for length in range(len(new) + 1)))


class AllNewCreation(EpochlessStage[Path]):
    """Take the new unit of each layer, without any trial or training."""

    def __init__(self, options: AllNewOptions, task: CreationTask) -> None:
        super().__init__("creation", task.task, task.seed, task.device)
        self.model = task.model

    def result(self) -> Path:
        """The newest unit of each layer."""
        return newest_path(self.model)
