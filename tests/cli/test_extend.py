"""``seu-bench extend``: what it prints, how it goes on when it was killed; its runs in all other commands."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Answer, Command
from support.months import months_file, write_month

from seu_bench.results.building import read_leaderboards
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_files import LEARNER_NAME, MODEL_NAME
from seu_bench.results.record_metrics import without_times

NAMES = ("may", "june", "july", "august")
#: A plugin that kills its process in an epoch of training of the third task, once.
KILLER = """
import os, pathlib, signal
from seu_bench import hookimpl

@hookimpl
def stage_progress(progress):
    once = pathlib.Path(__file__).with_name("killed")
    if (progress.task, progress.stage, progress.epoch) == (2, "training", 1) and not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""
#: A method with a memory.
METHOD = """
from seu_bench import Method, Reservoir
from torch.nn.functional import cross_entropy

class Mine(Method):
    \"\"\"Mine.\"\"\"

    name = "mine"

    def setup(self):
        self.memory = Reservoir(50)

    def batch_loss(self, x, y, task, logits):
        return cross_entropy(logits, y)
"""


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four months of two digits each."""
    folder = tmp_path_factory.mktemp("months")
    return [write_month(folder / name, [2 * place, 2 * place + 1]) for place, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def first(command: Command, tmp_path_factory: pytest.TempPathFactory, months: list[Path]) -> tuple[Path, Answer]:
    """A results folder with a run of two months, and what it printed."""
    results = tmp_path_factory.mktemp("first") / "results"
    file = months_file(results.with_suffix(".toml"), months[:2])
    return results, learn(command, results, "--strategy", "replay", "--benchmark", file)


@pytest.fixture
def results(first: tuple[Path, Answer], tmp_path: Path) -> Path:
    """A copy of it, to be changed; its data are where they were."""
    return Path(shutil.copytree(first[0], tmp_path / "results"))


def learn(command: Command, results: Path, *asked: object) -> Answer:
    answer = command(
        *("run", "-o", "width=0.1", "--device", "cpu", "--results", results, "--data-root", results / "decoded"), *asked
    )
    assert answer.status == 0, answer.err
    return answer


def run_id(results: Path) -> str:
    (folder,) = (results / "runs").iterdir()
    return folder.name


def extend(command: Command, results: Path, run: str, *asked: object) -> Answer:
    where = ("--results", results, "--data-root", results / "decoded", "--device", "cpu")
    return command("extend", run, *where, *asked)


def extended(command: Command, results: Path, run: str, data: Path) -> Record:
    """The record of an extension."""
    answer = extend(command, results, run, "--data", data, "--format", "json")
    assert answer.status == 0, answer.err
    return Record.model_validate_json(answer.out)


def test_what_it_prints(command: Command, first: tuple[Path, Answer], results: Path, months: list[Path]) -> None:
    """The size of the learner at the end of a run; then what the task alone costs, before and after; accuracies."""
    short = read_record(results / "runs" / run_id(results))
    size = (results / "runs" / short.run_id / LEARNER_NAME).stat().st_size
    assert size == short.learner_bytes
    assert f"{size / 1e3:,.1f} kB, for seu-bench extend" in first[1].out
    answer = extend(command, results, short.run_id, "--data", months[2], "--name", "July")
    assert answer.status == 0, answer.err
    (new,) = (it for it in (results / "runs").iterdir() if it.name != short.run_id)
    record = read_record(new)
    own = [stage for stage in record.stages if stage.task == 2]
    assert f"task July after 2, {sum(stage.image_passes for stage in own):,} image passes" in answer.err
    passes = sum(stage.image_passes for stage in own if stage.name != "evaluation")
    assert 0 < passes < (record.metrics["image_passes"] or 0)
    assert f"replay learned July after 2 tasks of {short.run_id}\ncost of this alone: {passes:,} image" in answer.out
    for place, name in enumerate(record.task_names):
        (line,) = (line for line in answer.out.splitlines() if line.startswith(f" {place} {name} "))
        before = f"{100 * (short.accuracy_matrix[1][place] or 0):.1f}" if place < 2 else "-"
        assert line.split()[2:] == [before, f"{100 * (record.accuracy_matrix[2][place] or 0):.1f}"]
    assert f"seu-bench extend {record.run_id} --data FOLDER --results {results}" in answer.out
    assert f"seu-bench predict {record.run_id} FILES" in answer.out
    again = extend(command, results, short.run_id, "--data", months[2], "--name", "July")
    assert "finished before; nothing was computed" in again.out
    quiet = extend(command, results, short.run_id, "--data", months[2], "--name", "July", "-q")
    assert (quiet.status, quiet.out, quiet.err) == (0, f"{record.run_id}\n", "")
    printed = extend(command, results, short.run_id, "--data", months[2], "--name", "July", "--format", "json")
    assert printed.out == (new / "record.json").read_text(encoding="utf-8")


def test_refused(command: Command, results: Path, months: list[Path]) -> None:
    """In words, with status 2; earlier data that were changed, or are gone, by their task or folder."""
    run = run_id(results)
    there = sorted(results.rglob("*"))
    for asked, told in (
        (("--data", months[2], "--seed", 1), "No such option '--seed'"),
        (("--data", months[2], "-o", "epochs=1"), "No such option"),
        (("--data", months[2], "--name", " "), "the name of the task is blank"),
        (("--data", months[2], "--name", "june"), "has learned a task 'june' already"),
    ):
        answer = extend(command, results, run, *asked)
        assert (answer.status, answer.out) == (2, "")
        assert told in answer.err and "Traceback" not in answer.err
    assert sorted(results.rglob("*")) == there


@pytest.mark.long
def test_earlier_data(command: Command, months: list[Path], tmp_path: Path) -> None:
    """Which were changed, or are gone, are named, and nothing is written."""
    for month in months[:2]:
        shutil.copytree(month, tmp_path / month.name)
    file = months_file(tmp_path / "b.toml", [Path(month.name) for month in months[:2]])
    learn(command, tmp_path / "results", "--strategy", "naive", "--benchmark", file)
    run, there = run_id(tmp_path / "results"), sorted((tmp_path / "results" / "runs").rglob("*"))
    next((tmp_path / "june" / "d3").iterdir()).unlink()
    answer = extend(command, tmp_path / "results", run, "--data", months[2])
    assert answer.status == 2
    assert "task 1 ('june') is not the one that run" in answer.err and "its data and images differ" in answer.err
    shutil.rmtree(tmp_path / "may")
    answer = extend(command, tmp_path / "results", run, "--data", months[2])
    assert answer.status == 2 and f"data set 'may' is missing\n  where: {tmp_path / 'may'}" in answer.err
    assert sorted((tmp_path / "results" / "runs").rglob("*")) == there
    assert not (tmp_path / "results" / "streams").exists()


@pytest.mark.long
def test_killed_and_given_again(command: Command, results: Path, months: list[Path], tmp_path: Path) -> None:
    """In the middle of the new task; the same command ends with the same bits, from the checkpoint."""
    whole = extended(command, Path(shutil.copytree(results, tmp_path / "whole")), run_id(results), months[2])
    (plugin := tmp_path / "killer.py").write_text(KILLER, encoding="utf-8")
    words = ["extend", run_id(results), "--data", months[2], "--results", results, "--data-root", results / "decoded"]
    words += ["--device", "cpu", "--checkpoint-every", 0, "--plugin", plugin]
    process = [sys.executable, "-m", "seu_bench.cli.main", *map(str, words)]
    killed = subprocess.run(process, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = results / "runs" / whole.run_id
    assert read_record(folder).status == "running" and [*(folder / "checkpoints").iterdir()] != []
    assert "interrupted" in command("runs", "--results", results).out
    again = subprocess.run(process, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    assert "resum" in again.stderr
    found = read_record(folder)
    different = {"environment", "code", "parent"}
    assert {key: it for key, it in without_times(found).items() if key not in different} == {
        key: it for key, it in without_times(whole).items() if key not in different
    }
    assert found.parent is not None and found.parent == whole.parent


@pytest.mark.long
def test_chain_in_leaderboards(command: Command, results: Path, months: list[Path]) -> None:
    """The longest of a chain stays; with a run that was not extended beside it, the shorter ones do as well."""
    runs = [read_record(results / "runs" / run_id(results))]
    for month in months[2:]:
        runs.append(extended(command, results, runs[-1].run_id, month))
    (board,) = read_leaderboards(results).boards
    assert [row.record.run_id for row in board.rows] == [runs[-1].run_id]
    assert "tasks" not in board.title
    (line,) = (line for line in board.excluded if "a longer run continues it" in line)
    assert line.startswith("2 records not counted") and all(run.run_id in line for run in runs[:2])
    shown = command("leaderboard", "--results", results)
    assert "2 records not counted: a longer run continues it" in shown.out
    learn(command, results, "--strategy", "naive", "--benchmark", months_file(results / "b.toml", months[:2]))
    boards = {board.title.rpartition(", ")[2]: board for board in read_leaderboards(results).boards}
    assert {title: len(board.rows) for title, board in boards.items()} == {"2 tasks": 2, "4 tasks": 1}
    for board in boards.values():
        (line,) = (line for line in board.excluded if "a longer run continues it" in line)
        assert line.startswith("1 record not counted") and runs[1].run_id in line


def test_in_other_commands(command: Command, results: Path, months: list[Path], tmp_path: Path) -> None:
    """Its parent, and its learner, are shown and verified; a submission has no learner."""
    run = run_id(results)
    new = extended(command, results, run, months[2])
    where = ("--results", results)
    (line,) = (line for line in command("runs", *where).out.splitlines() if line.split()[:1] == [new.run_id])
    assert line.rstrip().endswith(f"continues {run}")
    listed = {it["run_id"]: it["parent"] for it in json.loads(command("runs", *where, "--format", "json").out)}
    assert listed == {run: None, new.run_id: run}
    shown = command("show", new.run_id, *where).out
    assert f"{run}, continued after 2 tasks" in shown and "kB, for seu-bench extend" in shown
    file = results / str(new.benchmark_file)
    check = ("verify", new.run_id, *where, "--benchmark", file, "--data-root", results / "decoded", "--device", "cpu")

    def checks() -> dict[str, bool | None]:
        return {it["name"]: it["passed"] for it in json.loads(command(*check, "--format", "json").out)["checks"]}

    assert all(checks().values())
    assert checks()["parent"] is checks()["learner"] is True
    learner = results / "runs" / new.run_id / LEARNER_NAME
    learner.write_bytes(learner.read_bytes()[:-1] + b"x")
    parent = results / "runs" / run / "record.json"
    text = parent.read_text(encoding="utf-8")
    parent.write_text(json.dumps(json.loads(text) | {"record_sha256": "0" * 64}), encoding="utf-8")
    assert (checks()["learner"], checks()["parent"]) == (False, None)
    document = json.loads(text)
    document["accuracy_matrix"][0][0] += 0.125
    parent.write_text(json.dumps(document), encoding="utf-8")
    assert checks()["parent"] is False
    parent.unlink()
    learner.unlink()
    assert (checks()["learner"], checks()["parent"]) == (None, None)


@pytest.mark.long
def test_submission_has_no_learner(command: Command, results: Path, months: list[Path], tmp_path: Path) -> None:
    """It may hold pictures."""
    file = months_file(tmp_path / "b.toml", months[:2])
    for seed in (1, 2):
        learn(command, results, "--strategy", "replay", "--benchmark", file, "--seed", seed)
    runs = [folder.name for folder in (results / "runs").iterdir()]
    about = ("--submitter", "us", "--licence", "CC-BY-4.0", "--contact", "https://example.org", "--models")
    answer = command("submit", *runs, "--results", results, "--to", tmp_path / "shared", *about)
    assert answer.status == 0, answer.err
    assert len([*(tmp_path / "shared").rglob(MODEL_NAME)]) == 3
    assert [*(tmp_path / "shared").rglob(LEARNER_NAME)] == []


@pytest.mark.long
def test_other_code_of_a_plugin(command: Command, results: Path, months: list[Path], tmp_path: Path) -> None:
    """A method that was changed since does not go on with what the earlier one learned, unless that is accepted."""
    (plugin := tmp_path / "mine.py").write_text(METHOD, encoding="utf-8")
    file, own = months_file(tmp_path / "b.toml", months[:2]), results.parent / "own"
    learn(command, own, "--plugin", plugin, "--strategy", "mine", "--benchmark", file)
    run, asked = run_id(own), ("--data", months[2], "--plugin", plugin)
    plugin.write_text(METHOD.replace("50", "60"), encoding="utf-8")
    answer = extend(command, own, run, *asked)
    assert answer.status == 2 and "made with other code: strategy 'mine' of mine.py" in answer.err
    assert run_id(own) == run
    assert extend(command, own, run, *asked, "--accept-code").status == 0
