"""The driver of a sweep: gives an executor what is left, listens until all has ended, and says what became of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar

from seu_bench.config.options import build_options
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption, PluginError, ResultsError, SeuBenchError
from seu_bench.plugin.executors import Ended, Event, Executor, Job, Noticed, Progressed, Started
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.sweeps.estimate import SweepEstimate
from seu_bench.sweeps.file import keep_spec
from seu_bench.sweeps.plan import PlannedJob, SweepPlan
from seu_bench.sweeps.spec import SweepSpec

#: Seconds between two looks at whether the sweep is to stop.
_LOOK: Final = 0.2
#: Seconds between two estimates of the time that is left.
_ESTIMATE: Final = 1.0
#: Seconds that jobs have to stop after a first signal; they need two and the time of writing a checkpoint.
GRACE: Final = 60.0

#: ``finished`` and ``failed`` include earlier sweeps; ``pending``: not started; ``running``: started or queued by an
#: executor whose jobs outlive the driver.
JobStatus: TypeAlias = Literal["finished", "failed", "interrupted", "held", "lost", "pending", "running"]

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class JobResult:
    """What became of a job.

    Attributes:
        message: why it is not finished; empty where it is.
        made: whether this sweep made it, or tried to.
    """

    job: PlannedJob
    status: JobStatus
    message: str = ""
    record: Record | None = None
    made: bool = True


@dataclass(frozen=True)
class SweepResult:
    """What became of a sweep.

    Attributes:
        jobs: all of the plan's, in its order.
        interruption: why it was stopped before its end; ``None``: it was not.
    """

    jobs: tuple[JobResult, ...]
    interruption: Interruption | None = None

    def select(self, *statuses: JobStatus) -> list[JobResult]:
        """The jobs of these statuses."""
        return [job for job in self.jobs if job.status in statuses]

    @property
    def records(self) -> list[Record]:
        """Those of the jobs that are finished."""
        return [job.record for job in self.select("finished") if job.record is not None]

    @property
    def exit_code(self) -> int:
        """The exit status: 0 where all are finished, 1 where not; of a sweep that was interrupted, the signal's."""
        if self.interruption is not None:
            return self.interruption.status
        return 0 if len(self.select("finished")) == len(self.jobs) else 1


class SweepWatcher:
    """Who is told how a sweep goes on; this one does nothing about it."""

    def begin(self, plan: SweepPlan) -> None:
        """It begins."""

    def started(self, job: PlannedJob, where: str) -> None:
        """A job has begun."""

    def progressed(self, job: PlannedJob, progress: Progressed) -> None:
        """A job has moved on."""

    def noticed(self, job: PlannedJob, message: str) -> None:
        """Something to know about a job."""

    def ended(self, result: JobResult) -> None:
        """A job is over."""

    def stopping(self, reason: str) -> None:
        """Jobs were told to stop."""

    def estimated(self, seconds: float | None) -> None:
        """So long will the sweep still take; ``None``: it is not known yet."""

    def end(self) -> None:
        """Nothing more comes."""


class GuardedExecutor:
    """An executor whose faults are told as those of its plugin.

    Args:
        registry: where it is looked for.
        spec: which one, its options, and the device.

    Raises:
        RequestError: there is none of that name, its options do not fit, or it cannot be used here.
        PluginError: it failed.
    """

    def __init__(self, registry: Registry, spec: SweepSpec) -> None:
        entry = registry.executors.find(spec.executor)
        options = build_options(entry.factory.options, f"executor {spec.executor!r}", spec.executor_options)
        self._whose = f"executor {entry.name!r} of package {entry.package}"
        self._package = entry.package
        self.detaches = bool(entry.factory.detaches)
        self._executor: Executor = self._asked("build", lambda: entry.factory.build(options, spec.device))

    @property
    def slots(self) -> int | None:
        """Jobs at once."""
        return self._asked("slots", lambda: self._executor.slots)

    def submit(self, jobs: Sequence[Job]) -> None:
        """As the executor's."""
        self._asked("submit", lambda: self._executor.submit(jobs))

    def wait(self, seconds: float) -> Sequence[Event]:
        """As the executor's."""
        return self._asked("wait", lambda: self._executor.wait(seconds))

    def cancel(self) -> None:
        """As the executor's."""
        self._asked("cancel", self._executor.cancel)

    def close(self) -> None:
        """As the executor's."""
        self._asked("close", self._executor.close)

    def _asked(self, what: str, question: Callable[[], Answer]) -> Answer:
        try:
            return question()
        except SeuBenchError:
            raise
        except Exception as error:
            raise PluginError(
                f"{self._whose} failed in {what}: {type(error).__name__}: {error}",
                remedy=f"choose another with --executor, or report it to the author of {self._package}",
            ) from error


def run_sweep(
    plan: SweepPlan,
    executor: GuardedExecutor,
    estimate: SweepEstimate,
    watcher: SweepWatcher,
    stop: StopRequest | None = None,
) -> SweepResult:
    """Make what is left of a sweep; a job that fails does not keep the others from being made.

    What was asked for is kept in the results folder, for ``--attach``.

    Args:
        executor: is closed at the end, whatever happens.
        stop: whether to stop: then the jobs are told to, and what they say of their end is still listened to.

    Raises:
        PluginError: the executor failed.
    """
    if plan.pending:
        keep_spec(plan.spec)
    driver = _Driver(plan, executor, estimate, watcher, stop or StopRequest())
    interruption: Interruption | None = None
    try:
        interruption = driver.listen()
    except Interruption as stopped:  # by a second signal, or because jobs did not stop
        interruption = stopped
    finally:
        try:
            executor.close()
        finally:
            watcher.end()
    return driver.result(interruption)


class _Driver:
    def __init__(
        self,
        plan: SweepPlan,
        executor: GuardedExecutor,
        estimate: SweepEstimate,
        watcher: SweepWatcher,
        stop: StopRequest,
    ) -> None:
        self._plan = plan
        self._executor = executor
        self._estimate = estimate
        self._watcher = watcher
        self._stop = stop
        self._pending = {job.run_id: job for job in plan.pending}
        self._remaining: dict[str, float | None] = {}  # seconds, of the jobs that have begun
        self._began: dict[str, float] = {}  # until their first progress
        self._results: dict[str, JobResult] = {}
        self._estimated = float("-inf")
        self._submitted = False

    def listen(self) -> Interruption | None:
        """Until every job has ended; why not until then, where the sweep was stopped."""
        self._watcher.begin(self._plan)
        self._executor.submit([self._plan.to_job(job) for job in self._pending.values()])
        self._submitted = True
        due: Interruption | None = None
        while self._pending:
            if due is None and (due := self._stop.due()) is not None:
                if self._executor.detaches:
                    return due
                self._watcher.stopping(due.reason)
                self._executor.cancel()
            for event in self._executor.wait(_LOOK):
                self._hear(event)
            self._tell_time()
        return due

    def result(self, interruption: Interruption | None) -> SweepResult:
        """What became of all jobs."""
        return SweepResult(tuple(map(self._result_of, self._plan.jobs)), interruption)

    def _hear(self, event: Event) -> None:
        job = self._pending.get(event.run_id)
        if job is None:
            return  # of a job that has ended, or is none of ours
        match event:
            case Started():
                self._remaining[job.run_id] = None
                self._began[job.run_id] = time.monotonic()
                self._watcher.started(job, event.where)
            case Progressed():
                self._remaining[job.run_id] = event.remaining
                if (began := self._began.pop(job.run_id, None)) is not None:
                    self._estimate.see_start(time.monotonic() - began)
                self._estimate.see(job.configuration, event)
                self._watcher.progressed(job, event)
            case Noticed():
                self._watcher.noticed(job, event.message)
            case Ended():
                result = self._ended(job, event)
                del self._pending[job.run_id]
                self._remaining.pop(job.run_id, None)
                self._results[job.run_id] = result
                self._watcher.ended(result)
                self._estimated = float("-inf")

    def _ended(self, job: PlannedJob, event: Ended) -> JobResult:
        record: Record | None = None
        try:
            record = read_record(record_path(self._plan.spec.results, job.run_id))
        except ResultsError as error:
            if event.status == "finished":
                return JobResult(job, "failed", f"it was finished, but its record is not there: {error}")
        if event.status == "interrupted" and job.run_id not in self._remaining:
            return JobResult(job, "pending", "", record, made=False)
        if event.status != "finished":
            return JobResult(job, event.status, event.message or "no reason was given", record)
        if record is None or record.status != "finished":
            return JobResult(job, "failed", "it was finished, but its record does not say so", record)
        self._estimate.learn(job.configuration, record)
        return JobResult(job, "finished", "", record)

    def _result_of(self, job: PlannedJob) -> JobResult:
        if job.run_id in self._results:
            return self._results[job.run_id]
        if job.run_id not in self._pending:
            status: JobStatus = "finished" if job.state == "finished" else "failed"
            return JobResult(job, status, "" if status == "finished" else job.detail, job.record, made=False)
        if self._executor.detaches and self._submitted:
            began = job.run_id in self._remaining
            return JobResult(job, "running", "it goes on" if began else "it waits for its turn", job.record)
        if job.run_id not in self._remaining:
            return JobResult(job, "pending", "", job.record, made=False)
        return JobResult(job, "interrupted", "it was stopped at once", job.record)

    def _tell_time(self) -> None:
        if time.monotonic() - self._estimated < _ESTIMATE:
            return
        self._estimated = time.monotonic()
        waiting = [job for run_id, job in self._pending.items() if run_id not in self._remaining]
        running: dict[str, float | None] = {
            run_id: self._estimate.of_job(self._pending[run_id]) if left is None else left
            for run_id, left in self._remaining.items()
        }
        self._watcher.estimated(self._estimate.of_all(waiting, running, self._executor.slots))
