"""Sweeps from the command line, with the executor of the guide for plugins, which makes cells in this process."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Answer, Command, Install
from sweeping import FAILING, MODULES, POINTS

import seu_bench
from seu_bench.errors import Interruption, PluginError, UnknownNameError
from seu_bench.executors import Ended, Event, Progressed, Started, SweepCell, event_from_json
from seu_bench.locks import RunLock
from seu_bench.plugins import load_plugins
from seu_bench.record import Record, read_record, read_records
from seu_bench.registry import Registry
from seu_bench.stopping import StopRequest
from seu_bench.sweep_estimate import SweepEstimate
from seu_bench.sweep_file import make_spec
from seu_bench.sweep_plan import SweepPlan, plan_sweep
from seu_bench.sweep_run import CellResult, GuardedExecutor, SweepResult, SweepWatcher, run_sweep

IN_TURN = ("--executor", "in_turn", "--device", "cpu")


@pytest.fixture(autouse=True)
def stranger(install: Install) -> Path:
    """The strategy, the metrics and the executor of a stranger."""
    return install("a-stranger", POINTS, MODULES)


def records(results: Path) -> dict[str, Record]:
    found = [record for record in read_records(results) if isinstance(record, Record)]
    return {record.run_id: record for record in found}


def written(results: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in results.glob("runs/*/record.json")}


def cells_line(answer: Answer) -> str:
    (line,) = re.findall(r"^\d+ cells?: .*$", answer.out, re.MULTILINE)
    return str(line)


def test_failing_cells(command: Command, tmp_path: Path) -> None:
    """The others are made; a failure is a row with its message; what is finished is not made again."""
    asked = ("sweep", *FAILING, "--seeds", "0-1", "--protocol", "quick", *IN_TURN, "--results", tmp_path)
    first = command(*asked)
    assert first.status == 1
    assert cells_line(first) == "4 cells: 0 done, 4 left"
    assert re.search(r"^2 finished, 2 failed$", first.out, re.MULTILINE)
    row = r"^ split_digits quick: tiny \(fault=diverge, epochs=1\), seed 1 +failed +- +- +- +the loss became nan"
    assert re.search(row, first.out, re.MULTILINE)
    assert re.search(
        r"^\[2/4\] .*fault=diverge.*, seed 0: failed: the loss became nan .*error\.txt", first.err, re.MULTILINE
    )
    found = records(tmp_path)
    assert sorted(record.status for record in found.values()) == ["failed", "failed", "finished", "finished"]
    # Leaderboards at the end, with both seeds.
    board = tmp_path / "leaderboards" / "split_digits-v1-quick.md"
    assert f"leaderboard: {board}\n" in first.out
    assert "2 records, 1 configuration" in board.read_text()
    before = written(tmp_path)
    again = command(*asked)
    assert (again.status, written(tmp_path)) == (1, before)
    assert cells_line(again) == "4 cells: 2 done, 2 failed (with --retry-failed they are run again), 0 left"
    assert "started" not in again.err
    assert re.search(row, again.out, re.MULTILINE)
    retried = command(*asked, "--retry-failed")
    assert (retried.status, retried.err.count(": started")) == (1, 2)
    changed = {path for path, time in written(tmp_path).items() if time != before[path]}
    assert changed == {path for path in before if read_record(Path(path)).status == "failed"}
    healthy = command(*asked, "-o", "benchmark.stream.validation=0.2", "--dry-run")  # another run
    assert cells_line(healthy) == "4 cells: 0 done, 4 left"


def test_equal_to_single_runs(command: Command, tmp_path: Path) -> None:
    """A cell's record is that of ``run``; once more there is nothing to do, and the status is 0."""
    common = ("--protocol", "smoke", "-o", "epochs=1", "--device", "cpu")
    asked = ("sweep", "--strategy", "tiny,naive", "--seeds", "0,3", *common, *IN_TURN, "--results", tmp_path / "a")
    answer = command(*asked)
    assert answer.status == 0, answer.err
    for strategy in ("tiny", "naive"):
        for seed in (0, 3):
            alone = ("run", "--strategy", strategy, "--seed", seed, *common, "--results", tmp_path / "b")
            assert command(*alone).status == 0
    swept, single = records(tmp_path / "a"), records(tmp_path / "b")
    assert swept.keys() == single.keys()
    for run_id, record in swept.items():
        assert record.without_times() == single[run_id].without_times()
    # Both are one sweep's, wherever they were made; smoke runs are in no leaderboard.
    done = command(*asked[:-1], tmp_path / "b")
    assert (done.status, done.err, cells_line(done)) == (0, "", "4 cells: 4 done, 0 left")
    assert done.out.endswith("4 finished\n")
    assert not (tmp_path / "b" / "leaderboards").exists()


def test_merged_by_copying(command: Command, tmp_path: Path) -> None:
    """The runs of two sweeps in one folder are one sweep; the leaderboard has both."""
    asked = ("--strategy", "tiny", "--protocol", "quick", "-o", "epochs=1", *IN_TURN)
    for seeds, name in (("0", "a"), ("1-2", "b")):
        assert command("sweep", *asked, "--seeds", seeds, "--results", tmp_path / name).status == 0
    shutil.copytree(tmp_path / "b" / "runs", tmp_path / "a" / "runs", dirs_exist_ok=True)
    board = tmp_path / "a" / "leaderboards" / "split_digits-v1-quick.csv"
    assert read_seeds(board) == [1]
    assert command("leaderboard", "--results", tmp_path / "a").status == 0
    assert read_seeds(board) == [3]
    board.unlink()
    both = command("sweep", *asked, "--seeds", "0-2", "--results", tmp_path / "a")
    assert (both.status, cells_line(both), read_seeds(board)) == (0, "3 cells: 3 done, 0 left", [3])


def read_seeds(board: Path) -> list[int]:
    import pandas

    return [int(seeds) for seeds in pandas.read_csv(board)["seeds"]]


def test_held_by_another(command: Command, tmp_path: Path) -> None:
    """A run that another process makes is looked at last, and a row says who has it."""
    asked = ("sweep", "--strategy", "tiny", "--seeds", "0-1", "--protocol", "smoke", *IN_TURN, "--results", tmp_path)
    spec = make_spec({"strategy": "tiny", "seeds": "0-1", "protocol": "smoke", "results": tmp_path})
    first, second = plan_sweep(Registry(), spec).cells
    with RunLock(tmp_path / "runs" / first.run_id):
        answer = command(*asked)
    assert answer.status == 1
    assert cells_line(answer) == "2 cells: 0 done, 1 running elsewhere (looked at last), 2 left"
    assert re.search(r"1 finished, 1 held by another process|1 held by another process, 1 finished", answer.out)
    assert "is held by process" in answer.out
    assert answer.err.index(f"seed {second.seed}: started") < answer.err.index(f"seed {first.seed}: started")
    assert command(*asked).status == 0


def test_from_python(tmp_path: Path) -> None:
    """The same, as a value: records, and what failed with its message."""
    result = seu_bench.sweep(
        strategy="tiny", options={"fault": ["none", "diverge"], "epochs": 1}, protocol="quick",
        executor="in_turn", results=tmp_path,
    )  # fmt: skip
    (record,) = result.records
    assert (record.status, record.metrics["acc"] is not None, result.status) == ("finished", True, 1)
    (failed,) = result.having("failed")
    assert failed.message.startswith("the loss became nan in stage 'training' of task 1, epoch 1")
    assert (tmp_path / "leaderboards").is_dir()
    again = seu_bench.sweep(
        strategy="tiny", options={"epochs": 1}, executor="in_turn", results=tmp_path, protocol="quick"
    )
    assert ([cell.made for cell in again.cells], again.status) == ([False], 0)


class Scripted:
    """An executor that tells what a test has written; it makes nothing."""

    slots: int | None = 2
    summary = "scripted"
    detaches = False

    def __init__(self, *told: Any) -> None:
        from seu_bench.options import Options

        self.options = Options
        self.told = list(told)
        self.called: list[str] = []

    def build(self, options: Any, device: str) -> Scripted:
        return self

    def submit(self, cells: Sequence[SweepCell]) -> None:
        self.called.append("submit")

    def wait(self, seconds: float) -> Sequence[Event]:
        told = self.told.pop(0)
        if isinstance(told, Exception):
            raise told
        return [told] if not isinstance(told, list) else told

    def cancel(self) -> None:
        self.called.append("cancel")

    def close(self) -> None:
        self.called.append("close")


def driven(
    executor: Scripted, results: Path, *, stop: StopRequest | None = None, seeds: str = "0-1"
) -> tuple[SweepPlan, SweepResult, list[str]]:
    """A sweep of two cells with an executor of a stranger, and what the watcher was told."""
    manager = load_plugins()

    class Plugin:
        @staticmethod
        def register_executors(register: Any) -> None:
            register("scripted", executor)

    from seu_bench.hookspecs import hookimpl

    Plugin.register_executors = staticmethod(hookimpl(Plugin.register_executors))  # type: ignore[method-assign]
    manager.register(Plugin(), name="scripting")
    registry = Registry(manager)
    spec = make_spec(
        {"strategy": "tiny", "seeds": seeds, "protocol": "smoke", "results": results, "executor": "scripted"}
    )
    plan = plan_sweep(registry, spec)
    told: list[str] = []

    class Watcher(SweepWatcher):
        def ended(self, result: CellResult) -> None:
            told.append(result.fate)

        def end(self) -> None:
            told.append("end")

    found = run_sweep(plan, GuardedExecutor(registry, spec), SweepEstimate(), Watcher(), stop)
    return plan, found, told


def ids(results: Path) -> list[str]:
    spec = make_spec({"strategy": "tiny", "seeds": "0-1", "protocol": "smoke", "results": results})
    return [cell.run_id for cell in plan_sweep(Registry(), spec).cells]


def test_what_executors_tell(tmp_path: Path) -> None:
    """Events of strangers' cells and after an end are nothing; what has no finished record is not finished."""
    first, second = ids(tmp_path)
    executor = Scripted(
        [Started(run_id=first), Started(run_id="a stranger's"), Ended(run_id="a stranger's", status="finished")],
        [],
        [Ended(run_id=first, status="lost", message="killed"), Ended(run_id=first, status="finished")],
        Ended(run_id=second, status="finished"),
    )
    _, found, told = driven(executor, tmp_path)
    assert [(cell.fate, cell.message[:35]) for cell in found.cells] == [
        ("lost", "killed"),
        ("failed", "it was finished, but its record is "),
    ]
    assert (told, executor.called, found.status) == (["lost", "failed", "end"], ["submit", "close"], 1)


def test_told_to_stop(tmp_path: Path) -> None:
    """Cells are told once; what they say of their end is still heard; the status is the signal's."""
    first, second = ids(tmp_path)
    stop = StopRequest()
    stop.ask(Interruption("interrupted by SIGTERM", 143))
    executor = Scripted(
        Started(run_id=first),
        Ended(run_id=second, status="interrupted"),
        Ended(run_id=first, status="interrupted", message="stopped"),
    )
    _, found, told = driven(executor, tmp_path, stop=stop)
    assert [cell.fate for cell in found.cells] == ["interrupted", "left"]
    assert (executor.called, found.status, told) == (["submit", "cancel", "close"], 143, ["left", "interrupted", "end"])


def test_executor_whose_cells_go_on(tmp_path: Path) -> None:
    """One that outlives its driver is not cancelled: the same command attaches to what runs."""
    stop = StopRequest()
    stop.ask(Interruption("interrupted by SIGINT", 130))
    executor = Scripted()
    executor.detaches = True
    _, found, _ = driven(executor, tmp_path, stop=stop)
    assert (executor.called, found.status) == (["submit", "close"], 130)


def test_stopped_at_once(tmp_path: Path) -> None:
    """A second signal: the executor is closed, and what had begun counts as interrupted."""
    first, _ = ids(tmp_path)
    stop = StopRequest(grace=60)

    class Impatient(Scripted):
        def wait(self, seconds: float) -> Sequence[Event]:
            if not self.told:
                raise Interruption("interrupted by SIGINT", 130)
            return super().wait(seconds)

    executor = Impatient(Started(run_id=first))
    _, found, _ = driven(executor, tmp_path, stop=stop)
    assert ([cell.fate for cell in found.cells], found.status) == (["interrupted", "left"], 130)
    assert executor.called == ["submit", "close"]


def test_broken_executor(tmp_path: Path) -> None:
    """It is named, and closed."""
    executor = Scripted(LookupError("no queue"))
    with pytest.raises(
        PluginError, match="executor 'scripted' of package scripting failed in wait: LookupError: no queue"
    ):
        driven(executor, tmp_path)
    assert executor.called == ["submit", "close"]


def test_unknown_executor(command: Command, tmp_path: Path) -> None:
    """Refused, with those that there are; so is an option that it does not have."""
    asked = ("sweep", "--strategy", "tiny", "--protocol", "smoke", "--results", tmp_path / "results")
    unknown = command(*asked, "--executor", "slurp")
    assert (unknown.status, "the executors are: in_turn, local" in unknown.err) == (2, True)
    options = command(*asked, "--executor", "in_turn", "--jobs", 2)
    assert (options.status, "'jobs' is not an option" in options.err) == (2, True)
    assert not (tmp_path / "results").exists()
    with pytest.raises(UnknownNameError):
        Registry().executors.find("slurp")


def test_events_as_json() -> None:
    """They come back as they were; anything else is refused."""
    events: list[Event] = [
        Started(run_id="a", where="cuda 1"),
        Progressed(run_id="a", task=0, tasks=2, stage="search", epoch=1, epochs=3, passed=5, planned=9, left=None),
        Ended(run_id="a", status="held", message="by\n\x1b[2J"),
    ]
    for event in events:
        assert event_from_json(event.model_dump_json()) == event
    for text in ("", "{}", '{"kind": "ended"}', '{"kind": "other", "run_id": "a"}', "[1]"):
        with pytest.raises(ValueError, match="validation error"):
            event_from_json(text)
