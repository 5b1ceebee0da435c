"""Estimated time of a sweep: pending image passes over the speed of finished runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sweeping import plan, record_of

from seu_bench.plugin.executors import Progressed
from seu_bench.results.record import StageRecord, write_record
from seu_bench.results.record_parts import Environment
from seu_bench.sweeps.estimate import SweepEstimate, estimate_plan


def stages(passes: int) -> tuple[StageRecord, ...]:
    return (StageRecord(name="training", task=0, epochs=1, seconds=1.0, image_passes=passes),)


def test_nothing_is_known() -> None:
    """Without a finished run there is no speed."""
    found = plan(strategy="naive")
    assert estimate_plan(found).of_all(found.pending, {}, 2) is None


def test_speed_of_finished_runs(tmp_path: Path) -> None:
    """The sweep's own; 1,000 passes took 10 s, one of two jobs left was half done."""
    asked = {"results": tmp_path, "strategy": "naive", "seeds": "0-2", "options": {"epochs": 3}}
    done, half, _ = plan(**asked).jobs
    write_record(tmp_path, record_of(done, stages=stages(1000), seconds=10.0))
    write_record(tmp_path, record_of(half, status="interrupted", stages=stages(500), seconds=5.0))
    found = plan(**asked)
    estimate = estimate_plan(found)
    assert [estimate.of_job(job) for job in found.pending] == [pytest.approx(5), pytest.approx(10)]
    assert estimate.of_all(found.pending, {}, 1) == pytest.approx(15)
    assert estimate.of_all(found.pending, {}, 2) == pytest.approx(10)  # the longest
    assert estimate.of_all(found.pending, {"x": 7.0}, 2) == pytest.approx(11)
    assert estimate.of_all(found.pending, {"x": None}, 2) is None
    assert estimate.of_all(found.pending, {}, None) is None


def test_speed_of_others(tmp_path: Path) -> None:
    """A run with other options, of the same kind, gives a speed; the passes are those that ``cost`` tells."""
    (other,) = plan(strategy="naive", options={"epochs": 7}).jobs
    write_record(tmp_path, record_of(other, stages=stages(1000), seconds=10.0))
    found = plan(tmp_path, strategy="naive,ewc", seeds="5")
    estimate = estimate_plan(found)
    run = found.jobs[0].configuration.run
    passes = run.strategy.cost(run.context(run.plan())).all_passes
    assert [estimate.of_job(job) for job in found.jobs] == [pytest.approx(passes / 100), None]
    assert estimate.of_all(found.pending, {}, 2) is None


def test_other_devices(tmp_path: Path) -> None:
    """The speed of a card is none of a CPU's."""
    done, _ = plan(strategy="naive", seeds="0,1").jobs
    made = record_of(done, stages=stages(9), seconds=1.0, environment=Environment(device="cuda (a card)"))
    write_record(tmp_path, made)
    found = plan(tmp_path, strategy="naive", seeds="0,1")
    assert estimate_plan(found).of_all(found.pending, {}, 1) is None


def test_learned_on_the_way() -> None:
    """From a job that runs, then from one that is finished, which knows better."""
    first, second = plan(strategy="naive", seeds="0,1").jobs
    estimate = SweepEstimate()
    where = {"task": 0, "tasks": 1, "stage": "training", "epoch": 1, "epochs": 2}
    estimate.see(first.configuration, Progressed(run_id=first.run_id, passed=0, planned=1000, **where))
    assert estimate.of_job(second) is None
    estimate.see(first.configuration, Progressed(run_id=first.run_id, passed=500, planned=1000, remaining=5, **where))
    assert estimate.of_job(second) == pytest.approx(10)
    estimate.learn(first.configuration, record_of(first, stages=stages(1000), seconds=20.0))
    assert estimate.of_job(second) == pytest.approx(20)
    estimate.see_start(3.0)
    estimate.see_start(5.0)
    assert estimate.of_all([first, second], {"x": 10.0}, 1) == pytest.approx(2 * (20 + 4) + 10)
