"""The jobs of the last sweep or tuning of a results folder, on disk for whoever watches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from seu_bench.errors import ResultsError
from seu_bench.results.record_parts import FileName, Integer
from seu_bench.utils.files import write_atomic
from seu_bench.utils.reading import read_file

if TYPE_CHECKING:
    from seu_bench.sweeps.plan import PlannedJob

#: Its name in a results folder.
_NAME: Final = "planned.json"
#: Bytes that it may have; 100,000 jobs have a fifth of that.
_LARGEST: Final = 2**27


class PlannedRun(NamedTuple):
    """A job of a plan."""

    run_id: FileName
    benchmark: Annotated[str, Field(max_length=200)]
    strategy: Annotated[str, Field(max_length=200)]


class PlannedRuns(BaseModel):
    """Jobs of a sweep or a tuning. Unknown keys, of a later version, are ignored.

    Attributes:
        kind: what they are jobs of.
        runs: all jobs that are known.
        total: number of jobs in all, those included that a sampler has yet to draw.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["seu-bench plan"] = "seu-bench plan"
    kind: Literal["sweep", "tuning"] = "sweep"
    runs: tuple[PlannedRun, ...] = ()
    total: Integer = 0


def keep_jobs(results: Path, kind: Literal["sweep", "tuning"], jobs: Iterable[PlannedJob], total: int = 0) -> None:
    """Write the jobs of a sweep or a tuning into its results folder.

    Args:
        results: the folder of its runs.
        kind: what it is.
        jobs: all that are planned by now, those included that are finished.
        total: number of jobs that there will be; fewer than ``jobs``: there are no others.

    Raises:
        ResultsError: it cannot be written.
    """
    runs = tuple(
        PlannedRun(job.run_id, spec.benchmark.name, spec.strategy)
        for job in jobs
        for spec in [job.configuration.run.spec]
    )
    planned = PlannedRuns(kind=kind, runs=runs, total=max(total, len(runs)))
    write_atomic(results / _NAME, planned.model_dump_json() + "\n")


def kept_jobs(results: Path) -> PlannedRuns | None:
    """Read the jobs of the last sweep or tuning of a results folder; ``None``: none are known."""
    with contextlib.suppress(OSError, ValueError, ResultsError):
        return PlannedRuns.model_validate_json(read_file(results / _NAME, _LARGEST))
    return None
