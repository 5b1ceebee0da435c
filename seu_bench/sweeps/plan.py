"""Plan of a sweep: its jobs, each with its state in a results folder; what can be refused is refused here."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from seu_bench.config.commands import unused_flags
from seu_bench.config.options import did_you_mean, format_option
from seu_bench.config.run import ExecutionFields, Request, ResultFields
from seu_bench.engine.launcher import matched_request
from seu_bench.engine.loggers import choose_loggers
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.run_folder import find_state
from seu_bench.engine.tuned_files import TunedFiles
from seu_bench.errors import DataError, OptionError, RequestError, SeuBenchError
from seu_bench.plugin.executors import Job
from seu_bench.results.record import code_fault, runs_folder
from seu_bench.sweeps.spec import SweepSpec, absolute_paths
from seu_bench.utils.reading import list_folder

if TYPE_CHECKING:
    from seu_bench.plugin.registry import Registry
    from seu_bench.results.record import Record

#: Components, by their names in requests.
_KINDS: Final = ("searcher", "creator")
#: ``new``: there is no record, or one that cannot be read and is replaced.
JobState: TypeAlias = Literal["finished", "interrupted", "failed", "running", "new"]


@dataclass(frozen=True)
class Configuration:
    """Configuration shared by the jobs of several seeds; request and run are those of one of the seeds."""

    request: Request
    run: ResolvedRun

    @cached_property
    def key(self) -> str:
        """Identifies it among others."""
        return self.run.spec.run_id

    @property
    def label(self) -> str:
        """The configuration in words, without the benchmark."""
        return _label(self.request)

    def at(self, seed: int) -> ResolvedRun:
        """The run of one seed, on which nothing else depends."""
        return replace(self.run, spec=self.run.spec.model_copy(update={"seed": seed}))


@dataclass(frozen=True)
class PlannedJob:
    """A job, the state and the record of its run, and why it failed or was interrupted, or which process runs it.

    ``is_replacing``: what lies in its place was made with other code, and is replaced.
    """

    run_id: str
    configuration: Configuration
    seed: int
    state: JobState
    detail: str = ""
    record: Record | None = None
    is_replacing: bool = False

    @property
    def label(self) -> str:
        """The job in words."""
        spec = self.configuration.run.spec
        return f"{spec.benchmark.name} {spec.protocol_name}: {self.configuration.label}, seed {self.seed}"


@dataclass(frozen=True)
class SweepPlan:
    """All jobs of a sweep, each once, with notes on what does not concern which strategies."""

    spec: SweepSpec
    jobs: tuple[PlannedJob, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def pending(self) -> tuple[PlannedJob, ...]:
        """Jobs to run, in this order. Those that run elsewhere come last: they may be over by then."""
        states = {"new", "interrupted", *(["failed"] if self.spec.retry_failed else [])}
        due = [job for job in self.jobs if job.state in states]
        return (*due, *[job for job in self.jobs if job.state == "running"])

    def to_job(self, job: PlannedJob) -> Job:
        """Return a job as an executor is given it: its paths are absolute."""
        request = job.configuration.request
        own = {"seed": job.seed, "restart": job.is_replacing}
        return Job(run_id=job.run_id, request=request.model_copy(update=absolute_paths(request) | own))


def plan_sweep(registry: Registry, spec: SweepSpec) -> SweepPlan:
    """Resolve every job of a sweep and look up its state in the results folder. Nothing is written.

    Raises:
        RequestError: a job cannot be run, an option concerns none, or a logger is unknown; all are named.
        DataError: a data set that pending jobs need is missing.
    """
    notes: list[str] = []
    return plan_requests(registry, spec, expand_requests(registry, spec, notes), notes)


def plan_requests(
    registry: Registry, spec: SweepSpec, requests: Iterable[Request], notes: Sequence[str] = ()
) -> SweepPlan:
    """Resolve requests for every seed of a sweep and look up their states, as :func:`plan_sweep` does."""
    choose_loggers(registry, spec.log, spec.log_options)
    list_folder(runs_folder(spec.results))  # refuses one that cannot be read
    configurations = resolve_all(registry, spec, requests)
    jobs: dict[str, PlannedJob] = {}
    # All configurations of a seed before those of the next one, so that each shows early whether it works.
    for seed, configuration in itertools.product(dict.fromkeys(spec.seeds), configurations):
        run_id = configuration.at(seed).spec.run_id
        if run_id not in jobs:
            jobs[run_id] = _plan_job(spec, run_id, configuration, seed)
    matched = [
        f"{it.run.spec.benchmark.name}, {it.request.strategy}: {it.request.matched}"
        for it in configurations
        if it.request.matched is not None
    ]
    # Of a sweep that is resumed its finished jobs were made with the same: only where nothing is left is it a slip.
    unused = unused_flags(spec) if all(job.state == "finished" for job in jobs.values()) else ""
    told = [f"without effect, because all runs were finished before: {unused}"] if unused else []
    plan = SweepPlan(spec, tuple(jobs.values()), (*notes, *matched, *told))
    _refuse_missing_data(plan)
    return plan


def expand_requests(registry: Registry, spec: SweepSpec, notes: list[str]) -> Iterator[Request]:
    """Expand every configuration into a request, and exclude from each what its strategy does not take.

    What none takes is refused: mostly slips.
    """
    shared = spec.model_dump(include={*ResultFields.model_fields, *ExecutionFields.model_fields, "protocol"})
    shared["seed"] = spec.seeds[0]
    wanted = [*[kind for kind in _KINDS if getattr(spec, kind)], *spec.axes]
    taken_by_any: set[str] = set()
    known: set[str] = set()
    for strategy in dict.fromkeys(spec.strategy):
        taken: set[str] = set()
        for benchmark, names in itertools.product(dict.fromkeys(spec.benchmark), _components(registry, spec, strategy)):
            options = _options_of(registry, strategy, names)
            fitting = {
                key: values for key, values in spec.axes.items() if key in options or key.startswith("benchmark.")
            }
            known |= options
            taken |= {*fitting, *[kind for kind, name in names.items() if name]}
            for values in itertools.product(*fitting.values()):
                given = dict(zip(fitting, values, strict=True))
                yield Request(strategy=strategy, benchmark=benchmark, options=given, **names, **shared)
        if excluded := [name for name in wanted if name not in taken]:
            notes.append(f"{strategy} takes no {', no '.join(excluded)}: its jobs are planned without")
        taken_by_any |= taken
    unused = [name for name in wanted if name not in taken_by_any]
    if unused:
        raise OptionError(
            "; ".join(f"no strategy of the sweep takes {name!r}{did_you_mean(name, known)}" for name in unused),
            where="the sweep's options",
            remedy="seu-bench list strategies, searchers or creators shows the options of each",
        )


def _components(registry: Registry, spec: SweepSpec, strategy: str) -> Iterator[dict[str, str | None]]:
    """Searcher and creator of each configuration of a strategy, ``None`` where it is the default or takes none."""
    taken = registry.strategies.find(strategy).factory.components
    chosen = [dict.fromkeys(getattr(spec, kind) or (None,)) if kind in taken else (None,) for kind in _KINDS]
    return (dict(zip(_KINDS, pair, strict=True)) for pair in itertools.product(*chosen))


def _options_of(registry: Registry, strategy: str, components: Mapping[str, str | None]) -> set[str]:
    factory = registry.strategies.find(strategy).factory
    keys = set(factory.options.model_fields)
    for kind, default in factory.components.items():
        table = registry.searchers if kind == "searcher" else registry.creators
        chosen: Any = table.find(components.get(kind) or default).factory
        keys |= {f"{kind}.{key}" for key in chosen.options.model_fields}
    return keys


def _plan_job(asked: SweepSpec, run_id: str, configuration: Configuration, seed: int) -> PlannedJob:
    found = find_state(asked.results, run_id)
    if found is None or found.state == "unreadable":
        return PlannedJob(run_id, configuration, seed, "new")
    if found.record is not None and found.record.run_id != run_id:
        return PlannedJob(run_id, configuration, seed, "new", "there is a record of another run in its folder")
    is_kept = found.record is not None and found.holder is None and (found.state == "finished" or found.position)
    fault = None
    if found.record is not None and is_kept and not asked.accept_code:
        fault = code_fault(found.record.code, configuration.run.code)
    if fault is not None:
        detail = f"{fault}; --retry-failed, or run --restart, makes it again, --accept-code accepts it"
        return PlannedJob(run_id, configuration, seed, "failed", detail, found.record, is_replacing=True)
    detail = f"by {found.holder}" if found.holder is not None else found.detail or ""
    state: JobState = "running" if found.holder is not None and found.state != "finished" else found.state
    return PlannedJob(run_id, configuration, seed, state, detail, found.record)


def _label(request: Request) -> str:
    name = " + ".join(part for part in (request.strategy, request.searcher, request.creator) if part)
    options = ", ".join(f"{key}={format_option(value)}" for key, value in request.options.items())
    return f"{name} ({options})" if options else name


def resolve_all(registry: Registry, spec: SweepSpec, requests: Iterable[Request]) -> list[Configuration]:
    """Resolve each request on the first seed; a RequestError names all that cannot be run."""
    tuned = TunedFiles(spec.results, spec.tuned)
    configurations: list[Configuration] = []
    refused: dict[str, list[str]] = {}
    for request in requests:
        try:
            run = resolve(registry, request)
            path = tuned.path_for(run.spec.place)
            job = matched_request(registry, request.model_copy(update={"tuned": str(path)}) if path else request)
            run = run if job is request else resolve(registry, job)
            for seed in spec.seeds:
                run.refuse_tuned_seed(seed)
            configurations.append(Configuration(run.request, run))  # which has a file in place of a folder
        except SeuBenchError as error:
            refused.setdefault(str(error), []).append(f"{request.benchmark}: {_label(request)}")
    if refused:
        number = sum(map(len, refused.values()))
        raise RequestError(
            f"{number} of {len(configurations) + number} configurations of the sweep cannot be run; nothing was begun\n"
            + "\n".join(_refusal(jobs, reason) for reason, jobs in refused.items()),
            remedy="correct them, or take them out of the sweep",
        )
    tuned.refuse_unused()
    return configurations


def _refusal(jobs: Sequence[str], reason: str) -> str:
    more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
    return f"  - {'; '.join(jobs[:3])}{more}\n      " + reason.replace("\n", "\n      ")


def _refuse_missing_data(plan: SweepPlan) -> None:
    """Check the data sets of pending jobs, once each; refuse missing or corrupt ones, all by name."""
    faults: dict[str, str] = {}
    for job in plan.pending:
        run = job.configuration.run
        for name, source in run.sources.items() if not run.spec.synthetic else ():
            key = f"{name} {run.spec.local_data.get(name, '')}"
            if key in faults:
                continue
            faults[key] = ""
            try:
                found = source.state(plan.spec.data_root)
            except Exception as error:  # of a stranger's source: the run says more
                faults[key] = f"  - {name} ({job.label}): {type(error).__name__}: {error}"
                continue
            if found.status not in ("embedded", "complete"):
                where = f" in {found.where}" if found.where else ""
                detail = f": {found.detail}" if found.detail else ""
                faults[key] = f"  - {name} is {found.status}{where}{detail} ({job.label})"
    if any(faults.values()):
        raise DataError(
            "data sets of the sweep cannot be used; nothing was begun\n" + "\n".join(filter(None, faults.values())),
            remedy="fetch them with seu-bench data fetch NAME, or say where they are with --data-root",
        )


class SweepEstimate:
    """Seconds that jobs will take: each the mean of the finished ones of its configuration."""

    def __init__(self, plan: SweepPlan, slots: int | None) -> None:
        self._slots = slots
        self._taken: dict[str, list[float]] = {}
        for job in plan.jobs:
            if job.state == "finished" and job.record is not None:
                self.learn(job, job.record.seconds)

    def learn(self, job: PlannedJob, seconds: float | None) -> None:
        """Learn from a job that took so long."""
        if seconds:
            self._taken.setdefault(job.configuration.key, []).append(seconds)

    def of(self, jobs: Iterable[PlannedJob]) -> float | None:
        """Seconds until all of these are finished; ``None``: not known yet."""
        taken = [self._taken.get(job.configuration.key) for job in jobs]
        seconds = [fmean(known) for known in taken if known]
        if len(seconds) < len(taken) or not self._slots:
            return None
        return max(sum(seconds) / self._slots, max(seconds, default=0.0))
