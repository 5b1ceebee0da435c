"""Results folders as ``seu-bench watch`` finds them: records, progress, plans and locks of runs in every state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.records import a_record

from seu_bench.engine.run_progress import PROGRESS_NAME, RunProgress
from seu_bench.results.record import Record, record_path, write_record
from seu_bench.sweeps.planned import PlannedRun, PlannedRuns

#: Markup of rich and of HTML, a terminal's escape and a line break.
EVIL = "[red]x[/red]<script>alert(1)</script>\x1b[2J\ny"


def put_run(results: Path, seed: int, status: str, progress: dict[str, Any] | None = None, **fields: Any) -> Record:
    """Write the record of a run of four tasks, two of them learned unless it is finished, and perhaps its progress."""
    learned = 4 if status == "finished" else 2
    rows = tuple(tuple(0.5 + 0.1 * i if j <= i < learned else None for j in range(4)) for i in range(4))
    given: dict[str, Any] = {
        "status": status,
        "seed": seed,
        "task_names": ("a", "b", "c", "d"),
        "accuracy_matrix": rows,
        "metrics": {"acc": 0.8, "forgetting": 0.01, "params_total": 1_500_000},
        "seconds": 60.0,
        "started": f"2026-01-01T00:00:{seed:02d}+00:00",
    }
    record = a_record(f"cifar10-quick-naive-seed{seed}-0123456789", **(given | fields))
    write_record(results, record)
    if progress is not None:
        known = {"task": 2, "tasks": 4, "stage": "training", "epoch": 2, "epochs": 8, "accuracy": 0.625}
        known |= {"passed": 300, "planned": 400, "remaining": 75.0}
        text = RunProgress(**(known | progress)).model_dump_json()
        (record_path(results, record.run_id).parent / PROGRESS_NAME).write_text(text)
    return record


def put_plan(results: Path, seeds: range, kind: str = "sweep", total: int | None = None) -> None:
    """Write which jobs a sweep has: the runs of :func:`put_run` on these seeds."""
    runs = [PlannedRun(f"cifar10-quick-naive-seed{seed}-0123456789", "cifar10", "naive") for seed in seeds]
    planned = PlannedRuns.model_validate({"kind": kind, "runs": runs, "total": total or len(runs)})
    results.mkdir(parents=True, exist_ok=True)
    (results / "planned.json").write_text(planned.model_dump_json())


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder with its time."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
