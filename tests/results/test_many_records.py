"""The script that makes records in thousands: they are valid, varied, and the same in each call."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.board_records import leaderboards

from seu_bench.results.record import Record
from seu_bench.results.record_files import read_records
from seu_bench.results.record_metrics import compute_metrics

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "many_records.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("many")
    subprocess.run([sys.executable, SCRIPT, "make", made, "--number", "330"], check=True)
    return made


def test_valid_and_varied(folder: Path) -> None:
    records = [record for record in read_records(folder) if isinstance(record, Record)]
    assert len(records) == len(list(folder.glob("runs/*"))) == 330
    for record in records[::20]:
        found = compute_metrics(record)
        assert {key: record.metrics[key] for key in ("acc", "mixed_score")} == {
            key: pytest.approx(found[key]) for key in ("acc", "mixed_score")
        }
    assert len({record.metrics["acc"] for record in records}) > 300
    assert Counter(record.seed for record in records) == dict.fromkeys(range(5), 66)
    boards = leaderboards(folder)
    assert {board.benchmark for board in boards} == {"pmnist", "split_cifar100", "split_fashion"}
    assert sum(board.records for board in boards) == 330
    assert all(row.seeds == 5 for board in boards for row in board.rows)


@pytest.mark.long
def test_measured(folder: Path) -> None:
    words = ["measure", "leaderboard", "--results", folder]
    done = subprocess.run([sys.executable, SCRIPT, *words], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["seconds"] > 0 and 2**24 < found["peak_memory_bytes"] < 2**30
    assert len(list((folder / "leaderboards").iterdir())) == 6
