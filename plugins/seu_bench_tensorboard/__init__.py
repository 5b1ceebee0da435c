"""Runs as event files for TensorBoard (``--log tensorboard``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin import LoggerFactory
from seu_bench.plugin.registration import LazyFactory, offered

if TYPE_CHECKING:
    from seu_bench.plugin import Register


class TensorBoardOptions(Options):
    """Folder of the event files."""

    folder: str | None = Field(None, description="where to write instead of logs/tensorboard in the results folder")


@hookimpl
def register_loggers(register: Register[LoggerFactory]) -> None:
    """Offer ``tensorboard``: ``tensorboard --logdir results/logs/tensorboard`` shows its files."""
    build = "seu_bench_tensorboard.logger:build"
    factory = LazyFactory("event files for TensorBoard", options=TensorBoardOptions, build=build)
    register("tensorboard", offered(factory, "tensorboard", "tensorboard"))
