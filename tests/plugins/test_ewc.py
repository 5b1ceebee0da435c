"""Elastic weight consolidation: the penalty, tasks in turn, costs, records and options."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from support.plugins.ewc import CLASSES, ewc, stage
from support.tiny import (
    all_threads,
    benchmark,
    build,
    class_stream,
    learn,
    one_thread,
    registry,
    same,
    weights,
)
from torch import Tensor, nn

from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Request
from seu_bench.data.dataset import DatasetInfo, RawDataset, RawSplit
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.training.stage import TaskData
from seu_bench.training.strategy import TrainingStage

setup_module, teardown_module = one_thread, all_threads


#: A network that forgets :func:`permuted` tasks, learned in no time.
NARROW: dict[str, Any] = {"backbone": "mlp", "width": 0.04, "epochs": 6, "batch_size": 24, "learning_rate": 0.2}


def move(model: nn.Module) -> None:
    """Move every weight a little."""
    generator = torch.Generator().manual_seed(5)
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn(weight.shape, generator=generator)


# --- the penalty ------------------------------------------------------------------------------------------------------


def test_penalty_and_gradient() -> None:
    """``lambda/2 * sum_i F_i (theta_i - theta*_i)^2`` and ``lambda F_i (theta_i - theta*_i)``, number by number."""
    strategy = ewc(ewc_lambda=300.0)
    assert strategy.penalty() is None
    importance = {name: torch.rand_like(weight) for name, weight in strategy.model.named_parameters()}
    anchor = {name: weight.detach().clone() for name, weight in strategy.model.named_parameters()}
    strategy.fisher, strategy.anchor = importance, anchor
    unmoved = strategy.penalty()
    assert unmoved is not None and unmoved.item() == 0
    move(strategy.model)
    penalty = strategy.penalty()
    assert penalty is not None
    penalty.backward()
    expected = 0.0
    for name, weight in strategy.model.named_parameters():
        for f, now, before, slope in zip(
            *(tensor.flatten().tolist() for tensor in (importance[name], weight, anchor[name])),
            [0.0] * weight.numel() if weight.grad is None else weight.grad.flatten().tolist(),
            strict=True,
        ):
            expected += 150 * f * (now - before) ** 2
            assert slope == pytest.approx(300 * f * (now - before), rel=1e-9)
    assert expected > 1
    assert penalty.item() == pytest.approx(expected, rel=1e-9)


def test_penalty_is_part_of_the_training_loss() -> None:
    """An epoch trains on cross-entropy and penalty: its first step is SGD's on the sum of both."""
    source = class_stream([[0, 1], [2, 3]], images=16)
    strategy = build(source, "ewc", backbone="mlp", ewc_lambda=500, epochs=1, batch_size=100, clip_norm=1e9)
    learn(source, strategy, tasks=1)
    move(strategy.model)  # away from the anchor, where the penalty has a slope
    x, y = source.tasks[1].train.gather(torch.arange(len(source.tasks[1].train)))
    before = weights(strategy.model)
    module = strategy.model.task_module(1)
    loss = nn.functional.cross_entropy(strategy.model(x, 1), y) + strategy.penalty()
    slopes = torch.autograd.grad(loss, list(module.parameters()))
    assert strategy.penalty() > 0.01
    scenario = source.avalanche()
    strategy.train(scenario.train_stream[1])
    decay, rate = strategy.schedule.weight_decay, strategy.schedule.learning_rate
    names = {id(weight): name for name, weight in strategy.model.named_parameters()}
    for weight, slope in zip(module.parameters(), slopes, strict=True):
        start = before[names[id(weight)]]
        torch.testing.assert_close(weight.detach(), start - rate * (slope + decay * start), rtol=1e-5, atol=1e-6)


def test_penalised_validation_loss_selects() -> None:
    """The weights kept are those of the epoch whose validation loss with penalty is lowest, not the plain one."""
    source = permuted()
    strategy = build(source, "ewc", ewc_lambda=3000, lr_schedule="constant", **{**NARROW, "learning_rate": 0.4})
    scenario = source.avalanche()
    learn(source, strategy, tasks=1)
    strategy.experience = scenario.train_stream[1]
    strategy.adapted_dataset = strategy.experience.dataset
    strategy.make_train_dataloader()
    task = TaskData(1, source.tasks[1].train, source.tasks[1].valid)
    training = TrainingStage(strategy, task)
    x, y = task.valid.gather(torch.arange(len(task.valid)))
    plain, penalised, kept = [], [], []
    while training.epoch < training.epochs:
        training.advance()
        strategy.model.eval()
        with torch.no_grad():
            loss = float(nn.functional.cross_entropy(strategy.model(x, 1), y))
        now, held, anchor = weights(strategy.model), strategy.fisher, strategy.anchor
        moved = sum(float((held[name] * (now[name] - anchor[name]) ** 2).sum()) for name in now)
        plain.append(loss)
        penalised.append(loss + 1500 * moved)
        kept.append(now)
    training.result()
    chosen = int(np.argmin(penalised))
    assert chosen != int(np.argmin(plain))
    assert training.best.loss == pytest.approx(penalised[chosen], rel=1e-5)
    assert same(weights(strategy.model), kept[chosen])


# --- over the tasks ---------------------------------------------------------------------------------------------------


def test_merging_over_three_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """``F <- (F_new + t F) / (t + 1)`` is the mean of all so far; the anchor is the latest task's weights."""
    strategy = ewc()
    bias = strategy.model.heads[0].bias
    for task, (factor, merged) in enumerate(zip((1, 4, 10), ([1, 3, 6], [2.5, 7.5, 15], [5, 15, 30]), strict=True)):
        nn.init.constant_(bias, task)
        estimate = {"heads.0.bias": torch.tensor([1.0, 3.0, 6.0]) * factor}
        monkeypatch.setattr(strategy, "measure_fisher", lambda *_, found=estimate: found)
        strategy.after_task(TaskData(task, None, None))  # type: ignore[arg-type]
        assert strategy.fisher["heads.0.bias"].tolist() == merged
        assert strategy.anchor["heads.0.bias"].tolist() == [task] * 3
    nn.init.constant_(bias, 9)
    assert strategy.anchor["heads.0.bias"].tolist() == [2] * 3


@cache
def permuted() -> TaskStream:
    """Three tasks of five noisy prototypes of 6x6 pixels, the pixels in another order each time."""
    generator = np.random.default_rng(0)
    prototypes = generator.integers(0, 256, (5, 1, 6, 6))

    def split(number: int) -> RawSplit:
        labels = np.arange(number) % 5
        pixels = prototypes[labels] + generator.normal(0, 90, (number, 1, 6, 6))
        return RawSplit(np.clip(pixels, 0, 255).astype(np.uint8), labels.astype(np.int64))

    info = DatasetInfo("tiny", 1, 6, 6, 5, 150, 100, (30,) * 5, (20,) * 5)
    data = RawDataset(info, split(150), split(100))
    stream = {"kind": "permutation", "dataset": "tiny", "tasks": 3, "validation": 0.2}
    spec = benchmark({**stream, "input": {"mean": [0.5], "std": [0.25]}})
    return build_stream(spec, lambda _: data, ImageLimits(), 0)


# --- costs, records and benchmarks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("split_cifar10", 50_000),
        ("split_cifar100", 20_000),
        ("pmnist", 20_000),
        ("mixture", 20_000),
        ("split_digits", 20_000),
    ],
)
def test_lambda_of_the_benchmarks(name: str, value: float) -> None:
    """The paper's strength of each benchmark where nothing was tuned for a protocol, which for `half_day` is that of
    `quick` where there is one; the user's wins."""
    quick = resolve(registry(), Request(strategy="ewc", benchmark=name, protocol="quick")).tuned
    for protocol in ("paper", "half_day", "quick", "smoke"):
        for options in ({}, {"ewc_lambda": 7}):
            run = resolve(registry(), Request(strategy="ewc", benchmark=name, protocol=protocol, options=options))
            chosen: Any = run.options
            source = quick if protocol == "half_day" else run.tuned
            tuned = value if source is None else source.options["ewc_lambda"]
            assert chosen.ewc_lambda == options.get("ewc_lambda", tuned)
            assert run.tuned is None or protocol != "paper"


def images(number: int, task: int = 0) -> TaskImages:
    """Random images of a task, in double precision; no two are alike."""
    generator = torch.Generator().manual_seed(number)
    store = torch.randn(number, 1, 4, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES[task], (number,), generator=generator)
    return TaskImages(store, torch.arange(number), labels, task, 1)


def seen_by(model: Any) -> list[Tensor]:
    """Every batch that goes through the model's backbone from now on."""
    batches: list[Tensor] = []
    model.backbone.register_forward_pre_hook(lambda _, inputs: batches.append(inputs[0].detach().clone()))
    return batches


def positions_of(batch: Tensor, data: TaskImages) -> list[int]:
    return [int((data.store == image).flatten(1).all(dim=1).nonzero()) for image in batch]


def squared_gradients(model: Any, data: TaskImages, positions: list[int]) -> dict[str, Tensor]:
    """The oracle: the squared gradient of the mean cross-entropy of these images, by hand and by ``backward``."""
    model.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for position in positions:
        logits = model.heads[data.task](model.backbone(data.store[position : position + 1]))[0]
        total = total - torch.log_softmax(logits, dim=0)[data.labels[position]]
    (total / len(positions)).backward()
    found = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone() ** 2
        for name, weight in model.named_parameters()
    }
    model.zero_grad()
    return found


def close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("number", "sizes"), [(21, [8, 8, 5]), (17, [8, 8, 1]), (16, [8, 8]), (5, [5])])
def test_fisher(number: int, sizes: list[int]) -> None:
    """Eight times the mean over batches of the squared gradient of the batch's mean loss, whatever the last's size."""
    strategy, data = ewc(), images(number, task=1)
    batches = seen_by(strategy.model)
    found = stage(strategy, data).run()
    chosen = [positions_of(batch, data) for batch in batches]
    assert [len(batch) for batch in chosen] == sizes
    order = [position for batch in chosen for position in batch]
    assert sorted(order) == list(range(number)) != order
    squares = [squared_gradients(strategy.model, data, batch) for batch in chosen]
    close(found, {name: 8 * sum(square[name] for square in squares) / len(sizes) for name in squares[0]})
    assert not found["heads.0.weight"].any() and bool((found["heads.1.weight"] > 0).any())


def test_dropout() -> None:
    """Dropout is on, as in the published code; modes are as before afterwards."""
    strategy = ewc(nn.Dropout(0.5), nn.BatchNorm1d(5))
    dropout, norm = strategy.model.backbone[3:]
    modes: list[tuple[bool, bool]] = []
    norm.register_forward_pre_hook(lambda *_: modes.append((dropout.training, norm.training)))
    for training in (False, True):
        strategy.model.train(training)
        norm.train(not training)
        stage(strategy, images(9)).run()
        assert (strategy.model.training, dropout.training, norm.training) == (training, training, not training)
    assert set(modes) == {(True, False)}
