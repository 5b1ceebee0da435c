"""One job in this process: what is refused, and how that is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sweeping import tiny_jobs

from seu_bench.sweeps.worker import run_job

pytestmark = pytest.mark.usefixtures("gate")


def test_another_run_elsewhere(tmp_path: Path) -> None:
    """A job that resolves to another run id is not made: its driver would wait for a record that never comes."""
    (job,) = tiny_jobs(tmp_path, "0")
    ended = run_job(job.model_copy(update={"run_id": "split_digits-smoke-tiny-seed0-0000000000"}))
    assert ended.status == "failed"
    assert f"here this run is another one, {job.run_id}" in ended.message
    assert not (tmp_path / "runs").exists()


def test_refused_job(tmp_path: Path) -> None:
    """Refusals of the run are reported as by ``run``, and so is a defect."""
    (job,) = tiny_jobs(tmp_path, "0")
    (tmp_path / "file").write_text("")
    request = job.request.model_copy(update={"results": tmp_path / "file"})
    ended = run_job(job.model_copy(update={"request": request}))
    assert (ended.status, "cannot write results" in ended.message) == ("failed", True)
