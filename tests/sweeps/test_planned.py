"""Jobs of the last sweep or tuning on disk: all of them, in the order of the plan; broken files are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sweeping import plan, record_of

from seu_bench.results.record import write_record
from seu_bench.sweeps.planned import keep_jobs, kept_jobs


def test_jobs_come_back(tmp_path: Path) -> None:
    """Those that are finished already among them."""
    asked = {"strategy": "naive,ewc", "seeds": "0-2"}
    write_record(tmp_path, record_of(plan(tmp_path, **asked).jobs[0]))
    jobs = plan(tmp_path, **asked).jobs
    assert kept_jobs(tmp_path) is None
    keep_jobs(tmp_path, "sweep", jobs)
    found = kept_jobs(tmp_path)
    assert found is not None
    assert (found.kind, found.total) == ("sweep", 6)
    assert [run.run_id for run in found.runs] == [job.run_id for job in jobs]
    assert {(run.benchmark, run.strategy) for run in found.runs} == {("split_digits", "naive"), ("split_digits", "ewc")}


def test_jobs_to_come(tmp_path: Path) -> None:
    """A sampler has not drawn all of them yet."""
    keep_jobs(tmp_path, "tuning", plan(tmp_path, strategy="naive").jobs, 12)
    found = kept_jobs(tmp_path)
    assert found is not None
    assert (found.kind, len(found.runs), found.total) == ("tuning", 1, 12)


@pytest.mark.parametrize("text", ["", "{", '{"format": "x"}', '{"runs": [["../a", "b", "c"]]}', '{"runs": [["a"]]}'])
def test_unreadable(tmp_path: Path, text: str) -> None:
    (tmp_path / "planned.json").write_text(text)
    assert kept_jobs(tmp_path) is None
