"""Runs as event files for TensorBoard (``--log tensorboard``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin.loggers import LoggerFactory, RunLogger
from seu_bench.plugin.registration import offered

if TYPE_CHECKING:
    from seu_bench.plugin.registration import Register


class TensorBoardOptions(Options):
    """Where the event files lie."""

    folder: str | None = Field(None, description="where to write instead of logs/tensorboard in the results folder")


class TensorBoardFactory:
    """Event files: ``tensorboard --logdir results/logs/tensorboard`` shows them."""

    summary = "event files for TensorBoard"
    options: type[Options] = TensorBoardOptions

    def build(self, options: TensorBoardOptions, folder: Path) -> RunLogger:
        """A logger for one run."""
        from seu_bench_tensorboard.logger import TensorBoardLogger

        return TensorBoardLogger(folder if options.folder is None else Path(options.folder).expanduser())


@hookimpl
def register_loggers(register: Register[LoggerFactory]) -> None:
    """Offer ``tensorboard``."""
    register("tensorboard", offered(TensorBoardFactory(), "tensorboard", "tensorboard"))
