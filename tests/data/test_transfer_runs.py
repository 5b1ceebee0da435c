"""The strategies of CTrL's comparison learn its streams, made up and few: as task-incremental streams of six tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tiny import all_threads, one_thread, registry

from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.results.record import Record

setup_module, teardown_module = one_thread, all_threads

pytestmark = pytest.mark.long

#: What makes each of them quick.
QUICK: dict[str, dict[str, Any]] = {
    **{name: {"width": 0.05} for name in ("independent", "naive", "ewc", "hat", "pnn", "mntdp")},
    "mntdp s": {"width": 0.05, "variant": "s"},
    "seu": {
        "cells": 3,
        "channels": 2,
        "searcher.epochs": 1,
        "searcher.cells": 3,
        "searcher.channels": 2,
        "creator.epochs": 5,
    },
}


def learned(name: str, benchmark: str, results: Path, **fields: Any) -> Record:
    strategy = name.split(maxsplit=1)[0]
    if strategy == "seu":
        fields |= {"creator": "knn_prefix"}
    request = Request(
        strategy=strategy,
        benchmark=benchmark,
        limit=40,
        synthetic=True,
        results=results,
        device="cpu",
        options={"epochs": 1, **QUICK[name]},
        **fields,
    )
    return execute(registry(), resolve(registry(), request)).record


@pytest.mark.parametrize("name", QUICK)
def test_each_learns_a_stream(name: str, tmp_path: Path) -> None:
    """Six tasks; all are evaluated after each, and none is forgotten by those that freeze."""
    record = learned(name, "ctrl_s_minus", tmp_path)
    assert record.status == "finished" and len(record.task_names) == 6
    assert all(value is not None for row, values in enumerate(record.accuracy_matrix) for value in values[: row + 1])
    assert name in ("naive", "ewc", "hat") or record.metrics["forgetting"] == 0


@pytest.mark.parametrize("stream", ["ctrl_s_plus", "transfer_s_in", "ctrl_s_out", "transfer_s_pl"])
def test_mntdp_learns_the_others(stream: str, tmp_path: Path) -> None:
    """A path of six modules for each task, of seven where the last group is two."""
    record = learned("mntdp", stream, tmp_path)
    assert {len(path) for path in record.paths or ()} == {7 if stream.endswith("_in") else 6}


def test_a_long_stream_grows_with_what_is_new(tmp_path: Path) -> None:
    """The prior asks bodies and not tasks, each passing the same images; candidates are as many for all tasks."""
    record = learned("mntdp", "transfer_s_long", tmp_path, first_tasks=12)
    paths = record.paths or ()
    assert len(paths) == 12 and record.params_total == tuple(sorted(record.params_total))
    for task in range(1, 12):
        stages = [stage for stage in record.stages if stage.task == task and stage.name != "evaluation"]
        bodies = len({tuple(path[:-1]) for path in paths[:task]})
        train, valid, _ = record.task_images[task]
        assert [stage.name for stage in stages] == ["prior", *(f"prefix {reused}" for reused in range(8))]
        assert (stages[0].epochs, stages[0].image_passes) == (bodies, bodies * (train + valid))
