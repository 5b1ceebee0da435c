"""Searches of DARTS on a tiny task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from support.tiny import CPU, class_stream
from torch import Tensor

from seu_bench.config.protocol import SearchSchedule
from seu_bench_darts import DartsOptions
from seu_bench_darts.searcher import DartsSearch
from seu_bench_kit.components import SearchTask
from seu_bench_kit.search_space import SearchSpace

STREAM = class_stream([[0, 1], [2, 3]], images=11)


IMAGES = STREAM.tasks[1].train


#: All eight images of the first half in one batch: a step of second order takes most of a second.
SCHEDULE = SearchSchedule(epochs=3, batch_size=8, cells=3, channels=2, min_learning_rate=0.001)


def search(seed: int = 3, space: SearchSpace | None = None, schedule: SearchSchedule = SCHEDULE, **more: Any) -> Any:
    task = SearchTask(IMAGES, 1, 2, space or SearchSpace(), schedule, seed, CPU)
    stage = DartsSearch(DartsOptions(**more), task)
    assert isinstance(stage, DartsSearch)
    return stage


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])
