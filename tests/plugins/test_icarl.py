"""iCaRL against direct computations: herding, the nearest mean, distillation, and the size of its memory."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Any

import pytest
import torch
from support.tiny import build, class_stream, learn
from torch import Tensor

from seu_bench.errors import RequestError
from seu_bench.testing import Trial
from seu_bench.testing.trial import Learner
from seu_bench.training.memories import herd
from seu_bench_methods.icarl import distillation_loss


def features(count: int, width: int = 5, seed: int = 0) -> Tensor:
    """Features of length 1, in float64."""
    drawn = torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("mirror", [False, True])
def test_the_nearest_mean_answers(mirror: bool) -> None:
    """Means of features of length 1, of exemplars and of their mirror images, against a loop over classes."""
    known = learner(19, mirror=mirror)
    known.learn(0)
    known.learn(1)
    model, memory = known.model.eval(), known.strategy.memory.all_images()

    def units(images: Tensor) -> Tensor:
        with torch.no_grad():
            found = model.backbone(images)
        return found / found.norm(dim=1, keepdim=True)

    expected = []
    for label in range(4):
        chosen = memory.x[memory.y == label]
        assert len(chosen) == 4
        means = [units(it).mean(dim=0) for it in ([chosen, chosen.flip(dims=(3,))] if mirror else [chosen])]
        mean = torch.stack(means).mean(dim=0)
        expected.append(mean / mean.norm())
    torch.testing.assert_close(model.means[:4], torch.stack(expected))
    assert not model.means[4:].any()
    images = known.test_images(0)
    squares = torch.stack([(units(images) - mean).square().sum(dim=1) for mean in expected], dim=1)
    # All of an image's logits are higher by the same 1, the squared length of its feature.
    torch.testing.assert_close(model(images, 0), 1 - squares)


def test_exemplars_are_herded() -> None:
    """Of a new class among all of its images, by the features of the network as it is after training."""
    known = learner(8)
    known.learn(0)
    x, y = known.stream.tasks[0].train.gather(torch.arange(len(known.stream.tasks[0].train)))
    memory = known.strategy.memory.all_images()
    with torch.no_grad():
        features = known.model.eval().backbone(x)
    features = features / features.norm(dim=1, keepdim=True)
    for label in range(2):
        assert torch.equal(memory.x[memory.y == label], x[y == label][herd(features[y == label], 4)])


def test_distillation_loss_and_its_gradient() -> None:
    """Against the formula written out, image by image and class by class."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    taught = torch.rand(3, 2, dtype=torch.float64, generator=generator)
    labels = torch.tensor([3, 2, 0])
    loss = distillation_loss(logits, labels, taught)
    total = torch.zeros((), dtype=torch.float64)
    targets = torch.zeros(3, 4, dtype=torch.float64)
    for image, label in itertools.product(range(3), range(4)):
        target = taught[image, label] if label < 2 else torch.tensor(float(labels[image] == label)).double()
        targets[image, label] = target
        answer = logits[image, label].detach().sigmoid()
        total -= target * answer.log() + (1 - target) * (1 - answer).log()
    torch.testing.assert_close(loss.detach(), total / (3 * 4))
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, (logits.detach().sigmoid() - targets) / (3 * 4))


def test_each_batch_has_the_targets_of_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is given, for each image of each batch, what the network before the task said of this image."""
    known = learner(18)
    known.learn(0)
    before, batches = copy.deepcopy(known.model).eval(), 0

    def watched(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        nonlocal batches
        batches += 1
        assert targets is not None
        with torch.no_grad():
            expected = (before.backbone(known.strategy.mb_x) @ before.heads[0].weight.T + before.heads[0].bias)[:, :2]
        torch.testing.assert_close(targets, expected.sigmoid())
        return distillation_loss(logits, labels, targets)

    monkeypatch.setattr("seu_bench_methods.icarl.distillation_loss", watched)
    known.learn(1)
    assert batches


def learner(memory: int, **options: Any) -> Learner:
    """iCaRL on three tiny tasks of two classes."""
    given = {"backbone": "mlp", "memory": memory, **options}
    return Trial("icarl", given, scenario="class").learner("tiny_three")


@pytest.mark.parametrize("memory", [7, 13, 100])
def test_memory_is_never_larger(memory: int) -> None:
    """After every stage of every task; exemplars of a class are the first of those that it had before."""
    known = learner(memory)
    strategy, sizes = known.strategy, []
    strategy.pause = lambda stage: sizes.append(len(strategy.memory))
    before: list[Tensor] = []
    for task in range(3):
        known.learn(task)
        sizes.append(len(strategy.memory))
        kept = strategy.memory.all_images()
        exemplars = [kept.x[kept.y == label] for label in range(2 * (task + 1))]
        for earlier, now in zip(before, exemplars, strict=False):
            assert torch.equal(earlier[: len(now)], now)
        before = exemplars
        assert {len(images) for images in before} <= {min(memory // len(before), size) for size in range(6, 10)}
    assert max(sizes) <= memory
    assert known.sizes.memory_by_kind.get("exemplars", 0) == sizes[-1] * (64 + 2)


def test_more_classes_than_exemplars_are_refused() -> None:
    """Before anything is learned, by run and by cost alike."""
    with pytest.raises(RequestError, match="6 classes have no exemplar each in a memory of 5") as error:
        learner(5)
    assert "give 6 at least" in str(error.value.remedy)


@pytest.mark.parametrize("mirror", [False, True])
def test_passes_of_a_published_step(mirror: bool) -> None:
    """Two tasks of two classes of 30 images, a memory of 20: counted by hand."""
    stream = class_stream([[0, 1], [2, 3]], images=40)
    stream = dataclasses.replace(stream, plan=dataclasses.replace(stream.plan, scenario="class"))
    found: dict[tuple[str, int], int] = {}
    strategy = build(
        stream,
        "icarl",
        on_progress=lambda told: found.update({(told.stage, told.task): told.image_passes}),
        **{"backbone": "mlp", "memory": 20, "epochs": 5, "mirror": mirror, "benchmark__stream__scenario": "class"},
    )
    learn(stream, strategy)
    versions = 2 if mirror else 1
    assert found == {
        ("training", 0): 5 * 60,
        ("exemplars", 0): 60 + versions * 20,
        ("teaching", 1): 60 + 20,
        ("training", 1): 5 * (60 + 20),
        ("exemplars", 1): 60 + versions * 20,
    }
