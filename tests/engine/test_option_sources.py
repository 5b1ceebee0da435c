"""Options with where each value comes from: what a run computes with, by the layer that decided it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tried import scenario_of

from seu_bench.config.run import Request
from seu_bench.engine.option_sources import option_sources
from seu_bench.engine.resolve import resolve
from seu_bench.plugin.registry import Registry


def sources(**fields: Any) -> dict[str, tuple[Any, str]]:
    """Value and source by key."""
    run = resolve(Registry(), Request(**fields))
    return {it.key: (it.value, it.source) for it in option_sources(run)}


def test_each_layer_over_the_one_before() -> None:
    """The protocol's own values, the file tuned for it, the preset, and what was given."""
    tuned = {"strategy": "ewc", "benchmark": "pmnist", "protocol": "quick"}
    found = sources(**tuned)
    assert found["backbone"] == ("mlp", "protocol quick")
    assert found["width"] == (0.25, "protocol quick")
    assert found["ewc_lambda"][1] == "tuned pmnist-quick-ewc"
    assert found["lr_schedule"] == ("cosine", "default")
    given = sources(**tuned, options={"ewc_lambda": 3, "width": 0.5, "epochs": 2})
    assert [given[key] for key in ("ewc_lambda", "width", "epochs")] == [(3, "given"), (0.5, "given"), (2, "given")]


def test_components_have_their_prefix_and_schedule() -> None:
    found = sources(strategy="seu", protocol="smoke", options={"searcher.alpha": 0.5})
    assert found["searcher.alpha"] == (0.5, "given")
    smoke = resolve(Registry(), Request(protocol="smoke")).spec.protocol
    assert found["searcher.epochs"] == (smoke.search.epochs, "protocol smoke")
    assert found["creator.epochs"] == (smoke.creation.epochs, "protocol smoke")
    assert found["epochs"] == (smoke.training.epochs, "protocol smoke")
    assert found["channels"] == (smoke.model.channels, "protocol smoke")


def test_a_preset(tmp_path: Path) -> None:
    chosen = {"strategy": "seu", "protocol": "smoke", "options": {"preset": "paper_literal"}}
    run = resolve(Registry(), Request(**chosen))
    values = run.strategy.presets["paper_literal"]
    found = sources(**chosen)
    assert values
    for key, value in values.items():
        assert found[key] == (value, "preset paper_literal")
    key = next(iter(values))
    options = {"preset": "paper_literal", key: found[key][0]}
    assert sources(**{**chosen, "options": options})[key][1] == "given"


@pytest.mark.parametrize("strategy", sorted(Registry().strategies))
def test_values_are_those_that_the_run_has(strategy: str) -> None:
    """Where an option is set at all, its value is the resolved one."""
    options = {"benchmark.stream.scenario": scenario_of(strategy)}
    run = resolve(Registry(), Request(strategy=strategy, protocol="smoke", options=options))
    found = {it.key: it for it in option_sources(run)}
    for name in type(run.options).model_fields:
        value = getattr(run.options, name)
        assert value is None or found[name].value == value
