"""The page on compiled units, on made-up records: it says what the numbers say, whatever is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the scripts are no installed package

from scripts.evidence import compilation
from seu_bench.results.record import Record, StageRecord


def a_run(seed: int, acc: float, seconds: float, benchmark: str = "pmnist", searcher: str = "mdl") -> Record:
    """A record of SEU."""
    stage = {"task": 1, "epochs": 1, "flops": 1, "losses": [], "accuracies": [], "image_passes": 1}
    given = {
        "run_id": f"{benchmark}-{searcher}-{seed}",
        "status": "finished",
        "strategy": "seu",
        "searcher": searcher,
        "creator": "mdl",
        "benchmark": benchmark,
        "benchmark_version": 1,
        "protocol": "quick",
        "seed": seed,
        "data_fingerprint": "0" * 64,
        "metrics": {"acc": acc},
        "params_total": [1],
        "stages": [
            StageRecord.model_validate({**stage, "name": "training", "seconds": seconds}),
            StageRecord.model_validate({**stage, "name": "search", "seconds": 100.0}),
        ],
    }
    return Record.model_validate(given)


def page(folder: Path, eager: Sequence[Record], compiled: Sequence[Record]) -> str:
    """The page of two sets."""
    for name, runs in zip(compilation.SETS, (eager, compiled), strict=True):
        (folder / name).mkdir(parents=True)
        lines = [run.model_dump_json() for run in runs]
        (folder / name / "records.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return compilation.rendered(folder)


def test_seeds_stand_side_by_side(tmp_path: Path) -> None:
    """Seconds are those of training; an eager seed without a compiled one is left out, and so is another searcher's."""
    eager = [a_run(0, 0.9, 10), a_run(1, 0.8, 20), a_run(2, 0.1, 1), a_run(3, 0.5, 1, searcher="random")]
    text = page(tmp_path, eager, [a_run(0, 0.89, 30), a_run(1, 0.82, 30), a_run(3, 0.5, 1, searcher="random")])
    assert "| `pmnist` | 0 | 90.00 | 89.00 | 3.0 |\n| `pmnist` | 1 | 80.00 | 82.00 | 1.5 |\n\n" in text
    spread = "6.10 points (eager 7.07, compiled 4.95)"
    assert f"2 seeds: +0.50 points compiled, within the standard deviation over seeds, {spread}" in text
    assert "Training takes 2.2 times" in text


def test_a_difference_beyond_the_spread_is_told(tmp_path: Path) -> None:
    eager = [a_run(seed, 0.9 + seed / 1000, 1) for seed in range(3)]
    text = page(tmp_path / "lower", eager, [a_run(seed, 0.88, 1) for seed in range(3)])
    assert "-2.10 points compiled, **beyond** the standard deviation" in text
    text = page(tmp_path / "higher", eager, [a_run(seed, 0.92, 1) for seed in range(3)])
    assert "+1.90 points compiled, **beyond**" in text


def test_one_seed_and_none(tmp_path: Path) -> None:
    text = page(tmp_path / "one", [a_run(0, 0.9, 2)], [a_run(0, 0.9, 1)])
    assert "one seed, from which no spread is known" in text
    assert "| `pmnist` | 0 | 90.00 | 90.00 | 0.5 |" in text
    assert "| benchmark |" in compilation.rendered(tmp_path / "absent")
