"""A head per task: which head answers, and how narrower ones are padded."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from seu_bench.config.streams import Scenario
from seu_bench.models import count_bytes, state_bytes
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


def model_backbone(scenario: Scenario, classes: tuple[int, ...] = CLASSES) -> BackboneModel:
    """A small network of seed 0."""
    torch.manual_seed(0)
    return BackboneModel(nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.ReLU()), 5, classes, scenario)


@pytest.fixture
def images_backbone() -> Tensor:
    return torch.randn(6, 1, 3, 3, generator=torch.Generator().manual_seed(1))


def test_head_grows_with_the_classes_seen(images_backbone: Tensor) -> None:
    """Logits of all classes seen, by the first rows of one linear layer; earlier ones stay where they are."""
    network = model_backbone("class")
    assert network(images_backbone, 0).shape == (6, 0)
    before = torch.empty(6, 0)
    for task, seen in enumerate((2, 6, 9)):
        network.begin_task(task)
        logits = network(images_backbone, torch.zeros(6, dtype=torch.int64))
        head = network.heads[0]
        features = network.backbone(images_backbone)
        torch.testing.assert_close(logits, features @ head.weight[:seen].T + head.bias[:seen])
        # Not bit by bit: for other numbers of rows a processor may take other kernels.
        torch.testing.assert_close(logits[:, : before.shape[1]], before, rtol=1e-6, atol=1e-7)
        before = logits


@pytest.mark.parametrize("scenario", ["class", "domain"])
def test_a_task_label_makes_no_difference(scenario: Scenario, images_backbone: Tensor) -> None:
    """One head answers, whatever task an image is said to be of; also in a batch that mixes tasks."""
    network = model_backbone(scenario, (3, 3, 3))
    network.begin_task(2)
    known = network.forward_single_task(images_backbone, 0)
    assert known.shape == (6, 9 if scenario == "class" else 3)
    for labels in (0, 2, torch.tensor([0, 1, 2, 2, 1, 0])):
        assert torch.equal(network(images_backbone, labels), known)
    assert list(network(images_backbone, None)) == [0]
    assert torch.equal(network(images_backbone, None)[0], known)
    assert len(network.heads) == 1


def test_architecture_has_the_number_of_tasks_seen(images_backbone: Tensor) -> None:
    """A model made again from it answers with as many classes."""
    network, again = model_backbone("class"), model_backbone("class")
    assert network.architecture() == {"tasks_seen": 0}
    network.begin_task(1)
    again.load_architecture(json.loads(json.dumps(network.architecture())))
    assert torch.equal(again(images_backbone, 0), network(images_backbone, 0))
    assert model_backbone("domain").architecture() == model_backbone("task").architecture() == {}
    for wrong in ({}, {"tasks_seen": 4}, {"tasks_seen": -1}, {"columns": 1}):
        with pytest.raises(ValueError, match=r"task|head"):
            model_backbone("class").load_architecture(wrong)
    with pytest.raises(ValueError, match="does not grow"):
        model_backbone("task").load_architecture({"tasks_seen": 1})


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_shared_memory_counts_once(device: str) -> None:
    """Views of one storage count the bytes that any of them reaches; copies count by themselves."""
    whole = torch.zeros(10, 4, device=device)
    assert count_bytes([whole, whole, whole.view(40), whole[2:5]]) == 160
    assert count_bytes([whole[:3], whole[2:5]]) == 5 * 16
    assert count_bytes([whole[:3], whole[8:]]) == 5 * 16
    assert count_bytes([whole[0].expand(100, 4)]) == 16
    assert count_bytes([whole, whole.clone()]) == 320
    assert count_bytes([whole.t()]) == 160


def test_element_size_times_number() -> None:
    """By the type of the elements, whatever the shape; nothing is nothing."""
    assert count_bytes([torch.zeros(3, 5)]) == 60
    assert count_bytes([torch.zeros(7, dtype=torch.uint8), torch.zeros((), dtype=torch.int64)]) == 7 + 8
    assert count_bytes([]) == count_bytes([torch.zeros(0, 4)]) == 0


def test_state_of_modules() -> None:
    """Parameters and buffers, tied ones once; what a state leaves out is no state."""
    layer = nn.Linear(3, 2)
    tied = nn.Linear(3, 2)
    tied.weight = layer.weight
    assert state_bytes(layer, tied) == 4 * (6 + 2 + 2)
    assert state_bytes(nn.BatchNorm2d(5)) == 4 * 4 * 5 + 8
    layer.register_buffer("derived", torch.zeros(100), persistent=False)
    assert state_bytes(layer) == 4 * 8
