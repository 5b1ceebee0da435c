"""Runs in a store of MLflow (``--log mlflow``)."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin import LoggedRun, LoggedValues, LoggerFactory
from seu_bench.plugin.registration import LazyFactory, offer

if TYPE_CHECKING:
    from seu_bench.plugin import Register

#: What MLflow calls the ends of a run.
_STATUS: Final = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
#: Parameters in one call, and characters of a value, at most (MLflow's limits).
_BATCH, _LONGEST = 100, 6000


class MlflowOptions(Options):
    """Which store, and which experiment in it."""

    tracking_uri: str | None = Field(
        None, description="a tracking server or store instead of logs/mlflow/mlflow.db in the results folder"
    )
    experiment: str = Field("seu-bench", min_length=1, description="the experiment of the runs; made if absent")


class MlflowLogger:
    """Writes one run of an experiment. A resumed run is found by its tag ``seu_bench.attempt``."""

    def __init__(self, options: MlflowOptions, folder: Path) -> None:
        # Read when it is imported: MLflow reports its use to its makers, and draws the delay before another attempt.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")
        import mlflow  # noqa: F401 - here and not in the background, where two threads would import

        self._folder, self._options = folder, options
        self._client: Any = None
        self._run, self._resumed = "", False

    def begin(self, run: LoggedRun) -> None:
        """Open the store, and the run in it."""
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        uri, name = self._options.tracking_uri, self._options.experiment
        self._client = client = self._open() if uri is None else MlflowClient(uri)
        # Artifacts, which we have none of, would otherwise be due in the folder that the run was called in.
        place = None if uri else (self._folder / "artifacts").resolve().as_uri()
        with contextlib.suppress(MlflowException):  # it is there
            client.create_experiment(name, artifact_location=place)
        experiment = client.get_experiment_by_name(name).experiment_id
        known = client.search_runs([experiment], f"tags.\"seu_bench.attempt\" = '{run.attempt}'", max_results=1)
        self._resumed = bool(known)
        if known:
            self._run = known[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return
        tags = {f"seu_bench.{name}": value for name, value in run.tags.items()}
        tags |= {"seu_bench.run_id": run.run_id, "seu_bench.attempt": run.attempt}
        self._run = client.create_run(experiment, run_name=run.run_id, tags=tags).info.run_id
        params = [Param(name, str(value)[:_LONGEST]) for name, value in run.parameters.items()]
        for first in range(0, len(params), _BATCH):
            client.log_batch(self._run, params=params[first : first + _BATCH])

    def last_step(self, name: str) -> int | None:
        """Last step in the store."""
        history = self._client.get_metric_history(self._run, name) if self._resumed else []
        return max((metric.step for metric in history), default=None)

    def log(self, measured: LoggedValues) -> None:
        """A metric each, in one call."""
        from mlflow.entities import Metric

        now, values = int(1000 * time.time()), measured.values.items()
        self._client.log_batch(self._run, metrics=[Metric(name, value, now, measured.step) for name, value in values])

    def end(self, status: str) -> None:
        """End the run in the store; its tag ``seu_bench.status`` has our word for it."""
        self._client.set_tag(self._run, "seu_bench.status", status)
        self._client.set_terminated(self._run, _STATUS[status])

    def _open(self) -> Any:
        """The database in our folder, which the first of several runs makes."""
        from filelock import FileLock
        from mlflow import MlflowClient

        self._folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self._folder / "mlflow.lock", timeout=120), warnings.catch_warnings():
            # MLflow 3.17 loads its tables in a way that SQLAlchemy 2.1 deprecates.
            warnings.filterwarnings("ignore", message="The ``noload`` loader strategy", category=DeprecationWarning)
            logging.disable(logging.INFO)  # of alembic's
            try:
                return MlflowClient(f"sqlite:///{(self._folder / 'mlflow.db').resolve()}")
            finally:
                logging.disable(logging.NOTSET)


def _is_remote(options: MlflowOptions) -> bool:
    scheme, separator, _ = (options.tracking_uri or "").partition("://")
    return bool(separator) and scheme.partition("+")[0] not in ("sqlite", "file")


@hookimpl
def register_loggers(register: Register[LoggerFactory]) -> None:
    """Offer ``mlflow``; SQLAlchemy and Alembic are what MLflow keeps its local database with."""
    summary = "runs in MLflow, by default in a local database"
    factory = LazyFactory(summary, options=MlflowOptions, build=MlflowLogger, is_remote=_is_remote)
    register("mlflow", offer(factory, "mlflow", "mlflow", "sqlalchemy", "alembic"))
