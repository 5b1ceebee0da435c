"""Runs of equal budget: the width or the epochs with which a strategy costs what another run did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, log
from typing import TYPE_CHECKING, Final

from seu_bench.config.matched import METRIC_OF, NOUNS, OPTION_OF, Budget, Matched, parse_match
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.errors import RequestError
from seu_bench.results.code import code_fault
from seu_bench.results.record import Record
from seu_bench.results.record_files import find_record, read_records

if TYPE_CHECKING:
    from seu_bench.plugin.registry import Registry
    from seu_bench.training.interfaces import Cost

#: A run may cost so many times more or less than what it is matched to.
FACTOR: Final = 1.25
#: Of each option: how many steps make 1, and the most steps that are tried.
_STEPS: Final = {"width": (10_000, 640_000), "epochs": (1, 100_000)}


@dataclass(frozen=True)
class _Target:
    """Finished runs whose budget is to be met; ``configuration`` is a request of theirs, unless one run was named."""

    name: str
    records: Sequence[Record]
    configuration: Request | None = None


def matched_request(registry: Registry, request: Request) -> Request:
    """Choose the option that :attr:`~seu_bench.config.run.Request.match` asks for.

    Args:
        registry: what is installed.
        request: a run or a job.

    Returns:
        The request with the option and how near it came (``matched``); the request as it is if it asks for no match, or
        is of the configuration that others are matched to.

    Raises:
        RequestError: the strategy has no such option, its cost is not known beforehand, or comes nowhere near.
        ResultsError: there is no such run.
    """
    if request.match is None:
        return request
    budget, name = parse_match(request.match)
    plain = request.model_copy(update={"match": None})
    target = _target(registry, plain, name)
    if target.configuration is not None and _same_configuration(registry, plain, target.configuration):
        return plain
    wanted = _value(target, budget)
    option = OPTION_OF[budget]
    where = f"--match {request.match}, strategy {request.strategy!r}"
    if option not in registry.strategies.find(request.strategy).factory.options.model_fields:
        raise RequestError(
            f"strategy {request.strategy!r} has no option {option!r} to match {NOUNS[budget]} with",
            where=where,
            remedy="leave it out of the comparison, or match another budget",
        )
    if option in request.options:
        raise RequestError(
            f"{option} is given, and --match would choose it", where=where, remedy=f"give -o {option} or --match"
        )
    per_one, most = _STEPS[option]

    def with_step(step: int) -> Request:
        chosen = step if per_one == 1 else step / per_one
        return plain.model_copy(update={"options": {**plain.options, option: chosen}})

    def forecast(step: int) -> int:
        run = resolve(registry, with_step(step))
        context = run.context(run.plan())
        fixed = run.fixed_parameters(context) if budget == "params" else None
        return _forecast(run.cost(context), budget, where) if fixed is None else fixed

    step, value = nearest(forecast, wanted, start=per_one, most=most)
    found = with_step(step)
    matched = Matched(
        budget=budget,
        run=target.name,
        seeds=tuple(sorted(record.seed for record in target.records)),
        target=wanted,
        value=value,
        option=option,
        chosen=found.options[option],
    )
    if not 1 / FACTOR <= matched.ratio <= FACTOR:
        raise RequestError(
            f"strategy {request.strategy!r} cannot come within a factor of {FACTOR:g}; the nearest is {matched}",
            where=where,
            remedy="leave it out of the comparison, or match another budget",
        )
    return found.model_copy(update={"matched": matched})


def nearest(forecast: Callable[[int], int], wanted: float, *, start: int, most: int) -> tuple[int, int]:
    """Find the step from 1 to ``most`` whose value is nearest to ``wanted``, as a factor, by bisection.

    Args:
        forecast: grows with the step.
        wanted: above 0.
        start: first step that is tried.

    Returns:
        The step and its value; of equally near ones the lower.

    Example:
        >>> nearest(lambda step: 10 * step, 37, start=1, most=100)
        (4, 40)
    """
    known: dict[int, int] = {}

    def value(step: int) -> int:
        if step not in known:
            known[step] = forecast(step)
        return known[step]

    low, high = 1, start
    while value(high) < wanted and high < most:
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    best = min((low, high), key=lambda step: abs(log(max(value(step), 1) / wanted)))
    return best, value(best)


def _target(registry: Registry, request: Request, name: str) -> _Target:
    """The finished runs that ``name`` means: one run, or all seeds of a configuration."""
    strategy, *components = name.split("+")
    if strategy not in registry.strategies or "/" in name:
        record = find_record(request.results, name)
        if record.status != "finished":
            raise RequestError(f"the run to match is {record.status}", where=record.run_id, remedy="finish it first")
        return _Target(record.run_id, [record])
    names = dict(zip(("searcher", "creator"), [part or None for part in components], strict=False))
    overrides = {key: value for key, value in request.options.items() if key.startswith("benchmark.")}
    configuration = request.model_copy(
        update={"strategy": strategy, "options": overrides, "tuned": None, "searcher": None, "creator": None, **names}
    )
    resolved = resolve(registry, configuration)
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
    return _Target(name, records, configuration)


def _same_configuration(registry: Registry, request: Request, other: Request) -> bool:
    return resolve(registry, request).spec.run_id == resolve(registry, other).spec.run_id


def _value(target: _Target, budget: Budget) -> float:
    """The mean of what is to be met."""
    values = [record.metrics.get(METRIC_OF[budget]) for record in target.records]
    measured = [value for value in values if value]
    if len(measured) < len(values):
        raise RequestError(
            f"the run to match has no {METRIC_OF[budget]}, as those of earlier versions",
            where=target.name,
            remedy="run it again with --restart, or match another budget",
        )
    return fsum(measured) / len(measured)


def _forecast(cost: Cost, budget: Budget, where: str) -> int:
    """What a run will take, where that is known exactly."""
    if budget == "passes":
        return cost.image_passes
    least, most = cost.params_total_min[-1], cost.params_total[-1]
    if budget == "flops":
        least, most = cost.train_flops_min or 0, cost.train_flops or 0
    if least != most or not most:
        known = f": {least:,} to {most:,}" if most else ""
        raise RequestError(
            f"how many {NOUNS[budget]} it takes is not known before it runs{known}",
            where=where,
            remedy="leave it out of the comparison, or match another budget",
        )
    return most
