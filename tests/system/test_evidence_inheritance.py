"""The page on our searcher and creator, on made-up records: it says what the numbers say, whatever is missing."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the scripts are no installed package

from scripts.evidence.inheritance_contest import OURS, SET, Goal, read_contests
from scripts.evidence.runs import SEU
from seu_bench.results.record import Record, StageRecord

PLACE = ("half_day", "pmnist")


def a_run(name: str, seed: int, acc: float, params: int, *, passes: int = 0, cpu: float | None = 1.0) -> Record:
    """A record; a name such as ``seu: random, all_new, width 0.5`` says searcher, creator and width."""
    strategy, _, rest = name.partition(": ")
    searcher, creator, *more = rest.split(", ") if rest else ("mdl", "mdl") if name == SEU else (None, None)
    width = float(more[0].removeprefix("width ")) if more else 1.0
    stage = {"task": 1, "epochs": 1, "seconds": 1.0, "flops": 1, "losses": [], "accuracies": []}
    stages = [
        StageRecord.model_validate({**stage, "name": kind, "image_passes": count, "cpu_seconds": cpu})
        for kind, count in (("search", passes), ("creation", passes), ("training", 10_000))
    ]
    given: dict[str, Any] = {
        "run_id": f"{name.replace(': ', '-').replace(', ', '-').replace(' ', '')}-{seed}",
        "status": "finished",
        "strategy": strategy,
        "searcher": searcher,
        "creator": creator,
        "options": {"width": width} if strategy == SEU else {},
        "creator_options": {"copies": False} if more[1:] == ["no copies"] else {},
        "benchmark": PLACE[1],
        "benchmark_version": 1,
        "protocol": PLACE[0],
        "seed": seed,
        "data_fingerprint": "0" * 64,
        "metrics": {"acc": acc, "params_total": params, "mixed_score": acc / 2},
        "params_total": [params],
        "stages": stages,
    }
    return Record.model_validate(given)


def publish(folder: Path, sets: Mapping[str, Sequence[Record]]) -> Path:
    """Write records of sets."""
    for name, runs in sets.items():
        (folder / name).mkdir()
        lines = [run.model_dump_json() for run in runs]
        (folder / name / "records.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def rows(name: str, accuracies: Sequence[float], params: int, **more: Any) -> list[Record]:
    return [a_run(name, seed, acc, params, **more) for seed, acc in enumerate(accuracies)]


@pytest.mark.parametrize(
    ("accuracy", "size", "passes", "seconds", "met"),
    [
        (-0.005, 0.5, 0.1, 0.1, True), (0.02, 0.3, 0.0, None, True), (-0.0051, 0.5, 0.1, 0.1, False),
        (0.1, 0.51, 0.0, 0.0, False), (0.1, 0.1, 0.11, 0.0, False), (0.1, 0.1, 0.0, 0.11, False),
    ],
)  # fmt: skip
def test_goal(accuracy: float, size: float, passes: float, seconds: float | None, met: bool) -> None:
    """Every part must be met; CPU seconds where they were measured."""
    assert Goal("one", "quick", 3, accuracy, size, passes, seconds).is_met is met


def test_goal_is_measured(tmp_path: Path) -> None:
    """Over common seeds, of sets that lie apart; training is no part of the cost."""
    folder = publish(
        tmp_path,
        {
            "half_day": rows(SEU, [0.80, 0.90, 0.70], 1000, passes=500, cpu=10.0),
            SET: rows(OURS, [0.81, 0.89], 400, passes=20, cpu=0.5),
        },
    )
    contests = read_contests(folder)
    (goal,) = contests.goals()
    assert (goal.benchmark, goal.protocol, goal.seeds) == ("pmnist", "half_day", 2)
    assert goal.accuracy == pytest.approx(0.0) and goal.size == pytest.approx(0.4)
    assert goal.passes == pytest.approx(0.04) and goal.seconds == pytest.approx(0.05) and goal.is_met
    assert contests.rows[PLACE].keys() == {OURS, SEU}
