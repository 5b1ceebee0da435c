"""A record made by hand, and what the terminal shows of it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from seu_bench.results.record import Environment, Record, StageRecord
from seu_bench.results.record_metrics import compute_metrics

if TYPE_CHECKING:
    from rich.console import RenderableType

ODD = "<script>x</script> [red]y[/red] :smile: z\\"


def rendered(renderable: RenderableType, width: int = 80, **console: Any) -> str:
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=width, **console).print(renderable)
    return file.getvalue()


def a_record(tasks: int = 3, **fields: Any) -> Record:
    given: dict[str, Any] = {
        "run_id": "cifar10-quick-seu-s0-0123456789",
        "status": "finished",
        "strategy": "seu",
        "options": {"decay": 0.0003, "rule": "sum"},
        "searcher": "mdl",
        "searcher_options": {"alpha": 0.01},
        "creator": "mdl",
        "benchmark": "cifar10",
        "benchmark_version": 1,
        "protocol": "quick",
        "seed": 7,
        "task_order": tuple(reversed(range(tasks))),
        "task_names": tuple(f"name-{task}" for task in range(tasks)),
        "task_classes": (2,) * tasks,
        "accuracy_matrix": tuple(
            tuple(0.123 + 0.01 * row if task <= row else None for task in range(tasks)) for row in range(tasks)
        ),
        "params_total": tuple(1_000_000 * (task + 1) for task in range(tasks)),
        "params_active": (1_000_000,) * tasks,
        "macs": (140_000_000,) * tasks,
        "stages": (
            StageRecord(name="search", task=0, epochs=5, seconds=61.0, image_passes=1_234_567, chance_share=0.4),
            StageRecord(name="training", task=1, epochs=6, seconds=2.5, image_passes=10),
        ),
        "genotypes": ({"normal": [["sep_conv_3x3", 1]]}, None),
        "paths": ((0, 0, 0), (1, 0, 1)),
        "unit_tasks": ((0, 1), (0,), (0, 1)),
        "data_fingerprint": "ab" * 32,
        "environment": Environment(versions={"torch": "2.15"}, platform="Linux", threads=2, git_revision="abc123"),
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 3725.0,
    }
    record = Record(**(given | fields))
    return record.model_copy(update={"metrics": compute_metrics(record)} if "metrics" not in fields else {})
