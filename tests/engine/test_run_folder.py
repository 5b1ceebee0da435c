"""Disks that are full, read-only, gone or strange: one clear error, nothing half-written, what was there stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import TINY, Command, write_package
from support.locks import locked

from seu_bench.engine.run_folder import list_runs
from seu_bench.results.record import Record, write_record
from seu_bench.utils.text import format_seconds

#: A small disk of its own for one process; needs the right to make name spaces.
SMALL_DISK = 'mount -t tmpfs -o size={size} none "$1" && cd "$1" && exec "$2" -c "$3" "$1"'


def on_small_disk(folder: Path, code: str, size: str = "64k") -> subprocess.CompletedProcess[str]:
    """Run Python code in ``folder``, which is a disk of ``size`` there; skip the test where that cannot be had."""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no disk can be mounted here")
    done = subprocess.run(
        [*command, SMALL_DISK.format(size=size), "sh", str(folder), sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount:" in done.stderr:
        pytest.skip("no disk can be mounted here")
    return done


class TestForbidden:
    @pytest.mark.long  # starts a process that imports everything
    def test_read_only_disk(self, tmp_path: Path) -> None:
        """Leaderboards of a disk that cannot be written to: read, and then refused in one message."""
        code = (
            "import os, subprocess, sys; sys.path.insert(0, os.environ['TESTS'])\n"
            "from pathlib import Path; from support.records import a_record\n"
            "from seu_bench.results.record import write_record\n"
            "write_record(Path('results'), a_record(data_fingerprint='ab'))\n"
            "subprocess.run(['mount', '-o', 'remount,ro', os.getcwd()], check=True)\n"
            "from seu_bench.cli.main import main\n"
            "for words in (['leaderboard'], ['run', '--strategy', 'naive', '--limit', '4'], ['show', 'cifar10']):\n"
            "    sys.argv = ['seu-bench', *words, '--results', 'results']\n"
            "    try: main()\n"
            "    except SystemExit as left: print('left', left.code, sorted(os.listdir('results')))\n"
        )
        os.environ["TESTS"] = str(Path(__file__).parents[1])
        try:
            done = on_small_disk(tmp_path, code, size="1m")
        finally:
            del os.environ["TESTS"]
        said = [line for line in done.stdout.splitlines() if line.startswith("left")]
        assert said == ["left 2 ['runs']"] * 2 + ["left 0 ['runs']"], done
        assert done.stderr.count("error: cannot write results: Read-only file system") == 2
        assert "Traceback" not in done.stderr


#: A plugin that does something to the results folder when the first epoch is over.
SABOTAGE = """
import os, shutil
from pathlib import Path
from seu_bench import hookimpl

@hookimpl
def stage_progress(progress):
    results = Path(os.environ["SABOTAGED"])
    if progress.epoch and results.exists():
        if os.environ["HOW"] == "vanish":
            shutil.rmtree(results)
        elif not Path("filler").exists():
            with open("filler", "wb", buffering=0) as file:
                try:
                    while file.write(b"x" * 4096):
                        pass
                except OSError:
                    pass
"""

RUN = """
import os, sys
from seu_bench.cli.main import main
sys.argv = ["seu-bench", "run", "--strategy", "tiny", "--limit", "16", "-o", "epochs=2", "--device", "cpu"]
sys.argv += ["--results", "results"]
try:
    main()
except SystemExit as left:
    found = sorted(os.path.join(folder, name) for folder, _, names in os.walk("results") for name in names)
    print("left", left.code, [os.path.basename(name) for name in found])
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["vanish", "fill"])
def test_disk_fails_under_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """One error and exit status 2; no half-written file and no lock; the folder is not made anew."""
    (tmp_path / "disk").mkdir()
    modules = {"tiny_plugin": TINY, "sabotage": SABOTAGE}
    points = {"tiny": "tiny_plugin", "sabotage": "sabotage"}
    site = write_package(tmp_path / "site", "a-stranger", points, modules)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("SABOTAGED", "results")
    monkeypatch.setenv("HOW", how)
    done = on_small_disk(tmp_path / "disk", RUN, size="128k")
    last = done.stdout.splitlines()[-1]
    assert last.startswith("left 2 "), done
    assert done.stderr.count("error: ") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not any(ending in last for ending in (".part", "lock"))
    if how == "vanish":
        assert last == "left 2 []"
        assert "is gone" in done.stderr
    else:
        assert "No space left on device" in done.stderr


# --- the list of runs


def a_run(results: Path, run_id: str, **fields: object) -> Path:
    """A record in its folder."""
    values = {"strategy": "naive", "benchmark": "b", "benchmark_version": 1, "protocol": "p", "seed": 0}
    record = Record.model_validate({"run_id": run_id, "task_names": ("a", "b"), **values, **fields})
    return write_record(results, record).parent


def test_states(tmp_path: Path, command: Command) -> None:
    """Each state is told as what it is; a run whose process is gone is interrupted, whatever its record says."""
    a_run(tmp_path, "a", status="finished", accuracy_matrix=((0.5, None), (0.5, 0.5)), seconds=75.0)
    a_run(tmp_path, "b", status="running", accuracy_matrix=((0.5, None), (None, None)))
    a_run(tmp_path, "c", status="interrupted", error="interrupted by SIGTERM")
    a_run(tmp_path, "d", status="failed", error="the loss became nan")
    running = a_run(tmp_path, "e", status="running")
    (a_run(tmp_path, "f", status="finished") / "record.json").write_text("{")
    with locked(running):
        found = {run.run_id: run for run in list_runs(tmp_path)}
        states = {name: run.state for name, run in found.items()}
        shown = command("runs", "--results", tmp_path)
        listed = json.loads(command("runs", "--results", tmp_path, "--format", "json", "--state", "running").out)
    assert states == {
        "a": "finished",
        "b": "interrupted",
        "c": "interrupted",
        "d": "failed",
        "e": "running",
        "f": "unreadable",
    }
    assert (found["a"].evaluated, found["b"].evaluated) == (2, 1)
    assert found["b"].detail == "the process ended without a message"
    for words in (
        "2/2",
        format_seconds(75.0),
        "interrupted by SIGTERM",
        "the loss became nan",
        f"process {os.getpid()} on host",
    ):
        assert words in shown.out, words
    assert [(run["run_id"], run["pid"], run["tasks"]) for run in listed] == [("e", os.getpid(), 2)]


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
def test_an_epoch_that_takes_too_long(tmp_path: Path) -> None:
    """SIGTERM in the middle of a long epoch: the run is stopped within five seconds all the same, and goes on."""
    command = [sys.executable, "-m", "seu_bench.cli.main", "run", "--strategy", "naive", "--results", str(tmp_path)]
    asked = ["--benchmark", "pmnist", "--protocol", "paper", "--synthetic", "--device", "cpu"]
    with subprocess.Popen([*command, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob("runs/*/record.json")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 143
    assert err.endswith("interrupted by SIGTERM; run the same command again to resume\n")
    (run,) = list_runs(tmp_path)
    # No matter how many epochs a fast machine was through when the signal came.
    assert (run.state, run.detail) == ("interrupted", "interrupted by SIGTERM")
    assert run.position is None or (run.position.task, run.position.stage) == (0, "training")


@pytest.mark.long
def test_run_is_refused_before_it_computes(tmp_path: Path) -> None:
    """No room for a single file: exit status 2, one error, no lock."""
    code = (
        "import os, sys; open('filler', 'wb').write(b'x' * 4096 * 8)\n"
        "open('more', 'wb').write(b'x' * 4096 * 7)\n"
        "from seu_bench.cli.main import main\n"
        "sys.argv = ['seu-bench', 'run', '--strategy', 'naive', '--limit', '4', '--results', 'results']\n"
        "try: main()\n"
        "except SystemExit as left: print(left.code, sorted(os.listdir('.')))\n"
    )
    done = on_small_disk(tmp_path, code)
    assert done.stdout == "2 ['filler', 'more']\n", done
    assert done.stderr.count("error: ") == 1 and "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
