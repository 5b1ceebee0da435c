"""Runs in a store of MLflow (``--log mlflow``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin import LoggerFactory, RunLogger
from seu_bench.plugin.registration import LazyFactory, offered

if TYPE_CHECKING:
    from seu_bench.plugin import Register


class MlflowOptions(Options):
    """Which store, and which experiment in it."""

    tracking_uri: str | None = Field(
        None, description="a tracking server or store instead of logs/mlflow/mlflow.db in the results folder"
    )
    experiment: str = Field("seu-bench", min_length=1, description="the experiment of the runs; made if absent")


def _build(options: MlflowOptions, folder: Path) -> RunLogger:
    # MLflow reports its use to its makers unless disabled before it is imported.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from seu_bench_mlflow.logger import MlflowLogger

    return MlflowLogger(folder, options.tracking_uri, options.experiment)


def _is_remote(options: MlflowOptions) -> bool:
    """Anything but a database file or a folder."""
    scheme, separator, _ = (options.tracking_uri or "").partition("://")
    return bool(separator) and scheme.partition("+")[0] not in ("sqlite", "file")


@hookimpl
def register_loggers(register: Register[LoggerFactory]) -> None:
    """Offer ``mlflow``; SQLAlchemy and Alembic are what MLflow keeps its local database with."""
    factory = LazyFactory(
        "runs in MLflow, by default in a local database", options=MlflowOptions, build=_build, is_remote=_is_remote
    )
    register("mlflow", offered(factory, "mlflow", "mlflow", "sqlalchemy", "alembic"))
