"""Hard attention to the task learns, and what earlier tasks use stays where it is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support.tiny import build, class_stream, context, learn, registry
from torch import nn

from seu_bench.data import InputShape
from seu_bench.data.streams import TaskStream
from seu_bench.errors import RequestError
from seu_bench_methods.hat import GatedModel, Hat, compensate_gradient, gradient_mask, used_anew

#: Learns the textures; 6 batches an epoch.
PLAIN: dict[str, Any] = {"epochs": 10, "batch_size": 8, "learning_rate": 0.2, "momentum": 0.0}
QUICK: dict[str, Any] = {"backbone": "mlp", "width": 0.1, **PLAIN}
ALEXNET: dict[str, Any] = {"backbone": "alexnet", "width": 0.1, "dropout": 0.0, **PLAIN}


def stream(tasks: int = 3) -> TaskStream:
    return class_stream([[2 * task, 2 * task + 1] for task in range(tasks)], images=32)


def copies(strategy: Hat) -> list[torch.Tensor]:
    """The weights and biases of the backbone."""
    return [weight.detach().clone() for weight in strategy.model.backbone.parameters()]


@pytest.mark.parametrize(("batch_size", "batches"), [(8, 6), (48, 1)])
def test_scale_of_every_batch(batch_size: int, batches: int) -> None:
    """It grows within each epoch and begins anew in the next; validation and evaluation compute with the largest."""
    source, found = stream(1), []
    strategy: Hat = build(source, "hat", **{**QUICK, "epochs": 2, "batch_size": batch_size})
    sigmoids = strategy.model.gates

    def watched(task: int, scale: float | None = None) -> list[torch.Tensor]:
        found.append((strategy.model.training, strategy.model.scale))
        return sigmoids(task, scale)

    strategy.model.gates = watched  # type: ignore[method-assign]
    learn(source, strategy)
    # The forward pass and the penalty ask for gates.
    trained = [scale for training, scale in found if training][::2]
    step = (400 - 1 / 400) / max(1, batches - 1)
    assert trained == pytest.approx([1 / 400 + step * batch for batch in range(batches)] * 2)
    largest, half = sigmoids(0, 400.0), strategy.model.eval().gates(0)
    assert all(torch.equal(one, other) for one, other in zip(largest, half, strict=True))


def test_a_step_by_hand() -> None:
    """One step of the second task: masked gradients of weights, compensated ones of embeddings, then the bound."""
    source = stream(2)
    strategy: Hat = learn(source, build(source, "hat", **QUICK), tasks=1)
    model, scenario = strategy.model, source.avalanche()
    before: dict[str, Any] = {}
    step = strategy.optimizer_step

    def watched() -> None:
        if not before:
            before["weights"] = copies(strategy)
            before["gradients"] = [weight.grad.clone() for weight in model.backbone.parameters()]  # type: ignore[union-attr]
            before["embeddings"] = [each.detach().double() for each in model.embeddings_of(1)]
            before["compensated"] = [each.grad.double() for each in model.embeddings_of(1)]  # type: ignore[union-attr]
            before["scale"], before["rate"] = model.scale, strategy.optimizer.param_groups[0]["lr"]
            step()
            before["after"] = copies(strategy), [each.detach().clone() for each in model.embeddings_of(1)]
        else:
            step()

    strategy.optimizer_step = watched  # type: ignore[method-assign]
    strategy.train(scenario.train_stream[1], eval_streams=[scenario.streams["valid"]])
    rate, scale = before["rate"], before["scale"]
    one, two = (1 / (1 + torch.exp(-400.0 * each.detach().double())) for each in model.embeddings_of(0))
    factors = [1 - one[:, None], 1 - one, 1 - torch.minimum(two[:, None], one[None, :]), 1 - two]
    for old, gradient, factor, new in zip(
        before["weights"], before["gradients"], factors, before["after"][0], strict=True
    ):
        assert torch.allclose(new.double(), old.double() - rate * factor * gradient.double(), rtol=0, atol=1e-6)
    for old, gradient, new in zip(before["embeddings"], before["compensated"], before["after"][1], strict=True):
        factor = 400 / scale * (torch.cosh(scale * old) + 1) / (torch.cosh(old) + 1)
        expected = (old - rate * factor * gradient).clamp(-6, 6)
        assert torch.allclose(new.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [QUICK, {**QUICK, "momentum": 0.9}, ALEXNET], ids=["mlp", "momentum", "alexnet"])
def test_what_earlier_tasks_use_does_not_move(options: dict[str, Any]) -> None:
    """Where the gates of unit and input are exactly 1, a weight keeps its bits through two more tasks; free ones move,
    and those that are nearly held nearly not. Momentum moves nothing: a task's optimiser begins without any."""
    source = stream()
    strategy: Hat = learn(source, build(source, "hat", **options), tasks=1)
    before = copies(strategy)
    gates = [gate.detach() for gate in strategy.model.gates(0, 400.0)]
    passing = [factor for _, factor in strategy.protection_of(1).passing]
    scenario = source.avalanche()
    for experience in scenario.train_stream[1:]:
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
    held = free = 0
    for old, new, factor in zip(before, copies(strategy), passing, strict=True):
        moved, kept = (new - old).abs(), factor.expand_as(old)
        assert float(moved[kept == 0].sum()) == 0.0
        held, free = held + int((kept == 0).sum()), free + int((moved[kept == 1] > 0).sum())
        soft = (kept > 0) & (kept < 1e-3)
        assert not bool(soft.any()) or float(moved[soft].max()) < 1e-3 * float(moved.max()) + 1e-6
    assert held > 50 and free > 50
    assert any(bool((gate == 1).any()) for gate in gates)


def test_sizes_by_hand() -> None:
    """Backbone, a head for each task, an embedding for each unit and task; no bits of masks."""
    source = stream()
    made = context(source.plan, "hat", {**QUICK, "width": 0.02})
    cost = registry().strategies.find("hat").factory.cost(made)
    backbone, heads, embeddings = (64 + 1) * 8 + (8 + 1) * 8, 3 * (8 + 1) * 2, 3 * (8 + 8)
    assert cost.params_total == cost.params_total_min == (backbone + heads + embeddings,) * 3
    assert cost.memory_bytes == (4 * (backbone + heads + embeddings),) * 3
    assert cost.macs == (64 * 8 + 8 * 8 + 8 * 2,) * 3
    assert cost.mask_bits == ()


def test_weight_decay_is_refused() -> None:
    """By the strategy and by its estimate: it moves weights whose gradient is 0."""
    source = stream()
    with pytest.raises(RequestError, match=r"weight decay of 0\.01"):
        build(source, "hat", **QUICK, weight_decay=0.01)
    with pytest.raises(RequestError, match="earlier tasks use"):
        registry().strategies.find("hat").factory.cost(context(source.plan, "hat", {**QUICK, "weight_decay": 0.01}))


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def tiny_model() -> GatedModel:
    """Two layers of 3 and 2 units on 4 pixels, two tasks of two classes, in float64."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.ReLU())
    return GatedModel(backbone, 2, (2, 2), 400.0).double()


def test_logits_are_those_of_a_direct_computation() -> None:
    """``head(g2 * relu(W2 (g1 * relu(W1 x + b1)) + b2))``, each task by its own gates, in evaluation at the largest
    factor and in training at the batch's."""
    model = tiny_model()
    x = torch.randn(6, 1, 2, 2, dtype=torch.float64)
    first, second = model.backbone[1], model.backbone[3]
    for task in range(2):
        for training, scale in ((False, 400.0), (True, 1.7)):
            model.train(training)
            model.scale = 1.7
            one, two = (1 / (1 + torch.exp(-scale * e)) for e in model.embeddings[task])
            hidden = torch.relu(x.flatten(1) @ first.weight.T + first.bias) * one
            hidden = torch.relu(hidden @ second.weight.T + second.bias) * two
            expected = hidden @ model.heads[task].weight.T + model.heads[task].bias
            assert torch.allclose(model.forward_single_task(x, task), expected, rtol=0, atol=1e-9)
    assert not torch.allclose(*(model.forward_single_task(x, task) for task in range(2)))


@pytest.mark.parametrize("scale", [1 / 400, 1.0, 20.0])
def test_compensation_is_the_direct_formula(scale: float) -> None:
    """``q' = s_max [cosh(s e) + 1] / (s [cosh(e) + 1]) q`` (Serra et al., section 2.5), to 1e-9 of it."""
    embedding = doubles(-2.0, -0.4, 0.0, 0.3, 1.9)
    gradient = doubles(0.5, -1.0, 2.0, 0.01, 3.0)
    for place in range(5):
        e, q = float(embedding[place]), float(gradient[place])
        expected = 400 * (math.cosh(scale * e) + 1) / (scale * (math.cosh(e) + 1)) * q
        assert float(compensate_gradient(gradient, embedding, scale, 400.0)[place]) == pytest.approx(expected, rel=1e-9)


def test_passing_by_hand() -> None:
    """``1 - min(unit, input)`` for each weight; the first layer's by its units alone."""
    used, inputs = doubles(1.0, 0.25), doubles(1.0, 0.5, 0.0)
    assert gradient_mask(used, None, (2, 5)).tolist() == [[0.0], [0.75]]
    assert gradient_mask(used, inputs, (2, 3)).tolist() == [[0.0, 0.5, 1.0], [0.75, 0.75, 1.0]]


def test_passing_of_convolutions_and_flattened_maps() -> None:
    """One factor for all numbers of a kernel; a flattened channel's for each of its pixels, channels first."""
    used, inputs = doubles(1.0, 0.25), doubles(0.5, 0.0)
    assert gradient_mask(used, None, (2, 1, 3, 3)).shape == (2, 1, 1, 1)
    kernel = gradient_mask(used, inputs, (2, 2, 3, 3))
    assert kernel.shape == (2, 2, 1, 1)
    assert kernel.flatten(1).tolist() == [[0.5, 1.0], [0.75, 1.0]]
    assert gradient_mask(used, inputs, (2, 6), 3).tolist() == [[0.5] * 3 + [1.0] * 3, [0.75] * 3 + [1.0] * 3]


def test_penalty_by_hand() -> None:
    """Units that earlier tasks use are free of charge, those used in part cost the rest."""
    gates, used = [doubles(1.0, 0.5), doubles(0.25, 1.0)], [doubles(1.0, 0.0), doubles(0.5, 0.0)]
    expected = (1.0 * 0 + 0.5 * 1 + 0.25 * 0.5 + 1.0 * 1) / (0 + 1 + 0.5 + 1)
    assert float(used_anew(gates, used)) == pytest.approx(expected, abs=1e-12)


def test_penalty_without_free_units_is_zero() -> None:
    """No 0 / 0, which would be the end of the training; nor in the gradient."""
    gate = torch.tensor([0.5, 1.0], requires_grad=True)
    penalty = used_anew([gate], [torch.ones(2)])
    penalty.backward()
    assert float(penalty.detach()) == 0.0
    assert gate.grad is not None and gate.grad.tolist() == [0.0, 0.0]


def test_hat_mlp() -> None:
    """Two layers of 2000, dropout of .2 on the pixels and .5 behind both."""
    backbone, features = registry().backbones.find("hat_mlp").factory.build(InputShape("image", (1, 28, 28)), 1.0)
    assert features == 2000
    assert sum(weight.numel() for weight in backbone.parameters()) == 785 * 2000 + 2001 * 2000
    assert [module.p for module in backbone if hasattr(module, "p")] == [0.2, 0.5, 0.5]
    assert registry().backbones.find("hat_mlp").factory.build(InputShape("image", (1, 28, 28)), 0.25)[1] == 500
