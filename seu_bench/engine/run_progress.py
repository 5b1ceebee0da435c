"""Progress of a run on disk: a small file in its folder, for whoever watches from another process.

It is no part of the record, and nothing is computed from it. It is written at most once a second, replaced in one step,
and removed when the run is finished; of a run that was interrupted or failed it says how to resume it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from seu_bench.config.benchmark_file import names_a_file
from seu_bench.config.tuned import tuned_path
from seu_bench.engine.forecast import Forecast
from seu_bench.errors import ResultsError
from seu_bench.results.record_parts import Integer, Measurement
from seu_bench.utils.reading import read_file
from seu_bench.utils.text import printable

if TYPE_CHECKING:
    from seu_bench.config.run import Request
    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import ProgressCallback, StageProgress

PROGRESS_NAME: Final = "progress.json"
#: Seconds between two writes within a stage.
INTERVAL: Final = 1.0
#: Bytes that the file may have.
_LARGEST: Final = 2**20
#: Fields of a request that do not belong to how its run is resumed. Options of loggers may hold credentials.
_NOT_KEPT: Final = {"results", "restart", "accept_code", "match", "matched", "log_options", "max_seconds"}


class RunProgress(BaseModel):
    """Progress of a run. Unknown keys, of a later version, are ignored.

    Attributes:
        request: fields of the run's :class:`~seu_bench.config.run.Request` that are not at their defaults, its
            results folder aside; paths are absolute.
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
    request: dict[str, Any] = Field(default_factory=dict)
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
        request: of the run.
        then: called with each report.
        clock: seconds from any start.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        request: Request,
        then: ProgressCallback,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._request = kept_request(request)
        self._then = then
        self._clock = clock
        self._forecast: Forecast | None = None
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
        if self._forecast is None:
            return  # of the trials of a decision before the run has begun
        self._forecast.see(progress)
        stage = (progress.task, progress.stage)
        if stage == self._stage and self._clock() - self._written < INTERVAL:
            return
        self._stage = stage
        self._put(
            task=progress.task,
            stage=progress.stage,
            epoch=progress.epoch,
            epochs=progress.epochs,
            accuracy=progress.report.accuracy,
        )

    def _put(self, **where: Any) -> None:
        self._written = self._clock()
        forecast = self._forecast
        # A disk that is full says so when the record is written; NaN is no accuracy.
        with contextlib.suppress(ResultsError, ValidationError):
            found = RunProgress(
                request=dict(self._request),
                tasks=self._tasks,
                passed=forecast.passed if forecast else 0,
                planned=forecast.planned if forecast else 0,
                remaining=forecast.left if forecast else None,
                **where,
            )
            self._write(found.model_dump_json(indent=1) + "\n")


def kept_request(request: Request) -> Mapping[str, Any]:
    """Fields of a request that are not at their defaults and say how its run is resumed, as plain values."""
    fixed: dict[str, Any] = {}
    if request.data_root is not None:
        fixed["data_root"] = request.data_root.absolute()
    if names_a_file(request.benchmark):
        fixed["benchmark"] = str(Path(request.benchmark).expanduser().absolute())
    if request.tuned:
        fixed["tuned"] = str(tuned_path(request.results, request.tuned).absolute())
    asked = request.model_copy(update=fixed)
    return asked.model_dump(mode="json", exclude_defaults=True, exclude=_NOT_KEPT)


def read_progress(folder: Path) -> RunProgress | None:
    """Read the progress in a run's folder.

    Args:
        folder: of the run.

    Returns:
        It; ``None``: there is none, or it cannot be read.
    """
    with contextlib.suppress(OSError, ValueError):  # ValidationError is a ValueError
        return RunProgress.model_validate_json(read_file(folder / PROGRESS_NAME, _LARGEST))
    return None
