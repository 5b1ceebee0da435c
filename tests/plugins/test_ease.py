"""EASE: its prototypes and answers, by an own computation in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seu_bench.testing import Learner, Trial

OPTIONS = {"learning_rate": 0.1, "others": 0.3}


def unit(rows: Any) -> Any:
    """Rows of length 1."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def features(learner: Learner, split: str, task: int, subspace: int) -> tuple[Any, Any]:
    """Features of a task's images in a subspace, and their labels, with an adapter in NumPy."""
    images, labels = getattr(learner.stream.tasks[task], split).gather(
        torch.arange(len(getattr(learner.stream.tasks[task], split)))
    )
    encoder, maps = learner.model.network.encoder, images
    for layer, adapter in zip(encoder.layers, learner.model.units[subspace], strict=True):
        x = layer(maps).movedim(1, -1).numpy()
        down, up = ((it.weight.numpy(), it.bias.numpy()) for it in (adapter.down, adapter.up))
        x = x + np.maximum(x @ down[0].T + down[1], 0) @ up[0].T + up[1]
        maps = torch.from_numpy(x).movedim(-1, 1)
    return maps.mean(dim=(2, 3)).numpy(), labels.numpy()


@pytest.mark.parametrize("scenario", ["class", "domain"])
@torch.no_grad()
def test_prototypes_and_answers(scenario: Any) -> None:
    """Of two tasks: means where there were images; otherwise by likeness in the old features."""
    with torch.enable_grad():
        learner = Trial("ease", OPTIONS, scenario=scenario).learner("tiny_two").learn_all()
    first = {"class": 0, "domain": 2}[scenario]
    means = np.zeros((2, 4, 16), dtype=np.float32)
    for subspace, task in ((0, 0), (0, 1), (1, 1)):
        rows, labels = features(learner, "train", task, subspace)
        for label in np.unique(labels):
            means[subspace, label + first * task] = rows[labels == label].mean(axis=0)
    for old in (0, 1):
        alike = np.exp(unit(means[0, 2:]) @ unit(means[0, old]))
        means[1, old] = alike / alike.sum() @ means[1, 2:]
    for table, expected in zip(learner.model.prototypes, means, strict=True):
        assert np.allclose(table.numpy(), expected, atol=1e-5)
    share = np.array([[1, 1, 0.3, 0.3], [0.3, 0.3, 1, 1]])
    tested = [features(learner, "test", 0, subspace)[0] for subspace in (0, 1)]
    logits = sum(share[it] * (unit(tested[it]) @ unit(means[it]).T) for it in (0, 1))
    expected = logits if scenario == "class" else np.maximum(logits[:, :2], logits[:, 2:])
    assert np.allclose(learner.logits(0).numpy(), expected, atol=1e-5)
