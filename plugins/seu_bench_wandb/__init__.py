"""Runs for Weights & Biases (``--log wandb``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin import LoggerFactory, RunLogger
from seu_bench.plugin.registration import LazyFactory, offered

if TYPE_CHECKING:
    from seu_bench.plugin import Register


class WandbOptions(Options):
    """Mode and destination of runs."""

    mode: Literal["offline", "online"] = Field(
        "offline", description="offline: files, for wandb sync; online: sent as well, after wandb login"
    )
    project: str = Field("seu-bench", min_length=1, max_length=128, description="the project that runs are put into")
    entity: str | None = Field(None, description="the user or team that the project is of")
    folder: str | None = Field(None, description="where to write instead of logs/wandb in the results folder")


def _build(options: WandbOptions, folder: Path) -> RunLogger:
    # Weights & Biases reports errors to its makers unless disabled before it is imported.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    from seu_bench_wandb.logger import WandbLogger

    place = folder if options.folder is None else Path(options.folder).expanduser()
    return WandbLogger(place, options.mode, options.project, options.entity)


@hookimpl
def register_loggers(register: Register[LoggerFactory]) -> None:
    """Offer ``wandb``."""
    factory = LazyFactory(
        "runs for Weights & Biases, by default offline",
        options=WandbOptions,
        build=_build,
        is_remote=lambda options: options.mode == "online",
    )
    register("wandb", offered(factory, "wandb", "wandb"))
