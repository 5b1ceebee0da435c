"""Bytes that SEU keeps: within the forecast, whose upper end is a path that is all new and whose lower reuses all."""

from __future__ import annotations

import pytest
from support.tiny import all_threads, one_thread

from seu_bench.models import state_bytes
from seu_bench.testing import Trial
from seu_bench.testing.sizes import check_sizes
from seu_bench_seu.statistics import UnitStatistics

setup_module, teardown_module = one_thread, all_threads


@pytest.mark.parametrize("stem", [pytest.param("selectable", marks=pytest.mark.long), "shared"])
def test_statistics_of_tasks_count(stem: str) -> None:
    """A task has statistics of its own for what it reuses: for a shared stem at least, for its whole path at most."""
    options = {"genotype": "darts_v1", "statistics": "per_task", "stem": stem}
    learner = Trial("seu", options, creator="all_new").learner("tiny_three").learn_all()
    check_sizes(learner, 2)
    assert tuple(learner.sizes.memory_bytes) == learner.cost.memory_bytes

    reusing = Trial("seu", options).learner("tiny_three")
    reusing.learn(0)
    model = reusing.model
    own = {layer: UnitStatistics(model.unit(layer, 0)) for layer in range(len(model.layers))}
    model.statistics.add(1, own)
    assert state_bytes(model) == reusing.cost.memory_bytes_min[1]
