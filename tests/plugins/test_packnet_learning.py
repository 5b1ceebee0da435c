"""PackNet as a strategy: stages, weights that keep their bits, resuming, costs, options."""

from __future__ import annotations

import json
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
from torch import Tensor

from seu_bench.data.streams import TaskStream
from seu_bench.training.stage import StageProgress

setup_module, teardown_module = one_thread, all_threads

#: Small networks; momentum and weight decay are on, and strong.
MLP: dict[str, Any] = {"backbone": "mlp", "width": 0.04, "epochs": 4, "batch_size": 8, "learning_rate": 0.1}
RESNET: dict[str, Any] = {"backbone": "resnet18", "width": 0.1, "epochs": 2, "batch_size": 8, "learning_rate": 0.05}
DECAY: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.05}
each = pytest.mark.parametrize("options", [MLP, RESNET], ids=["mlp", "resnet18"])


def stream() -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], images=16)


def packnet(source: TaskStream, **options: Any) -> Any:
    return build(source, "packnet", **options)


def of_masks(strategy: Any, last: int) -> list[Tensor]:
    """The values of the weights that tasks up to ``last`` keep."""
    model = strategy.model
    return [weight.detach()[kept].clone() for weight, kept in zip(model.weights(), model.kept(0, last), strict=True)]


@each
def test_kept_weights_keep_their_bits(options: dict[str, Any]) -> None:
    """Through training and retraining of later tasks, with momentum and weight decay; so do logits of every task."""
    source = stream()
    strategy, scenario = packnet(source, **options, **DECAY), source.avalanche()
    kept: list[list[Tensor]] = []
    logits: list[Tensor] = []
    shared: dict[str, Tensor] = {}
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        for earlier, values in enumerate(kept):
            assert all(torch.equal(a, b) for a, b in zip(of_masks(strategy, earlier), values, strict=True))
            assert torch.equal(logits_of(strategy.model, source, earlier), logits[earlier])
        kept.append(of_masks(strategy, task))
        logits.append(logits_of(strategy.model, source, task))
        for weight, free in zip(strategy.model.weights(), strategy.model.free(), strict=True):
            assert not weight[free].any()
            assert bool(weight[~free].any())
        others = {
            name: tensor
            for name, tensor in weights(strategy.model.backbone).items()
            if name not in strategy.model.names
        }
        assert not shared or same(others, shared)
        shared = others
    assert strategy.optimizer.defaults["momentum"] == 0.9 and strategy.optimizer.defaults["weight_decay"] == 0.05
    for task in (1, 2):  # later tasks have trained weights of their own
        assert any(bool(weight[mask].any()) for weight, mask in zip(*own(strategy, task), strict=True))


def own(strategy: Any, task: int) -> tuple[Any, Any]:
    return strategy.model.weights(), strategy.model.kept(task, task)


@pytest.mark.parametrize("backbone", ["mlp", "resnet18"])
def test_free_weights_begin_at_zero(backbone: str) -> None:
    """Those of the second task, as published code has it; the first task's are those of ``naive``."""
    source = stream()
    options = RESNET if backbone == "resnet18" else MLP
    strategy = packnet(source, **options)
    naive = build(source, "naive", **options)
    assert same(weights(strategy.model.backbone), weights(naive.model.backbone))
    begun: list[list[Tensor]] = []
    phases = strategy.phases
    strategy.phases = lambda task: phases(task)[:1]
    learn(source, strategy, tasks=1)
    learn(source, naive, tasks=1)
    assert same(weights(strategy.model.backbone), weights(naive.model.backbone))
    strategy = packnet(source, **options)
    begin = strategy.begin_training

    def watched(*given: Any) -> None:
        begun.append(
            [weight[free] for weight, free in zip(strategy.model.weights(), strategy.model.free(), strict=True)]
        )
        begin(*given)

    strategy.begin_training = watched
    learn(source, strategy, tasks=2)
    assert bool(begun[0][0].any()) and not any(bool(values.any()) for values in begun[2])


def test_stages_and_schedules() -> None:
    """Half of the epochs, at a tenth of the rate, again by a cosine; pruning passes no image."""
    source = stream()
    ended: list[StageProgress] = []
    strategy = packnet(source, **MLP, on_progress=lambda it: ended.append(it) if it.done else None)
    rates: list[tuple[str, float]] = []
    step = strategy.optimizer_step
    strategy.optimizer_step = lambda: (
        rates.append((strategy._stage.name, strategy.optimizer.param_groups[0]["lr"])),
        step(),
    )[1]
    learn(source, strategy, tasks=2)
    passes = [(it.stage, it.task, it.epochs, it.image_passes) for it in ended]
    assert passes == [
        ("training", 0, 4, 4 * 32),
        ("pruning", 0, 0, 0),
        ("retraining", 0, 2, 2 * 32),
        ("training", 1, 4, 4 * 48),
        ("pruning", 1, 0, 0),
        ("retraining", 1, 2, 2 * 48),
    ]
    assert list(dict.fromkeys(rates))[4:] == [("retraining", 0.1 * 0.1), ("retraining", pytest.approx(0.005))]
    cost = registry().strategies.find("packnet").factory.cost(context(source.plan, "packnet", MLP))
    told = [it for it in cost.stages if it.task < 2 and it.name != "evaluation"]
    assert {(it.name, it.task): it.image_passes for it in told} == {(*of, task): n for *of, task, _, n in passes if n}
    assert sum(it.flops or 0 for it in ended) == sum(it.flops or 0 for it in told) > 0


def test_validation_selects_in_both_trainings() -> None:
    """With labels of validation turned round the first epochs are the best ones; pruned and kept are their weights."""
    source = class_stream([[0, 1]], images=24)
    labels = source.tasks[0].valid.labels
    labels.copy_(1 - labels)
    strategy = packnet(source, **MLP | {"epochs": 6, "retrain_rate": 1.0})
    validate, pack = strategy.validation_loss, strategy.model.pack
    seen: dict[str, list[tuple[float, dict[str, Tensor]]]] = {"training": [], "retraining": []}
    pruned: list[dict[str, Tensor]] = []

    def watched(*given: Any) -> float:
        loss: float = validate(*given)
        seen[strategy._stage.name].append((loss, weights(strategy.model.backbone)))
        return loss

    strategy.validation_loss = watched
    strategy.model.pack = lambda kept: (pruned.append(weights(strategy.model.backbone)), pack(kept))
    learn(source, strategy)
    for stage, found in (("training", pruned[0]), ("retraining", weights(strategy.model.backbone))):
        losses = [loss for loss, _ in seen[stage]]
        best = losses.index(min(losses))
        assert len(losses) > 1 and best < len(losses) - 1
        assert same(found, seen[stage][best][1])


def test_cost(command: Command) -> None:
    """Parameters are those of ``naive``; masks are one bit for each weight and task, and an eighth of a byte."""
    asked = ("--benchmark", "split_cifar10", "--protocol", "paper", "--format", "json")
    document = json.loads(command("cost", "--strategy", "packnet", *asked).out)
    naive = json.loads(command("cost", "--strategy", "naive", *asked).out)
    convolutions = 27 * 64 + 9 * 64 * 128 + 9 * 128 * 256
    count = convolutions + 4096 * 2048 + 2048 * 2048
    assert document["mask_bits"] == [count * task for task in range(1, 6)]
    for name in ("params_total", "macs"):
        assert document[name] == naive[name]
    kept = [kept + task * -(-count // 8) for task, kept in enumerate(naive["memory_bytes"], start=1)]
    assert document["memory_bytes"] == document["memory_bytes_min"] == kept
    assert document["stages"]["training"] == naive["stages"]["training"]
    assert 2 * document["stages"]["retraining"]["train"] == document["stages"]["training"]["train"]
    assert 2 * document["train_flops"] == 3 * naive["train_flops"]
