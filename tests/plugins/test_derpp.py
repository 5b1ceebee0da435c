"""DER++: the contract in every scenario, the loss of a batch by hand, and what it passes and keeps."""

from __future__ import annotations

import pytest
import torch
from support.tiny import build, class_stream, learn
from torch.nn.functional import cross_entropy

from seu_bench.testing import Trial
from seu_bench.training.stage import StageProgress


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_loss_of_a_batch(scenario: str) -> None:
    """``CE(x, y) + alpha |f(x') - logits'|^2 + beta CE(x'', y'')``, image by image, of logits that both have."""
    options = {"backbone": "mlp", "width": 0.05, "memory": 9, "batch_size_mem": 5, "alpha": 0.3, "beta": 0.7}
    learner = Trial("derpp", options, scenario=scenario).learner("tiny_three")  # type: ignore[arg-type]
    for task in (0, 1):
        learner.learn(task)
    method, model = learner.strategy, learner.model
    model.begin_task(2)
    model.eval()  # without dropout
    held = method.memory.everything()
    assert len(held) == 9 and {0, 1} == {*held.origin.tolist()}
    images = learner.stream.tasks[2].train
    x, y = images.gather(torch.arange(6))
    labels = torch.full((6,), images.task_label)
    logits = model(x, labels)
    torch.manual_seed(1)
    loss = method.batch_loss(x, y, labels, logits)
    torch.manual_seed(1)
    first, second = (torch.randperm(9)[:5].tolist() for _ in range(2))
    squares: list[torch.Tensor] = []
    for place in first:
        present = model.forward_single_task(held.x[place : place + 1], int(held.task[place]))[0]
        known = held.logits[place][held.logits[place] > -1e30]
        squares += list((present[: len(known)] - known).square())
    assert {2, 4} >= {int((row > -1e30).sum()) for row in held.logits} >= ({2, 4} if scenario == "class" else {2})
    entropies = [
        cross_entropy(model.forward_single_task(held.x[p : p + 1], int(held.task[p])), held.y[p : p + 1])
        for p in second
    ]
    expected = cross_entropy(logits, y) + 0.3 * torch.stack(squares).mean() + 0.7 * torch.stack(entropies).mean()
    torch.testing.assert_close(loss, expected)
    assert method.memory.seen == sum(2 * len(learner.stream.tasks[task].train) for task in (0, 1)) + 6


def test_passes() -> None:
    """Each batch, twice as many images as are replayed, where there are so many, and validation."""
    source = class_stream([[0, 1], [2, 3]], images=20)
    seen: list[StageProgress] = []
    options = {"backbone": "mlp", "width": 0.05, "memory": 20, "batch_size_mem": 12, "batch_size": 8}
    learn(source, build(source, "derpp", on_progress=seen.append, **options))
    # 30 images in batches of 8, 8, 8 and 6, twice; before them the memory has 0, 8, 16 and from then on 20.
    first = 2 * (30 + 10) + 2 * (0 + 8 + 12 + 12) + 2 * 4 * 12
    assert [it.image_passes for it in seen if it.done] == [first, 2 * (30 + 10) + 2 * 8 * 12]
