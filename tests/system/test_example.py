"""The example package, installed as a stranger's would be, and the guide that leads through it: all of it is run."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Command

from seu_bench.results.record import read_record
from seu_bench.testing import StrategyContract, Trial

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "bring_your_own"
DOCUMENT = ROOT / "docs" / "tutorials" / "strategy.md"

#: What makes a run short; it does not keep it from being ranked.
SHORT = ("-o", "backbone=mlp", "-o", "epochs=1")


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


def commands() -> list[list[str]]:
    """Every ``seu-bench`` command of the guide, those in a loop over seeds once for each."""
    found: list[list[str]] = []
    for seeds, line in re.findall(
        r"^    (?:for seed in ([\d ]+); do )?(seu-bench [^;\n]+)", DOCUMENT.read_text("utf-8"), re.MULTILINE
    ):
        found += [line.replace("$seed", seed).split()[1:] for seed in seeds.split() or [""]]
    return found


def test_module_is_short() -> None:
    """A whole strategy in fewer than 60 lines."""
    assert len((EXAMPLE / "anchored.py").read_text("utf-8").splitlines()) < 60


def test_is_found(folder: Path, command: Command) -> None:
    """The installed package offers its strategy under its own name."""
    assert re.search(r"anchored +anchored-strategy +fine-tuning with an L2 penalty", command("list", "strategies").out)


def test_smoke(folder: Path, command: Command, tmp_path: Path) -> None:
    """It learns the folder's five tasks."""
    asked = ("--strategy", "anchored", "--benchmark", folder / "my_digits.toml", "--protocol", "smoke")
    answer = command("run", *asked, "--results", tmp_path)
    assert answer.status == 0, answer.err
    (run,) = (tmp_path / "runs").iterdir()
    record = read_record(run)
    assert (record.status, record.ranked, len(record.task_names)) == ("finished", False, 5)


@pytest.mark.long
def test_guide_leads_to_the_leaderboard(folder: Path, command: Command, tmp_path: Path) -> None:
    """Every command of the guide works; in the end there is a row of three seeds."""
    asked = commands()
    assert [line[0] for line in asked].count("run") == 7
    for line in asked:
        arguments = [str(folder / word) if word.endswith(".toml") else word for word in line]
        results = () if line[0] in {"cost", "list"} else ("--results", tmp_path)
        short = SHORT if line[0] in {"cost", "run"} else ()
        answer = command(*arguments, *results, *short)
        assert answer.status == 0, answer.err
    table, _, _ = (tmp_path / "leaderboards" / "my_digits-v1-quick.md").read_text("utf-8").partition("\n## ")
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if re.match(r"\|[ ●]+\d", line)]
    assert sorted((row[2].split()[0], row[3]) for row in rows) == [("anchored", "3"), ("naive", "3")]


def test_guide_quotes_the_example() -> None:
    """Calls within its sentences are those of the module, word by word; its blocks are compared with all pages'."""
    source = (EXAMPLE / "anchored.py").read_text("utf-8")
    calls = re.findall(r"`(\w+\.of\(context.*?|\w+ = \(\".*?)`", DOCUMENT.read_text("utf-8"))
    assert len(calls) == 2
    for code in calls:
        assert code in source, code


def test_guide_names_the_files() -> None:
    """Files that the guide asks for are there."""
    text = DOCUMENT.read_text("utf-8")
    for name in ("anchored.py", "my_digits.toml", "make_images.py", "test_anchored.py"):
        assert name in text and (EXAMPLE / name).is_file()


def test_wrapped_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin of Avalanche, wrapped as it is: it learns, sees what it may and depends on the seed alone."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "wrapped", raising=False)
    trial = Trial("wrapped", {"backbone": "mlp"}, [importlib.import_module("wrapped")])
    contract = StrategyContract()
    contract.test_learns(trial)
    contract.test_sees_no_later_task_and_no_test_image(trial)
    contract.test_depends_on_the_seed_alone(trial)


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
