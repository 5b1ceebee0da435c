"""SLCA: its Gaussians, its loss and its rates, by own computations; what of it is counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from seu_bench.models import count_parameters, state_bytes
from seu_bench.testing import Trial
from seu_bench_adapt.slca import RIDGE, alignment_loss, gaussian


def test_gaussian_has_the_moments_of_features() -> None:
    """NumPy's mean and covariance, and the ridge."""
    features = torch.randn(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mean, factor = gaussian(features)
    covariance = np.cov(features.numpy().T)
    expected = covariance + RIDGE * np.trace(covariance) / 4 * np.eye(4)
    assert np.allclose(mean, features.numpy().mean(axis=0))
    assert np.allclose(factor @ factor.T, expected, rtol=1e-9, atol=1e-9)
    assert gaussian(features[:1])[1].isfinite().all()


def test_alignment_loss_is_of_normalised_logits() -> None:
    """Their length makes no difference."""
    logits = torch.tensor([[3.0, 4.0]])
    expected = math.log1p(math.exp((0.8 - 0.6) / 0.1))
    for factor in (1, 100):
        assert float(alignment_loss(factor * logits, torch.tensor([0]), 0.1)) == pytest.approx(expected, rel=1e-5)


def test_network_learns_at_the_slow_rate_alone() -> None:
    """One step of plain SGD moves the network by its share of the rate times its gradient, heads by all of it."""
    learner = Trial("slca", {"slow": 0.25}).learner("tiny_two")
    strategy, model = learner.strategy, learner.model
    schedule = strategy.schedule.model_copy(update={"momentum": 0.0, "weight_decay": 0.0, "clip_norm": None})
    strategy.whole_schedule = schedule
    model.expand(0, torch.device("cpu"))
    strategy.begin_training(model.trainable_module(0), schedule)
    slow, head = [*model.backbone.parameters()], model.heads[0]
    before = [it.detach().clone() for it in (*slow, head)]
    for it in (*slow, head):
        it.grad = torch.ones_like(it)
    strategy.optimizer_step()
    for it, old in zip(slow, before[:-1], strict=True):
        assert torch.allclose(old - it, torch.full_like(it, 0.25 * schedule.learning_rate), atol=1e-6)
    assert torch.allclose(before[-1] - head, torch.full_like(head, schedule.learning_rate), atol=1e-6)
    assert {group["lr"] for group in strategy.optimizer.param_groups} == {schedule.learning_rate}


@pytest.mark.parametrize("scenario", ["class", "task"])
def test_gaussians_and_counts_of_a_stream(scenario: str) -> None:
    """Means are those of the network when the task was learned; the network is trained, and counted once."""
    learner = Trial("slca", {"learning_rate": 0.1}, scenario=scenario).learner("tiny_two")  # type: ignore[arg-type]
    model, pretrained = learner.model, [it.clone() for it in learner.context.encoder.parameters()]
    learner.learn(0)
    images, labels = learner.stream.tasks[0].train.gather(torch.arange(len(learner.stream.tasks[0].train)))
    with torch.no_grad():
        features = model.backbone(images)
    means = [features[labels == label].mean(dim=0) for label in (0, 1)]
    assert torch.allclose(model.means[0], torch.stack(means), atol=1e-5)
    learner.learn(1)
    assert torch.allclose(model.means[0], torch.stack(means), atol=1e-5)
    pairs = zip(pretrained, model.backbone.parameters(), strict=True)
    assert not any(torch.equal(old, it) for old, it in pairs)
    assert all(map(torch.equal, pretrained, learner.context.encoder.parameters()))
    width, classes = model.width, 4
    added = classes * (width + 1 + width + width * (width + 1) // 2)
    assert learner.sizes.params_total[-1] == count_parameters(model) == sum(map(torch.numel, pretrained)) + added
    assert learner.sizes.memory_bytes[-1] == state_bytes(model)
