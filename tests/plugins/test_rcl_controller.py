"""Reinforced continual learning: the reward, REINFORCE, the baseline, and what the controller finds."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from support.tiny import all_threads, one_thread

from seu_bench_rcl.controller import Controller, Policy, policy_loss

setup_module, teardown_module = one_thread, all_threads

LAYERS, CHOICES = 2, 3


def made(seed: int = 0, layers: int = LAYERS, choices: int = CHOICES, **rates: float) -> Controller:
    """A controller in float64."""
    torch.manual_seed(seed)
    controller = Controller(layers, choices, **rates)
    controller.state = controller.state.double()
    controller.policy.double()
    controller.baseline.double()
    return controller


def lively(policy: Policy) -> Policy:
    """With probabilities that are far from equal."""
    with torch.no_grad():
        for weight in policy.parameters():
            weight.normal_(std=1.0)
    return policy


def test_gradient_by_hand() -> None:
    """With respect to logits z of a layer it is advantage * (softmax(z) - one at the choice that was drawn)."""
    logits = torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0]], dtype=torch.float64, requires_grad=True)
    loss = policy_loss(torch.log_softmax(logits, 1), (1, 1), 0.5)
    # Probabilities .25, .75 and .8, .2; drawn are .75 and .2.
    assert float(loss.detach()) == pytest.approx(-0.5 * (math.log(0.75) + math.log(0.2)), abs=1e-15)
    (gradient,) = torch.autograd.grad(loss, logits)
    expected = [[0.5 * 0.25, 0.5 * (0.75 - 1)], [0.5 * 0.8, 0.5 * (0.2 - 1)]]
    assert torch.allclose(gradient, torch.tensor(expected, dtype=torch.float64), atol=1e-15, rtol=0)


@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_gradient_of_the_expected_reward(baseline: float) -> None:
    """Over all draws, weighted by their probabilities, REINFORCE is autograd's gradient, whatever the baseline."""
    controller = made()
    policy = lively(controller.policy)
    parameters = list(policy.parameters())
    draws = list(itertools.product(range(CHOICES), repeat=LAYERS))
    rewards = {draw: math.sin(1 + index) for index, draw in enumerate(draws)}

    def probability(log: torch.Tensor, draw: tuple[int, ...]) -> torch.Tensor:
        return torch.stack([log[layer, choice] for layer, choice in enumerate(draw)]).sum().exp()

    log = policy(controller.state)
    assert sum(float(probability(log, draw).detach()) for draw in draws) == pytest.approx(1, abs=1e-12)
    expected = torch.autograd.grad(sum(probability(log, draw) * rewards[draw] for draw in draws), parameters)
    found = [torch.zeros_like(weight) for weight in parameters]
    for draw in draws:
        log = policy(controller.state)
        weight = float(probability(log, draw).detach())
        parts = torch.autograd.grad(policy_loss(log, draw, rewards[draw] - baseline), parameters)
        found = [total + weight * part for total, part in zip(found, parts, strict=True)]
    assert max(float(gradient.abs().max()) for gradient in expected) > 1e-3
    for gradient, total in zip(expected, found, strict=True):
        assert torch.allclose(gradient, -total, atol=1e-12, rtol=1e-9)


def test_learns_by_that_gradient() -> None:
    """A step of Adam along the gradient of what was drawn, times the reward above the baseline before its step."""
    controller, again = made(), made()
    for one in (controller, again):
        lively(one.policy)
        with torch.no_grad():
            one.baseline.bias.fill_(0.25)
    again.policy.load_state_dict(controller.policy.state_dict())
    assert controller.learn((2, 0), 0.75) == pytest.approx(0.5, abs=1e-15)
    loss = policy_loss(again.policy(again.state), (2, 0), 0.5)
    gradients = torch.autograd.grad(loss, list(again.policy.parameters()))
    for before, gradient, after in zip(
        again.policy.parameters(), gradients, controller.policy.parameters(), strict=True
    ):
        step = 1e-3 * gradient / (gradient.abs() + 1e-8)  # Adam's first step
        assert torch.allclose(after, before - step, atol=1e-12, rtol=0)


def test_baseline_by_hand() -> None:
    """Two steps of Adam on (w s + b - reward)^2, from w = 0 and b = 0, written out."""
    controller = made(baseline_learning_rate=0.1)
    controller.state = torch.tensor([0.5, 0.0, 0.25], dtype=torch.float64)
    assert controller.learn((0, 0), 0.8) == pytest.approx(0.8, abs=1e-15)
    first = [-1.6 * s for s in (0.5, 0.0, 0.25, 1.0)]  # 2 (0 - .8) s; the last one is the bias
    weights = [-0.1 * g / (abs(g) + 1e-8) for g in first]
    value = 0.5 * weights[0] + 0.25 * weights[2] + weights[3]
    assert value == pytest.approx(0.175, abs=1e-7)
    assert controller.learn((1, 2), 0.5) == pytest.approx(0.5 - value, abs=1e-12)
    for index, s in enumerate((0.5, 0.0, 0.25, 1.0)):
        old, new = first[index], 2 * (value - 0.5) * s
        mean = (0.9 * 0.1 * old + 0.1 * new) / (1 - 0.9**2)
        square = (0.999 * 0.001 * old**2 + 0.001 * new**2) / (1 - 0.999**2)
        weights[index] -= 0.1 * mean / (math.sqrt(square) + 1e-8)
    found = [*controller.baseline.weight.flatten().tolist(), *controller.baseline.bias.tolist()]
    assert found == pytest.approx(weights, abs=1e-12)


def test_inputs_are_probabilities_of_the_layer_before() -> None:
    """The second layer's numbers are the cells' on the first layer's probabilities, and their memory goes on."""
    controller = made()
    policy, state = lively(controller.policy), controller.state
    log = policy(state)
    memory = [None, None]
    for layer, given in enumerate((state, log[0].exp())):
        hidden = given[None]
        for index, cell in enumerate(policy.cells):
            memory[index] = cell(hidden, memory[index])  # type: ignore[call-overload]
            hidden = memory[index][0]  # type: ignore[index]
        assert torch.allclose(torch.softmax(policy.output(hidden), 1)[0], log[layer].exp(), atol=1e-12)
    assert not torch.allclose(log[0], log[1], atol=1e-3)


def test_precision_of_the_run_does_not_matter() -> None:
    """Under autocast it draws and learns as without, bit by bit."""
    found = []
    for enabled in (False, True):
        torch.manual_seed(0)
        controller = Controller(LAYERS, CHOICES)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            units = controller.draw()
            controller.learn(units, 0.5)
        found.append((units, controller.policy(controller.state)))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
