"""The guide's package with one of everything: its files are written as the guide has them, and its script is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import seu_bench

GUIDE = Path(seu_bench.__file__).parent.parent / "docs" / "reference" / "hooks.md"
FILES = {
    "pyproject.toml",
    "my_seu_plugin/__init__.py",
    "my_seu_plugin/learning.py",
    "my_seu_plugin/stripes.py",
    "my_seu_plugin/split_stripes.toml",
    "check.py",
}


def written(folder: Path) -> set[str]:
    """Write the files of the guide's section; their names."""
    text = GUIDE.read_text(encoding="utf-8").partition("## A package with everything")[2]
    section = text[: re.search(r"^## ", text, re.MULTILINE).start()]  # type: ignore[union-attr]
    blocks = re.findall(r"^`([\w./]+)`[^\n]*\n\n```\w+\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    for name, block in blocks:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block, encoding="utf-8")
    return {name for name, _ in blocks}


@pytest.mark.long
def test_works_as_it_is_written(tmp_path: Path) -> None:
    """Without installing it: strategy, searcher, creator, data set, benchmark and metric, in two finished runs."""
    assert written(tmp_path) == FILES
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
