"""The tutorial of a method, line by line, and the example package, installed as a stranger's would be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Command

from seu_bench.results import read_leaderboards
from seu_bench.results.record import read_record
from seu_bench.testing import StrategyContract

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "bring_your_own"
METHOD = ROOT / "examples" / "my_method.py"
TUTORIAL = ROOT / "docs" / "tutorials" / "strategy.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the example with its images, installed by pip into a folder of its own for the length of the module."""
    copy = tmp_path_factory.mktemp("example") / "bring_your_own"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__", "images", "results", "*.egg-info"))
    site = copy / "site"
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(site), str(copy)]
    subprocess.run([sys.executable, *pip], check=True, capture_output=True)
    subprocess.run([sys.executable, str(copy / "make_images.py")], check=True, capture_output=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        yield copy
    sys.modules.pop("anchored", None)


def test_files_are_short() -> None:
    """A whole method in at most 40 lines."""
    for path in (METHOD, EXAMPLE / "anchored.py"):
        assert len(path.read_text("utf-8").splitlines()) <= 40


@pytest.mark.long
def test_is_found(folder: Path, command: Command) -> None:
    """The installed package offers its strategy under its own name."""
    assert re.search(r"anchored +anchored-strategy +Fine-tuning with an L2 penalty", command("list", "strategies").out)


@pytest.mark.long
def test_smoke(folder: Path, command: Command, tmp_path: Path) -> None:
    """It learns the folder's five tasks."""
    asked = ("--strategy", "anchored", "--benchmark", folder / "my_digits.toml", "--protocol", "smoke")
    answer = command("run", *asked, "--results", tmp_path)
    assert answer.status == 0, answer.err
    (run,) = (tmp_path / "runs").iterdir()
    record = read_record(run)
    assert (record.status, record.ranked, len(record.task_names)) == ("finished", False, 5)


@pytest.mark.long
def test_tutorial_leads_to_the_leaderboard(tmp_path: Path) -> None:
    """Each of its lines works; the run that is killed resumes, and three seeds make a row."""
    lines = re.findall(r"^    (seu-bench .+)", TUTORIAL.read_text("utf-8"), re.MULTILINE)
    assert len(lines) == 10
    text = "\n".join(["set -eo pipefail", *lines]).replace("epochs=200", "epochs=20")
    assert " sleep 15;" in text
    text = text.replace(" sleep 15;", " until ls results/runs/*/checkpoints/*; do sleep 0.1; done;")
    shutil.copy(METHOD, tmp_path)
    (tmp_path / "seu-bench").write_text(f'#!/bin/sh\nexec {sys.executable} -m seu_bench "$@"\n')
    (tmp_path / "seu-bench").chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,  # the loop above has no end where the run fails
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resuming from task" in done.stderr and "no difference found" in done.stdout
    assert re.search(r"^ run .*\n.*\n.* interrupted ", done.stdout, re.MULTILINE)
    assert {"my_replay.py", "test_my_replay.py"} < {path.name for path in tmp_path.iterdir()}
    (board,) = read_leaderboards(tmp_path / "results").boards
    found = sorted((row.configuration.split()[0], row.seeds) for row in board.rows)
    assert found == [("focal_replay", 1), ("focal_replay", 3), ("naive", 3), ("replay", 3)]


@pytest.mark.long
def test_its_own_contract(folder: Path) -> None:
    """The package's test file passes, and runs every check of the contract."""
    path = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_anchored.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checks = [name for name in vars(StrategyContract) if name.startswith("test_")]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= len(checks)
