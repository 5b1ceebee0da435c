"""Shell completion: what is offered where, without torch, and in a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from seu_bench.cli.main import cli


def completed(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """What is offered behind a line, as bash tells it."""
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    return BashComplete(cli, {}, "seu-bench", "_SEU_BENCH_COMPLETE").complete().splitlines()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("seu-bench le", ["plain,leaderboard"]),
        ("seu-bench -q ru", ["plain,run", "plain,runs"]),
        ("seu-bench run --strat", ["plain,--strategy"]),
        ("seu-bench leaderboard --format la", ["plain,latex"]),
    ],
)
def test_what_is_offered(monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]) -> None:
    assert completed(monkeypatch, line) == offered


@pytest.mark.parametrize("line", ["", "run --str", "leaderboard --format "])
def test_no_torch(line: str) -> None:
    code = (
        "import atexit, sys; from seu_bench.cli.main import main; heavy = {'torch', 'pandas', 'matplotlib', 'scipy'};"
        "atexit.register(lambda: print(*heavy & {*sys.modules}, file=sys.stderr, end='')); main()"
    )
    words = {"_SEU_BENCH_COMPLETE": "bash_complete", "COMP_WORDS": f"seu-bench {line}"}
    words["COMP_CWORD"] = str(len(words["COMP_WORDS"].split(" ")) - 1)
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | words, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout


@pytest.mark.long
def test_a_real_bash(tmp_path: Path) -> None:
    """Its script defines the function that bash calls for the tab key."""
    (tmp_path / "seu-bench").write_text(f'#!/bin/sh\nexec {sys.executable} -m seu_bench "$@"\n')
    (tmp_path / "seu-bench").chmod(0o755)
    script = (
        'eval "$(_SEU_BENCH_COMPLETE=bash_source seu-bench)"; COMP_WORDS=(seu-bench run --strat); COMP_CWORD=2;'
        "_seu_bench_completion seu-bench; echo ${COMPREPLY[*]}"
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "--strategy\n"), done.stderr
