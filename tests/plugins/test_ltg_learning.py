"""Learn to Grow: adapters and paths, streams, and states."""

from __future__ import annotations

import math

import pytest
import torch
from support.plugins.ltg import (
    ADAPT,
    REUSE,
    grown,
    images,
    network,
    positions,
    rectified,
    stream,
)
from support.tiny import (
    all_threads,
    build,
    one_thread,
)
from torch import Tensor

from seu_bench.config.protocol import Schedule
from seu_bench.models.sizes import count_parameters
from seu_bench.training.stage import TaskData
from seu_bench_ltg.network import Choice, Decision, GrowingLayer, Position, Stop

setup_module, teardown_module = one_thread, all_threads


# --- adapters count, and old paths keep theirs ------------------------------------------------------------------------


@positions
def test_adapters_stack(position: Position) -> None:
    """Three tasks adapt one unit: each path has the adapters that were there when it was made, and a reuse those of
    its own time; outputs are the sum of terms by hand."""
    model = network(position)
    x = images().store
    logits: list[Tensor] = []
    model.eval()
    for task, first in enumerate((None, ADAPT, ADAPT, REUSE)):
        if first is not None:
            grown(model, task, first, *[REUSE] * 4)
        with torch.no_grad():
            logits.append(model(x, task))
            assert all(torch.equal(model(x, earlier), logits[earlier]) for earlier in range(task + 1))
    assert [model.paths[task][0] for task in range(4)] == [Stop(0, count) for count in (0, 1, 2, 2)]
    layer = model.layer(0)
    parts = [part(x) for part in (layer.units[0], *layer.adapters_of(0))]
    for count in range(3):
        terms = parts[: count + 1]
        by_hand = sum(map(rectified, terms)) if position == "post" else rectified(sum(terms))
        torch.testing.assert_close(layer(x, Stop(0, count)), by_hand)
    path = count_parameters(model.task_module(2)) - count_parameters(model.heads[2])
    assert path == 20 + 57 + 112 + 25 + 30 + 2 * 4


def test_decisions_must_fit() -> None:
    """No unit that is not there, no adapter of a linear layer, no module too many or too few."""
    layer = network().layer(0)
    linear = network().layer(4)
    wrong: list[tuple[GrowingLayer, Decision]] = [
        (layer, Decision(Choice("reuse", 1))),
        (layer, Decision(ADAPT)),
        (layer, Decision(REUSE, layer.make_adapter())),
        (layer, Decision(Choice("new", 0), layer.make_unit())),
        (linear, Decision(ADAPT, linear.make_unit())),
    ]
    for where, decision in wrong:
        with pytest.raises(ValueError, match="does not fit a layer of 1 units"):
            where.grow(decision, 1)


# --- the stage --------------------------------------------------------------------------------------------------------


def test_options_reach_the_search() -> None:
    """The search takes its own epochs and weight decay, and otherwise what training has."""
    source = stream()
    given = {"epochs": 7, "batch_size": 5, "weight_decay": 0.1, "learning_rate": 0.2, "momentum": 0.3, "clip_norm": 2}
    plain = build(source, "ltg", **given)
    assert plain.options.searching(plain.schedule) == Schedule(**{**given, "weight_decay": 0.0003})
    assert (plain.options.size_penalty, plain.options.arch_learning_rate) == (0.001, 0.025)
    own = {"search_epochs": 3, "search_weight_decay": 0.2, "arch_learning_rate": 0.5, "arch_weight_decay": 0.6}
    other = build(source, "ltg", **given, **own, size_penalty=0, lr_schedule="constant", restore="last")
    stage = other.search_stage(TaskData(1, source.tasks[1].train, source.tasks[1].valid))
    assert (stage.epochs, stage.schedule.epochs, stage.optimizer.param_groups[0]["weight_decay"]) == (3, 3, 0.2)
    group = stage.arch_optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], stage.options.size_penalty) == (0.5, 0.6, 0)
    stage.run()
    assert stage.optimizer.param_groups[0]["lr"] == 0.2 and stage.best.loss == math.inf
