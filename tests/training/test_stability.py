"""The bound of stability is where SGD begins to diverge, and strategies know how steep their penalties are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import all_threads, class_stream, context, one_thread, registry
from torch import nn

from seu_bench.config.protocol import Schedule
from seu_bench.training.loops import make_optimizer
from seu_bench.training.stage import Stability

setup_module, teardown_module = one_thread, all_threads


def distance_after(steps: int, curvature: float, schedule: Schedule) -> float:
    """From the minimum of ``curvature / 2 * x^2``, beginning at 1, by the optimiser that stages use."""
    x = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = make_optimizer([x], schedule)
    for _ in range(steps):
        optimizer.zero_grad()
        (curvature / 2 * x.square()).sum().backward()
        optimizer.step()
    return abs(x.item())


@pytest.mark.parametrize(("momentum", "rate"), [(0.0, 0.1), (0.5, 0.025), (0.9, 0.025)])
def test_sgd_diverges_just_beyond_the_bound(momentum: float, rate: float) -> None:
    """Closed form: on a quadratic it converges five percent below and diverges five percent above."""
    schedule = Schedule(learning_rate=rate, momentum=momentum, weight_decay=0)
    critical = Stability.of(schedule, 1.0, "strength").bound / rate
    for share, stable in ((0.95, True), (1.05, False)):
        assert Stability.of(schedule, share * critical, "strength").holds == stable
        # The slowest mode changes by a factor of 1 -+ 0.1 (1 + m) / (1 - m) or sqrt(m) in each step.
        distance = distance_after(200, share * critical, schedule)
        assert distance < 1e-3 if stable else distance > 1e3


#: A strategy's option, a value of it, and the sum over weights that its penalty is made of.
PENALTIES: dict[str, tuple[str, float]] = {
    "ewc": ("ewc_lambda", 37.0),
    "si": ("si_lambda", 1e4),
    "mas": ("lambda_reg", 3.0),
    "rwalk": ("ewc_lambda", 2.0),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_curvature_is_the_penaltys_own(name: str) -> None:
    """It is the largest second derivative, by differentiating twice, of what is added to the loss."""
    option, strength = PENALTIES[name]
    source = class_stream([[0, 1], [2, 3]], images=16)
    options = {"backbone": "mlp", "width": 0.02, "epochs": 1, "batch_size": 8, option: strength}
    seen: list[Any] = []
    made = context(source.plan, name, options, on_progress=seen.append)
    strategy: Any = registry().strategies.find(name).factory.build(made)
    scenario = source.avalanche()
    named = dict(strategy.model.named_parameters())
    backbone = {name for name in named if name.startswith("backbone.")}
    assert strategy.penalty_curvature(named) is None
    strategy.train(scenario.train_stream[0], eval_streams=[])

    weights = list(named.values())
    first = torch.autograd.grad(strategy.penalty(), weights, create_graph=True, materialize_grads=True)
    second = {
        name: float(torch.autograd.grad(slope.sum(), weight, materialize_grads=True, allow_unused=True)[0].max())
        for (name, weight), slope in zip(named.items(), first, strict=True)
    }
    for trained in (named, backbone, {"heads.0.bias"}):
        expected = pytest.approx(max(second[name] for name in trained), rel=1e-5)
        assert strategy.penalty_curvature(trained) == expected
    assert strategy.penalty_strength == option

    strategy.train(scenario.train_stream[1], eval_streams=[])
    stabilities = {stage.task: stage.stability for stage in seen if stage.stage == "training"}
    assert stabilities[0] is None
    # EWC trains the task's own head, the others all heads.
    steepest = max(second[name] for name in (backbone if name == "ewc" else named))
    assert stabilities[1].value == pytest.approx(steepest * strategy.schedule.learning_rate, rel=1e-5)
    assert stabilities[1].bound == 2 * (1 + strategy.schedule.momentum)


@pytest.mark.parametrize("name", PENALTIES)
def test_a_strength_that_nobody_chose_is_bounded(name: str) -> None:
    """To half the bound, and no further; one that is given is not, and a dump is read as it was."""
    option, _ = PENALTIES[name]
    factory = registry().strategies.find(name).factory
    chosen, default = (factory.options(**given) for given in ({option: 3.0}, {}))
    assert (chosen.bounded, default.bounded) == (False, True)
    assert factory.options(**chosen.model_dump()) == chosen and factory.options(**default.model_dump()) == default

    source = class_stream([[0, 1], [2, 3]], images=16)
    options = {"backbone": "mlp", "width": 0.02, "epochs": 1, "batch_size": 8, option: 1e9}
    shares = {}
    for bounded in (False, True):
        seen: list[Any] = []
        made = context(source.plan, name, {**options, "bounded": bounded}, on_progress=seen.append)
        strategy: Any = factory.build(made)
        for experience in source.avalanche().train_stream:
            strategy.train(experience, eval_streams=[])
        found = next(it.stability for it in seen if it.stage == "training" and it.task == 1)
        shares[bounded] = found.share
        assert found.holds is bounded and found.strength == option
    assert shares[False] == 1 and 0 < shares[True] < 1e-3
    assert found.value == pytest.approx(found.bound / 2, rel=1e-5)
