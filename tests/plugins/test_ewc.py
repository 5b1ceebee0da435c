"""Elastic weight consolidation: the penalty, tasks in turn, costs, records and options."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from support.tiny import registry
from torch import Tensor, nn

from seu_bench.config.protocol import Schedule
from seu_bench.config.run import Request
from seu_bench.data.images import TaskImages
from seu_bench.engine.resolve import resolve
from seu_bench.models.backbone import BackboneModel
from seu_bench.training.method import Step
from seu_bench.training.stage import TaskData
from seu_bench_methods import ewc as module
from seu_bench_methods.ewc import Ewc

#: Heads of the networks made here.
CLASSES = (3, 2)


def ewc(*layers: nn.Module, batch_size: int = 8, **options: Any) -> Ewc:
    """A method in double precision over a network of 16 pixels, five tanh units and ``layers``."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), *layers)
    model = BackboneModel(backbone, 5, CLASSES).double()
    made = Ewc(model=model, schedule=Schedule(epochs=2, batch_size=batch_size))
    return made.begin(Ewc.Options(**options), None)  # type: ignore[arg-type]


class Estimate(Step):
    """The stage after a task, whose result is the Fisher information of that task alone."""

    def __init__(self, method: Ewc, task: TaskData) -> None:
        super().__init__(method, "fisher", task, method.after_task)
        self.method = method

    def result(self) -> dict[str, Tensor]:  # type: ignore[override]
        super().result()
        return self.method.fisher


def stage(method: Ewc, data: TaskImages, estimator: str = "batch") -> Estimate:
    """The stage of a method, which stays as it is: a copy on the same model holds nothing yet."""
    alone = copy.copy(method)
    alone.fisher, alone.options = {}, method.options.model_copy(update={"fisher": estimator})
    alone._stage = found = Estimate(alone, TaskData(data.task, data, None))
    return found


def move(model: nn.Module) -> None:
    """Move every weight a little."""
    generator = torch.Generator().manual_seed(5)
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn(weight.shape, generator=generator)


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


def test_merging_over_three_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """``F <- (F_new + t F) / (t + 1)`` is the mean of all so far; the anchor is the latest task's weights."""
    strategy = ewc()
    bias = strategy.model.heads[0].bias
    for task, (factor, merged) in enumerate(zip((1, 4, 10), ([1, 3, 6], [2.5, 7.5, 15], [5, 15, 30]), strict=True)):
        nn.init.constant_(bias, task)
        estimate = {"heads.0.bias": torch.tensor([1.0, 3.0, 6.0]) * factor}
        monkeypatch.setattr(strategy, "by_batch", lambda *_, found=estimate: found)
        strategy.after_task(TaskData(task, None, None))  # type: ignore[arg-type]
        assert strategy.fisher["heads.0.bias"].tolist() == merged
        assert strategy.anchor["heads.0.bias"].tolist() == [task] * 3
    nn.init.constant_(bias, 9)
    assert strategy.anchor["heads.0.bias"].tolist() == [2] * 3


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
def test_fisher_by_batch(number: int, sizes: list[int]) -> None:
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


@pytest.mark.parametrize("numbers", [2**27, 7 * (16 * 5 + 5 + 5 * 5 + 5 + 1), 1], ids=["whole", "parts", "single"])
def test_fisher_by_image(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over images of the squared gradient of each image's loss, in chunks of any size."""
    monkeypatch.setattr(module, "GRADIENT_NUMBERS", numbers)
    strategy, data = ewc(), images(21)
    found = stage(strategy, data, "per_sample").run()
    squares = [squared_gradients(strategy.model, data, [position]) for position in range(21)]
    close(found, {name: sum(square[name] for square in squares) / 21 for name in squares[0]})


@pytest.mark.parametrize(("estimator", "active"), [("batch", True), ("per_sample", False)])
def test_dropout(estimator: str, active: bool) -> None:
    """Dropout is on in the published code's estimate and off in the textbook's; modes are as before afterwards."""
    strategy = ewc(nn.Dropout(0.5), nn.BatchNorm1d(5))
    dropout, norm = strategy.model.backbone[3:]
    modes: list[tuple[bool, bool]] = []
    norm.register_forward_pre_hook(lambda *_: modes.append((dropout.training, norm.training)))
    for training in (False, True):
        strategy.model.train(training)
        norm.train(not training)
        stage(strategy, images(9), estimator).run()
        assert (strategy.model.training, dropout.training, norm.training) == (training, training, not training)
    assert set(modes) == {(active, False)}


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
    """The paper's strength of each benchmark, unless the user gives another."""
    for given in ({}, {"ewc_lambda": 7}):
        run = resolve(registry(), Request(strategy="ewc", benchmark=name, protocol="paper", options=given))
        chosen: Any = run.options
        assert (chosen.ewc_lambda, chosen.fisher) == (given.get("ewc_lambda", value), "batch")
