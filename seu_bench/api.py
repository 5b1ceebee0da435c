"""seu-bench from Python: the same runs and the same records as the command line's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seu_bench.config.run import Execution, Precision, Request
from seu_bench.engine.loggers import add_loggers
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.stopping import StopRequest
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.utils import progress as bars

if TYPE_CHECKING:
    from seu_bench.sweeps.driver import SweepResult


def run(
    strategy: str = "seu",
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
    checkpoint_every: float | None = None,
    max_seconds: float | None = None,
    keep_weights: bool = True,
    feature_cache: int | None = None,
    precision: Precision = "float32",
    compile: bool = False,
    progress: bool = False,
    log: Iterable[str] = (),
    log_options: Mapping[str, Any] | None = None,
) -> Record:
    """Make one run and return its record; the keywords are named as the options of ``seu-bench run``.

    A run that was interrupted is gone on with by the same call. Signals are left to the caller: Ctrl-C is a
    ``KeyboardInterrupt``, after which the newest checkpoint is what the next call goes on from.

    Args:
        benchmark: a name, or the path of a TOML file.
        options: what ``-o key=value`` sets, by key.
        keep_weights: what ``--no-weights`` switches off.
        feature_cache: bytes, at most, for outputs of frozen layers; ``None``: half of what is free; 0: none.
        precision: what learning computes in; accuracies are measured in float32.
        compile: what ``--compile`` switches on.
        progress: whether to draw progress bars.
        log: names of loggers, e.g. ``["tensorboard"]``.
        log_options: what ``--log-option key=value`` sets, by key.

    Raises:
        SeuBenchError: as the command line would say; see :mod:`seu_bench.errors`.
        Interruption: ``max_seconds`` are over.
    """
    stop = StopRequest(max_seconds)
    registry = Registry()
    request = Request(
        strategy, benchmark, searcher, creator, protocol, seed, dict(options or {}), limit, synthetic, precision
    )
    resolved = resolve(registry, request)
    add_loggers(registry, log, log_options, Path(results))
    if progress:
        from seu_bench.cli.progress import ProgressDisplay

        registry.manager.register(ProgressDisplay(shorter=resolved.shorter), name="progress")
    execution = Execution(
        results=Path(results),
        data_root=Path(data_root) if data_root is not None else None,
        device=device,
        restart=restart,
        checkpoint_every=checkpoint_every,
        keep_weights=keep_weights,
        feature_cache=feature_cache,
        compile=compile,
    )
    with bars.shown() if progress else bars.hidden():
        return execute(registry, resolved, execution, stop=stop).record


def sweep(file: str | Path | None = None, *, progress: bool = False, **given: Any) -> SweepResult:
    """Make every combination of a sweep that is not made yet, and leaderboards; see docs/guides/sweeps.md.

    The same call goes on with a sweep that was interrupted: Ctrl-C is a ``KeyboardInterrupt``, before which the jobs
    that run have written checkpoints.

    Args:
        file: a sweep's TOML file.
        progress: whether to draw progress bars.
        given: the keys of such a file, e.g. ``strategy=["ewc", "naive"], seeds="0-4"``; they replace the file's.

    Returns:
        What became of each job. A job that failed raises nothing.

    Raises:
        SeuBenchError: the sweep was refused, and nothing was begun; or its executor failed.
    """
    from seu_bench.cli.sweep_display import SweepDisplay
    from seu_bench.results.leaderboard import write_leaderboards
    from seu_bench.sweeps.driver import GuardedExecutor, SweepWatcher, run_sweep
    from seu_bench.sweeps.estimate import SweepEstimate, estimate_plan
    from seu_bench.sweeps.file import make_spec
    from seu_bench.sweeps.plan import plan_sweep

    spec = make_spec(given, Path(file) if file is not None else None)
    registry = Registry()
    plan = plan_sweep(registry, spec)
    estimate = estimate_plan(plan) if progress else SweepEstimate()
    executor = GuardedExecutor(registry, spec)
    result = run_sweep(plan, executor, estimate, SweepDisplay() if progress else SweepWatcher())
    if any(record.may_be_ranked for record in result.records):
        write_leaderboards(spec.results)
    return result
