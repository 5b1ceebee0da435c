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
from seu_bench.sweeps.plan import PlannedCell, SweepPlan
from seu_bench.sweeps.spec import SweepSpec

#: Seconds between two looks at whether the sweep is to stop.
_LOOK: Final = 0.2
#: Seconds between two estimates of the time that is left.
_ESTIMATE: Final = 1.0
#: Seconds that cells have to stop after a first signal; they need two and the time of writing a checkpoint.
GRACE: Final = 60.0

#: ``finished`` and ``failed`` also where it was so before; ``left``: not begun; ``running``: with an executor whose
#: cells outlive the driver; also those that wait for their turn there.
Fate: TypeAlias = Literal["finished", "failed", "interrupted", "held", "lost", "left", "running"]

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class CellResult:
    """What became of a cell.

    Attributes:
        message: why it is not finished; empty where it is.
        made: whether this sweep made it, or tried to.
    """

    cell: PlannedCell
    fate: Fate
    message: str = ""
    record: Record | None = None
    made: bool = True


@dataclass(frozen=True)
class SweepResult:
    """What became of a sweep.

    Attributes:
        cells: all of the plan's, in its order.
        interruption: why it was stopped before its end; ``None``: it was not.
    """

    cells: tuple[CellResult, ...]
    interruption: Interruption | None = None

    def having(self, *fates: Fate) -> list[CellResult]:
        """The cells of these fates."""
        return [cell for cell in self.cells if cell.fate in fates]

    @property
    def records(self) -> list[Record]:
        """Those of the cells that are finished."""
        return [cell.record for cell in self.having("finished") if cell.record is not None]

    @property
    def status(self) -> int:
        """The exit status: 0 where all are finished, 1 where not; of a sweep that was interrupted, the signal's."""
        if self.interruption is not None:
            return self.interruption.status
        return 0 if len(self.having("finished")) == len(self.cells) else 1


class SweepWatcher:
    """Who is told how a sweep goes on; this one does nothing about it."""

    def begin(self, plan: SweepPlan) -> None:
        """It begins."""

    def started(self, cell: PlannedCell, where: str) -> None:
        """A cell has begun."""

    def progressed(self, cell: PlannedCell, progress: Progressed) -> None:
        """A cell has moved on."""

    def noticed(self, cell: PlannedCell, message: str) -> None:
        """Something to know about a cell."""

    def ended(self, result: CellResult) -> None:
        """A cell is over."""

    def stopping(self, reason: str) -> None:
        """Cells were told to stop."""

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
        """Cells at once."""
        return self._asked("slots", lambda: self._executor.slots)

    def submit(self, cells: Sequence[Job]) -> None:
        """As the executor's."""
        self._asked("submit", lambda: self._executor.submit(cells))

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
    """Make what is left of a sweep; a cell that fails does not keep the others from being made.

    What was asked for is kept in the results folder, for ``--attach``.

    Args:
        executor: is closed at the end, whatever happens.
        stop: whether to stop: then the cells are told to, and what they say of their end is still listened to.

    Raises:
        PluginError: the executor failed.
    """
    if plan.left:
        keep_spec(plan.spec)
    driver = _Driver(plan, executor, estimate, watcher, stop or StopRequest())
    interruption: Interruption | None = None
    try:
        interruption = driver.listen()
    except Interruption as stopped:  # by a second signal, or because cells did not stop
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
        self._pending = {cell.run_id: cell for cell in plan.left}
        self._left: dict[str, float | None] = {}  # seconds, of the cells that have begun
        self._began: dict[str, float] = {}  # until their first progress
        self._results: dict[str, CellResult] = {}
        self._estimated = float("-inf")
        self._submitted = False

    def listen(self) -> Interruption | None:
        """Until every cell has ended; why not until then, where the sweep was stopped."""
        self._watcher.begin(self._plan)
        self._executor.submit([self._plan.to_make(cell) for cell in self._pending.values()])
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
        """What became of all cells."""
        return SweepResult(tuple(map(self._fate, self._plan.cells)), interruption)

    def _hear(self, event: Event) -> None:
        cell = self._pending.get(event.run_id)
        if cell is None:
            return  # of a cell that has ended, or is none of ours
        match event:
            case Started():
                self._left[cell.run_id] = None
                self._began[cell.run_id] = time.monotonic()
                self._watcher.started(cell, event.where)
            case Progressed():
                self._left[cell.run_id] = event.left
                if (began := self._began.pop(cell.run_id, None)) is not None:
                    self._estimate.see_start(time.monotonic() - began)
                self._estimate.see(cell.configuration, event)
                self._watcher.progressed(cell, event)
            case Noticed():
                self._watcher.noticed(cell, event.message)
            case Ended():
                result = self._ended(cell, event)
                del self._pending[cell.run_id]
                self._left.pop(cell.run_id, None)
                self._results[cell.run_id] = result
                self._watcher.ended(result)
                self._estimated = float("-inf")

    def _ended(self, cell: PlannedCell, event: Ended) -> CellResult:
        record: Record | None = None
        try:
            record = read_record(record_path(self._plan.spec.results, cell.run_id))
        except ResultsError as error:
            if event.status == "finished":
                return CellResult(cell, "failed", f"it was finished, but its record is not there: {error}")
        if event.status == "interrupted" and cell.run_id not in self._left:
            return CellResult(cell, "left", "", record, made=False)
        if event.status != "finished":
            return CellResult(cell, event.status, event.message or "no reason was given", record)
        if record is None or record.status != "finished":
            return CellResult(cell, "failed", "it was finished, but its record does not say so", record)
        self._estimate.learn(cell.configuration, record)
        return CellResult(cell, "finished", "", record)

    def _fate(self, cell: PlannedCell) -> CellResult:
        if cell.run_id in self._results:
            return self._results[cell.run_id]
        if cell.run_id not in self._pending:
            fate: Fate = "finished" if cell.state == "finished" else "failed"
            return CellResult(cell, fate, "" if fate == "finished" else cell.detail, cell.record, made=False)
        if self._executor.detaches and self._submitted:
            began = cell.run_id in self._left
            return CellResult(cell, "running", "it goes on" if began else "it waits for its turn", cell.record)
        if cell.run_id not in self._left:
            return CellResult(cell, "left", "", cell.record, made=False)
        return CellResult(cell, "interrupted", "it was stopped at once", cell.record)

    def _tell_time(self) -> None:
        if time.monotonic() - self._estimated < _ESTIMATE:
            return
        self._estimated = time.monotonic()
        waiting = [cell for run_id, cell in self._pending.items() if run_id not in self._left]
        running: dict[str, float | None] = {
            run_id: self._estimate.of_cell(self._pending[run_id]) if left is None else left
            for run_id, left in self._left.items()
        }
        self._watcher.estimated(self._estimate.of_all(waiting, running, self._executor.slots))
