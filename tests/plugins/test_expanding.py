"""DER and its model against direct computations: joined features, both losses, what trains, and sizes by a formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import weights
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seu_bench.testing import Learner, Trial
from seu_bench.testing.trial import same
from seu_bench.training import TaskData
from seu_bench_methods.der import balanced

#: Numbers of an image; units of both hidden layers, the last of which are the features.
PIXELS, UNITS = 64, 50


def learner(strategy: str = "der", *, backbone: str = "mlp", **options: Any) -> Learner:
    """Three tiny tasks of two classes."""
    given = {"memory": 18, "balanced_epochs": 1, "backbone": backbone, **options}
    return Trial(strategy, {"width": UNITS / 400, **given}, scenario="class").learner("tiny_three")


def perceptron(network: Any, images: Tensor) -> Any:
    """Features of a perceptron with two hidden layers, in NumPy."""
    x = images.flatten(1).numpy()
    for layer in (network[1], network[3]):
        x = np.maximum(x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 0)
    return x


def joined(model: Any, images: Tensor) -> Tensor:
    """Features of all networks, one behind another."""
    return torch.from_numpy(np.concatenate([perceptron(network, images) for network in model.backbone], axis=1))


def test_joined_features_and_logits() -> None:
    """Of three tasks; each network is another one."""
    known = learner().learn_all()
    features, head = joined(known.model, known.test_images(1)), known.model.heads[0]
    assert features.shape[1] == 3 * UNITS
    torch.testing.assert_close(known.logits(1), features @ head.weight.detach().T + head.bias.detach())
    assert not torch.allclose(features[:, :UNITS], features[:, UNITS : 2 * UNITS], atol=1e-2)


def test_expansion_keeps_what_the_classifier_knows() -> None:
    """Old weights stay with their outputs and features; old logits change by those of new features, which are drawn."""
    known = learner()
    known.learn(0)
    model, images, before = known.model, known.test_images(0), known.logits(0)
    old = weights(model)
    model.expand()
    head = model.heads[0]
    assert torch.equal(head.weight[:2, :UNITS], old["heads.0.weight"])
    assert torch.equal(head.bias[:2], old["heads.0.bias"])
    assert same(weights(model.backbone[1]), weights(model.backbone[0]))  # it begins as a copy
    new = joined(model, images)[:, UNITS:] @ head.weight[:2, UNITS:].detach().T
    assert new.abs().min() > 0
    torch.testing.assert_close(known.logits(0)[:, :2], before + new)
    with torch.no_grad():
        head.weight[:2, UNITS:] = 0
    torch.testing.assert_close(known.logits(0)[:, :2], before)


def test_losses_and_what_they_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both cross-entropies in training, in balancing that of the classifier alone, its logits divided."""
    known = learner(temperature=2.5)
    known.learn(0)
    strategy, model, stages = known.strategy, known.model, set[str]()
    first, computed = weights(model.backbone[0]), strategy.batch_loss

    def watched(x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        loss: Tensor = computed(x, y, task, logits)
        features, head, trains = joined(model, x), model.heads[0], strategy._stage.name == "training"
        expected = cross_entropy((features @ head.weight.T + head.bias) / (1.0 if trains else 2.5), y)
        if trains:
            own = torch.tensor([{0: 0, 1: 0, 2: 1, 3: 2}[label] for label in y.tolist()])
            answers = features[:, UNITS:] @ model.auxiliary.weight.T + model.auxiliary.bias
            expected = expected + cross_entropy(answers, own)
        torch.testing.assert_close(loss, expected)
        reached = [it for it in model.parameters() if it.requires_grad]
        newest = [*model.backbone[1].parameters(), *head.parameters(), *model.auxiliary.parameters()] if trains else []
        assert {*reached} == {*newest, *head.parameters()}
        assert all(it.any() for it in torch.autograd.grad(loss, reached, retain_graph=True))
        assert [network.training for network in model.backbone] == [False, trains]
        stages.add(strategy._stage.name)
        return loss

    monkeypatch.setattr(strategy, "batch_loss", watched)
    known.learn(1)
    assert stages == {"training", "balancing"}
    assert same(weights(model.backbone[0]), first)
    assert not same(weights(model.backbone[1]), first)
    assert model.auxiliary is None


def test_balancing_begins_with_a_classifier_drawn_anew() -> None:
    """One that learns nearly nothing ends as it was drawn for the task."""
    known = learner(learning_rate=1e-9)
    known.learn(0)
    known.learn(1)
    with known.strategy.drawing("classifier", TaskData(1, known.stream.tasks[1].train, None)):
        drawn = nn.Linear(2 * UNITS, 4)
    torch.testing.assert_close(weights(known.model.heads[0]), weights(drawn), atol=1e-6, rtol=0)


def test_balanced_images() -> None:
    """The first images of each class, over all tables, as many as there are of the rarest."""
    known = learner(memory=8)
    known.learn(0)
    tables = [known.stream.tasks[1].train, *known.strategy.memory.tables()]
    assert [len(table) for table in balanced(tables)] == [8, 8]  # four of each class remembered
    labels = tables[0].labels
    expected = sorted(row for label in (2, 3) for row in (labels == label).nonzero().flatten()[:4].tolist())
    found = balanced(tables)[0]
    assert torch.equal(found.rows, tables[0].rows[expected])
    assert torch.equal(found.labels, labels[expected])


@pytest.mark.parametrize("backbone", ["mlp", "resnet18"])
def test_sizes_by_a_formula(backbone: str) -> None:
    """Parameters and bytes after every task, exemplars of 64 pixels and a label included; so the forecast has them."""
    known = learner(backbone=backbone)
    first, features = known.model.backbone[0], known.model.features
    network = sum(it.numel() for it in first.parameters())
    if backbone == "mlp":
        assert network == PIXELS * UNITS + UNITS + UNITS * UNITS + UNITS
    state = sum(it.numel() * it.element_size() for it in first.state_dict().values())
    known.learn_all()
    heads = [2 * task * (task * features + 1) for task in (1, 2, 3)]
    assert known.sizes.params_total == [task * network + heads[task - 1] for task in (1, 2, 3)]
    exemplars = [len(labels) for labels in known.strategy.memory.by_task()]
    kept = 3 * state + 4 * heads[2] + sum(exemplars) * (PIXELS + 2)
    assert known.sizes.memory_bytes[2] == kept
    assert [*known.cost.params_total] == known.sizes.params_total
    assert [*known.cost.memory_bytes] == known.sizes.memory_bytes
