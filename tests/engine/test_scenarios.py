"""Which scenarios a strategy is asked for, in errors, run ids, tuned options and saved models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny import registry

from seu_bench import load_model
from seu_bench.config.run import Request
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.verification import verify
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry

#: A run on the digits that takes a second.
BRIEF = {"backbone": "mlp", "epochs": 2}


def resolved(strategy: str, scenario: str, **options: Any) -> ResolvedRun:
    """A run on the digits in a scenario."""
    return resolve(registry(), request(strategy, scenario, **options))


def request(strategy: str, scenario: str, results: Path = Path("results"), **options: Any) -> Request:
    """Its request."""
    given = {"benchmark.stream.scenario": scenario, **options}
    return Request(strategy=strategy, benchmark="split_digits", results=results, options=given, device="cpu")


@pytest.mark.parametrize("strategy", ["seu", "pnn", "hat", "linear"])
@pytest.mark.parametrize("scenario", ["class", "domain"])
def test_a_strategy_that_needs_task_labels_is_refused_without(strategy: str, scenario: str) -> None:
    """The error names the strategies that can, and the option by which this one can."""
    with pytest.raises(RequestError, match=f"cannot learn the scenario '{scenario}': it learns 'task'") as error:
        resolved(strategy, scenario)
    assert "infer_task=entropy" in str(error.value.remedy) and "er_ace" in str(error.value.remedy)
    assert strategy not in str(error.value.remedy).rpartition(": ")[2].split(", ")
    assert resolved(strategy, scenario, infer_task="energy").spec.run_id.startswith(f"split_digits-{scenario}-")


def test_every_scenario_is_a_run_of_its_own() -> None:
    """And the task-incremental one, asked for or not, is the run that it was before there were others."""
    ids = {scenario: resolved("naive", scenario).spec.run_id for scenario in ("task", "class", "domain")}
    plain = resolve(registry(), Request(strategy="naive", benchmark="split_digits")).spec.run_id
    assert len(set(ids.values())) == 3
    assert ids["task"] == plain == "split_digits-quick-naive-seed0-17517b058e"


def test_options_tuned_for_another_scenario_are_not_applied() -> None:
    """The protocol's file is for the task-incremental stream."""
    assert resolved("naive", "task").tuned is not None
    assert resolved("naive", "class").tuned is None


@pytest.mark.long
def test_only_the_other_scenario_can_be_asked_for_without_a_name(tmp_path: Path) -> None:
    """A saved model answers as the run did; verify and load_model need no task."""
    for strategy, options in (("naive", BRIEF), ("linear", {"epochs": 2, "infer_task": "entropy"})):
        record = execute(registry(), resolve(registry(), request(strategy, "class", tmp_path, **options))).record
        assert verify(Registry(), record.run_id, results=tmp_path).passed
        model = load_model(record.run_id, tmp_path)
        images = torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        assert model(images).shape == (7, 10)
        assert model(images, 1).shape == (7, 10 if strategy == "naive" else 2)
    task = execute(registry(), resolve(registry(), request("naive", "task", tmp_path, **BRIEF))).record
    with pytest.raises(RequestError, match="task-incremental: its model needs the task"):
        load_model(task.run_id, tmp_path)(torch.zeros(1, 1, 8, 8))
