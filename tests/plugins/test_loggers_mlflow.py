"""A store of MLflow, read back with its client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.logged import EPOCHS, Log, Witness, due, logged_run

from seu_bench.errors import Interruption
from seu_bench.results.record_metrics import without_times


def store(database: Path) -> Any:
    """A client of a local database. Imported here: it is what sets MLflow's telemetry off that must come first."""
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{database}")


def runs(client: Any, experiment: str = "seu-bench") -> list[Any]:
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id]))


def metrics(client: Any, run: Any) -> Log:
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    return {name: [(metric.step, metric.value) for metric in values] for name, values in history.items()}


@pytest.mark.long
def test_local_store(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with parameters, tags, metrics and status; one that goes on is the same run, and nothing is in it twice.

    Another run is another one; nothing is written outside of the results, and telemetry is off.
    """
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    stopped = Witness(stop_after=8)
    with pytest.raises(Interruption):
        logged_run(tmp_path / "results", ["mlflow"], witness=stopped)
    assert stopped.notices == []
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    client = store(tmp_path / "results" / "logs" / "mlflow" / "mlflow.db")
    (run,) = runs(client)
    assert (run.info.status, run.data.tags["seu_bench.status"]) == ("KILLED", "interrupted")
    max(tmp_path.glob("results/runs/*/checkpoints/*.ckpt")).unlink()
    record, witness = logged_run(tmp_path / "results", ["mlflow"])
    assert witness.notices[1:] == []  # the first says that the run goes on
    (run,) = runs(client)
    assert (run.info.status, run.data.tags["seu_bench.status"]) == ("FINISHED", "finished")
    assert run.info.run_name == record.run_id == run.data.tags["seu_bench.run_id"]
    assert (run.data.params["strategy"], run.data.params["options.epochs"]) == ("tiny", str(EPOCHS))
    assert run.data.tags["seu_bench.benchmark"] == "split_digits"
    assert metrics(client, run) == due(record, stopped.curves, witness.curves)
    expected, _ = logged_run(tmp_path / "without")
    assert without_times(record) == without_times(expected)
    logged_run(tmp_path / "results", ["mlflow"], options={"epochs": 1}, log_options={"mlflow.experiment": "other"})
    assert len(runs(client)) == len(runs(client, "other")) == 1
    assert list((tmp_path / "cwd").iterdir()) == []
