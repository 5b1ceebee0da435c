"""Avalanche's strategies train in training mode and measure in evaluation mode, whatever the backbone is made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import all_threads, class_stream, context, learn, logits_of, one_thread, registry, same, weights

from seu_bench.data.streams import TaskStream
from seu_bench.testing.modes import steps_watched
from seu_bench_avalanche.catalogue import METHODS

setup_module, teardown_module = one_thread, all_threads

SMALL: dict[str, Any] = {"width": 0.02, "epochs": 1, "batch_size": 8}
#: Scores that are updated within a task.
FEW: dict[str, dict[str, Any]] = {"rwalk": {"delta_t": 2}}


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


@pytest.mark.parametrize("backbone", ["alexnet", "resnet18"])
def test_teacher_answers_as_it_was_evaluated(backbone: str) -> None:
    """LwF distils the answers that the network had after the task before, also where a run was resumed."""
    source = stream()
    strategy = build("lwf", source, backbone)
    strategy.train(source.avalanche().train_stream[0], eval_streams=[])
    expected = logits_of(strategy.model, source, 0)
    images, _ = source.tasks[0].test.gather(torch.arange(len(expected)))
    strategy.model.train()
    resumed = build("lwf", source, backbone)
    resumed.load_state_dict(strategy.state_dict())
    resumed.experience = source.avalanche().train_stream[1]
    resumed._put_back()
    for each in (strategy, resumed):
        with torch.no_grad():
            assert torch.equal(each.methods[0].lwf.prev_model(images, 0), expected)


def test_teacher_does_not_change_while_it_teaches() -> None:
    """Its batch normalisation keeps the statistics of its own task."""
    source = stream()
    strategy, scenario = build("lwf", source, "resnet18"), source.avalanche()
    strategy.train(scenario.train_stream[0], eval_streams=[])
    teacher = strategy.methods[0].lwf.prev_model
    before = weights(teacher)
    assert same(before, weights(strategy.model))
    strategy.train(scenario.train_stream[1], eval_streams=[])
    assert same(weights(teacher), before)


@pytest.mark.parametrize("backbone", ["alexnet", "resnet18"])
def test_mas_measures_what_was_learned(backbone: str) -> None:
    """Importances are gradients in evaluation mode, by hand; measuring them moves no statistics."""
    source = stream()
    strategy = build("mas", source, backbone, batch_size=100)
    end = strategy._after_training_exp
    seen: list[dict[str, torch.Tensor]] = []
    strategy._after_training_exp = lambda **kwargs: (seen.append(weights(strategy.model)), end(**kwargs))
    strategy.train(source.avalanche().train_stream[0], eval_streams=[])
    model = strategy.model
    assert same(seen[0], weights(model))
    model.eval()
    images, _ = source.tasks[0].train.gather(torch.arange(len(source.tasks[0].train)))
    model.zero_grad()
    model(images, 0).square().sum(dim=1).mean().backward()
    found = strategy.methods[0].importance
    for name, parameter in model.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.abs()
        torch.testing.assert_close(found[name].data, expected)


def test_mas_learns_from_a_loss_of_zero() -> None:
    """A batch that is told apart without any loss is a batch like others: its penalty is the whole loss."""
    source = stream()
    strategy, scenario = build("mas", source, "alexnet", lambda_reg=2.0), source.avalanche()
    strategy.train(scenario.train_stream[0], eval_streams=[])
    (mas,) = strategy.methods
    with torch.no_grad():
        for weight in strategy.model.parameters():
            weight.add_(0.5)
    strategy.loss = torch.zeros((), requires_grad=True) * 1.0
    mas.before_backward(strategy)
    expected = sum(float(mas.importance[name].data.sum()) * 0.25 for name, _ in strategy.model.named_parameters())
    assert expected > 0
    assert strategy.loss.item() == pytest.approx(2.0 * expected, rel=1e-4)
    strategy.train(scenario.train_stream[1], eval_streams=[])


def test_from_scratch_resets_statistics() -> None:
    """Each task begins with the initial statistics of batch normalisation too."""
    source = stream()
    strategy, scenario = build("from_scratch", source, "resnet18"), source.avalanche()
    initial = weights(strategy.model)
    begun: list[dict[str, torch.Tensor]] = []
    begin = strategy.begin_training
    strategy.begin_training = lambda *given: (begun.append(weights(strategy.model)), begin(*given))
    for experience in scenario.train_stream:
        strategy.train(experience, eval_streams=[])
    assert [same(state, initial) for state in begun] == [True, True]
