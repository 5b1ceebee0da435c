"""From a request to a record: the one place where a run is put together, for the command, the API and sweeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from seu_bench.config.run import Request
from seu_bench.engine.loggers import add_loggers
from seu_bench.engine.matching import matched_request
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry, use_plugins

if TYPE_CHECKING:
    from seu_bench.engine.runner import Outcome


def launch(
    request: Request,
    registry: Registry | None = None,
    *,
    watcher: Callable[[ResolvedRun], object] | None = None,
    stop: StopRequest | None = None,
    run_id: str | None = None,
) -> Outcome:
    """Resolve a request, add its loggers, and make or resume its run. Torch is imported when nothing can be refused.

    Args:
        request: the run.
        registry: all plugins; ``None``: a new one, with those of the request. It is the run's alone: loggers are added
            to it.
        watcher: makes a plugin that watches the run, e.g. a progress display.
        stop: whether and when to stop; ``None``: when ``request.max_seconds`` are over.
        run_id: what the request must resolve to; ``None``: anything.

    Returns:
        The record, and whether it was finished before.

    Raises:
        SeuBenchError: the request was refused, or the run failed; see :func:`seu_bench.engine.runner.execute`.
        Interruption: the run was stopped; the same call resumes it.
    """
    stop = stop or StopRequest(request.max_seconds)
    registry = registry or use_plugins(request.plugin)
    resolved = resolve(registry, matched_request(registry, request))
    if run_id is not None and resolved.spec.run_id != run_id:
        raise RequestError(
            f"here this run is another one, {resolved.spec.run_id}: data or versions are not those it was planned with",
            where=run_id,
            remedy="plan the sweep again",
        )
    add_loggers(registry, request)
    if watcher is not None:
        registry.manager.register(watcher(resolved), name="watcher")
    from seu_bench.engine.runner import execute

    return execute(registry, resolved, stop=stop)
