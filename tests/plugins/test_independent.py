"""A linear classifier, and a network of its own, for each task: they share nothing and forget nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import Command
from support.tiny import (
    all_threads,
    build,
    class_stream,
    context,
    learn,
    logits_of,
    one_thread,
    registry,
    same,
    weights,
)

import seu_bench
from seu_bench.data.streams import TaskStream
from seu_bench.errors import RunError
from seu_bench.models.sizes import count_parameters
from seu_bench.results.record import read_record

setup_module, teardown_module = one_thread, all_threads

#: Small networks, and epochs enough to learn.
QUICK: dict[str, Any] = {"backbone": "mlp", "width": 0.04, "epochs": 6, "batch_size": 8, "learning_rate": 0.1}
HIDDEN = 16

BOTH = pytest.mark.parametrize(("name", "options"), [("linear", {}), ("independent", QUICK)])


def stream() -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], images=16)


def network_size(classes: int, pixels: int = 64) -> int:
    """Parameters of the perceptron with a head."""
    return (pixels + 1) * HIDDEN + (HIDDEN + 1) * HIDDEN + (HIDDEN + 1) * classes


# --- linear -----------------------------------------------------------------------------------------------------------


def test_linear_is_naive_without_a_network(command: Command, tmp_path: Path) -> None:
    """The same weights, bit by bit, and the same accuracies as ``naive`` on the backbone ``linear``."""
    for strategy, more in (("linear", ()), ("naive", ("-o", "backbone=linear"))):
        answer = command(
            "run", "--strategy", strategy, "--protocol", "smoke", "--synthetic", *more, "--results", tmp_path
        )
        assert answer.status == 0, answer.err
    ours, theirs = (seu_bench.load_model(folder) for folder in sorted((tmp_path / "runs").iterdir()))
    assert same(weights(ours), weights(theirs))
    mine, its = (read_record(folder) for folder in sorted((tmp_path / "runs").iterdir()))
    assert (mine.strategy, its.strategy) == ("linear", "naive")
    assert mine.accuracy_matrix == its.accuracy_matrix
    assert mine.metrics["forgetting"] == 0 and mine.metrics["params_total"] == its.metrics["params_total"]
    assert mine.params_total == its.params_total and mine.macs == its.macs


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


def test_options() -> None:
    """A linear classifier has no width and no backbone to choose."""
    fields = set(registry().strategies.find("linear").factory.options.model_fields)
    assert {"learning_rate", "restore", "epochs"} <= fields and not {"width", "backbone"} & fields
    fields = set(registry().strategies.find("independent").factory.options.model_fields)
    assert {"learning_rate", "restore", "epochs", "width", "backbone"} <= fields


# --- independent ------------------------------------------------------------------------------------------------------


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


def test_each_task_as_if_it_were_alone() -> None:
    """What the second task learns hangs neither on the first one's images nor on how long they were learned."""
    found = []
    for epochs in (1, 4):
        source = stream()
        strategy = build(source, "independent", **QUICK | {"epochs": epochs})
        learn(source, strategy, tasks=1)
        strategy.schedule = strategy.schedule.model_copy(update={"epochs": 2})
        strategy.train(source.avalanche().train_stream[1])
        found.append(weights(strategy.model.task_module(1)))
    assert same(*found)


@BOTH
def test_forgets_nothing(name: str, options: dict[str, Any]) -> None:
    """Logits of earlier tasks keep their bits, and every task is learned."""
    source = stream()
    strategy = build(source, name, **{"epochs": 6, "batch_size": 8, **options})
    logits: list[torch.Tensor] = []
    for experience in source.avalanche().train_stream:
        strategy.train(experience)
        logits.append(logits_of(strategy.model, source, len(logits)))
        for task, before in enumerate(logits):
            assert torch.equal(logits_of(strategy.model, source, task), before)
    for task, found in enumerate(logits):
        right = int((found.argmax(dim=1) == source.tasks[task].test.labels).sum())
        assert right >= 0.8 * len(found)  # by chance less than once in ten thousand


def test_finished_networks_are_frozen() -> None:
    """They need no gradients, and theirs take no memory."""
    strategy = learn(stream(), build(stream(), "independent", **QUICK), tasks=2)
    assert strategy.model.architecture() == {"networks": 2, "frozen": 2}
    assert all(not weight.requires_grad and weight.grad is None for weight in strategy.model.parameters())


def test_refused_in_words() -> None:
    """Tasks that were not learned, tasks out of order, architectures of other streams."""
    strategy: Any = build(stream(), "independent", **QUICK)
    with pytest.raises(RunError, match="task 0 has no network yet"):
        strategy.model.forward_single_task(torch.zeros(1, 1, 8, 8), 0)
    with pytest.raises(RunError, match="each task is learned once, in the stream's order"):
        strategy.model.expand(1)
    for wrong in ({"networks": 4, "frozen": 0}, {"networks": 1, "frozen": 2}):
        with pytest.raises(ValueError, match="do not fit 3 tasks"):
            strategy.model.load_architecture(wrong)
