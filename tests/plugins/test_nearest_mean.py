"""The nearest class mean of pixels, computed directly, in any order of tasks."""

from __future__ import annotations

import pytest
import torch

from seu_bench.testing import Trial


@pytest.mark.parametrize("scenario", ["class", "domain"])
def test_means_are_those_of_all_images(scenario: str) -> None:
    """Of each class, or of each shared class over all tasks; the nearest one answers."""
    learner = Trial("nearest_mean", scenario=scenario).learner("tiny_three").learn_all()  # type: ignore[arg-type]
    parts = [task.train.gather(torch.arange(len(task.train))) for task in learner.stream.tasks]
    images, labels = torch.cat([x for x, _ in parts]).flatten(1), torch.cat([y for _, y in parts])
    classes = 6 if scenario == "class" else 2
    means = torch.stack([images[labels == label].mean(dim=0) for label in range(classes)])
    torch.testing.assert_close(learner.model.means.detach(), means, rtol=1e-4, atol=1e-5)
    tests = learner.test_images(0)
    assert torch.equal(learner.logits(0).argmax(dim=1), torch.cdist(tests.flatten(1), means).argmin(dim=1))
    assert learner.sizes.params_total == [classes * 64] * 3


def test_only_classes_seen_are_answered() -> None:
    """After the first of three tasks there are two."""
    learner = Trial("nearest_mean", scenario="class").learner("tiny_three")
    learner.learn(0)
    assert learner.logits(0).shape[1] == 2
