"""A head per task: which head answers, and how narrower ones are padded."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seu_bench.models.backbone import BackboneModel
from seu_bench.models.multihead import MultiHeadModel

CLASSES = (2, 4, 3)
TASKS = torch.tensor([0, 1, 2, 0, 1, 1, 2, 0])


@pytest.fixture
def model() -> BackboneModel:
    torch.manual_seed(0)
    return BackboneModel(nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.ReLU()), 5, CLASSES)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(len(TASKS), 1, 3, 3, generator=torch.Generator().manual_seed(1))


def test_each_image_is_answered_by_its_tasks_head(model: BackboneModel, images: Tensor) -> None:
    """In a batch of several tasks as in batches of one, whether the backbone is computed once or by task."""
    together = model(images, TASKS)
    assert together.shape == (len(TASKS), 4)
    for position, task in enumerate(TASKS.tolist()):
        alone = model(images[position : position + 1], task)
        assert alone.shape == (1, CLASSES[task])
        torch.testing.assert_close(together[position, : CLASSES[task]], alone[0])
        assert bool((together[position, CLASSES[task] :] == torch.finfo(together.dtype).min).all())
    torch.testing.assert_close(together, MultiHeadModel.forward_mixed(model, images, TASKS))


def test_padding_is_only_as_wide_as_the_batch_needs(model: BackboneModel, images: Tensor) -> None:
    """The widest head present decides; a batch of one task is not padded."""
    assert model(images[:2], torch.tensor([0, 2])).shape == (2, 3)
    assert model(images[:2], torch.tensor([0, 0])).shape == (2, 2)


def test_padding_does_not_reach_the_loss(model: BackboneModel, images: Tensor) -> None:
    """The loss of a mixed batch is the mean of the single images' losses, and its gradient that of their mean."""
    labels = torch.tensor([1, 3, 2, 0, 0, 2, 1, 1])
    loss = nn.functional.cross_entropy(model(images, TASKS), labels)
    found = torch.autograd.grad(loss, list(model.parameters()))
    single = [
        nn.functional.cross_entropy(model(images[at : at + 1], int(TASKS[at])), labels[at : at + 1])
        for at in range(len(TASKS))
    ]
    mean = torch.stack(single).mean()
    torch.testing.assert_close(loss, mean)
    for one, other in zip(found, torch.autograd.grad(mean, list(model.parameters())), strict=True):
        torch.testing.assert_close(one, other)


def test_the_backbone_is_computed_once(model: BackboneModel, images: Tensor) -> None:
    """Batches of any number of tasks, and answers of all heads."""
    seen: list[int] = []
    model.backbone.register_forward_hook(lambda module, arguments, output: seen.append(len(arguments[0])))
    model(images, TASKS)
    model.known_train_tasks_labels.update({0, 2})
    answers = model(images, None)
    assert seen == [len(images)] * 2
    assert {task: tuple(logits.shape) for task, logits in answers.items()} == {0: (8, 2), 2: (8, 3)}
