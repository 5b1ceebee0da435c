"""Decisions of SEU's first run, reused by later ones: runs that round otherwise do the same work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

from seu_bench.training import TaskData
from seu_bench_kit import Genotype
from seu_bench_seu.strategy import Seu


@dataclass
class Decisions:
    """Genotypes and paths by task."""

    genotypes: dict[int, Genotype] = field(default_factory=dict)
    paths: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Record the first run's decisions, and replace those of later runs by them."""
        expand, keep = Seu._expand, Seu._keep

        def expand_as_before(strategy: Seu, task: TaskData, genotype: Genotype) -> None:
            expand(strategy, task, self.genotypes.setdefault(task.index, genotype))

        def keep_as_before(strategy: Seu, task: TaskData, path: tuple[int, ...]) -> None:
            keep(strategy, task, self.paths.setdefault(task.index, path))

        with mock.patch.object(Seu, "_expand", expand_as_before), mock.patch.object(Seu, "_keep", keep_as_before):
            yield
