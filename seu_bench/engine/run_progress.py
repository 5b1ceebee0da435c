"""Progress of a run on disk: a small file in its folder, for whoever asks from another process.

It is no part of the record, and nothing is computed from it. It is written at most once a second, replaced in one step,
and removed when the run is finished.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from seu_bench.engine.forecast import Forecast
from seu_bench.errors import ResultsError
from seu_bench.results.record import Integer, Measurement
from seu_bench.utils.reading import read_file
from seu_bench.utils.text import printable

if TYPE_CHECKING:
    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import ProgressCallback, StageProgress

PROGRESS_NAME: Final = "progress.json"
#: Seconds between two writes within a stage; bytes that the file may have.
_INTERVAL, _LARGEST = 1.0, 2**20


class RunProgress(BaseModel):
    """Progress of a run. Unknown keys are ignored.

    Attributes:
        task: 0-based; the one being learned.
        tasks: of the stream.
        stage: the one being run; empty before the first.
        epoch, epochs: epochs done, and of the stage.
        accuracy: of the last epoch, in [0, 1]; ``None``: not measured.
        passed, planned: images passed forward so far, and of the whole run as it was estimated.
        remaining: estimated seconds left; ``None``: not known yet.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["seu-bench progress"] = "seu-bench progress"
    task: Integer = 0
    tasks: Integer = 0
    stage: Annotated[str, AfterValidator(printable)] = ""
    epoch: Integer = 0
    epochs: Integer = 0
    accuracy: Measurement | None = None
    passed: Integer = 0
    planned: Integer = 0
    remaining: Measurement | None = None


class ProgressFile:
    """Writes a run's progress beside its record, and passes reports on.

    Args:
        write: writes the text of the file, completely or not at all.
        then: called with each report.
        clock: seconds from any start.
    """

    def __init__(
        self, write: Callable[[str], object], then: ProgressCallback, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._then, self._clock = write, then, clock
        self._forecast = Forecast(0, clock)
        self._tasks = 0
        self._written = 0.0
        self._stage: tuple[int, str] | None = None

    def begin(self, record: Record, cost: Cost) -> None:
        """Write the progress of an earlier attempt."""
        before = sum(stage.image_passes for stage in record.stages)
        self._forecast, self._tasks = Forecast(cost.all_passes, self._clock, before), len(record.task_names)
        evaluated = sum(stage.name == "evaluation" for stage in record.stages)
        self._put(task=min(evaluated, self._tasks - 1))

    def __call__(self, progress: StageProgress) -> None:
        """Pass a report on, and write it if that is due."""
        self._then(progress)
        self._forecast.see(progress)
        stage = (progress.task, progress.stage)
        if stage == self._stage and self._clock() - self._written < _INTERVAL:
            return
        self._stage = stage
        where = {"task": progress.task, "stage": progress.stage, "epoch": progress.epoch, "epochs": progress.epochs}
        self._put(**where, accuracy=progress.report.accuracy)

    def _put(self, **where: Any) -> None:
        self._written = self._clock()
        passes = {"passed": self._forecast.passed, "planned": self._forecast.planned}
        # A disk that is full says so when the record is written; NaN is no accuracy.
        with contextlib.suppress(ResultsError, ValidationError):
            found = RunProgress(tasks=self._tasks, remaining=self._forecast.left, **passes, **where)
            self._write(found.model_dump_json(indent=1) + "\n")


def read_progress(folder: Path) -> RunProgress | None:
    """Read the progress in a run's folder; ``None``: there is none, or it cannot be read."""
    with contextlib.suppress(OSError, ValueError):  # ValidationError is a ValueError
        return RunProgress.model_validate_json(read_file(folder / PROGRESS_NAME, _LARGEST))
    return None
