"""Real runs from the command line, small ones: what they print, write, show again and rank."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.commands import Answer, Command

from seu_bench.results.record import Record, read_record
from seu_bench.results.record_metrics import METRICS, without_times

SEU_BENCH = [sys.executable, "-m", "seu_bench.cli.main"]
SMALL = ("--protocol", "smoke", "--limit", 8, "-o", "epochs=1")
SMALL_SEU = (*SMALL, "-o", "channels=8", "-o", "searcher.channels=8")
SMALL_SEU += ("-o", "searcher.epochs=1", "-o", "creator.epochs=1")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One results folder for the runs of this module."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def naive(command: Command, results: Path) -> Answer:
    """The answer of a naive run on scikit-learn's digits."""
    return command("run", "--strategy", "naive", *SMALL, "--results", results)


@pytest.fixture(scope="module")
def seu(command: Command, results: Path) -> Answer:
    """The answer of SEU's."""
    return command("run", *SMALL_SEU, "--seed", 3, "--results", results)


def record_of(answer: Answer) -> Record:
    assert answer.status == 0, answer.err
    (path,) = re.findall(r"^record: (.+)$", answer.out, flags=re.MULTILINE)
    return read_record(Path(path))


@pytest.mark.parametrize("which", ["naive", "seu"])
def test_what_a_run_prints(request: pytest.FixtureRequest, which: str, results: Path) -> None:
    """Few lines: accuracy, forgetting, size, the final row, where the rest is, why it is not ranked."""
    answer = request.getfixturevalue(which)
    record = record_of(answer)
    assert (record.status, record.strategy, record.benchmark) == ("finished", which, "split_digits")
    lines = answer.out.splitlines()
    assert len(lines) <= 14
    assert ", ".join(f"{100 * (value or 0):.1f}" for value in record.accuracy_matrix[-1]) in answer.out
    for name in ("acc", "forgetting", "params_total", "memory_bytes"):
        assert METRICS[name].format(record.metrics[name]) in answer.out
    assert f"seu-bench show {record.run_id} --results {results} shows the accuracy matrix" in answer.out
    assert f"record: {results / 'runs' / record.run_id / 'record.json'}\n" in answer.out
    assert answer.out.endswith("images were limited with --limit)\n")
    assert "leaderboard: none (protocol 'smoke' is never ranked; " in answer.out


@pytest.mark.parametrize(("which", "options"), [("naive", SMALL), ("seu", SMALL_SEU)])
def test_cost_told_before(
    request: pytest.FixtureRequest, command: Command, which: str, options: tuple[object, ...]
) -> None:
    """Estimates of ``cost`` are what the run took, within their range where the run decides as it goes."""
    record = record_of(request.getfixturevalue(which))
    seed = ("--seed", record.seed)
    document = json.loads(command("cost", "--strategy", which, *options, *seed, "--format", "json").out)
    assert document["image_passes"] == record.metrics["image_passes"]
    assert document["image_passes"] + document["evaluation_passes"] == sum(s.image_passes for s in record.stages)
    for name, planned in document["stages"].items():
        assert planned["image_passes"] == sum(stage.image_passes for stage in record.stages if stage.name == name)
    for key in ("params_total", "macs"):
        for least, value, most in zip(document[f"{key}_min"], getattr(record, key), document[key], strict=True):
            assert least <= value <= most
            assert (least == most) == (which == "naive")


def test_same_run_again(command: Command, naive: Answer, results: Path) -> None:
    """A finished run is shown, not made; with ``--restart`` it is made, and gives the same but for times."""
    record = record_of(naive)
    path = results / "runs" / record.run_id / "record.json"
    written = path.stat().st_mtime_ns
    again = command("run", "--strategy", "naive", *SMALL, "--results", results)
    assert record_of(again) == record
    assert "the run was finished before; nothing was computed (--restart runs it again)" in again.out
    assert again.err == ""
    assert path.stat().st_mtime_ns == written
    forced = command("run", "--strategy", "naive", *SMALL, "--results", results, "--restart")
    assert "finished before" not in forced.out
    assert path.stat().st_mtime_ns > written
    assert without_times(record_of(forced)) == without_times(record)


def test_show(command: Command, naive: Answer, seu: Answer, results: Path) -> None:
    """By id, by a beginning that only it has, by folder and by file: the same page."""
    record = record_of(naive)
    folder = results / "runs" / record.run_id
    page = command("show", record.run_id, "--results", results)
    assert page.status == 0
    assert record.run_id in page.out
    assert "mixed_score" in page.out
    for name in (record.run_id[: len("split_digits-smoke-n")], folder, folder / "record.json"):
        assert command("show", name, "--results", results).out == page.out
    both = command("show", "split_digits", "--results", results)
    assert (both.status, both.out) == (2, "")
    assert "'split_digits' is the beginning of 2 runs" in both.err
    assert "give more of the run id" in both.err


def test_ranked_run(command: Command, tiny: Path, tmp_path: Path) -> None:
    """A whole run by a ranked protocol is in the leaderboard at once; limited and synthetic ones never are."""
    asked = ("run", "--strategy", "tiny", "--protocol", "quick", "-o", "epochs=1", "--results", tmp_path)
    ranked = command(*asked)
    board = tmp_path / "leaderboards" / "split_digits-v2-quick.md"
    assert f"leaderboard: {board}\n" in ranked.out
    assert record_of(ranked).may_be_ranked
    for more, why in ((("--limit", 8), "limited with --limit"), (("--synthetic",), "synthetic data")):
        answer = command(*asked, *more)
        record = record_of(answer)
        assert (record.ranked, record.may_be_ranked) == (True, False)
        assert f"leaderboard: none ({'images were ' if 'limit' in why else ''}{why})\n" in answer.out
    shown = command("leaderboard", "--results", tmp_path)
    assert shown.status == 0
    assert str(board) in shown.out
    text = board.read_text()
    assert "1 record, 1 configuration" in text
    assert "tiny" in text
    assert "no record can be ranked for benchmark 'pmnist'" in (
        command("leaderboard", "--results", tmp_path, "--benchmark", "pmnist").out
    )


@pytest.mark.parametrize(
    ("benchmark", "classes"),
    [
        ("split_digits", [2] * 5),
        pytest.param("split_cifar100", [20] * 5, marks=pytest.mark.long),
        pytest.param("pmnist", [10] * 10, marks=pytest.mark.long),
        ("mixture", [28, 10, 10, 10, 10]),
    ],
)
def test_synthetic(command: Command, tiny: Path, tmp_path: Path, benchmark: str, classes: list[int]) -> None:
    """Every benchmark can be tried without its data, from end to end, and is not ranked."""
    asked = ("--strategy", "tiny", "--benchmark", benchmark, "--synthetic", "--protocol", "smoke", "--limit", 8)
    record = record_of(command("run", *asked, "--results", tmp_path))
    assert (record.status, record.synthetic, record.may_be_ranked) == ("finished", True, False)
    assert list(record.task_classes) == classes
    assert record.metrics["acc"] is not None


@pytest.mark.long
def test_interrupted_process(tmp_path: Path) -> None:
    """Ctrl-C in a terminal: exit status 130, one line, a record and a checkpoint of what was learned so far."""
    command = [*SEU_BENCH, "run", "--strategy", "naive", "--protocol", "quick"]
    with subprocess.Popen(
        [*command, "--results", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/record.json")) and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("interrupted by SIGINT; run the same command again to resume\n")
    assert "Traceback" not in err
    (path,) = tmp_path.glob("runs/*/record.json")
    document: dict[str, Any] = json.loads(path.read_text())
    assert (document["status"], document["error"]) == ("interrupted", "interrupted by SIGINT")
    assert {file.name for file in path.parent.iterdir()} <= {"record.json", "checkpoints", "progress.json"}
