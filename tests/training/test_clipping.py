"""The share of clipped steps: what counts, whose steps they are, and that resuming counts none twice."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from support.tiny import all_threads, class_stream, context, learn, one_thread, registry
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from seu_bench.data.streams import TaskStream
from seu_bench.training.loops import clip_gradients
from seu_bench.training.monitoring.learning import ClippedSteps
from seu_bench.training.stage import StageProgress

#: Norm that the gradients of these tiny networks are sometimes above.
LIMIT = 0.7

setup_module, teardown_module = one_thread, all_threads


def step(norm: float, limit: float = 5.0) -> nn.Parameter:
    """Clip a gradient of this norm."""
    parameter = nn.Parameter(torch.zeros(4))
    parameter.grad = torch.full((4,), norm / 2)
    clip_gradients([parameter], limit)
    return parameter


def test_gradients_above_the_limit_count() -> None:
    """Those below do not, and one that is no number does."""
    counted = ClippedSteps()
    with counted.counting():
        for norm in (3.0, 4.9, 5.1, 80.0, math.nan):
            step(norm)
    step(80.0)  # no stage runs
    assert counted.share == 3 / 5


def test_nothing_clips() -> None:
    """A share of no steps is not measured."""
    assert ClippedSteps().share is None


def test_tensors_are_added_without_being_asked() -> None:
    """On an accelerator a step's answer is a tensor; the count stays one until somebody asks."""
    counted = ClippedSteps()
    for clipped in (True, False, True):
        counted.add(torch.tensor(clipped))
    assert isinstance(counted._clipped, torch.Tensor)
    assert counted.share == 2 / 3


def test_state_of_an_earlier_version_has_no_share() -> None:
    """What was not counted from the beginning is not measured."""
    counted = ClippedSteps()
    counted.load_state_dict(None)
    with counted.counting():
        step(80.0)
    assert counted.share is None
    again = ClippedSteps()
    again.load_state_dict(counted.state_dict())
    assert again.share is None


def test_a_stage_within_a_stage_counts_its_own() -> None:
    """The innermost counts, as under the guard of searchers and creators."""
    outer, inner = ClippedSteps(), ClippedSteps()
    with outer.counting():
        step(80.0)
        with inner.counting():
            step(3.0)
        step(80.0)
    assert (outer.share, inner.share) == (1.0, 0.0)


def shares(seen: list[StageProgress]) -> dict[tuple[str, int], float | None]:
    """Shares of the stages that ended."""
    return {(stage.stage, stage.task): stage.clipped_share for stage in seen if stage.done}


def learning(name: str, source: TaskStream, seen: list[StageProgress]) -> Any:
    """A strategy whose gradients are sometimes clipped."""
    options: dict[str, Any] = {"width": 0.05, "clip_norm": LIMIT, "epochs": 4, "batch_size": 8}
    made = context(source.plan, name, options, on_progress=seen.append)
    return registry().strategies.find(name).factory.build(made)


@pytest.mark.parametrize("name", ["naive", "ltg", "agem"])
def test_share_of_a_strategy(name: str) -> None:
    """It is that of an independent count of the norms at each step of SGD, stage by stage."""
    source, seen = class_stream([[0, 1], [2, 3]], images=16), []
    strategy = learning(name, source, seen)
    norms: dict[tuple[str, int], list[float]] = {}

    def look(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if isinstance(optimizer, torch.optim.SGD):  # Adam, of architectures, is not clipped
            gradients = [p.grad.flatten() for p in optimizer.param_groups[0]["params"] if p.grad is not None]
            norms.setdefault((seen[-1].stage, seen[-1].task), []).append(float(torch.cat(gradients).norm()))

    handle = register_optimizer_step_pre_hook(look)
    try:
        learn(source, strategy)
    finally:
        handle.remove()
    found = shares(seen)
    for stage, measured in norms.items():
        # A gradient that was clipped has the norm of the limit.
        assert found[stage] == sum(norm > LIMIT - 1e-4 for norm in measured) / len(measured)
    assert {stage for stage, share in found.items() if share is not None} == set(norms)
    assert any(0 < (share or 0) < 1 for share in found.values())


def test_share_of_a_resumed_stage() -> None:
    """Continued from a state between two epochs, it is that of a stage that was not interrupted."""
    source = class_stream([[0, 1]], images=32)
    whole: list[StageProgress] = []
    strategy = learning("naive", source, whole)
    states: list[Any] = []
    strategy.pause = lambda _: states.append(copy.deepcopy(strategy.state_dict()))
    learn(source, strategy)
    resumed: list[StageProgress] = []
    again = learning("naive", source, resumed)
    again.load_state_dict(states[1])
    learn(source, again)
    assert 0 < (shares(whole)["training", 0] or 0) < 1
    assert shares(resumed) == shares(whole)


def test_without_a_limit_nothing_is_measured() -> None:
    """A stage that never clips has no share."""
    source, seen = class_stream([[0, 1]], images=8), []
    strategy = learning("naive", source, seen)
    strategy.schedule = strategy.schedule.model_copy(update={"clip_norm": None})
    learn(source, strategy)
    assert shares(seen) == {("training", 0): None}
