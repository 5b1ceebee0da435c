"""One run in a store of MLflow."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from seu_bench.plugin import LoggedRun, LoggedValues

#: What MLflow calls the ends of a run.
STATUS: Final = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}

#: Parameters in one call, and characters of a value, at most (MLflow's limits).
BATCH: Final = 100
LONGEST: Final = 6000


class MlflowLogger:
    """Writes one run of an experiment. A resumed run is found by its tag ``seu_bench.attempt``.

    Args:
        folder: of the local store.
        tracking_uri: another store; ``None``: the local one.
        experiment: name of the experiment.
    """

    def __init__(self, folder: Path, tracking_uri: str | None, experiment: str) -> None:
        self._folder = folder
        self._uri = tracking_uri
        self._experiment = experiment
        self._client: Any = None
        self._run = ""
        self._resumed = False

    def begin(self, run: LoggedRun) -> None:
        """Open the store, and the run in it."""
        with _quiet():
            self._client = MlflowClient(self._uri) if self._uri is not None else self._local()
        experiment = self._experiment_id()
        known = self._client.search_runs([experiment], f"tags.\"seu_bench.attempt\" = '{run.attempt}'", max_results=1)
        self._resumed = bool(known)
        if known:
            self._run = known[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return
        tags = {f"seu_bench.{name}": value for name, value in run.tags.items()}
        tags |= {"seu_bench.run_id": run.run_id, "seu_bench.attempt": run.attempt}
        self._run = self._client.create_run(experiment, run_name=run.run_id, tags=tags).info.run_id
        params = [Param(name, str(value)[:LONGEST]) for name, value in run.parameters.items()]
        for first in range(0, len(params), BATCH):
            self._client.log_batch(self._run, params=params[first : first + BATCH])

    def last_step(self, name: str) -> int | None:
        """Last step in the store."""
        if not self._resumed:
            return None
        return max((metric.step for metric in self._client.get_metric_history(self._run, name)), default=None)

    def log(self, measured: LoggedValues) -> None:
        """A metric each, in one call."""
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, measured.step) for name, value in measured.values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, status: str) -> None:
        """End the run in the store; its tag ``seu_bench.status`` has our word for it."""
        self._client.log_batch(self._run, tags=[RunTag("seu_bench.status", status)])
        self._client.set_terminated(self._run, STATUS[status])

    def _local(self) -> Any:
        """The store in our folder: a database, because MLflow keeps no more than that in files of its own."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # Two runs that begin at once would both make its tables.
        with FileLock(self._folder / "mlflow.lock", timeout=120):
            return MlflowClient(f"sqlite:///{(self._folder / 'mlflow.db').resolve()}")

    def _experiment_id(self) -> str:
        """Find or create the experiment."""
        if (known := self._client.get_experiment_by_name(self._experiment)) is None:
            # Artifacts, which we have none of, would otherwise be due in the folder that the run was called in.
            place = (self._folder / "artifacts").resolve().as_uri() if self._uri is None else None
            try:
                return str(self._client.create_experiment(self._experiment, artifact_location=place))
            except MlflowException:  # another process was faster
                known = self._client.get_experiment_by_name(self._experiment)
                if known is None:
                    raise
        return str(known.experiment_id)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence MLflow's own messages while it creates a database."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "mlflow.store.db.utils", "alembic")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        # MLflow 3.17 loads its tables in a way that SQLAlchemy 2.1 deprecates.
        warnings.filterwarnings("ignore", message="The ``noload`` loader strategy", category=DeprecationWarning)
        try:
            for logger in loggers:
                logger.setLevel(logging.WARNING)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
