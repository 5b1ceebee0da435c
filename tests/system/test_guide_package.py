"""The example package with one of everything, used without installing it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seu_bench

EXAMPLE = Path(seu_bench.__file__).resolve().parent.parent / "examples" / "my_seu_plugin"


@pytest.mark.long
def test_works_as_it_is_written(tmp_path: Path) -> None:
    """Strategy, searcher, creator, data set, benchmark and metric, in two finished runs."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    done = subprocess.run(
        [sys.executable, "check.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    ends = [line.split() for line in done.stdout.splitlines()]
    assert [(run_id.split("-")[2], status) for run_id, status, *_ in ends] == [
        ("heads_only", "finished"),
        ("seu", "finished"),
    ]
    assert all(0 <= float(accuracy) <= 1 and float(size) > 0 for _, _, accuracy, size in ends)
    assert "after classes 0-1: " in done.stderr  # the hook that watches
