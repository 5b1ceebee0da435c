"""Driver of a sweep: submits pending jobs to an executor and follows them until all have ended."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from seu_bench.config.options import build_options
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import ExitStatus, Interruption, PluginError, ResultsError, SeuBenchError
from seu_bench.plugin.executors import Ended, Event, Executor, Noticed, Started
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.sweeps.plan import PlannedJob, SweepPlan
from seu_bench.sweeps.spec import SweepSpec

#: Seconds between two looks at whether the sweep is to stop.
_LOOK: Final = 0.2
#: Seconds that jobs have to stop after a first signal; they need two, and the time of writing a checkpoint.
GRACE: Final = 60.0

#: ``finished`` and ``failed`` include earlier sweeps; ``pending``: not started; ``running``: started or queued by an
#: executor whose jobs outlive the driver.
JobStatus: TypeAlias = Literal["finished", "failed", "interrupted", "held", "lost", "pending", "running"]


@dataclass(frozen=True, repr=False)
class JobResult:
    """Result of a job of a sweep.

    Attributes:
        job: with its label, configuration and seed.
        message: why it is not finished; empty where it is.
        made: whether this sweep started it.
    """

    job: PlannedJob
    status: JobStatus
    message: str = ""
    record: Record | None = None
    made: bool = True

    def __repr__(self) -> str:
        """Job, status, and why it is not finished."""
        return f"JobResult({self.job.label!r}, {self.status!r}{f', {self.message!r}' * bool(self.message)})"


@dataclass(frozen=True, repr=False)
class SweepResult:
    """Result of a sweep.

    Attributes:
        jobs: all of the plan's, in its order.
        interruption: why it was stopped before its end; ``None``: it was not.

    Example:
        ``[(result.job.label, result.message) for result in sweep_result.select("failed", "lost")]``
    """

    jobs: tuple[JobResult, ...]
    interruption: Interruption | None = None

    def __repr__(self) -> str:
        """Jobs by status."""
        counts = Counter(job.status for job in self.jobs)
        return f"SweepResult({', '.join(f'{number} {status}' for status, number in counts.items()) or 'no jobs'})"

    def select(self, *statuses: JobStatus) -> list[JobResult]:
        """Return the jobs of these statuses."""
        return [job for job in self.jobs if job.status in statuses]

    @property
    def records(self) -> list[Record]:
        """Records of finished jobs."""
        return [job.record for job in self.select("finished") if job.record is not None]

    @property
    def exit_code(self) -> int:
        """Exit status: 0 where all jobs are finished, 1 where not; of a sweep that was interrupted, the signal's."""
        if self.interruption is not None:
            return self.interruption.exit_code
        return ExitStatus.DONE if len(self.select("finished")) == len(self.jobs) else ExitStatus.NOT_MET


#: Progress of a sweep: events of its jobs, how they ended, and why they were asked to stop.
SweepReport: TypeAlias = Started | Noticed | JobResult | Interruption


class GuardedExecutor:
    """The executor of a sweep; its exceptions become a :class:`PluginError` that names its package.

    Raises:
        RequestError: there is none of that name, its options do not fit, or it cannot be used here.
    """

    def __init__(self, registry: Registry, spec: SweepSpec) -> None:
        entry = registry.executors.find(spec.executor)
        options = build_options(entry.factory.options, f"executor {spec.executor!r}", spec.executor_options)
        self.detaches = bool(entry.factory.detaches)

        @contextlib.contextmanager
        def guard_call(call: str) -> Iterator[None]:
            try:
                yield
            except SeuBenchError:
                raise
            except Exception as error:
                owner, said = f"executor {entry.name!r} of package {entry.package}", f"{type(error).__name__}: {error}"
                remedy = f"choose another with --executor, or report it to the author of {entry.package}"
                raise PluginError(f"{owner} failed in {call}: {said}", remedy=remedy) from error

        with guard_call("build"):
            executor: Executor = entry.factory.build(options, spec.device, spec.threads)
        with guard_call("slots"):
            self.slots = executor.slots
        self.submit = guard_call("submit")(executor.submit)
        self.wait = guard_call("wait")(executor.wait)
        self.cancel = guard_call("cancel")(executor.cancel)
        self.close = guard_call("close")(executor.close)


def run_sweep(
    plan: SweepPlan,
    executor: GuardedExecutor,
    notify: Callable[[SweepReport], None],
    stop: StopRequest | None = None,
) -> SweepResult:
    """Run the pending jobs of a sweep; a job that fails does not stop the others.

    When it is to ``stop``, jobs are asked to, and followed until they have. The executor is closed at the end, whatever
    happens.

    Raises:
        PluginError: the executor failed.
    """
    driver = _Driver(plan, executor, notify, stop or StopRequest())
    with contextlib.closing(executor):
        try:
            interruption = driver.listen()
        except Interruption as stopped:  # by a second signal, or because jobs did not stop
            interruption = stopped
    return SweepResult(tuple(map(driver.result_of, plan.jobs)), interruption)


@dataclass
class _Driver:
    plan: SweepPlan
    executor: GuardedExecutor
    notify: Callable[[SweepReport], None]
    stop: StopRequest

    def __post_init__(self) -> None:
        self._pending = {job.run_id: job for job in self.plan.pending}
        self._begun: set[str] = set()
        self._results: dict[str, JobResult] = {}
        self._submitted = False

    def listen(self) -> Interruption | None:
        """Follow the jobs until all have ended; returns why not, where the sweep was stopped."""
        self.executor.submit([self.plan.to_job(job) for job in self._pending.values()])
        self._submitted = True
        due: Interruption | None = None
        while self._pending:
            if due is None and (due := self.stop.due()) is not None:
                if self.executor.detaches:
                    return due
                self.notify(due)
                self.executor.cancel()
            for event in self.executor.wait(_LOOK):
                if event.run_id in self._pending:  # not of a job that has ended, or is a stranger's
                    self._handle(self._pending[event.run_id], event)
        return due

    def _handle(self, job: PlannedJob, event: Event) -> None:
        if isinstance(event, Ended):
            result = self._results[job.run_id] = self._finish_job(job, event)
            del self._pending[job.run_id]
            self.notify(result)
            return
        if isinstance(event, Started):
            self._begun.add(job.run_id)
        self.notify(event)

    def _finish_job(self, job: PlannedJob, event: Ended) -> JobResult:
        record, fault = None, "its record does not say so"
        try:
            record = read_record(record_path(self.plan.spec.results, job.run_id))
        except ResultsError as error:
            fault = f"its record is missing: {error}"
        if event.status == "interrupted" and job.run_id not in self._begun:
            return JobResult(job, "pending", "", record, made=False)
        if event.status != "finished":
            return JobResult(job, event.status, event.message or "no reason was given", record)
        if record is None or record.status != "finished":
            return JobResult(job, "failed", f"it was reported as finished, but {fault}", record)
        return JobResult(job, "finished", "", record)

    def result_of(self, job: PlannedJob) -> JobResult:
        if job.run_id in self._results:
            return self._results[job.run_id]
        if job.run_id not in self._pending:
            status: JobStatus = "finished" if job.state == "finished" else "failed"
            return JobResult(job, status, "" if status == "finished" else job.detail, job.record, made=False)
        began = job.run_id in self._begun
        if self.executor.detaches and self._submitted:
            # It may have ended since the executor was asked last.
            ended = self._finish_job(job, Ended(run_id=job.run_id, status="finished"))
            running = JobResult(job, "running", "it runs on" if began else "it is queued", job.record)
            return ended if ended.status == "finished" else running
        if not began:
            return JobResult(job, "pending", "", job.record, made=False)
        return JobResult(job, "interrupted", "it was stopped at once", job.record)
