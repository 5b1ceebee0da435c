"""From a request to a record: the one place where a run is put together, for the command, the API and sweeps.

A request that is to match the budget of another run gets the width or the epochs with which it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import fsum, log
from typing import TYPE_CHECKING, Final

from seu_bench.config.run import BUDGETS, Matched, Request, parse_match
from seu_bench.engine.loggers import add_loggers
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.record import Record, code_fault
from seu_bench.results.record_files import find_record, read_records

if TYPE_CHECKING:
    from seu_bench.engine.learner_file import Ancestor
    from seu_bench.engine.runner import Outcome

#: A run may cost so many times more or less than what it is matched to.
FACTOR: Final = 1.25
#: Of each option: how many steps make 1, and the most steps that are tried.
_STEPS: Final = {"width": (10_000, 640_000), "epochs": (1, 100_000)}


def launch(
    request: Request,
    registry: Registry | None = None,
    *,
    watcher: Callable[[ResolvedRun], object] | None = None,
    stop: StopRequest | None = None,
    run_id: str | None = None,
    parent: Ancestor | None = None,
) -> Outcome:
    """Resolve a request, add its loggers, and make or resume its run. Torch is imported when nothing can be refused.

    Args:
        request: the run.
        registry: all plugins, by default a new one with those of the request; loggers are added to it.
        watcher: makes a plugin that watches the run, e.g. a progress display.
        stop: whether and when to stop; by default when ``request.max_seconds`` are over.
        run_id: what the request must resolve to; ``None``: anything.
        parent: the finished run of the first tasks from which it continues.

    Raises:
        SeuBenchError: the request was refused, or the run failed; see :func:`seu_bench.engine.runner.execute`.
        Interruption: the run was stopped; the same call resumes it.
    """
    stop = stop or StopRequest(request.max_seconds)
    registry = registry or use_plugins(request.plugin)
    resolved = resolve(registry, matched_request(registry, request))
    if run_id is not None and resolved.spec.run_id != run_id:
        what = f"here this run is another one, {resolved.spec.run_id}: it was planned with other data or versions"
        raise RequestError(what, where=run_id, remedy="plan the sweep again")
    add_loggers(registry, request)
    if watcher is not None:
        registry.manager.register(watcher(resolved), name="watcher")
    from seu_bench.engine.runner import execute

    return execute(registry, resolved, stop=stop, parent=parent)


def matched_request(registry: Registry, request: Request) -> Request:
    """Return a request with the option that its ``match`` asks for, and how near it came (``matched``).

    It is as it was if it asks for no match, or is of the configuration that others are matched to.

    Raises:
        RequestError: the strategy has no such option, its cost is not known beforehand, or comes nowhere near.
        ResultsError: there is no such run.
    """
    if request.match is None:
        return request
    budget, name = parse_match(request.match)
    plain = request.model_copy(update={"match": None})
    target, records, run_id = _target(registry, plain, name)
    if run_id is not None and resolve(registry, plain).spec.run_id == run_id:
        return plain
    option, metric, noun = BUDGETS[budget]
    where = f"--match {request.match}, strategy {request.strategy!r}"

    def refusal(what: str, remedy: str = "leave it out of the comparison, or match another budget") -> RequestError:
        return RequestError(what, where=where, remedy=remedy)

    measured = [value for record in records if (value := record.metrics.get(metric))]
    if len(measured) < len(records):
        remedy = "run it again with --restart, or match another budget"
        raise refusal(f"the run to match, {target}, has no {metric}", remedy)
    if option not in registry.strategies.find(request.strategy).factory.options.model_fields:
        raise refusal(f"strategy {request.strategy!r} has no option {option!r} to match {noun} with")
    if option in request.options:
        raise refusal(f"{option} is given, and --match would choose it", f"give -o {option} or --match")
    wanted, (per_one, most) = fsum(measured) / len(measured), _STEPS[option]

    def with_step(step: int) -> Request:
        chosen = step if per_one == 1 else step / per_one
        return plain.model_copy(update={"options": {**plain.options, option: chosen}})

    def forecast(step: int) -> int:
        run = resolve(registry, with_step(step))
        context = run.context(run.plan())
        if budget == "params" and (fixed := run.fixed_parameters(context)) is not None:
            return fixed
        cost = run.cost(context)
        least, largest = {
            "params": (cost.params_total_min[-1], cost.params_total[-1]),
            "flops": (cost.train_flops_min or 0, cost.train_flops or 0),
            "passes": (cost.image_passes, cost.image_passes),
        }[budget]
        if least != largest or not largest:
            known = f": {least:,} to {largest:,}" if largest else ""
            raise refusal(f"how many {noun} it takes is not known before it runs{known}")
        return largest

    step, value = nearest(forecast, wanted, start=per_one, most=most)
    found = with_step(step)
    came = {"target": wanted, "value": value, "option": option, "chosen": found.options[option]}
    seeds = tuple(sorted(record.seed for record in records))
    matched = Matched(budget=budget, run=target, seeds=seeds, **came)
    if not 1 / FACTOR <= matched.ratio <= FACTOR:
        nearest_is = f"the nearest is {matched}"
        raise refusal(f"strategy {request.strategy!r} cannot come within a factor of {FACTOR:g}; {nearest_is}")
    return found.model_copy(update={"matched": matched})


def nearest(forecast: Callable[[int], int], wanted: float, *, start: int, most: int) -> tuple[int, int]:
    """Find by bisection, from ``start``, the step from 1 to ``most`` whose value is nearest to ``wanted``, as a factor.

    Returns:
        The step and its value, which grows with the step; of equally near ones the lower.

    Example:
        >>> nearest(lambda step: 10 * step, 37, start=1, most=100)
        (4, 40)
    """
    value = cache(forecast)
    low, high = 1, start
    while value(high) < wanted and high < most:
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    best = min((low, high), key=lambda step: abs(log(max(value(step), 1) / wanted)))
    return best, value(best)


def _target(registry: Registry, request: Request, name: str) -> tuple[str, Sequence[Record], str | None]:
    """The finished runs that ``name`` means: one run, or all seeds of a configuration and the id of the request's."""
    strategy, *components = name.split("+")
    if strategy not in registry.strategies or "/" in name:
        record = find_record(request.results, name)
        if record.status != "finished":
            raise RequestError(f"the run to match is {record.status}", where=record.run_id, remedy="finish it first")
        return record.run_id, [record], None
    overrides = {key: value for key, value in request.options.items() if key.startswith("benchmark.")}
    own = {"strategy": strategy, "options": overrides, "tuned": None, "searcher": None, "creator": None}
    own |= zip(("searcher", "creator"), [part or None for part in components], strict=False)
    resolved = resolve(registry, request.model_copy(update=own))
    spec = resolved.spec

    def is_one(record: Record) -> bool:
        its_id = spec.model_copy(update={"seed": record.seed}).run_id
        is_same = record.threads == spec.threads and code_fault(record.code, resolved.code) is None
        return record.status == "finished" and record.run_id == its_id and is_same

    records = [record for record in read_records(request.results) if isinstance(record, Record) and is_one(record)]
    if not records:
        raise RequestError(
            f"there is no finished run of {name} on {spec.benchmark.name}, protocol {spec.protocol_name}",
            where=str(request.results),
            remedy="run it first, with its options as the protocol has them, or name another run by its id",
        )
    return name, records, spec.run_id
