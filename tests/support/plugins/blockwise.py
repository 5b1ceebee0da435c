"""Searches of the block-wise searcher on a tiny task."""

from __future__ import annotations

import pytest
from support.tiny import CPU, class_stream

from seu_bench.config.protocol import SearchSchedule
from seu_bench_kit.components import SearchTask
from seu_bench_kit.search_space import SearchSpace

STREAM = class_stream([[0, 1], [2, 3]], images=11)


IMAGES = STREAM.tasks[1].train


SCHEDULE = SearchSchedule(epochs=3, batch_size=8, cells=3, channels=2, min_learning_rate=0.001)


SPACES = [SearchSpace(edges, kinds) for edges in ("top2", "all14") for kinds in (1, 2)]


every_space = pytest.mark.parametrize("space", SPACES, ids=lambda space: f"{space.edges}-{space.cell_types}")


def search_task(seed: int = 3, space: SearchSpace | None = None) -> SearchTask:
    return SearchTask(IMAGES, 1, 2, space or SearchSpace(), SCHEDULE, seed, CPU)
