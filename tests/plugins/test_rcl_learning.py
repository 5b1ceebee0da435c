"""Reinforced continual learning: trials, what is kept of them, sizes in closed form, costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from support.tiny import build, class_stream, context, registry, same

from seu_bench.config.protocol import Schedule
from seu_bench.data import InputShape
from seu_bench.data.streams import TaskStream
from seu_bench.models import count_parameters
from seu_bench.training.interfaces import Cost
from seu_bench.training.stage import TaskData
from seu_bench_backbones.networks import mlp
from seu_bench_kit import GrowingNetwork, chain_of
from seu_bench_rcl.controller import Controller, Policy, policy_loss
from seu_bench_rcl.method import Growth, GrowthSearch, ReinforcedGrowth

GROUPS = [[0, 1], [2, 3, 4], [5, 6]]
CLASSES = (2, 3, 2)
#: Two layers of 8 units.
MLP: dict[str, Any] = {"backbone": "mlp", "width": 0.02, "trials": 3, "trial_epochs": 2, "max_units": 5}


def stream() -> TaskStream:
    return class_stream(GROUPS, images=20)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[int]]:
    """What controllers draw from now on, first to last; to be filled by the test."""
    draws: list[Sequence[int]] = []
    monkeypatch.setattr(Controller, "draw", lambda _: tuple(draws.pop(0)))
    return draws


def learned_network() -> GrowingNetwork:
    """A network of 8 and 8 units that has learned its first task, by its look."""
    torch.manual_seed(0)
    network = GrowingNetwork(chain_of(mlp(InputShape("image", (1, 8, 8)), 0.02)[0], "a test"), CLASSES)
    network.grow((8, 8))
    network.freeze()
    return network


def search(data: TaskData, *, seed: int = 3, epochs: int = 2, select: bool = True, **options: Any) -> GrowthSearch:
    schedule = Schedule(epochs=epochs, batch_size=8, learning_rate=0.1)
    restore: Any = "best_valid" if select else "last"
    method = ReinforcedGrowth(model=learned_network(), schedule=schedule, restore=restore)
    method.seed_for = lambda *_: seed  # type: ignore[method-assign]
    method.begin(ReinforcedGrowth.Options(**{"trials": 3, "max_units": 5, **options}), stream().plan)
    return GrowthSearch(method, data)


def second_task(*, valid: bool = True) -> TaskData:
    task = stream().tasks[1]
    return TaskData(1, task.train, task.valid if valid else None)


def mlp_size(widths: Sequence[int]) -> int:
    """Weights and biases of 64 pixels and two layers."""
    first, second = widths
    return 65 * first + (first + 1) * second


def alexnet_size(widths: Sequence[int]) -> int:
    """Three convolutions of 3x3 on 8x8 pixels, which are one at their end, and two linear layers."""
    inputs, found = (1, *widths), 0
    for at, units in enumerate(widths):
        found += units * (inputs[at] * (9 if at < 3 else 1) + 1)
    return found


@pytest.mark.parametrize(
    ("backbone", "size", "first", "draws"),
    [
        ("mlp", mlp_size, (8, 8), [(3, 0), (1, 5)]),
        ("alexnet", alexnet_size, (2, 4, 8, 64, 64), [(0, 1, 2, 3, 4), (5, 0, 0, 0, 0)]),
    ],
)
def test_sizes_in_closed_form(backbone: str, size: Any, first: Any, draws: Any, drawn: list[Sequence[int]]) -> None:
    """Given what is drawn, the network has the weights of one of that width, and earlier heads."""
    drawn += draws
    width = 0.02 if backbone == "mlp" else 0.03125
    source = stream()
    strategy = build(source, "rcl", **{**MLP, "backbone": backbone, "width": width, "trials": 1, "trial_epochs": 1})
    widths, heads = list(first), 0
    scenario = source.avalanche()
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        widths = [old + new for old, new in zip(widths, draws[task - 1] if task else [0] * len(first), strict=True)]
        head = CLASSES[task] * (widths[-1] + 1)
        assert strategy.model.widths(task) == tuple(widths)
        assert count_parameters(strategy.model.task_module(task)) == size(widths) + head
        heads += head
        assert count_parameters(strategy.model) == size(widths) + heads
    choices = strategy.describe()["choices"]
    assert choices == tuple(tuple(f"new {units}" for units in added) for added in (first, *draws))


def watched(stage: GrowthSearch, monkeypatch: pytest.MonkeyPatch) -> list[Growth]:
    """Each trial as it ended: its weights, and the reward of what they answer."""
    ended: list[Growth] = []
    end = stage._end

    def noted(trial: Any) -> None:
        end(trial)
        weights = {key: value.clone() for key, value in trial.trained.state_dict().items()}
        trial.network.eval()
        x, y = stage.score_images.gather(torch.arange(len(stage.score_images)))
        with torch.no_grad():
            accuracy = int((trial.forward(x).argmax(dim=1) == y).sum()) / len(y)
        ended.append(Growth(trial.units, accuracy - stage.options.unit_penalty * sum(trial.units), weights))

    monkeypatch.setattr(stage, "_end", noted)
    return ended


@pytest.mark.parametrize("select", [True, False])
def test_the_best_reward_is_kept(select: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the weights that its trial ended with, although others came after it; each reward is of those weights."""
    stage = search(second_task(), trials=6, epochs=3, unit_penalty=0.05, select=select)
    ended = watched(stage, monkeypatch)
    found = stage.run()
    rewards = [growth.reward for growth in ended]
    best = ended[rewards.index(max(rewards))]
    assert len(ended) == 6 and len({growth.units for growth in ended}) > 1
    assert rewards.index(max(rewards)) < 5
    assert (found.units, found.reward) == (best.units, pytest.approx(best.reward))
    assert same(dict(found.weights), dict(best.weights))
    assert [report.accuracy is None for report in stage.curve] == [not select, not select, False] * 6


def test_rewards_teach_the_controller(monkeypatch: pytest.MonkeyPatch, drawn: list[Sequence[int]]) -> None:
    """Each trial once, in order, with accuracy less the penalty of what was drawn; the smaller of equals wins."""
    told: list[tuple[Sequence[int], float]] = []
    monkeypatch.setattr(Controller, "learn", lambda _, units, reward: told.append((units, reward)))
    drawn += [(5, 5), (0, 1), (2, 2)]
    stage = search(second_task(), unit_penalty=1.0)
    ended = watched(stage, monkeypatch)
    assert stage.run().units == (0, 1)
    assert [units for units, _ in told] == [(5, 5), (0, 1), (2, 2)]
    assert [reward for _, reward in told] == pytest.approx([growth.reward for growth in ended])


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


def cost_of(source: TaskStream, options: dict[str, Any]) -> Cost:
    made = context(source.plan, "rcl", {"epochs": 2, "batch_size": 16, **options})
    found: Cost = registry().strategies.find("rcl").factory.cost(made)
    return found


def test_bounds_in_closed_form() -> None:
    """From heads alone to the most units in every layer, with every task but the first."""
    cost = cost_of(stream(), MLP)
    widths = [(8 + 5 * task, 8 + 5 * task) for task in range(3)]
    heads = [CLASSES[task] * (widths[task][1] + 1) for task in range(3)]
    assert cost.params_total == tuple(mlp_size(widths[task]) + sum(heads[: task + 1]) for task in range(3))
    assert cost.params_total_min == tuple(mlp_size((8, 8)) + 9 * sum(CLASSES[: task + 1]) for task in range(3))
    assert cost.memory_bytes == tuple(4 * params for params in cost.params_total)
    assert cost.macs == tuple(64 * a + a * b + b * CLASSES[task] for task, (a, b) in enumerate(widths))
    assert cost.macs_min == tuple(64 * 8 + 8 * 8 + 8 * classes for classes in CLASSES)


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
