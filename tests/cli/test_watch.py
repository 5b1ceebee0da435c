"""What ``seu-bench watch`` sees in a results folder and how it draws it; the folder stays as it is."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from support.locks import ELSEWHERE, elsewhere, held, locked
from support.shown import rendered
from support.watched import EVIL, contents, put_plan, put_run

from seu_bench.cli.watch.frame import Frame
from seu_bench.cli.watch.states import FolderStates
from seu_bench.cli.watch.view import View, Watcher
from seu_bench.results.record import record_path, runs_folder
from seu_bench.utils.locks import LOCK_NAME


def folder_of(results: Path, run_id: str) -> Path:
    return record_path(results, run_id).parent


def test_running(tmp_path: Path) -> None:
    """Task, stage, epoch, share, time left, and accuracies of the tasks learned with their average."""
    record = put_run(tmp_path, 0, "running", {})
    before = contents(tmp_path)
    with locked(folder_of(tmp_path, record.run_id)):
        view = Watcher(tmp_path).look()
    (run,) = view.running
    assert (run.share, run.remaining, run.tasks) == (0.75, 75.0, 4)
    assert run.accuracies == (0.6, 0.6) and run.average == pytest.approx(0.6)
    text = rendered(Frame(view, 10), width=100)
    assert "cifar10 quick: naive, seed 0" in text
    assert "75% 1:15 left" in text
    assert "task 3 of 4, training, epoch 3 of 8, accuracy of the last epoch 0.625" in text
    assert "accuracy (%) after 2 tasks: 60.0 60.0, average 60.0" in text
    assert contents(tmp_path) == before
    assert not view.is_done


def test_running_without_progress(tmp_path: Path) -> None:
    """Of an earlier version, or before its first stage: tasks evaluated are all that is known."""
    record = put_run(tmp_path, 0, "running")
    with locked(folder_of(tmp_path, record.run_id)):
        (run,) = Watcher(tmp_path).look().running
    assert run.where.startswith("by process ") and run.remaining is None


def test_killed(tmp_path: Path) -> None:
    """A run whose process is dead is interrupted, from one look to the next, and says how it is resumed."""
    request = {"strategy": "naive", "benchmark": "cifar10", "options": {"note": "it's $HOME"}, "keep_weights": False}
    record = put_run(tmp_path, 3, "running", {"request": request})
    watcher = Watcher(tmp_path)
    with held(folder_of(tmp_path, record.run_id)) as process:
        assert watcher.look().counts == {"running": 1}
        process.send_signal(signal.SIGKILL)
        process.wait()
        view = watcher.look()
    (run,) = view.stopped
    assert (run.state, run.reason) == ("interrupted", "the process ended without a message")
    assert run.resume == (
        "seu-bench run --strategy naive --benchmark cifar10 --seed 0 -o 'note=it'\"'\"'s $HOME' "
        f"--results {tmp_path} --no-weights"
    )
    assert view.is_done


@elsewhere
def test_silent_host(tmp_path: Path) -> None:
    """A process of another host counts as alive as long as it refreshes its lock, by the clock of who watches."""
    record = put_run(tmp_path, 0, "running", {})
    now = [0.0]
    states = FolderStates(tmp_path, clock=lambda: now[0])
    with held(folder_of(tmp_path, record.run_id), lease=1000.0, prefix=ELSEWHERE):
        (run,) = states.look().values()
        assert run.state.state == "running"
        now[0] = 30.0
        assert [run.state.state for run in states.look().values()] == ["running"]
        now[0] = 41.0
        (run,) = states.look().values()
        assert run.state.state == "interrupted"
        assert (run.state.detail or "").endswith("on host elsewhere is no longer alive")
        marker = folder_of(tmp_path, record.run_id) / LOCK_NAME
        os.utime(marker)
        assert [run.state.state for run in states.look().values()] == ["running"]


def test_failed_and_finished(tmp_path: Path) -> None:
    """The last ones first, as many as asked for; reason, newest checkpoint and command of those that need somebody."""
    for seed in range(3):
        put_run(tmp_path, seed, "finished")
    put_run(tmp_path, 3, "failed", {"request": {"strategy": "naive"}}, error="the loss became nan\nand more")
    put_run(tmp_path, 4, "interrupted", error="interrupted by SIGTERM")
    view = Watcher(tmp_path).look()
    assert view.counts == {"finished": 3, "failed": 1, "interrupted": 1}
    assert [run.reason for run in view.stopped] == ["interrupted by SIGTERM", "the loss became nan"]
    assert [run.resume is None for run in view.stopped] == [True, False]
    text = rendered(Frame(view, 2), width=160)
    assert "5 runs: 1 failed, 1 interrupted, 3 finished" in text
    assert "finished last (2 of 3)" in text and "seed 2 " in text and "seed 0" not in text.split("finished last")[1]
    assert "80.00" in text and "1.500" in text and "1:00" in text
    assert "no checkpoint: it starts over" in text


def test_only_what_changed_is_read(tmp_path: Path) -> None:
    """Records of runs that are over are not opened again; new, replaced and removed ones are noticed."""
    for seed in range(3):
        put_run(tmp_path, seed, "finished")
    watcher = Watcher(tmp_path)
    assert watcher.look().counts == {"finished": 3}
    record = record_path(tmp_path, "cifar10-quick-naive-seed0-0123456789")
    folder, before = record.parent, record.parent.stat()
    record.unlink()
    record.mkdir()  # whoever opened it would see that
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert watcher.look().counts == {"finished": 3}
    os.utime(folder)
    assert watcher.look().counts == {"finished": 2, "unreadable": 1}
    shutil.rmtree(folder)
    put_run(tmp_path, 1, "failed", error="later")
    put_run(tmp_path, 9, "finished")
    view = watcher.look()
    assert view.counts == {"finished": 2, "failed": 1}
    assert [run.reason for run in view.stopped] == ["later"]


def test_folder_comes_and_goes(tmp_path: Path) -> None:
    """It need not exist yet, may vanish, and come back; nothing is made by looking."""
    results = tmp_path / "results"
    watcher = Watcher(results)
    view = watcher.look()
    assert (view.notice, view.is_done, list(tmp_path.iterdir())) == ("the folder does not exist yet", False, [])
    put_run(results, 0, "finished")
    assert watcher.look().counts == {"finished": 1}
    results.rename(tmp_path / "moved")
    assert watcher.look().counts == {}
    (tmp_path / "moved").rename(results)
    assert watcher.look().counts == {"finished": 1}


def test_broken_files(tmp_path: Path) -> None:
    """Records cut short, of a later version, links and folders in their place; progress and plans that are none."""
    for seed in range(5):
        put_run(tmp_path, seed, "failed", {"request": {"strategy": ["x"], "later": 1}}, error="e")
    paths = [record_path(tmp_path, f"cifar10-quick-naive-seed{seed}-0123456789") for seed in range(5)]
    paths[0].write_text(paths[0].read_text()[:100])
    paths[1].write_text(paths[1].read_text().replace('"schema_version": 1', '"schema_version": 99'))
    paths[2].unlink()
    paths[2].symlink_to("/dev/zero")
    paths[3].unlink()
    paths[3].mkdir()
    (paths[4].parent / "progress.json").write_text("[" * 100_000)
    (tmp_path / "planned.json").write_text('{"kind": "sweep", "runs": [["../x", "b", "s"]]}')
    (runs_folder(tmp_path) / "stray").write_text("")
    (runs_folder(tmp_path) / "empty").mkdir()
    before = contents(tmp_path)
    view = Watcher(tmp_path).look()
    assert view.counts == {"unreadable": 4, "failed": 1} and view.plans == ()
    assert all(run.resume is None for run in view.stopped)
    assert any("later version" in run.reason for run in view.stopped)
    rendered(Frame(view, 0), width=40)
    assert contents(tmp_path) == before
    shutil.rmtree(runs_folder(tmp_path))
    runs_folder(tmp_path).write_text("no folder")
    assert "cannot be read" in Watcher(tmp_path).look().notice


def test_plan(tmp_path: Path) -> None:
    """Jobs of the last sweep by state, pending ones too, and the time that is left."""
    put_plan(tmp_path, range(10))
    put_run(tmp_path, 0, "finished")
    put_run(tmp_path, 1, "failed", error="e")
    record = put_run(tmp_path, 2, "running", {})
    put_run(tmp_path, 77, "finished")  # none of its jobs
    with locked(folder_of(tmp_path, record.run_id)):
        view = Watcher(tmp_path).look()
    (plan,) = view.plans
    assert plan.counts == {"finished": 1, "failed": 1, "running": 1, "pending": 7}
    assert plan.remaining == 75 + 7 * 60
    text = rendered(Frame(view, 10), width=120)
    assert "10% 1 of 10 finished, 1 running, 1 failed, 7 pending, 8:15 left" in text
    (plan,) = Watcher(tmp_path).look().plans
    assert plan.remaining is None and not plan.is_over
    assert "nothing is running" in rendered(Frame(Watcher(tmp_path).look(), 10), width=120)


def test_tuning(tmp_path: Path) -> None:
    """Trials lie in a folder of their own; those that a sampler has yet to draw are pending."""
    put_plan(tmp_path / "tuning", range(2), "tuning", total=6)
    put_run(tmp_path / "tuning", 0, "finished", evaluation="validation")
    view = Watcher(tmp_path).look()
    assert view.counts == {"finished": 1}
    assert [(plan.kind, plan.total, dict(plan.counts)) for plan in view.plans] == [
        ("tuning", 6, {"finished": 1, "pending": 5})
    ]


def test_filters(tmp_path: Path) -> None:
    """By benchmark and strategy, the jobs of a plan as well."""
    put_run(tmp_path, 0, "finished")
    put_run(tmp_path, 1, "finished", strategy="ewc")
    put_plan(tmp_path, range(2))
    assert Watcher(tmp_path, strategies=["ewc"]).look().counts == {"finished": 1}
    assert Watcher(tmp_path, ["cifar10", "x"], ["ewc", "naive"]).look().counts == {"finished": 2}
    view = Watcher(tmp_path, ["x"]).look()
    assert (view.counts, view.plans, view.notice) == ({}, (), "no runs yet that fit")


def test_labels_tell_runs_apart(tmp_path: Path) -> None:
    """Options in which the runs of one benchmark differ are named."""
    for seed, weight in enumerate((1.0, 2.0)):
        put_run(tmp_path, seed, "finished", options={"weight": weight, "same": 1})
    titles = {run.title for run in Watcher(tmp_path).look().finished}
    assert titles == {"cifar10 quick: naive (weight=1.0), seed 0", "cifar10 quick: naive (weight=2.0), seed 1"}


def test_titles_say_the_scenario(tmp_path: Path) -> None:
    """Where it is not the usual one; runs of different scenarios are no configurations of one benchmark."""
    put_run(tmp_path, 0, "finished", options={"weight": 1.0})
    by_class = {"scenario": "class", "benchmark_overrides": {"stream.scenario": "class"}}
    put_run(tmp_path, 1, "finished", options={"weight": 2.0}, **by_class)
    titles = {run.title for run in Watcher(tmp_path).look().finished}
    assert titles == {"cifar10 quick: naive, seed 0", "cifar10-class quick: naive, seed 1"}


def hostile(results: Path) -> View:
    put_run(results, 0, "failed", {"stage": EVIL}, error=EVIL, strategy=EVIL)
    record = put_run(results, 1, "running", {"stage": EVIL})
    with locked(folder_of(results, record.run_id)):
        return Watcher(results).look()


def test_names_are_text(tmp_path: Path) -> None:
    """Markup and control characters of records drive no terminal."""
    text = rendered(Frame(hostile(tmp_path), 10), width=200)
    assert "\x1b" not in text
    assert text.count("[red]x[/red]<script>alert(1)</script> [2J") >= 2


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("height", [3, 8, 12, 24, 60])
def test_fits(tmp_path: Path, width: int, height: int) -> None:
    """No more lines than the terminal has, and none wider; every list is there as soon as there is room."""
    put_plan(tmp_path, range(40))
    for seed in range(12):
        put_run(tmp_path, seed, "finished")
        put_run(tmp_path, 20 + seed, "failed", {"request": {"strategy": "naive"}}, error="why " * 20)
    record = put_run(tmp_path, 39, "running", {})
    with locked(folder_of(tmp_path, record.run_id)):
        view = Watcher(tmp_path).look()
    lines = rendered(Frame(view, 0, height, "q leaves"), width=width).splitlines()
    assert max(map(len, lines)) <= width
    if height >= 24:
        assert any(line.endswith("time") and "acc (%)" in line for line in map(str.rstrip, lines))
    if height >= 24 and width >= 40:
        assert len(lines) <= height
        text = "\n".join(lines)
        assert "running" in text and "failed or interrupted" in text and "finished last" in text
