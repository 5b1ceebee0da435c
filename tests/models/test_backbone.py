"""Heads of the scenarios: one that grows, and one for all tasks."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from seu_bench.config.streams import Scenario
from seu_bench.models.backbone import BackboneModel, GrowingHead
from seu_bench.models.sizes import count_parameters

CLASSES = (2, 4, 3)


def model(scenario: Scenario, classes: tuple[int, ...] = CLASSES) -> BackboneModel:
    """A small network of seed 0."""
    torch.manual_seed(0)
    return BackboneModel(nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.ReLU()), 5, classes, scenario)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(6, 1, 3, 3, generator=torch.Generator().manual_seed(1))


def test_head_grows_with_the_classes_seen(images: Tensor) -> None:
    """Logits of all classes seen, by the first rows of one linear layer; earlier ones stay where they are."""
    network = model("class")
    assert network(images, 0).shape == (6, 0)
    before = torch.empty(6, 0)
    for task, seen in enumerate((2, 6, 9)):
        network.begin_task(task)
        logits = network(images, torch.zeros(6, dtype=torch.int64))
        head = network.heads[0]
        features = network.backbone(images)
        torch.testing.assert_close(logits, features @ head.weight[:seen].T + head.bias[:seen])
        # Not bit by bit: for other numbers of rows a processor may take other kernels.
        torch.testing.assert_close(logits[:, : before.shape[1]], before, rtol=1e-6, atol=1e-7)
        before = logits


def test_classes_not_seen_get_no_gradient(images: Tensor) -> None:
    """Their rows have no part in the loss."""
    network = model("class")
    network.begin_task(1)
    nn.functional.cross_entropy(network(images, 0), torch.tensor([0, 1, 2, 3, 4, 5])).backward()
    gradient = network.heads[0].weight.grad
    assert isinstance(gradient, Tensor)
    assert bool((gradient[:6] != 0).any(dim=1).all()) and not bool(gradient[6:].any())


@pytest.mark.parametrize("scenario", ["class", "domain"])
def test_a_task_label_makes_no_difference(scenario: Scenario, images: Tensor) -> None:
    """One head answers, whatever task an image is said to be of; also in a batch that mixes tasks."""
    network = model(scenario, (3, 3, 3))
    network.begin_task(2)
    known = network.forward_single_task(images, 0)
    assert known.shape == (6, 9 if scenario == "class" else 3)
    for labels in (0, 2, torch.tensor([0, 1, 2, 2, 1, 0])):
        assert torch.equal(network(images, labels), known)
    assert list(network(images, None)) == [0]
    assert torch.equal(network(images, None)[0], known)
    assert len(network.heads) == 1


def test_sizes_count_every_row_from_the_start() -> None:
    """As all heads are counted where each task has one."""
    by_task, by_class = model("task"), model("class")
    assert count_parameters(by_task) == count_parameters(by_class) == 9 * 5 + 5 + 9 * 5 + 9
    assert count_parameters(by_class.task_module(0)) == count_parameters(by_class)


def test_architecture_has_the_number_of_tasks_seen(images: Tensor) -> None:
    """A model made again from it answers with as many classes."""
    network, again = model("class"), model("class")
    assert network.architecture() == {"tasks_seen": 0}
    network.begin_task(1)
    again.load_architecture(json.loads(json.dumps(network.architecture())))
    assert torch.equal(again(images, 0), network(images, 0))
    assert model("domain").architecture() == model("task").architecture() == {}
    for wrong in ({}, {"tasks_seen": 4}, {"tasks_seen": -1}, {"columns": 1}):
        with pytest.raises(ValueError, match=r"task|head"):
            model("class").load_architecture(wrong)
    with pytest.raises(ValueError, match="does not grow"):
        model("task").load_architecture({"tasks_seen": 1})


def test_a_head_has_no_more_tasks_than_it_was_made_for() -> None:
    """It would have no rows for their classes."""
    head = GrowingHead(4, (2, 2))
    with pytest.raises(ValueError, match="no task 2 among 2"):
        head.begin(2)
