"""DER, MEMO and their model against direct computations: joined features, losses, what trains, sizes by a formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import weights
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seu_bench.engine.verification import verify
from seu_bench.errors import RequestError
from seu_bench.testing import Learner, Trial
from seu_bench.testing.trial import same
from seu_bench.training import TaskData
from seu_bench_methods.der import balanced

#: Numbers of an image; units of both hidden layers, the last of which are the features.
PIXELS, UNITS = 64, 50


def on_trial(strategy: str = "der", *, backbone: str = "mlp", **options: Any) -> Trial:
    """A strategy that takes little time."""
    given = {"memory": 18, "backbone": backbone, **({"balanced_epochs": 1} if strategy == "der" else {}), **options}
    return Trial(strategy, {"width": UNITS / 400, **given}, scenario="class")


def learner(strategy: str = "der", **options: Any) -> Learner:
    """Three tiny tasks of two classes."""
    return on_trial(strategy, **options).learner("tiny_three")


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


@pytest.mark.parametrize(
    "name, layers, last",
    [("mlp", 5, 3), ("alexnet", 19, 16), ("conv4", 16, 12), ("resnet18", 13, 9), ("resnet32", 20, 13)],
)
def test_where_networks_are_cut(name: str, layers: int, last: int) -> None:
    """Before the last linear layer; of residual networks before the last group, which halves the image once more."""
    model = learner("memo", backbone=name).model
    assert len(model.shared) == last
    assert len(model.backbone[0]) == layers - last
    if name.startswith("resnet"):
        assert model.backbone[0][0].residual[0].stride == (2, 2)
        assert model.backbone[0][0].residual[0].out_channels == model.features


@pytest.mark.parametrize("name", ["vit_tiny", "tanh_mlp", "linear"])
def test_networks_that_cannot_be_cut(name: str) -> None:
    """They are no sequence, or would share nothing."""
    with pytest.raises(RequestError, match="no first layers that tasks could share") as error:
        learner("memo", backbone=name)
    assert error.value.where == f"-o backbone={name}"


def test_shared_layers_train_through_frozen_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features in NumPy; gradients of all reach the shared layers, those of the newest last layers alone move."""
    known = learner("memo")
    known.learn(0)
    model, batches, computed = known.model, 0, known.strategy.batch_loss
    shared, first = weights(model.shared), weights(model.backbone[0])

    def watched(x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        nonlocal batches
        batches += 1
        linear = model.shared[1]
        hidden = (x.flatten(1) @ linear.weight.T + linear.bias).relu()
        features = torch.cat([(hidden @ part[0].weight.T + part[0].bias).relu() for part in model.backbone], dim=1)
        head, auxiliary = model.heads[0], model.auxiliary
        expected = cross_entropy(features @ head.weight.T + head.bias, y)
        own = features[:, UNITS:] @ auxiliary.weight.T + auxiliary.bias
        expected = expected + cross_entropy(own, (y - 1).clamp(min=0))
        loss: Tensor = computed(x, y, task, logits)
        torch.testing.assert_close(loss, expected)
        gradients = [torch.autograd.grad(it, linear.weight, retain_graph=True)[0] for it in (loss, expected)]
        torch.testing.assert_close(*gradients)
        return loss

    monkeypatch.setattr(known.strategy, "batch_loss", watched)
    known.learn(1)
    assert batches
    assert same(weights(model.backbone[0]), first)
    assert not same(weights(model.shared), shared)


def test_alignment_of_new_classes() -> None:
    """Their weights get the mean length of old ones, those of old ones stay, and all biases."""
    known = learner("memo")
    known.learn(0)
    known.learn(1)
    head, task = known.model.heads[0], TaskData(1, known.stream.tasks[1].train, None)
    assert np.isclose(*np.linalg.norm(head.weight.detach().numpy(), axis=1).reshape(2, 2).mean(axis=1))
    with torch.no_grad():
        head.weight[2:] *= 3
    before = weights(head)
    known.strategy.align(task)
    torch.testing.assert_close(head.weight.detach()[2:], before["weight"][2:] / 3)
    assert torch.equal(head.weight[:2], before["weight"][:2])
    assert torch.equal(head.bias, before["bias"])


@pytest.mark.parametrize("backbone", ["mlp", "resnet18"])
def test_only_last_layers_grow(backbone: str, tmp_path: Path) -> None:
    """Parameters, bytes and operations after every task; so the forecast has them, though it computes no layer."""
    trial = on_trial("memo", backbone=backbone)
    known = trial.learner("tiny_three")
    parts = [known.model.shared, known.model.backbone[0]]
    shared, last = (sum(it.numel() for it in part.parameters()) for part in parts)
    below, above = (sum(it.numel() * it.element_size() for it in part.state_dict().values()) for part in parts)
    known.learn_all()
    heads = [2 * task * (task * known.model.features + 1) for task in (1, 2, 3)]
    assert known.sizes.params_total == [shared + task * last + heads[task - 1] for task in (1, 2, 3)]
    exemplars = len(known.strategy.memory)
    assert known.sizes.memory_bytes[2] == below + 3 * above + 4 * heads[2] + exemplars * (PIXELS + 2)
    cost = known.cost
    assert [*cost.params_total] == known.sizes.params_total
    assert [*cost.memory_bytes] == known.sizes.memory_bytes
    assert [*cost.macs] == known.sizes.macs
    stages = [(it.name, it.task, it.image_passes, it.flops) for it in cost.stages if it.name != "evaluation"]
    record = trial.record("tiny_three", tmp_path)
    assert stages == [(it.name, it.task, it.image_passes, it.flops) for it in record.stages if it.name != "evaluation"]
    checks = verify(trial.registry, record.run_id, results=tmp_path, device="cpu").checks
    assert [check for check in checks if check.passed is False] == []
