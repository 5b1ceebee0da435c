"""Which scenarios a strategy can learn, and the error of one that cannot learn a benchmark's."""

from __future__ import annotations

from seu_bench.config.common_options import TaskInferenceOptions
from seu_bench.config.options import Options
from seu_bench.config.run import Request
from seu_bench.config.streams import SCENARIOS, Scenario
from seu_bench.errors import ScenarioError
from seu_bench.plugin.registry import Registry
from seu_bench.training.interfaces import StrategyFactory


def scenarios_of(factory: StrategyFactory, options: Options | None = None) -> tuple[str, ...]:
    """Return the scenarios that a strategy can learn.

    Args:
        factory: of the strategy.
        options: of a run, which may infer tasks; ``None``: those of its defaults.
    """
    if isinstance(options, TaskInferenceOptions) and options.infer_task is not None:
        return SCENARIOS
    return tuple(getattr(factory, "scenarios", ("task",)))


def require_scenario(registry: Registry, request: Request, options: Options, scenario: Scenario, where: str) -> None:
    """Refuse a strategy that cannot learn a scenario by a ScenarioError that names those that can."""
    strategy = request.strategy
    factory = registry.strategies.find(strategy).factory
    known = scenarios_of(factory, options)
    if scenario in known:
        return
    others = sorted(
        name
        for name, entry in registry.strategies.items()
        if scenario in scenarios_of(entry.factory) and name != strategy
    )
    remedy = f"these can: {', '.join(others)}" if others else "choose another scenario"
    if "task" not in known:
        remedy = f"ask for one that it learns, -o benchmark.stream.scenario={known[0]}; or choose another: {remedy}"
    if isinstance(options, TaskInferenceOptions):
        remedy = (
            f"give -o infer_task=entropy (or energy), and the most certain path answers; or choose another: {remedy}"
        )
    raise ScenarioError(
        f"strategy {strategy!r} cannot learn the scenario {scenario!r}: it learns {', '.join(map(repr, known))}"
        + (", and needs the task label of each image" if known == ("task",) else ""),
        where=where,
        remedy=remedy,
    )
