"""Trials of a tuning: from a sampler to the jobs of a sweep, and from their records to scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeAlias

from seu_bench.config.options import format_option
from seu_bench.config.tuned import Matrix, Trial, TrialRun, TunedFile
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.sweeps.driver import GuardedExecutor, JobResult, SweepReport, SweepResult, run_sweep
from seu_bench.sweeps.estimate import SweepEstimate
from seu_bench.sweeps.plan import Configuration, PlannedJob, SweepPlan, plan_requests
from seu_bench.sweeps.planned import keep_jobs
from seu_bench.sweeps.tuning.choice import check_target, default_id, make_file
from seu_bench.sweeps.tuning.samplers import make_sampler
from seu_bench.sweeps.tuning.space import Choices
from seu_bench.sweeps.tuning.spec import TuneSpec
from seu_bench.utils.notebook import html_table

#: Shows one round of trials: its plan and the executor's slots; gives the estimate and what reports go to.
Show: TypeAlias = Callable[
    [SweepPlan, int | None], AbstractContextManager[tuple[SweepEstimate, Callable[[SweepReport], None]]]
]


@dataclass(repr=False)
class TuneResult:
    """Result of a tuning.

    Attributes:
        trials: all that were tried, in their order.
        sweeps: result of each round.
        file: what was chosen; ``None``: not every trial is finished, or none of them has a score.
        path: where it lies.
    """

    trials: list[Trial] = field(default_factory=list)
    sweeps: list[SweepResult] = field(default_factory=list)
    file: TunedFile | None = None
    path: Path | None = None

    def __repr__(self) -> str:
        """Number of trials, what was chosen, and where it was written."""
        chosen = f", {dict(self.file.options)}, path={str(self.path)!r}" if self.file is not None else ", none chosen"
        return f"TuneResult({len(self.trials)} trials{chosen})"

    def _repr_html_(self) -> str:
        """A row for each trial, the best ones first, for a notebook."""
        ranked = sorted(self.trials, key=lambda trial: -1.0 if trial.score is None else trial.score, reverse=True)
        rows = [
            [", ".join(f"{key}={format_option(value)}" for key, value in trial.options.items()), _percent(trial.score)]
            for trial in ranked
        ]
        notes = [f"tuned file: {self.path}" if self.path is not None else "no tuned file was written"]
        return html_table("tuning", ["trial", "validation accuracy (%)"], rows, notes)

    @property
    def records(self) -> list[Record]:
        """Records of all trials that are finished or failed, each once."""
        found = {job.job.run_id: job.record for sweep in self.sweeps for job in sweep.jobs if job.record is not None}
        return list(found.values())


def _percent(score: float | None) -> str | None:
    return None if score is None else f"{100 * score:.2f}"


def run_tuning(
    registry: Registry, spec: TuneSpec, show: Show, stop: StopRequest | None = None, *, dry_run: bool = False
) -> TuneResult:
    """Try what the sampler draws, choose, and write the tuned file.

    Runs that are finished in the folder of trials are not made again: the same call resumes a tuning.

    Args:
        registry: installed plugins.
        spec: what is asked for.
        show: shows each round of trials.
        stop: whether and when to stop.
        dry_run: only show the first round.

    Returns:
        The trials, and the file unless it was stopped before its end.

    Raises:
        RequestError: a trial cannot be run.
        SpecError: the file is that of another tuning.
    """
    run = resolve(registry, spec.request(_some_values(spec)))
    _refuse_whole(spec, run)
    target = spec.file(default_id(run))
    check_target(spec, run, target)
    sampler, result, sweep, planned = make_sampler(spec), TuneResult(), spec.sweep(), dict[str, PlannedJob]()
    while asked := sampler.ask():
        plan = plan_requests(registry, sweep, map(spec.request, asked))
        planned |= {job.run_id: job for job in plan.jobs}
        if not dry_run:
            keep_jobs(sweep.results, "tuning", planned.values(), (spec.trials or 0) * len(set(sweep.seeds)))
        executor = GuardedExecutor(registry, sweep)
        with show(plan, executor.slots) as (estimate, notify):
            if dry_run:
                executor.close()
                return result
            result.sweeps.append(run_sweep(plan, executor, estimate, notify, stop, keep=False))
        jobs = {job.job.run_id: job for job in result.sweeps[-1].jobs}
        if any(job.status not in ("finished", "failed") for job in jobs.values()):
            return result
        trials = [_trial(registry, spec, values, jobs) for values in asked]
        result.trials += trials
        sampler.tell([trial.score for trial in trials])
    if any(trial.score is not None for trial in result.trials):
        result.file = make_file(spec, run, result.trials, result.records)
        result.file.write(target)
        result.path = target
    return result


def _some_values(spec: TuneSpec) -> dict[str, Any]:
    """Any values of the space: what is resolved with them does not depend on which."""
    return {key: part.values[0] if isinstance(part, Choices) else part.low for key, part in spec.space.items()}


def _refuse_whole(spec: TuneSpec, run: ResolvedRun) -> None:
    """Refuse first tasks that are all tasks: nothing would be left of the stream."""
    tasks = len(replace(run, spec=run.spec.model_copy(update={"first_tasks": None})).plan().tasks)
    if spec.first_of_stream is not None and spec.first_of_stream >= tasks:
        raise RequestError(
            f"{spec.method} is the whole stream: benchmark {run.spec.benchmark.name!r} has {tasks} tasks",
            where=f"--method {spec.method}",
            remedy="give fewer tasks, or --method whole-stream",
        )


def _trial(registry: Registry, spec: TuneSpec, values: Mapping[str, Any], jobs: Mapping[str, JobResult]) -> Trial:
    """The trial of these values: its runs among the jobs, and their mean score."""
    configuration = Configuration(request := spec.request(values), resolve(registry, request))
    runs: list[TrialRun] = []
    scores: list[float | None] = []
    for seed in dict.fromkeys(spec.seeds):
        job = jobs[configuration.at(seed).spec.run_id]
        record = job.record if job.status == "finished" else None
        scores.append(None if record is None else record.metrics.get("acc"))
        status: Literal["finished", "failed"] = "failed" if scores[-1] is None else "finished"
        matrix = () if record is None else learned_matrix(record)
        runs.append(TrialRun(seed=seed, run_id=job.job.run_id, status=status, accuracy_matrix=matrix))
    known = [score for score in scores if score is not None]
    score = fmean(known) if len(known) == len(scores) else None
    return Trial(options=dict(values), score=score, runs=tuple(runs))


def learned_matrix(record: Record) -> Matrix:
    """Accuracies on the tasks learned so far, to six digits; a row is empty where one was not measured."""
    rows = [row[: place + 1] for place, row in enumerate(record.accuracy_matrix)]
    return tuple(() if None in row else tuple(round(value or 0.0, 6) for value in row) for row in rows)
