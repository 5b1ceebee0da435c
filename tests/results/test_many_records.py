"""The script that makes records in thousands: they are valid, varied, and the same in each call."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from seu_bench.results.record import Record
from seu_bench.results.record_files import read_records

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "many_records.py"


@pytest.mark.long
def test_made_and_read(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, tmp_path, "--number", "330"], check=True)
    records = [record for record in read_records(tmp_path) if isinstance(record, Record)]
    assert len(records) == 330 and len({record.metrics["acc"] for record in records}) > 300
    assert Counter(record.seed for record in records) == dict.fromkeys(range(5), 66)
    command = [sys.executable, "-m", "seu_bench", "leaderboard", "--results", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    assert len(list((tmp_path / "leaderboards").iterdir())) == 6
