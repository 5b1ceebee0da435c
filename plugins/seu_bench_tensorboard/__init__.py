"""Runs as event files for TensorBoard (``--log tensorboard``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin import LoggedRun, LoggedValues, LoggerFactory
from seu_bench.plugin.registration import LazyFactory, offer
from seu_bench.utils import escape_markdown

if TYPE_CHECKING:
    from seu_bench.plugin import Register


class TensorBoardOptions(Options):
    """Folder of the event files."""

    folder: str | None = Field(None, description="where to write instead of logs/tensorboard in the results folder")


class TensorBoardLogger:
    """Writes ``<folder>/<attempt>/events.out.tfevents.*``; a resumed run adds a file to those that are there."""

    def __init__(self, options: TensorBoardOptions, folder: Path) -> None:
        self._folder = folder if options.folder is None else Path(options.folder).expanduser()
        self._writer: Any = None
        self._last: dict[str, int] = {}

    def begin(self, run: LoggedRun) -> None:
        """Open a new file; the configuration is written where there is none yet."""
        from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
        from torch.utils.tensorboard import SummaryWriter

        folder = self._folder / run.attempt
        if resumed := any(folder.glob("events.out.tfevents.*")):
            events = EventAccumulator(str(folder), size_guidance={SCALARS: 0})
            events.Reload()
            self._last = {name: max(event.step for event in events.Scalars(name)) for name in events.Tags()[SCALARS]}
        self._writer = SummaryWriter(str(folder))
        if not resumed:
            values = {"run id": run.run_id, **run.tags, **run.parameters}.items()
            rows = [f"| {escape_markdown(str(name))} | {escape_markdown(str(value))} |" for name, value in values]
            self._writer.add_text("run", "\n".join(["| | |", "| --- | --- |", *rows]), 0)
        self._writer.flush()

    def last_step(self, name: str) -> int | None:
        """Last step in the files of earlier processes."""
        return self._last.get(name)

    def log(self, measured: LoggedValues) -> None:
        """A scalar each, flushed to the file."""
        for name, value in measured.values.items():
            self._writer.add_scalar(name, value, measured.step)
        self._writer.flush()

    def end(self, status: str) -> None:
        """Write the status as text."""
        self._writer.add_text("status", status, 0)
        self._writer.close()


@hookimpl
def register_loggers(register: Register[LoggerFactory]) -> None:
    """Offer ``tensorboard``: ``tensorboard --logdir results/logs/tensorboard`` shows its files."""
    factory = LazyFactory("event files for TensorBoard", options=TensorBoardOptions, build=TensorBoardLogger)
    register("tensorboard", offer(factory, "tensorboard", "tensorboard"))
