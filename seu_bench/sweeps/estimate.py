"""Estimated time of a sweep: pending image passes over the observed speed; ``None`` where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seu_bench.errors import PluginError, ResultsError, SeuBenchError
from seu_bench.results.record import Record, read_record, runs_folder
from seu_bench.sweeps.plan import Configuration, PlannedJob, SweepPlan
from seu_bench.utils.reading import list_folder

if TYPE_CHECKING:
    from seu_bench.plugin.executors import Progressed

#: Records of other runs, at most, that are read for the speed of one kind of jobs.
_ASKED: Final = 5


class SweepEstimate:
    """Image passes and speeds, learned from running and finished jobs."""

    def __init__(self) -> None:
        self.passes: dict[str, int | None] = {}  # by key of a configuration
        self._measured: dict[tuple[str | None, ...], tuple[int, float]] = {}
        self._running: dict[tuple[str | None, ...], float] = {}
        self._started: list[float] = []

    def learn(self, configuration: Configuration, record: Record, *, same: bool = True, speed: bool = True) -> None:
        """Learn from a finished run: its speed, and its passes if it is of the ``same`` configuration, not kind."""
        passes = sum(stage.image_passes for stage in record.stages)
        if same:
            self.passes[configuration.key] = passes
        if speed and passes > 0 and record.seconds is not None and record.seconds > 0:
            before = self._measured.get(configuration.kind, (0, 0.0))
            self._measured[configuration.kind] = before[0] + passes, before[1] + record.seconds

    def see(self, configuration: Configuration, progress: Progressed) -> None:
        """Learn from a running job: its cost, and a first speed where there is no better."""
        self.passes[configuration.key] = progress.planned
        if progress.remaining and progress.planned > progress.passed:
            self._running[configuration.kind] = (progress.planned - progress.passed) / progress.remaining

    def see_start(self, seconds: float) -> None:
        """Learn how long a job took from its start to its first image: for imports, data and queues."""
        self._started.append(seconds)

    def speed(self, configuration: Configuration) -> float | None:
        """Image passes per second; ``None``: not known yet."""
        passes, seconds = self._measured.get(configuration.kind, (0, 0.0))
        return passes / seconds if seconds else self._running.get(configuration.kind)

    def of_job(self, job: PlannedJob) -> float | None:
        """Remaining seconds of a job that does not run; ``None``: not known yet."""
        speed, passes = self.speed(job.configuration), self.passes.get(job.configuration.key)
        if not speed or passes is None:
            return None
        done = sum(stage.image_passes for stage in job.record.stages) if job.record is not None else 0
        return max(0, passes - done) / speed

    def of_all(
        self, waiting: Iterable[PlannedJob], running: Mapping[str, float | None], slots: int | None
    ) -> float | None:
        """Remaining seconds of all jobs, from those of the running ones; ``None``: not known yet."""
        start = sum(self._started) / len(self._started) if self._started else 0.0
        to_begin = [None if value is None else value + start for value in map(self.of_job, waiting)]
        seconds = [*to_begin, *running.values()]
        known = [value for value in seconds if value is not None]
        if len(known) < len(seconds) or not slots:
            return None
        return max(sum(known) / slots, max(known, default=0.0))


def estimate_plan(plan: SweepPlan) -> SweepEstimate:
    """Estimate a sweep before anything runs.

    Speeds come from finished runs of the same strategy, components, benchmark and protocol on the same device, the
    sweep's own and others of its results folder. Costs are computed only where a speed is known; torch is imported
    for them.
    """
    estimate = SweepEstimate()
    pending = {job.configuration.key: job.configuration for job in plan.pending}
    if not pending:
        return estimate
    device = _device_type(plan.spec.device)
    for job in plan.jobs:
        if job.state == "finished" and job.record is not None:
            estimate.learn(job.configuration, job.record, speed=_made_on(job.record) == device)
    for configuration in pending.values():
        if estimate.speed(configuration) is None:
            for record in _others(plan.spec.results, configuration):
                estimate.learn(configuration, record, same=False, speed=_made_on(record) == device)
        if estimate.speed(configuration) is not None and configuration.key not in estimate.passes:
            estimate.passes[configuration.key] = _planned_passes(configuration)
    return estimate


def _device_type(device: str) -> str:
    """Device type (``cpu``, ``cuda``, ...) of an option ``--device``."""
    if device == "auto":
        from seu_bench.engine.environment import choose_device

        device = choose_device(device)
    return device.partition(":")[0]


def _made_on(record: Record) -> str:
    """Device type of a record, whose device reads ``cuda:1 (name of the GPU)``."""
    return record.environment.device.partition(" ")[0].partition(":")[0]


def _others(results: Path, configuration: Configuration) -> list[Record]:
    """A few finished runs of the same kind in a results folder; nothing else is read."""
    spec = configuration.run.spec
    begin = f"{spec.benchmark.name}-{spec.protocol_name}-{spec.strategy}-"
    found: list[Record] = []
    folders = [folder for folder in list_folder(runs_folder(results)) if folder.name.startswith(begin)]
    for folder in folders[: 4 * _ASKED]:
        try:
            record = read_record(folder)
        except ResultsError:
            continue
        kind = (record.benchmark, record.protocol, record.strategy, record.searcher, record.creator)
        if kind == configuration.kind and record.status == "finished":
            found.append(record)
    return found[:_ASKED]


def _planned_passes(configuration: Configuration) -> int | None:
    """Image passes as by ``seu-bench cost``; ``None`` where a plugin fails, which its run will report."""
    run = configuration.run
    try:
        return run.cost(run.context(run.plan())).all_passes
    except PluginError:
        return None
    except SeuBenchError:
        raise
    except Exception:
        return None
