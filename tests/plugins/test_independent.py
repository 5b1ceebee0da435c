"""A linear classifier, and a network of its own, for each task: they share nothing and forget nothing."""

from __future__ import annotations

from typing import Any

import torch
from support.tiny import (
    build,
    class_stream,
    context,
    learn,
    registry,
)

from seu_bench.data.streams import TaskStream
from seu_bench.models.sizes import count_parameters

#: Small networks, and epochs enough to learn.
QUICK: dict[str, Any] = {"backbone": "mlp", "width": 0.04, "epochs": 6, "batch_size": 8, "learning_rate": 0.1}
HIDDEN = 16


def stream() -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], images=16)


def network_size(classes: int, pixels: int = 64) -> int:
    """Parameters of the perceptron with a head."""
    return (pixels + 1) * HIDDEN + (HIDDEN + 1) * HIDDEN + (HIDDEN + 1) * classes


def test_linear_learns_the_logistic_regression() -> None:
    """Trained to the end without decay, a classifier of two classes meets the first-order condition: zero gradient."""
    source = class_stream([[0, 1]], images=12)
    options = {"epochs": 400, "batch_size": 64, "learning_rate": 0.5, "weight_decay": 0.01, "restore": "last"}
    strategy = learn(source, build(source, "linear", **options))
    x, y = source.tasks[0].train.gather(torch.arange(len(source.tasks[0].train)))
    head = strategy.model.heads[0].requires_grad_(False)
    shares = torch.softmax(x.flatten(1) @ head.weight.T + head.bias, dim=1)
    residual = (shares - torch.nn.functional.one_hot(y, 2)) / len(y)
    gradient = residual.T @ x.flatten(1) + 0.01 * head.weight
    assert float(gradient.abs().max()) < 1e-4


def test_a_network_for_each_task() -> None:
    """Task t ends with t + 1 networks of the chosen backbone and width, and each one's own head."""
    source = stream()
    strategy = build(source, "independent", **QUICK)
    sizes = []
    for experience in source.avalanche().train_stream:
        strategy.train(experience)
        sizes.append(count_parameters(strategy.model))
    expected = [network_size(classes) for classes in (2, 3, 2)]
    assert sizes == [sum(expected[: task + 1]) for task in range(3)]
    cost = registry().strategies.find("independent").factory.cost(context(source.plan, "independent", QUICK))
    assert list(cost.params_total) == list(cost.params_total_min) == sizes
    assert [count_parameters(strategy.model.task_module(task)) for task in range(3)] == expected
