"""seu-bench from Python: the same runs and the same records as the command line's."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.commands import unused_flags
from seu_bench.config.run import Request
from seu_bench.engine.launcher import launch
from seu_bench.errors import PluginError, RequestError
from seu_bench.plugin.methods import end_import, importable_file
from seu_bench.plugin.registry import PACKAGE, Entry, Registry, is_installed, use_plugins
from seu_bench.results.record import Record
from seu_bench.utils import progress as bars

if TYPE_CHECKING:
    from seu_bench.cli.progress import SweepDisplay
    from seu_bench.engine.runner import Outcome
    from seu_bench.results.leaderboard import Leaderboards
    from seu_bench.sweeps.driver import SweepResult
    from seu_bench.sweeps.plan import SweepPlan
    from seu_bench.sweeps.tuning import TuneResult
    from seu_bench.training.method import Method


def run(
    strategy: str | type[Method] = "seu",
    benchmark: str | BenchmarkSpec = "split_digits",
    *,
    progress: bool = False,
    **given: Any,
) -> Record:
    """Make one run and return its record.

    The same call resumes a run that was interrupted, and returns the record of one that is finished; a ``UserWarning``
    names the keywords that then have no effect, such as ``device`` and ``log``. Signals are left to the caller: Ctrl-C
    is a ``KeyboardInterrupt``, after which the next call resumes from the newest checkpoint.

    Args:
        strategy: name of the strategy that learns; a class of :class:`seu_bench.Method`, which is known by its name
            from then on; or the import path of one of Avalanche's, e.g. ``avalanche.training.supervised:Naive``.
        benchmark: a name, the path of a TOML file, such as :func:`seu_bench.stream` returns, a folder of class folders
            of images, with ``classes_per_task``, or what :meth:`seu_bench.config.BenchmarkSpec.of` makes.
        progress: whether to draw progress bars.
        given: the options of ``seu-bench run``, which are the fields of :class:`seu_bench.config.Request`, such as
            ``seed=1``, ``protocol="quick"``, ``options={"epochs": 3, "searcher.alpha": 0.1}``, ``results="results"``,
            ``device="cuda"``, ``plugin="my_method.py"``, ``log=["tensorboard"]``, ``restart=True``.

    Returns:
        The record of the finished run.

    Raises:
        SeuBenchError: as the command line would say; see :mod:`seu_bench.errors`.
        Interruption: ``max_seconds`` are over.

    Example:
        >>> record = seu_bench.run("ewc", "split_digits", protocol="quick", seed=1)
        >>> record.metrics["acc"]
    """
    name = benchmark.name if isinstance(benchmark, BenchmarkSpec) else benchmark
    request = Request(strategy=_name(strategy), benchmark=name, **given)
    registry = use_plugins(request.plugin, [strategy] if isinstance(strategy, type) else [])
    if isinstance(benchmark, BenchmarkSpec):
        if name in registry.benchmarks and registry.benchmarks[name].factory.load() != benchmark:
            what = f"another benchmark is called {name!r}"
            raise RequestError(what, remedy="give yours another name; seu-bench list benchmarks shows those taken")
        registry.benchmarks[name] = Entry(name, benchmark, "core", PACKAGE)
    launched = functools.partial(launch, request, registry)
    return _record(launched, progress, unused_flags(request))


def extend(
    run: str | Path,
    *,
    data: str | Path | None = None,
    name: str | None = None,
    benchmark: str | None = None,
    results: str | Path = "results",
    progress: bool = False,
    **given: Any,
) -> Record:
    """Have a finished run learn one more task, or those by which a benchmark is longer than its own.

    It ends with the weights, bit by bit, of a run of all tasks from nothing, and has its run id. The same call resumes
    an extension that was interrupted, and returns the record of one that is finished.

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        data: of the task: a folder of class folders, or a file that a benchmark file may name.
        name: of the task; by default that of ``data``.
        benchmark: in place of ``data``, a benchmark whose first tasks are those of the run.
        results: folder of records.
        progress: whether to draw progress bars.
        given: options of ``seu-bench extend`` that decide no result, such as ``device="cuda"``, ``plugin="mine.py"``.

    Returns:
        The record of the longer run.

    Raises:
        SeuBenchError: as the command line would say; see :mod:`seu_bench.errors`.
        Interruption: ``max_seconds`` are over.

    Example:
        >>> longer = seu_bench.extend(record.run_id, data="june/", name="June")
        >>> longer.accuracy_matrix[-1]
    """
    from seu_bench.engine.extending import extend as extend_run

    registry = use_plugins(given.get("plugin", ()))
    task: dict[str, Any] = {"data": None if data is None else Path(data), "name": name, "benchmark": benchmark}
    launched = functools.partial(extend_run, registry, run, **task, results=Path(results), **given)
    return _record(launched, progress, "")


def _record(launched: Callable[..., Outcome], progress: bool, unused: str) -> Record:
    """Make a run and return its record; ``unused`` are flags without effect where it was finished before."""
    watcher = None
    if progress:
        from seu_bench.cli.progress import ProgressDisplay

        watcher = lambda _: ProgressDisplay()  # noqa: E731
    with bars.show_progress() if progress else bars.hide_progress():
        outcome = launched(watcher=watcher)
    if outcome.reused and unused:
        told = f"without effect, because the run was finished before: {unused} (restart=True makes it again)"
        warnings.warn(told, UserWarning, stacklevel=3)
    return outcome.record


#: What ``help`` and editors show of the keywords.
run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [*list(inspect.signature(run).parameters.values())[:-1]]
    + [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.get_default(call_default_factory=True))
        for name, field in Request.model_fields.items()
        if name not in ("strategy", "benchmark", "matched")
    ],
    return_annotation="Record",
)


def leaderboard(
    results: str | Path = "results",
    *,
    benchmark: str | None = None,
    budgets: Mapping[str, float] | None = None,
    pareto: bool | Sequence[str] = False,
    sort: str | None = None,
) -> Leaderboards:
    """Make the leaderboards of a results folder; no file is written. A notebook shows them as tables.

    Args:
        results: folder of records.
        benchmark: only this one; ``None``: all.
        budgets: only configurations within limits of metrics that should be low, in the units of records, e.g.
            ``{"params": 5e6, "memory": 20e6}``.
        pareto: only the Pareto front, in accuracy and memory or in the metrics named.
        sort: metric to sort by, the best first; ``None``: the front of accuracy against memory, then by accuracy.

    Returns:
        The leaderboards; ``.frame`` is one table of pandas with a row for each configuration.

    Raises:
        ResultsError: the folder does not exist.
        OptionError: a metric is unknown or has no direction.

    Example:
        >>> boards = seu_bench.leaderboard("results", benchmark="split_digits")
        >>> boards.frame[["configuration", "acc_mean", "params_total_mean"]]
    """
    from seu_bench.results.building import read_leaderboards
    from seu_bench.results.leaderboard import Leaderboards, parse_view

    registry = Registry()
    metrics = registry.known_metrics
    limits = [f"{name}={limit}" for name, limit in (budgets or {}).items()]
    axes = None if pareto is False else "" if pareto is True else ",".join(pareto)
    view = parse_view(limits, axes, sort, metrics)
    build = read_leaderboards(Path(results), metrics, registry.kinds)
    found = Leaderboards(view(board) for board in build.boards if benchmark in (None, board.benchmark))
    found.excluded = tuple(build.excluded(benchmark))
    return found


def sweep(file: str | Path | None = None, *, progress: bool = False, **given: Any) -> SweepResult:
    """Make every combination of a sweep that is not made yet, and leaderboards; see docs/guides/sweeps.md.

    The same call resumes a sweep that was interrupted: Ctrl-C is a ``KeyboardInterrupt``, before which the jobs
    that run have written checkpoints.

    Args:
        file: a sweep's TOML file.
        progress: whether to draw progress bars.
        given: the keys of such a file, e.g. ``strategy=["ewc", "naive"], seeds="0-4"``; they replace the file's. In
            place of a strategy's name a class may stand, whose file every job imports: up to its first call of ``run``,
            ``sweep`` or ``tune``, where it is a script.

    Returns:
        What became of each job. A job that failed raises nothing.

    Raises:
        SeuBenchError: the sweep was refused, and nothing was begun; or its executor failed.
    """
    from seu_bench.results.building import make_leaderboards
    from seu_bench.sweeps.driver import GuardedExecutor, run_sweep
    from seu_bench.sweeps.plan import plan_sweep
    from seu_bench.sweeps.spec import make_spec

    end_import()
    spec = make_spec(_without_classes(given), Path(file) if file is not None else None)
    registry = use_plugins(spec.plugin)
    plan = plan_sweep(registry, spec)
    executor = GuardedExecutor(registry, spec)
    with _display(progress, plan, executor.slots) as display:
        result = run_sweep(plan, executor, display)
    if any(record.may_be_ranked for record in result.records):
        make_leaderboards(spec.results, registry.known_metrics)
    return result


def tune(*, progress: bool = False, **given: Any) -> TuneResult:
    """Choose hyper-parameters without test images, and write a tuned file; see docs/guides/tuning.md.

    The same call resumes a tuning that was interrupted.

    Args:
        progress: whether to draw progress bars.
        given: the options of ``seu-bench tune``, where a class may stand for a strategy's name as in :func:`sweep`;
            ``space`` is its ``-g``, by default the strategy's own grid, e.g. ``strategy="ewc", space={"ewc_lambda":
            [10, 100, 1000]}, method="first-tasks:3"``.

    Returns:
        The trials, and the tuned file; none where a run of every trial failed.

    Raises:
        SeuBenchError: the tuning was refused, and nothing was begun; or its executor failed.
    """
    from seu_bench.sweeps.tune_spec import make_tune_spec
    from seu_bench.sweeps.tuning import run_tuning

    end_import()
    given = _without_classes(given)
    registry = use_plugins(given.get("plugin", ()))
    return run_tuning(registry, make_tune_spec(given, registry), functools.partial(_display, progress))


@contextlib.contextmanager
def _display(progress: bool, plan: SweepPlan, slots: int | None) -> Iterator[SweepDisplay]:
    from rich.console import Console

    from seu_bench.cli.progress import SweepDisplay

    display = SweepDisplay(plan, slots, None if progress else Console(quiet=True, force_terminal=False))
    with display.bars:
        yield display


def _without_classes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of a sweep or a tuning in which names stand for classes, whose files are among the plugins."""
    named = given.get("benchmark", ())
    if any(isinstance(it, BenchmarkSpec) for it in (named if isinstance(named, list | tuple) else [named])):
        what = "jobs run in other processes, which do not know a benchmark that is not registered"
        raise RequestError(
            what, remedy="have register_benchmarks of a plugin offer it, and give plugin='FILE.py' and its name"
        )
    asked = given.get("strategy", ())
    each = asked if isinstance(asked, list | tuple) else [asked]
    if not (methods := [it for it in each if isinstance(it, type)]):
        return dict(given)
    names = [_name(it) for it in each]
    folder = Path(given.get("results", "results")) / "plugins"
    files = [importable_file(method, folder) for method in methods if not is_installed(method)]
    plugin = given.get("plugin", ())
    plugins = [*([plugin] if isinstance(plugin, str | Path) else plugin), *files]
    return {**given, "strategy": names if each is asked else names[0], "plugin": plugins}


def _name(strategy: str | type[Method]) -> str:
    if not isinstance(strategy, type):
        return strategy
    if not getattr(strategy, "name", ""):
        remedy = f"derive it from seu_bench.Method, and write in it: name = {strategy.__name__.lower()!r}"
        raise PluginError(f"the class {strategy.__name__} is no method with a name", remedy=remedy)
    return strategy.name
