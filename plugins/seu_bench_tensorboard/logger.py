"""One run in event files of TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from seu_bench.plugin import LoggedRun, LoggedValues
from seu_bench.utils import escape_markdown
from seu_bench_tensorboard import TensorBoardOptions

#: What TensorBoard's table of hyper-parameters shows beside them.
RESULTS: Final = tuple(
    f"final/{name}" for name in ("acc", "learning_acc", "bwt", "forgetting", "mixed_score", "params_total", "macs")
)


class TensorBoardLogger:
    """Writes ``<folder>/<attempt>/events.out.tfevents.*``; a resumed run adds a file to those that are there.

    Args:
        folder: made when the run begins.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None
        self._end: Any = None
        self._last: dict[str, int] = {}

    def begin(self, run: LoggedRun) -> None:
        """Open a new file; configuration and hyper-parameters are written where there is none yet."""
        folder = self._folder / run.attempt
        resumed = any(folder.glob("events.out.tfevents.*"))
        self._last = _last_steps(folder) if resumed else {}
        self._writer = SummaryWriter(str(folder))
        experiment, session, self._end = hparams(dict(run.parameters), dict.fromkeys(RESULTS))
        if not resumed:
            self._writer.file_writer.add_summary(experiment)
            self._writer.file_writer.add_summary(session)
            self._writer.add_text("run", _table({"run id": run.run_id, **run.tags, **run.parameters}), 0)
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
        """The status as text; a run that is finished is a success among the hyper-parameters, too."""
        self._writer.add_text("status", status, 0)
        if status == "finished":
            self._writer.file_writer.add_summary(self._end)
        self._writer.close()


def build(options: TensorBoardOptions, folder: Path) -> TensorBoardLogger:
    """Return a logger for one run."""
    return TensorBoardLogger(folder if options.folder is None else Path(options.folder).expanduser())


def _last_steps(folder: Path) -> dict[str, int]:
    events = EventAccumulator(str(folder), size_guidance={SCALARS: 0})
    events.Reload()
    return {name: max(event.step for event in events.Scalars(name)) for name in events.Tags()[SCALARS]}


def _table(values: dict[str, Any]) -> str:
    rows = [f"| {escape_markdown(str(name))} | {escape_markdown(str(value))} |" for name, value in values.items()]
    return "\n".join(["| | |", "| --- | --- |", *rows])
