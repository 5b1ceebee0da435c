"""Strategies hold to the contract in each scenario that they declare, and those that infer the task in all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.tiny import registry
from support.tried import each, tried

from seu_bench.config.common_options import TaskInferenceOptions
from seu_bench.engine.resolve import scenarios_of
from seu_bench.testing import StrategyContract, Trial

STRATEGIES = {name: entry.factory for name, entry in registry().strategies.items()}


def declaring(scenario: str) -> list[str]:
    """The strategies that learn a scenario without inferring tasks."""
    return sorted(name for name, factory in STRATEGIES.items() if scenario in scenarios_of(factory))


INFERRING = sorted(name for name, factory in STRATEGIES.items() if issubclass(factory.options, TaskInferenceOptions))


#: Checks whose result may depend on the scenario; the others are made once for each strategy, and so is whether it
#: learns in the scenarios that it declares.
DEPENDENT = {"streams_of_unusual_shape", "counts_its_parameters", "leaves_a_complete_record"}
OTHERS = {name for name in dir(StrategyContract) if name.startswith("test_")} - {f"test_{name}" for name in DEPENDENT}


class ScenarioContract(StrategyContract):
    """Those alone."""


for name in OTHERS:
    setattr(ScenarioContract, name, None)


class TestClassIncremental(ScenarioContract):
    """One head that grows; no task label."""

    @pytest.fixture(params=each(declaring("class")))
    def trial(self, request: pytest.FixtureRequest) -> Trial:
        """Each in turn."""
        return replace(tried(request.param), scenario="class")


class TestDomainIncremental(ScenarioContract):
    """One head for all tasks; no task label."""

    @pytest.fixture(params=each(declaring("domain")))
    def trial(self, request: pytest.FixtureRequest) -> Trial:
        """Each in turn."""
        return replace(tried(request.param), scenario="domain")

    @pytest.mark.parametrize("benchmark", ["tiny_single", "tiny_lopsided"])
    def test_streams_of_unusual_shape(self, trial: Trial, benchmark: str) -> None:
        """One task only, and a class that is missing from validation; heads cannot differ in width."""
        super().test_streams_of_unusual_shape(trial, benchmark)


#: Behind one narrow body that tasks share, the first task's head is the more certain one for all images; at the
#: contract's own learning rate a processor's rounding decides.
WIDER: Mapping[str, Mapping[str, Any]] = {"mntdp": {"width": 1.0, "learning_rate": 0.003}}


class TestInferringTheTask(ScenarioContract):
    """Paths of their own, of which the most certain one answers for any class."""

    test_learns = StrategyContract.test_learns

    @pytest.fixture(
        params=[pytest.param(name, marks=[] if name == "linear" else pytest.mark.long) for name in INFERRING]
    )
    def trial(self, request: pytest.FixtureRequest) -> Trial:
        """Each in turn."""
        known = tried(request.param)
        options = {**known.options, **WIDER.get(request.param, {}), "infer_task": "entropy"}
        return replace(known, options=options, scenario="class")


def test_the_strategies_of_each_scenario_are_those_that_users_expect() -> None:
    """None is left out by an oversight."""
    rehearsing = {"agem", "cwr", "er_ace", "ewc", "gdumb", "gem", "joint", "lwf", "mas", "mir", "naive", "replay", "si"}
    assert rehearsing <= set(declaring("class")) & set(declaring("domain")) & set(declaring("task"))
    assert {
        "seu",
        "pnn",
        "ltg",
        "hat",
        "mntdp",
        "packnet",
        "cpg",
        "pathnet",
        "den",
        "rcl",
        "independent",
        "linear",
        "wsn",
        "supsup",
    } == set(INFERRING)
    assert set(INFERRING) & set(declaring("class")) == {"linear"}
