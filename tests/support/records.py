"""Records made up for tests."""

from __future__ import annotations

from typing import Any

from seu_bench.results.record import Environment, Record, StageRecord


def a_record(run_id: str = "cifar10-quick-naive-s0-0123456789", **fields: Any) -> Record:
    given: dict[str, Any] = {
        "run_id": run_id,
        "status": "finished",
        "strategy": "naive",
        "benchmark": "cifar10",
        "benchmark_version": 1,
        "protocol": "quick",
        "seed": 0,
    }
    return Record(**(given | fields))


FULL = a_record(
    error="ünïcode | 'quotes' \"and\" lines\nof it",
    options={"weight_decay": 0.0003, "nested": {"a": [1, None, True]}},
    searcher="mdl",
    searcher_options={"alpha": 0.01},
    creator="mdl",
    benchmark_overrides={"stream.validation": 0.2},
    protocol_settings={"training": {"epochs": 50}},
    ranked=False,
    limit=100,
    synthetic=True,
    task_order=(1, 0),
    task_names=("bird/cat", "plane/car"),
    task_classes=(2, 2),
    scenario="class",
    accuracy_matrix=((0.9, None), (0.1 + 0.2, 0.8)),
    task_confusion=((3, 1), ()),
    metrics={"acc": 0.55, "image_acc": None, "params_total": 3_750_123, "mixed_score_above_chance": 0.2, "fwt": None},
    params_total=(10, 20),
    params_active=(10, 11),
    macs=(5, 6),
    stages=(StageRecord(name="search", task=0, epochs=1, seconds=0.25, image_passes=7),),
    genotypes=({"normal": [["sep_conv_3x3", 0]]}, None),
    paths=((0, 0), (1, 0)),
    unit_tasks=((0, 1), (0,)),
    data_fingerprint="ab" * 32,
    environment=Environment(versions={"torch": "2"}, git_revision="abc", platform="Linux", threads=2),
    started="2026-01-01T00:00:00+00:00",
    seconds=1.5,
)
