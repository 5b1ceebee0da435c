"""Shell completion: what is offered where, without torch, and in a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from support.board_records import writer

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
        ("seu-bench run --strategy ew", ["plain,ewc"]),
        ("seu-bench sweep --strategy seu,ew", ["plain,seu,ewc"]),
        ("seu-bench run --benchmark split_cifar100", ["plain,split_cifar100", "plain,split_cifar100_class"]),
        ("seu-bench run --benchmark my.to", ["file,my.to"]),
        ("seu-bench check-plugin frug", ["plain,frugal"]),
        ("seu-bench run --log mlf", ["plain,mlflow"]),
        ("seu-bench leaderboard --columns acc,forg", ["plain,acc,forgetting"]),
        ("seu-bench list strat", ["plain,strategies"]),
        ("seu-bench list spaces mb", ["plain,mbconv"]),
        ("seu-bench check-plugin mbc", ["plain,mbconv"]),
        ("seu-bench list searchers zer", ["plain,zero_cost"]),
        ("seu-bench data fetch cifar100", ["plain,cifar100"]),
    ],
)
def test_what_is_offered(monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]) -> None:
    assert completed(monkeypatch, line) == offered


def test_runs_newest_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for time, name in enumerate(("run-old", "run-new")):
        writer(tmp_path)(run_id=name)
        os.utime(tmp_path / "runs" / name, (time, time))
    (tmp_path / "runs" / "run-\x1b[2J").mkdir()
    for name in ("show", "verify", "export", "compare"):
        offered = completed(monkeypatch, f"seu-bench {name} --results {tmp_path} run-")
        assert offered == ["plain,run-new", "plain,run-old"]


@pytest.mark.parametrize("line", ["", "run --strategy ", "leaderboard --columns "])
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
        'eval "$(_SEU_BENCH_COMPLETE=bash_source seu-bench)"; COMP_WORDS=(seu-bench run --strategy ew); COMP_CWORD=3;'
        "_seu_bench_completion seu-bench; echo ${COMPREPLY[*]}"
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ewc\n"), done.stderr
