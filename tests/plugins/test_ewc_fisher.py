"""The Fisher information against squared gradients computed one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.plugins.ewc import CLASSES, ewc, stage
from support.tiny import (
    all_threads,
    one_thread,
)
from torch import Tensor, nn

from seu_bench.data.images import TaskImages
from seu_bench.errors import RunError
from seu_bench_methods import ewc as module

setup_module, teardown_module = one_thread, all_threads


class Gate(nn.Module):
    """A layer that torch.func cannot map over images: what it does depends on the numbers themselves."""

    def forward(self, x: Tensor) -> Tensor:
        return x if bool(x.sum() > 0) else 2 * x


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


def test_layer_that_cannot_be_mapped() -> None:
    """The estimate by image says what to do where a layer does not allow it; the one by batch needs nothing."""
    strategy = ewc(Gate())
    with pytest.raises(RunError, match=r"gradients of single images .*") as error:
        stage(strategy, images(9), "per_sample").run()
    assert "fisher=batch" in str(error.value.remedy)
    assert any(tensor.any() for tensor in stage(strategy, images(9)).run().values())
