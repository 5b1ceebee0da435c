"""A sweep and a results folder -> its jobs, each with where it stands; what can be refused is refused here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from seu_bench.config.benchmark_file import names_a_file
from seu_bench.config.options import did_you_mean, format_option
from seu_bench.config.run import ExecutionFields, Request, ResultFields
from seu_bench.engine.loggers import choose_loggers
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.run_states import find_state
from seu_bench.errors import DataError, OptionError, RequestError, SeuBenchError
from seu_bench.sweeps.spec import SweepSpec

if TYPE_CHECKING:
    from seu_bench.plugin.executors import Job
    from seu_bench.plugin.registry import Registry
    from seu_bench.results.record import Record

#: ``new``: there is nothing of it, or a record that cannot be read and is made again.
JobState: TypeAlias = Literal["finished", "interrupted", "failed", "running", "new"]

#: What components there are, by their names in requests.
_KINDS = ("searcher", "creator")


@dataclass(frozen=True)
class Configuration:
    """What the jobs of several seeds share.

    Attributes:
        label: in words, without the benchmark.
        run: resolved for one of the seeds.
        key: tells it from others.
    """

    label: str
    run: ResolvedRun
    request: Request
    key: str

    @property
    def kind(self) -> tuple[str | None, ...]:
        """Configurations of one kind compute about as fast, image by image: who learns what by which protocol."""
        spec = self.run.spec
        return spec.benchmark.name, spec.protocol_name, spec.strategy, spec.searcher, spec.creator

    def at(self, seed: int) -> ResolvedRun:
        """The run of one seed, on which nothing else depends."""
        return replace(self.run, spec=self.run.spec.model_copy(update={"seed": seed}))


@dataclass(frozen=True)
class PlannedJob:
    """A job and where it stands.

    Attributes:
        state: as the results folder has it.
        detail: why it failed or was interrupted, or who makes it.
        record: what there is.
    """

    run_id: str
    configuration: Configuration
    seed: int
    state: JobState
    detail: str = ""
    record: Record | None = None

    @property
    def label(self) -> str:
        """The job in words."""
        spec = self.configuration.run.spec
        return f"{spec.benchmark.name} {spec.protocol_name}: {self.configuration.label}, seed {self.seed}"


@dataclass(frozen=True)
class SweepPlan:
    """All jobs of a sweep, each once.

    Attributes:
        notes: which parts of the sweep do not concern which strategies.
    """

    spec: SweepSpec
    jobs: tuple[PlannedJob, ...]
    notes: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[PlannedJob, ...]:
        """What will be made, in this order. What another process makes comes last: it may be over by then."""
        due = [job for job in self.jobs if job.state in ("new", "interrupted")]
        if self.spec.retry_failed:
            due = [job for job in self.jobs if job.state in ("new", "interrupted", "failed")]
        return (*due, *[job for job in self.jobs if job.state == "running"])

    def to_job(self, job: PlannedJob) -> Job:
        """What an executor is given of a job."""
        from seu_bench.plugin.executors import Job

        request, spec = job.configuration.request, self.spec
        places: dict[str, Any] = {
            "results": spec.results.absolute(),
            "data_root": spec.data_root.absolute() if spec.data_root is not None else None,
        }
        if names_a_file(request.benchmark):
            places["benchmark"] = str(Path(request.benchmark).expanduser().absolute())
        return Job(run_id=job.run_id, request=request.model_copy(update={**places, "seed": job.seed}))


def plan_sweep(registry: Registry, spec: SweepSpec) -> SweepPlan:
    """Every job of a sweep, resolved, and where it stands in the results folder. Nothing is written.

    All configurations of a seed come before those of the next one, so that each shows early whether it works.

    Raises:
        RequestError: a job cannot be run, an option concerns none, or a logger cannot be had; all are named.
        DataError: a data set that is needed for what is left is not there.
    """
    choose_loggers(registry, spec.log, spec.log_options)
    notes: list[str] = []
    configurations = _resolved(registry, list(_requests(registry, spec, notes)))
    jobs: dict[str, PlannedJob] = {}
    for seed, configuration in itertools.product(dict.fromkeys(spec.seeds), configurations):
        run_id = configuration.at(seed).spec.run_id
        if run_id not in jobs:
            jobs[run_id] = _standing(spec.results, run_id, configuration, seed)
    plan = SweepPlan(spec, tuple(jobs.values()), tuple(notes))
    _refuse_absent_data(plan)
    return plan


def _standing(results: Path, run_id: str, configuration: Configuration, seed: int) -> PlannedJob:
    """A job as a run of its own would find it."""
    found = find_state(results, run_id)
    if found is None or found.state == "unreadable":
        return PlannedJob(run_id, configuration, seed, "new")
    if found.record is not None and found.record.run_id != run_id:
        return PlannedJob(run_id, configuration, seed, "new", "there is a record of another run in its folder")
    detail = f"by {found.holder}" if found.holder is not None else found.detail or ""
    state: JobState = "running" if found.holder is not None and found.state != "finished" else found.state
    return PlannedJob(run_id, configuration, seed, state, detail, found.record)


def _requests(registry: Registry, spec: SweepSpec, notes: list[str]) -> Iterator[tuple[str, Request]]:
    """Every configuration as a request and in words; what a strategy does not take is left out of its own.

    Raises:
        RequestError: an unknown strategy, searcher or creator, or an option or component that no strategy takes.
    """
    shared = spec.model_dump(include={*ResultFields.model_fields, *ExecutionFields.model_fields})
    taken: set[str] = set()
    known: set[str] = set()
    for strategy in dict.fromkeys(spec.strategy):
        components = registry.strategies.find(strategy).factory.components
        left_out = [kind for kind in _KINDS if getattr(spec, kind) and kind not in components]
        chosen = [getattr(spec, kind) or (None,) if kind in components else (None,) for kind in _KINDS]
        unused = set(spec.axes)
        for benchmark, *pair in itertools.product(dict.fromkeys(spec.benchmark), *map(dict.fromkeys, chosen)):
            names = dict(zip(_KINDS, pair, strict=True))
            options = _options_of(registry, strategy, names)
            fitting = {
                key: values for key, values in spec.axes.items() if key in options or key.startswith("benchmark.")
            }
            known |= options
            unused -= set(fitting)
            taken |= {*fitting, *[kind for kind, name in names.items() if name]}
            for values in itertools.product(*fitting.values()):
                given = dict(zip(fitting, values, strict=True))
                request = Request(
                    strategy=strategy,
                    benchmark=benchmark,
                    protocol=spec.protocol,
                    seed=spec.seeds[0],
                    options=given,
                    **names,
                    **shared,
                )
                yield _label(request), request
        left_out += [key for key in spec.axes if key in unused]
        if left_out:
            notes.append(f"{strategy} takes no {', no '.join(left_out)}: its jobs are planned without")
    wanted = [*spec.axes, *[kind for kind in _KINDS if getattr(spec, kind)]]
    _refuse_unused([name for name in wanted if name not in taken], known)


def _options_of(registry: Registry, strategy: str, components: Mapping[str, str | None]) -> set[str]:
    """Keys of the options that a strategy and its components have."""
    factory = registry.strategies.find(strategy).factory
    keys = set(factory.options.model_fields)
    for kind, default in factory.components.items():
        table = registry.searchers if kind == "searcher" else registry.creators
        chosen: Any = table.find(components.get(kind) or default).factory
        keys |= {f"{kind}.{key}" for key in chosen.options.model_fields}
    return keys


def _refuse_unused(names: Sequence[str], known: set[str]) -> None:
    """Refuse what concerns no strategy of the sweep: it is mostly a slip, and nobody would miss it."""
    if not names:
        return
    faults = [f"no strategy of the sweep takes {name!r}{did_you_mean(name, known)}" for name in names]
    raise OptionError(
        "; ".join(faults),
        where="the sweep's options",
        remedy="seu-bench list strategies, searchers or creators shows the options of each",
    )


def _label(request: Request) -> str:
    name = " + ".join(part for part in (request.strategy, request.searcher, request.creator) if part)
    options = ", ".join(f"{key}={format_option(value)}" for key, value in request.options.items())
    return f"{name} ({options})" if options else name


def _resolved(registry: Registry, requests: Sequence[tuple[str, Request]]) -> list[Configuration]:
    """The configurations.

    Raises:
        RequestError: some cannot be run; each reason is told once, with those that it concerns.
    """
    configurations: list[Configuration] = []
    refused: dict[str, list[str]] = {}
    for label, request in requests:
        try:
            run = resolve(registry, request)
            configurations.append(Configuration(label, run, request, run.spec.run_id))
        except SeuBenchError as error:
            refused.setdefault(str(error), []).append(f"{request.benchmark}: {label}")
    if refused:
        number = sum(map(len, refused.values()))
        raise RequestError(
            f"{number} of {len(requests)} configurations of the sweep cannot be run; nothing was begun\n"
            + "\n".join(_refusal(jobs, reason) for reason, jobs in refused.items()),
            remedy="correct them, or take them out of the sweep",
        )
    return configurations


def _refusal(jobs: Sequence[str], reason: str) -> str:
    more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
    return f"  - {'; '.join(jobs[:3])}{more}\n      " + reason.replace("\n", "\n      ")


def _refuse_absent_data(plan: SweepPlan) -> None:
    """Look for the data sets of what is left, once each.

    Raises:
        DataError: some are not there; all are named.
    """
    looked: dict[str, str | None] = {}
    for job in plan.pending:
        run = job.configuration.run
        if run.spec.synthetic:
            continue
        for name, source in run.sources.items():
            key = f"{name} {run.spec.local_data.get(name, '')}"
            if key not in looked:
                looked[key] = _fault_of_data(name, source.state, plan.spec.data_root, job)
    faults = [fault for fault in looked.values() if fault is not None]
    if faults:
        raise DataError(
            "data sets of the sweep cannot be used; nothing was begun\n" + "\n".join(faults),
            remedy="fetch them with seu-bench data fetch NAME, or say where they are with --data-root",
        )


def _fault_of_data(name: str, state: Any, root: Path | None, job: PlannedJob) -> str | None:
    try:
        found = state(root)
    except Exception as error:  # of a stranger's source: the run says more
        return f"  - {name} ({job.label}): {type(error).__name__}: {error}"
    if found.status in ("embedded", "complete"):
        return None
    where = f" in {found.where}" if found.where else ""
    detail = f": {found.detail}" if found.detail else ""
    return f"  - {name} is {found.status}{where}{detail} ({job.label})"
