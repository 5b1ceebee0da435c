"""Training steps of several seeds of one network: weights stacked and computed as one, and one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from scripts.perf.comparison import Result, Size, Table
from scripts.perf.timing import interleaved, median, ratio
from seu_bench.utils.hardware import computing_with
from seu_bench_kit import AlexNetShape
from seu_bench_kit.blocks import alexnet

_CLASSES, _RATE, _MOMENTUM = 10, 1e-3, 0.9


def measure(_: str, size: Size) -> Result:
    """Steps of SGD of ten copies with weights and images of their own, on one thread."""
    seeds, batch, rounds, calls = size.fixed(10, 2), size.fixed(32, 4), size.count(9, 1), size.fixed(3, 1)
    rows = []
    with computing_with(1):
        for name, (make, pixels) in _NETWORKS.items():
            torch.manual_seed(0)
            networks = [make() for _ in range(seeds)]
            images = torch.randn(seeds, batch, *pixels)
            labels = torch.randint(0, _CLASSES, (seeds, batch))
            ways = {"stacked": _stacked(networks, images, labels), "in turn": _in_turn(networks, images, labels)}
            taken = interleaved(ways, rounds, calls)
            speeds = [seeds * batch / median(taken, way) for way in ways]
            rows.append([name, *speeds, ratio(taken, "in turn", "stacked")])
    columns = ("network", "stacked: images/s", "in turn: images/s", "times faster")
    return Result({"seeds": seeds, "batch": batch, "rounds": rounds}, {}, (Table("Steps", columns, rows),))


def _linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, _CLASSES))


def _perceptron() -> nn.Module:
    layers = (nn.Linear(28 * 28, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, _CLASSES))
    return nn.Sequential(nn.Flatten(), *layers)


def _alexnet(width: float) -> Callable[[], nn.Module]:
    shape = AlexNetShape.of(3, 32, 32, width, dropout=0.0)
    return lambda: nn.Sequential(alexnet(shape), nn.Linear(shape.linear, _CLASSES))


_NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int]]] = {
    "a linear classifier of colour images": (_linear, (3, 32, 32)),
    "a perceptron of two hidden layers of 100": (_perceptron, (1, 28, 28)),
    "the AlexNet variant, width 0.125": (_alexnet(0.125), (3, 32, 32)),
    "the AlexNet variant, width 0.25": (_alexnet(0.25), (3, 32, 32)),
}


def _stacked(networks: list[nn.Module], images: Tensor, labels: Tensor) -> Callable[[], None]:
    parameters, _ = stack_module_state(networks)
    weights = {name: value.detach().clone() for name, value in parameters.items()}
    velocities = {name: torch.zeros_like(value) for name, value in weights.items()}

    def loss(own: dict[str, Tensor], x: Tensor, y: Tensor) -> Any:
        return nn.functional.cross_entropy(functional_call(networks[0], own, (x,)), y)

    gradients_of = vmap(grad(loss), randomness="different")

    def step() -> None:
        gradients = gradients_of(weights, images, labels)
        for name, gradient in gradients.items():
            velocities[name].mul_(_MOMENTUM).add_(gradient)
            weights[name].sub_(velocities[name], alpha=_RATE)

    return step


def _in_turn(networks: list[nn.Module], images: Tensor, labels: Tensor) -> Callable[[], None]:
    optimisers = [torch.optim.SGD(each.parameters(), _RATE, _MOMENTUM, fused=True) for each in networks]

    def step() -> None:
        for network, optimiser, x, y in zip(networks, optimisers, images, labels, strict=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x), y).backward()
            optimiser.step()

    return step
