"""Tuning: hyper-parameters chosen on validation images of other seeds' streams, by the jobs of sweeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from seu_bench.config.tuned import NOTES, Trial, TunedFile, TuningCost
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import RequestError, SpecError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import EVALUATION
from seu_bench.sweeps.driver import GuardedExecutor, JobResult, SweepReport, SweepResult, run_sweep
from seu_bench.sweeps.plan import Configuration, SweepPlan, plan_requests
from seu_bench.sweeps.tune_spec import Choices, TuneSpec, grid
from seu_bench.utils.files import check_output
from seu_bench.utils.seeding import derive_seed

#: Shows one round of trials, its plan and the executor's slots, and gives what reports go to.
Show: TypeAlias = Callable[[SweepPlan, int | None], AbstractContextManager[Callable[[SweepReport], None]]]


@dataclass(repr=False)
class TuneResult:
    """Result of a tuning.

    Attributes:
        trials: all that were tried, in their order, from the ``sweeps`` of each round.
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

    @property
    def records(self) -> list[Record]:
        """Records of all trials that are finished or failed, each once."""
        found = {job.job.run_id: job.record for sweep in self.sweeps for job in sweep.jobs if job.record is not None}
        return list(found.values())


def run_tuning(
    registry: Registry, spec: TuneSpec, show: Show, stop: StopRequest | None = None, *, dry_run: bool = False
) -> TuneResult:
    """Try what the sampler draws, choose, and write the tuned file.

    Runs that are finished in the folder of trials are not made again: the same call resumes a tuning.

    Args:
        registry: installed plugins.
        spec: what is asked for.
        show: shows each round of trials.
        stop: whether and when to stop; then no file is written.
        dry_run: only show the first round.

    Raises:
        RequestError: a trial cannot be run.
        SpecError: the file is that of another tuning.
    """
    # Any values of the space: what is read of this run does not depend on which.
    values = {key: part.values[0] if isinstance(part, Choices) else part.low for key, part in spec.space.items()}
    run = resolve(registry, spec.request(values))
    _refuse_whole(spec, run)
    target = spec.file(default_id(run))
    check_target(spec, run, target)
    study = None if spec.sampler == "grid" else Study(spec)
    result, sweep = TuneResult(), spec.sweep()
    while asked := list(grid(spec.space)) if study is None else study.ask():
        plan = plan_requests(registry, sweep, map(spec.request, asked))
        executor = GuardedExecutor(registry, sweep)
        with show(plan, executor.slots) as notify:
            if dry_run:
                executor.close()
                return result
            result.sweeps.append(run_sweep(plan, executor, notify, stop))
        jobs = {job.job.run_id: job for job in result.sweeps[-1].jobs}
        if any(job.status not in ("finished", "failed") for job in jobs.values()):
            return result
        trials = [_trial(registry, spec, values, jobs) for values in asked]
        result.trials += trials
        if study is None:
            break
        study.tell([trial.score for trial in trials])
    if any(trial.score is not None for trial in result.trials):
        result.file = make_file(spec, run, result.trials, result.records)
        result.file.write(target)
        result.path = target
    return result


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
    runs: list[dict[str, Any]] = []
    scores: list[float | None] = []
    for seed in dict.fromkeys(spec.seeds):
        job = jobs[configuration.at(seed).spec.run_id]
        record = job.record if job.status == "finished" else None
        scores.append(None if record is None else record.metrics.get("acc"))
        status = "failed" if scores[-1] is None else "finished"
        matrix = [] if record is None else learned_matrix(record)
        runs.append({"seed": seed, "run_id": job.job.run_id, "status": status, "accuracy_matrix": matrix})
    known = [score for score in scores if score is not None]
    score = fmean(known) if len(known) == len(scores) else None
    return Trial(options=dict(values), score=score, runs=tuple(runs))


def learned_matrix(record: Record) -> list[list[float]]:
    """Accuracies on the tasks learned so far, to six digits; a row is empty where one was not measured."""
    rows = [row[: place + 1] for place, row in enumerate(record.accuracy_matrix)]
    return [[] if None in row else [round(value or 0.0, 6) for value in row] for row in rows]


class Study:
    """A study of Optuna; with the same seed and scores it draws the same again, so that a tuning can be resumed.

    Raises:
        RequestError: Optuna is not installed.
    """

    def __init__(self, spec: TuneSpec) -> None:
        try:
            import optuna
        except ImportError:
            raise RequestError(
                f"the sampler {spec.sampler!r} is Optuna's, which is not installed",
                where=f"--sampler {spec.sampler}",
                remedy="pip install 'seu-bench[optuna]', or take the sampler grid",
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = derive_seed(spec.seeds[0], "tuning") % 2**32  # as many as NumPy's old generator takes
        samplers = optuna.samplers
        known = {"tpe": samplers.TPESampler, "random": samplers.RandomSampler}
        self._study = optuna.create_study(direction="maximize", sampler=known[spec.sampler](seed=seed))
        self._space = spec.space
        self._left = spec.trials or 0
        self._batch = spec.batch
        self._asked: list[Any] = []

    def ask(self) -> list[dict[str, Any]]:
        number = min(self._batch, self._left)
        self._left -= number
        self._asked = [self._study.ask() for _ in range(number)]
        return [self._values(trial) for trial in self._asked]

    def tell(self, scores: Sequence[float | None]) -> None:
        from optuna.trial import TrialState

        for trial, score in zip(self._asked, scores, strict=True):
            self._study.tell(trial, score, state=TrialState.FAIL if score is None else TrialState.COMPLETE)

    def _values(self, trial: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, part in self._space.items():
            if isinstance(part, Choices):
                # By position: Optuna's categories are plain numbers and texts, and options may be lists.
                values[key] = part.values[trial.suggest_categorical(key, range(len(part.values)))]
            elif part.is_whole:
                values[key] = part.round_value(trial.suggest_int(key, int(part.low), int(part.high), log=part.log))
            else:
                values[key] = part.round_value(trial.suggest_float(key, part.low, part.high, log=part.log))
        return values


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The trial of the highest score; of several, the first that was tried."""
    return max((trial for trial in trials if trial.score is not None), key=lambda trial: trial.score or 0.0)


def default_id(run: ResolvedRun) -> str:
    """Name of a tuned file that was given none."""
    return f"{run.spec.benchmark.name_in_scenario}-{run.spec.protocol_name}-{run.spec.configuration}"


def definition(spec: TuneSpec, run: ResolvedRun) -> dict[str, Any]:
    """Keys of a tuned file that say which tuning it is."""
    own = run.spec
    return {
        "benchmark": own.benchmark.name,
        "benchmark_version": own.benchmark.version,
        "protocol": own.protocol_name,
        "configuration": own.configuration,
        "strategy": own.strategy,
        "searcher": own.searcher,
        "creator": own.creator,
        "scenario": None if own.benchmark.stream.scenario == "task" else own.benchmark.stream.scenario,
        "method": spec.method,
        "sampler": spec.sampler if spec.trials is None else f"{spec.sampler}:{spec.trials}",
        "given": spec.run_options,
        "limit": spec.limit,
        "synthetic": spec.synthetic,
        "precision": spec.precision,
        "threads": spec.threads if spec.threads > 1 else None,  # so that the SHA-256 of older files stays
        "seeds": tuple(dict.fromkeys(spec.seeds)),
        "space": {key: str(part) for key, part in spec.space.items()},
    }


def check_target(spec: TuneSpec, run: ResolvedRun, path: Path) -> None:
    """Refuse to replace the file of another tuning, unless that is asked for."""
    check_output(path)
    if spec.replace or not path.exists():
        return
    known = TunedFile.read(path)
    differ = [key for key, value in definition(spec, run).items() if getattr(known, key) != value]
    if differ:
        raise SpecError(
            f"there is the file of another tuning, which differs in {', '.join(differ)}",
            where=str(path),
            remedy="give another --id or --output; or replace it with --replace (runs that it has in common are kept)",
        )


def make_file(spec: TuneSpec, run: ResolvedRun, trials: Sequence[Trial], records: Sequence[Record]) -> TunedFile:
    """Make the tuned file of complete trials, one of which has a score, from the records of their runs.

    ``run`` is that of any trial, for what all have in common.
    """
    best = best_trial(trials)
    defaults = run.tuned.options if run.tuned is not None else {}
    software = dict(records[0].environment.versions)
    if spec.sampler != "grid":
        software["optuna"] = version("optuna")
    if records[0].environment.git_revision:
        software["git_revision"] = records[0].environment.git_revision
    return TunedFile.sealed(
        id=spec.id or default_id(run),
        **definition(spec, run),
        note=NOTES[spec.method.partition(":")[0]],
        score=best.score,
        options={**defaults, **spec.run_options, **best.options},
        cost=total_cost(records, run.tuned),
        software=software,
        trials=tuple(trials),
    )


def total_cost(records: Sequence[Record], base: TunedFile | None) -> TuningCost:
    """Sum the cost of runs, and of the tuning whose values they start from; passes count measuring as well."""

    def total(name: str) -> Any:
        stages = (stage for record in records for stage in record.stages)
        counted = (stage for stage in stages if name == "image_passes" or stage.name != EVALUATION)
        values: list[Any] = [getattr(stage, name, None) for stage in counted]
        values += [getattr(base.cost, name)] if base is not None else []
        return None if None in values else math.fsum(values) if name == "cpu_seconds" else sum(values)

    return TuningCost(
        runs=len(records) + (base.cost.runs if base is not None else 0),
        image_passes=total("image_passes"),
        cpu_seconds=total("cpu_seconds"),
        flops=total("flops"),
    )
