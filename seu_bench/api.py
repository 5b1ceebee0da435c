"""seu-bench from Python: the same runs and the same records as the command line's."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seu_bench.config.commands import unused_flags
from seu_bench.config.run import Evaluation, Precision, Request
from seu_bench.engine.launcher import launch
from seu_bench.errors import PluginError
from seu_bench.plugin.methods import end_import, importable_file
from seu_bench.plugin.registry import Registry, is_installed, use_plugins
from seu_bench.results.record import Record
from seu_bench.utils import progress as bars

if TYPE_CHECKING:
    from seu_bench.results.leaderboard import Leaderboards
    from seu_bench.sweeps.driver import SweepResult
    from seu_bench.sweeps.plan import SweepPlan
    from seu_bench.sweeps.tuning import TuneResult
    from seu_bench.training.method import Method


def run(
    strategy: str | type[Method] = "seu",
    benchmark: str = "split_digits",
    *,
    searcher: str | None = None,
    creator: str | None = None,
    protocol: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    data_root: str | Path | None = None,
    results: str | Path = "results",
    device: str = "auto",
    limit: int | None = None,
    synthetic: bool = False,
    restart: bool = False,
    accept_code: bool = False,
    plugin: str | Path | Sequence[str | Path] = (),
    checkpoint_every: float | None = None,
    max_seconds: float | None = None,
    keep_weights: bool = True,
    feature_cache: int | None = None,
    precision: Precision = "float32",
    threads: int = 1,
    evaluation: Evaluation = "test",
    first_tasks: int | None = None,
    tuned: str | Path | None = None,
    match: str | None = None,
    compile: bool = False,
    progress: bool = False,
    attach: Iterable[str] = (),
    log: Iterable[str] = (),
    log_options: Mapping[str, Any] | None = None,
) -> Record:
    """Make one run and return its record; the keywords are named as the options of ``seu-bench run``.

    The same call resumes a run that was interrupted, and returns the record of one that is finished; a ``UserWarning``
    names the keywords that then have no effect, such as ``device`` and ``log``. Signals are left to the caller: Ctrl-C
    is a ``KeyboardInterrupt``, after which the next call resumes from the newest checkpoint.

    Args:
        strategy: name of the strategy that learns; a class of :class:`seu_bench.Method`, which is known by its name
            from then on; or the import path of one of Avalanche's, e.g. ``avalanche.training.supervised:Naive``.
        benchmark: a name, or the path of a TOML file.
        searcher: extension-unit searcher; ``None``: the strategy's.
        creator: task-model creator; ``None``: the strategy's.
        protocol: schedule and sizes; ``None``: the benchmark's.
        seed: from 0 to 2**32 - 1.
        options: options by key, e.g. ``{"epochs": 3, "searcher.alpha": 0.1, "benchmark.stream.validation": 0.1}``.
        data_root: folder of data sets; ``None``: ``$SEU_BENCH_DATA`` or ``~/.cache/seu-bench/data``.
        results: folder of records.
        device: ``auto``, ``cpu``, ``cuda``, ...
        limit: maximum number of images per task and split.
        synthetic: whether to replace each data set by made-up images of its shape.
        restart: whether to start over, even if the run is finished or could be resumed.
        accept_code: whether to accept a run that other code of a plugin made: to return it if it is finished, and
            else to resume it, which the record says.
        plugin: files of Python with methods, or hooks, of your own; they are known from then on.
        checkpoint_every: minimum seconds between checkpoints; 0: after every epoch; ``None``: as often as takes no
            more than 2 % of the time.
        max_seconds: time limit, after which the run stops at a checkpoint.
        keep_weights: whether a finished run keeps its model.
        feature_cache: maximum bytes for cached outputs of frozen layers; ``None``: half of what is free; 0: none.
        precision: number format of learning; accuracies are measured in float32.
        threads: to compute with, whatever the machine has; with others it is another run. The caller's own number is
            restored afterwards.
        evaluation: ``validation`` reads no test images and measures on withheld validation images.
        first_tasks: learn only so many tasks.
        match: ``params=RUN``, ``flops=RUN`` or ``passes=RUN``: choose width or epochs so that the budget is RUN's:
            a run id, a run's folder or a configuration such as ``seu+random+frugal``.
        tuned: hyper-parameters that ``tune`` chose, laid below ``options``: a file, a folder of files, or the id of a
            file in ``<results>/tuned``.
        compile: whether SEU's units are compiled for their training.
        progress: whether to draw progress bars.
        attach: import paths, ``module:Class``, of Avalanche's plugins and metrics to add to the run; the record has the
            metrics' values in ``attached``.
        log: names of loggers, e.g. ``["tensorboard"]``.
        log_options: options of the loggers by ``<logger>.<option>``.

    Returns:
        The record of the finished run.

    Raises:
        SeuBenchError: as the command line would say; see :mod:`seu_bench.errors`.
        Interruption: ``max_seconds`` are over.

    Example:
        >>> record = seu_bench.run("ewc", "split_digits", protocol="quick", seed=1)
        >>> record.metrics["acc"]
    """
    asked = {name: value for name, value in locals().items() if name != "progress"}
    asked["tuned"] = None if tuned is None else str(tuned)
    collected = {
        "strategy": _name(strategy),
        "options": dict(options or {}),
        "attach": tuple(attach),
        "log": tuple(log),
        "log_options": dict(log_options or {}),
    }
    methods = [strategy] if isinstance(strategy, type) else []
    request = Request(**asked | collected)
    registry = use_plugins(request.plugin, methods)
    watcher = None
    if progress:
        from seu_bench.cli.progress import ProgressDisplay

        watcher = lambda _: ProgressDisplay()  # noqa: E731
    with bars.shown() if progress else bars.hidden():
        outcome = launch(request, registry, watcher=watcher)
    record = outcome.record
    if outcome.reused and (unused := unused_flags(request)):
        how = "restart=True makes it again, seu-bench log sends its record"
        told = f"without effect, because the run was finished before: {unused} ({how})"
        warnings.warn(told, UserWarning, stacklevel=2)
    return record


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

    metrics = Registry().known_metrics
    limits = [f"{name}={limit}" for name, limit in (budgets or {}).items()]
    axes = None if pareto is False else "" if pareto is True else ",".join(pareto)
    view = parse_view(limits, axes, sort, metrics)
    build = read_leaderboards(Path(results), metrics)
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
    from rich.console import Console

    from seu_bench.cli.progress import SweepDisplay
    from seu_bench.results.building import make_leaderboards
    from seu_bench.sweeps.driver import GuardedExecutor, run_sweep
    from seu_bench.sweeps.plan import plan_sweep
    from seu_bench.sweeps.spec import make_spec

    end_import()
    spec = make_spec(_without_classes(given), Path(file) if file is not None else None)
    registry = use_plugins(spec.plugin)
    plan = plan_sweep(registry, spec)
    executor = GuardedExecutor(registry, spec)
    display = SweepDisplay(plan, executor.slots, None if progress else Console(quiet=True, force_terminal=False))
    with display.bars:
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
    import contextlib
    from collections.abc import Iterator

    from rich.console import Console

    from seu_bench.cli.progress import SweepDisplay
    from seu_bench.sweeps.tune_spec import make_tune_spec
    from seu_bench.sweeps.tuning import run_tuning

    @contextlib.contextmanager
    def shown(plan: SweepPlan, slots: int | None) -> Iterator[SweepDisplay]:
        display = SweepDisplay(plan, slots, None if progress else Console(quiet=True, force_terminal=False))
        with display.bars:
            yield display

    end_import()
    given = _without_classes(given)
    registry = use_plugins(given.get("plugin", ()))
    return run_tuning(registry, make_tune_spec(given, registry), shown)


def _without_classes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of a sweep or a tuning in which names stand for classes, whose files are among the plugins.

    Raises:
        PluginError: the source of a class cannot be imported by another process.
    """
    asked = given.get("strategy", ())
    methods = [it for it in (asked if isinstance(asked, list | tuple) else [asked]) if isinstance(it, type)]
    if not methods:
        return dict(given)
    names = [_name(it) for it in asked] if isinstance(asked, list | tuple) else _name(asked)
    folder = Path(given.get("results", "results")) / "plugins"
    files = [importable_file(method, folder) for method in methods if not is_installed(method)]
    plugin = given.get("plugin", ())
    return {**given, "strategy": names, "plugin": [*([plugin] if isinstance(plugin, str | Path) else plugin), *files]}


def _name(strategy: str | type[Method]) -> str:
    if not isinstance(strategy, type):
        return strategy
    if not getattr(strategy, "name", ""):
        remedy = f"derive it from seu_bench.Method, and write in it: name = {strategy.__name__.lower()!r}"
        raise PluginError(f"the class {strategy.__name__} is no method with a name", remedy=remedy)
    return strategy.name
