"""Avalanche's strategies train in training mode and measure in evaluation mode, whatever the backbone is made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import all_threads, class_stream, context, learn, one_thread, registry

from seu_bench.data.streams import TaskStream
from seu_bench.testing.modes import steps_watched
from seu_bench_avalanche.catalogue import METHODS

setup_module, teardown_module = one_thread, all_threads

SMALL: dict[str, Any] = {"width": 0.02, "epochs": 1, "batch_size": 8}
#: Memories with few images.
FEW: dict[str, dict[str, Any]] = {
    "agem": {"sample_size": 4},
    "mir": {"subsample": 8, "batch_size_mem": 4},
    "er_ace": {"batch_size_mem": 4},
}


def stream() -> TaskStream:
    return class_stream([[0, 1], [2, 3]], images=8, test=4)


def build(name: str, source: TaskStream, backbone: str, **options: Any) -> Any:
    made = context(source.plan, name, SMALL | FEW.get(name, {}) | {"backbone": backbone} | options)
    return registry().strategies.find(name).factory.build(made)


def train(strategy: Any, source: TaskStream) -> Any:
    """Task by task, or the whole stream at once."""
    if strategy.whole_stream:
        strategy.train(source.avalanche().train_stream, eval_streams=[])
        return strategy
    return learn(source, strategy)


@pytest.mark.parametrize("backbone", ["alexnet", pytest.param("resnet18", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", METHODS)
def test_trains_in_training_mode(name: str, backbone: str) -> None:
    """Dropout drops and batch normalisation learns, at every step of every task."""
    source = stream()
    strategy = build(name, source, backbone)
    with steps_watched(strategy) as steps:
        train(strategy, source)
    assert steps.count >= (1 if strategy.whole_stream else 2)
    assert not steps.asleep


def test_mir_compares_without_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a step of no length the losses before and after are equal: no mask comes between them."""
    source = stream()
    strategy, scenario = build("mir", source, "alexnet"), source.avalanche()
    strategy.train(scenario.train_stream[0], eval_streams=[])
    differences: list[torch.Tensor] = []
    argsort = torch.argsort

    def spy(values: torch.Tensor, *more: Any) -> torch.Tensor:
        differences.append(values)
        return argsort(values, *more)

    monkeypatch.setattr("seu_bench_avalanche.corrected.torch.argsort", spy)
    strategy.schedule = strategy.schedule.model_copy(update={"learning_rate": 0.0})
    strategy.train(scenario.train_stream[1], eval_streams=[])
    assert differences and all(bool((values == 0).all()) for values in differences)
