"""A run's folder: what lies in it, and what becomes of it when a run begins, starts over and ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from seu_bench.engine.checkpoint import CheckpointFolder
from seu_bench.errors import ResultsError, RunError, SeuBenchError
from seu_bench.plugin.entries import Entry
from seu_bench.results.record import read_record, record_path
from seu_bench.utils.files import make_folder, refuse_link, remove_parts, write_atomic
from seu_bench.utils.locks import LOCK_NAME

if TYPE_CHECKING:
    from seu_bench.training.interfaces import StrategyFactory

#: The model of a finished run.
MODEL_NAME = "model.safetensors"


class RunFolder:
    """``<results>/runs/<run id>``. Only who holds its lock may change anything there.

    Attributes:
        log: the traceback of a run that failed.
        model: its weights.
        previous: the finished run that ``--restart`` is about to replace; it goes when the new one is finished.
    """

    def __init__(self, results: Path, run_id: str) -> None:
        self.record = record_path(results, run_id)
        self.folder = self.record.parent
        self.log = self.folder / "error.txt"
        self.model = self.folder / MODEL_NAME
        self.previous = self.folder / "previous"
        self.checkpoints = CheckpointFolder(self.folder / "checkpoints", run_id)

    def refuse_links(self) -> None:
        """Check that no path that is written or removed here is a link."""
        for path in (self.checkpoints.folder, self.previous, self.model, self.log):
            refuse_link(path, "remove the link")

    @property
    def is_tidy(self) -> bool:
        """Whether nothing remains of an attempt that was killed when it had finished."""
        leftovers = (self.checkpoints.folder, self.previous, *self.folder.glob(f"{LOCK_NAME}*"))
        return not any(os.path.lexists(path) for path in leftovers)

    def start_over(self) -> None:
        """Remove checkpoints, but keep a finished run until the new one is."""
        self.checkpoints.clear()
        try:
            finished = read_record(self.record).status == "finished"
        except ResultsError:
            return
        if not finished:
            return
        try:
            make_folder(self.previous)
            # The record first: without it nothing is a finished run.
            for path in (self.record, self.model, *self.folder.glob("*.onnx")):
                if path.is_file():
                    path.replace(self.previous / path.name)
        except OSError as error:
            raise ResultsError(
                f"the finished run cannot be put aside: {error.strerror or error}", where=str(self.previous)
            ) from error

    def keep_failure(self, error: Exception, strategy: Entry[StrategyFactory]) -> RunError:
        """Write the traceback beside the record, and return an error that names the failure and the log."""
        write_atomic(self.log, "".join(traceback.format_exception(error)))
        if isinstance(error, SeuBenchError):
            return RunError(error.what, where=error.where or str(self.log), remedy=error.remedy)
        return RunError(
            f"strategy {strategy.name!r} of package {strategy.package} failed: {type(error).__name__}: {error}",
            where=str(self.log),
            remedy="report it to the strategy's author with that file",
        )

    def clean(self) -> None:
        """Remove remains of an earlier attempt."""
        for folder in (self.folder, self.checkpoints.folder):
            remove_parts(folder)
        with contextlib.suppress(OSError):
            self.log.unlink()

    def clear(self) -> None:
        """Remove what only an unfinished run needs."""
        self.checkpoints.clear()
        shutil.rmtree(self.previous, ignore_errors=True)
