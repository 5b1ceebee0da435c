"""What is shown of the runs of a results folder, in values: for the terminal and for the page alike."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Final

from seu_bench.cli.watch.resuming import resuming_command
from seu_bench.cli.watch.states import FolderStates, WatchedRun
from seu_bench.config.tuned import TRIALS_FOLDER
from seu_bench.engine.run_folder import State
from seu_bench.errors import ResultsError
from seu_bench.results.labels import configuration_labels
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import measured_rows
from seu_bench.results.scenarios import benchmark_title
from seu_bench.sweeps.planned import PlannedRuns, kept_jobs
from seu_bench.utils.text import printable

#: States whose runs need somebody.
STOPPED: Final[tuple[State, ...]] = ("failed", "interrupted", "unreadable")


@dataclass(frozen=True)
class RunView:
    """A run as it is shown. All texts are of one line, without control characters.

    Attributes:
        title: benchmark, protocol, configuration and seed.
        results: the results folder that it lies in.
        where: task, stage and epoch of a running run; of a stopped one where its newest checkpoint stands.
        share: of the run that is done, in [0, 1]; ``None``: not known.
        remaining: estimated seconds left; ``None``: not known.
        accuracies: of the tasks learned so far, measured after the last of them, in [0, 1]; ``None``: not measured.
        reason: why it failed or was interrupted.
        resume: the command that resumes it.
    """

    run_id: str
    title: str
    results: Path
    state: State
    record: Record | None
    changed: float
    tasks: int = 0
    evaluated: int = 0
    where: str = ""
    share: float | None = None
    remaining: float | None = None
    accuracies: tuple[float | None, ...] = ()
    reason: str = ""
    resume: str | None = None

    @property
    def average(self) -> float | None:
        """Mean of :attr:`accuracies`; ``None``: one was not measured, or there are none yet."""
        measured = [value for value in self.accuracies if value is not None]
        return fmean(measured) if measured and len(measured) == len(self.accuracies) else None


@dataclass(frozen=True)
class PlanView:
    """A sweep, or a tuning.

    Attributes:
        kind: which of them.
        total: number of its jobs.
        counts: jobs by state; ``pending`` ones have no run yet.
        remaining: estimated seconds left; ``None``: not known, or nothing is running.
    """

    kind: str
    total: int
    counts: Mapping[str, int]
    remaining: float | None

    @property
    def is_over(self) -> bool:
        """Whether no job is running or pending."""
        return not (self.counts["running"] or self.counts["pending"])


@dataclass(frozen=True)
class View:
    """All that is shown at one time.

    Attributes:
        results: the results folder.
        time: Unix time of the look.
        counts: runs by state.
        plans: the last sweep and the last tuning, if there were any.
        running: those that run, the longest first.
        stopped: those that failed, were interrupted or cannot be read, the last first; not all of them.
        finished: the last first; not all of them.
        notice: why nothing is shown, if that is so.
    """

    results: Path
    time: float
    counts: Mapping[str, int] = field(default_factory=Counter)
    plans: tuple[PlanView, ...] = ()
    running: tuple[RunView, ...] = ()
    stopped: tuple[RunView, ...] = ()
    finished: tuple[RunView, ...] = ()
    notice: str = ""

    @property
    def is_done(self) -> bool:
        """Whether there are runs and nothing is running or pending."""
        begun = any(self.counts.values()) or bool(self.plans)
        return begun and not self.counts["running"] and all(plan.is_over for plan in self.plans)

    @property
    def stopped_count(self) -> int:
        """Number of runs that failed, were interrupted or cannot be read."""
        return sum(self.counts[state] for state in STOPPED)


class Watcher:
    """Looks at a results folder, and at the trials of tunings in it, again and again.

    Args:
        results: the folder, which need not exist yet.
        benchmarks: only runs on these; empty: on any.
        strategies: only runs of these; empty: of any.
        most: runs of each list that are prepared; 0: all.
    """

    def __init__(
        self, results: Path, benchmarks: Collection[str] = (), strategies: Collection[str] = (), most: int = 50
    ) -> None:
        self.results = results
        self._benchmarks = frozenset(benchmarks)
        self._strategies = frozenset(strategies)
        self._most = most
        self._folders = {folder: FolderStates(folder) for folder in (results, results / TRIALS_FOLDER)}

    def look(self) -> View:
        """Return what there is now. Nothing is written, and what cannot be read is said."""
        runs: list[tuple[Path, str, WatchedRun]] = []
        plans: list[PlanView] = []
        notice = ""
        for folder, states in self._folders.items():
            try:
                found = {name: run for name, run in states.look().items() if self._is_wanted(run.state.record)}
            except ResultsError as error:
                notice = f"{error.what} ({error.where})"
                continue
            runs += [(folder, name, run) for name, run in found.items()]
            if (planned := kept_jobs(folder)) is not None and (plan := self._plan(planned, found)) is not None:
                plans.append(plan)
        if not runs and not plans and not notice:
            notice = "no runs yet" if self.results.is_dir() else "the folder does not exist yet"
            notice += " that fit" if self._benchmarks or self._strategies else ""
        of_state: dict[str, list[tuple[Path, str, WatchedRun]]] = defaultdict(list)
        for item in runs:
            state = item[2].state.state
            of_state["stopped" if state in STOPPED else state].append(item)
        return View(
            results=self.results,
            time=time.time(),
            counts=Counter(run.state.state for _, _, run in runs),
            plans=tuple(plans),
            running=tuple(sorted(self._shown(of_state["running"]), key=lambda run: _began(run.record))),
            stopped=tuple(self._shown(of_state["stopped"])),
            finished=tuple(self._shown(of_state["finished"])),
            notice=notice,
        )

    def _is_wanted(self, record: Record | None) -> bool:
        if record is None:
            return not (self._benchmarks or self._strategies)
        return self._fits(record.benchmark, record.strategy)

    def _fits(self, benchmark: str, strategy: str) -> bool:
        fits = not self._benchmarks or benchmark in self._benchmarks
        return fits and (not self._strategies or strategy in self._strategies)

    def _plan(self, planned: PlannedRuns, found: Mapping[str, WatchedRun]) -> PlanView | None:
        jobs = [run.run_id for run in planned.runs if self._fits(run.benchmark, run.strategy)]
        runs = [found[run_id] for run_id in jobs if run_id in found]
        # Jobs that a sampler has yet to draw are of the same benchmark and strategy.
        total = planned.total if len(jobs) == len(planned.runs) else len(jobs)
        counts = Counter[str](run.state.state for run in runs) + Counter(pending=max(0, total - len(runs)))
        return PlanView(planned.kind, total, counts, _remaining(counts, runs)) if total else None

    def _shown(self, runs: Sequence[tuple[Path, str, WatchedRun]]) -> list[RunView]:
        """The runs that changed last, with labels that tell them apart."""
        last = heapq.nlargest(self._most or len(runs), runs, key=lambda item: item[2].changed)
        places: dict[tuple[str, int, str, str], list[tuple[str, Record]]] = defaultdict(list)
        for _, name, run in last:
            if (record := run.state.record) is not None:
                place = record.benchmark, record.benchmark_version, record.protocol, record.scenario
                places[place].append((name, record))
        titles: dict[tuple[str, str], str] = {}
        for named in places.values():
            labels = configuration_labels([record for _, record in named])
            for (name, record), label in zip(named, labels, strict=True):
                title = f"{benchmark_title(record)} {record.protocol}: {label}, seed {record.seed}"
                titles[name, record.run_id] = printable(title)
        return [
            _run_view(folder, name, run, titles.get((name, run.state.record.run_id)) if run.state.record else None)
            for folder, name, run in last
        ]


def _run_view(results: Path, name: str, run: WatchedRun, title: str | None) -> RunView:
    state, record, progress = run.state, run.state.record, run.progress
    view = RunView(
        run_id=printable(name),
        title=title or printable(name),
        results=results,
        state=state.state,
        record=record,
        changed=run.changed,
        tasks=len(record.task_names) if record else 0,
        evaluated=state.evaluated,
        accuracies=_last_accuracies(record) if record else (),
    )
    if state.state == "running":
        share = view.evaluated / view.tasks if view.tasks else None
        if progress is None:
            return replace(view, share=share, where=printable(f"by {state.holder}") if state.holder else "")
        share = min(1.0, progress.passed / progress.planned) if progress.planned > 0 else share
        parts = [f"task {progress.task + 1} of {progress.tasks}", progress.stage]
        if progress.epochs > 1:
            parts.append(f"epoch {min(progress.epoch + 1, progress.epochs)} of {progress.epochs}")
        if progress.accuracy is not None:
            parts.append(f"accuracy of the last epoch {progress.accuracy:.3f}")
        return replace(view, share=share, remaining=progress.remaining, where=", ".join(filter(None, parts)))
    if state.state in STOPPED:
        where = f"newest checkpoint: {state.position}" if state.position else "no checkpoint: it starts over"
        resume = resuming_command(progress.request, results) if progress is not None else None
        reason = printable((state.detail or "").partition("\n")[0])
        return replace(view, where="" if state.state == "unreadable" else where, reason=reason, resume=resume)
    return view


def _last_accuracies(record: Record) -> tuple[float | None, ...]:
    """Accuracies on the tasks learned so far, after the last of them."""
    rows = measured_rows(record)
    return record.accuracy_matrix[rows[-1]][: rows[-1] + 1] if rows else ()


def _began(record: Record | None) -> str:
    return record.started if record is not None else "~"


def _remaining(counts: Mapping[str, int], runs: Sequence[WatchedRun]) -> float | None:
    """Estimated seconds until all jobs have ended: those left over as many processes as there are now."""
    running = [run for run in runs if run.state.state == "running"]
    if not running:
        return None
    took = [
        run.state.record.seconds
        for run in runs
        if run.state.state == "finished" and run.state.record is not None and run.state.record.seconds is not None
    ]
    each = fmean(took) if took else None
    left = [run.progress.remaining if run.progress else each for run in running]
    known = [each if seconds is None else seconds for seconds in left]
    if counts["pending"] and each is None:
        return None
    measured = [seconds for seconds in known if seconds is not None]
    if len(measured) < len(known):
        return None
    return max(*measured, 0.0, (sum(measured) + counts["pending"] * (each or 0.0)) / len(running))
