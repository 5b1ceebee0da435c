"""Several processes on one results folder: every record whole, leaderboards of all of them, no lock left."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.board_records import leaderboards
from support.commands import FEW_IMAGES, TINY, Command, write_package
from support.locks import held

from seu_bench.results.formats import to_markdown
from seu_bench.results.record import Record, record_path
from seu_bench.results.record_files import read_records

#: Processes that each make runs and, as the command does, leaderboards after each; all begin together, and torch is
#: imported once for all of them.
WORKERS = """
import os, sys, traceback
from pathlib import Path
import avalanche.training, torch
from seu_bench.data import streams
from seu_bench.engine import runner
from seu_bench.results import building
from seu_bench.training import strategy
from seu_bench.training import monitoring as evaluators
from seu_bench.plugin.registry import Registry
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
processes, runs, results, benchmark = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]

def work(number):
    registry = Registry()
    for seed in range(number * runs, (number + 1) * runs):
        request = Request(strategy="tiny", benchmark=benchmark, seed=seed, results=results, device="cpu")
        runner.execute(registry, resolve(registry, request))
        building.make_leaderboards(results)

go, start = os.pipe()
children = []
for number in range(processes):
    child = os.fork()
    if child == 0:
        os.close(start)
        os.read(go, 1)  # until all are there
        try:
            work(number)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
os.close(start)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))
"""


@pytest.mark.parametrize(
    ("processes", "runs"),
    [pytest.param(4, 5, marks=pytest.mark.long), pytest.param(8, 25, marks=pytest.mark.crash)],
)
def test_many_processes_share_a_folder(tmp_path: Path, processes: int, runs: int) -> None:
    """Each makes the leaderboards after each of its runs, so the last one must have seen all records."""
    site = write_package(tmp_path / "site", "a-stranger", {"tiny": "tiny_plugin"}, {"tiny_plugin": TINY})
    (tmp_path / "few.toml").write_text(FEW_IMAGES)
    results = tmp_path / "results"
    done = subprocess.run(
        [sys.executable, "-c", WORKERS, str(processes), str(runs), str(results), str(tmp_path / "few.toml")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site), "SEU_BENCH_DATA": str(tmp_path / "no-data")},
    )
    assert done.returncode == 0, done.stderr
    records = list(read_records(results))
    whole = [record for record in records if isinstance(record, Record) and record.status == "finished"]
    assert len(records) == len(whole) == processes * runs
    assert {record.seed for record in whole} == set(range(processes * runs))
    left = [path.name for path in results.rglob("*") if path.name.startswith((".", "lock"))]
    assert left == []
    (board,) = leaderboards(results)
    assert sorted(path.name for path in (results / "leaderboards").iterdir()) == [
        f"{board.name}.csv",
        f"{board.name}.md",
    ]
    assert (results / "leaderboards" / f"{board.name}.md").read_text(encoding="utf-8") == to_markdown(board)
    with (results / "leaderboards" / f"{board.name}.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["seeds"] == str(processes * runs)
    assert set(row["run_ids"].split()) == {record.run_id for record in whole}
    mean = sum(float(record.metrics["acc"] or 0) for record in whole) / len(whole)
    assert float(row["acc_mean"]) == pytest.approx(mean)


def test_second_process_on_one_run_is_refused(tiny: Path, command: Command, tmp_path: Path) -> None:
    """Exit status 2, and who holds it; the record that is there stays as it was."""
    (tmp_path / "few.toml").write_text(FEW_IMAGES)
    results = tmp_path / "results"
    asked = ("run", "--strategy", "tiny", "--benchmark", tmp_path / "few.toml", "--results", results, "--device", "cpu")
    first = command(*asked)
    assert first.status == 0, first
    (record,) = read_records(results)
    assert isinstance(record, Record)
    path = record_path(results, record.run_id)
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(document | {"status": "running"}), encoding="utf-8")
    before = path.read_bytes()
    with held(path.parent) as process:
        second = command(*asked)
        assert (second.status, second.out) == (2, "")
        assert f"run {record.run_id} is held by process {process.pid} on host " in second.err
        assert second.err.count("\n  hint: ") == 1
        assert path.read_bytes() == before
    assert command(*asked).status == 0  # it was killed, and is followed at once
    assert sorted(name.name for name in path.parent.iterdir() if name.name.startswith(("lock", "."))) == []
