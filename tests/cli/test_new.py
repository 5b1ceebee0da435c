"""``seu-bench new``: what it writes is short, works as it is, and replaces nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

LONGEST = 40


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, as its user does in a shell."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        words, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my-method", "no name of a module"),
        ("class", "no name of a module"),
        ("ewc", "there is a strategy 'ewc'"),
        ("torch", "a module that is installed"),
        ("there", "there.py would be replaced"),
        ("tested", "test_tested.py would be replaced"),
    ],
)
def test_refused(tmp_path: Path, name: str, said: str) -> None:
    """What there is stays."""
    for file in ("there.py", "test_tested.py"):
        (tmp_path / file).write_text("mine")
    answer = call(tmp_path, "seu-bench", "new", "method", name)
    assert answer.returncode == 2 and said in answer.stderr
    assert {path.read_text() for path in tmp_path.iterdir()} == {"mine"}
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.long
def test_commands_that_it_prints(tmp_path: Path) -> None:
    """All of them run as they stand: the contract passes, and the replay is better than naive fine-tuning."""
    made = call(tmp_path, "seu-bench", "new", "method", "my_method")
    assert made.returncode == 0, made.stderr
    assert len((tmp_path / "my_method.py").read_text().splitlines()) <= LONGEST
    commands = [shlex.split(line) for line in made.stdout.splitlines()[1:]]
    assert [words[1] for words in commands] == ["check-plugin", "test_my_method.py", "run", "sweep", "leaderboard"]
    for words in commands:
        answer = call(tmp_path, *words)
        assert answer.returncode == 0, answer.stdout + answer.stderr
    first, second, *_ = (line for line in answer.stdout.splitlines() if line.startswith(" ● "))
    assert "my_method" in first and "naive" in second
