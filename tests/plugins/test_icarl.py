"""iCaRL against direct computations: herding, the nearest mean, distillation, and the size of its memory."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny import all_threads, build, class_stream, learn, one_thread, same
from torch import Tensor

import seu_bench
from seu_bench.data.avalanche import MixedBatches
from seu_bench.data.images import TaskImages
from seu_bench.errors import RequestError
from seu_bench.testing import Trial
from seu_bench.testing.trial import Learner
from seu_bench.training import herd
from seu_bench.utils.seeding import RandomState
from seu_bench_methods.icarl import distillation_loss

#: For requests outside of the contract's streams.
CLASS = {"benchmark.stream.scenario": "class"}

setup_module = one_thread
teardown_module = all_threads


def features(count: int, width: int = 5, seed: int = 0) -> Tensor:
    """Features of length 1, in float64."""
    drawn = torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("seed", range(4))
def test_each_exemplar_is_the_best_next_one(seed: int) -> None:
    """By trying every image that is left (algorithm 4)."""
    known = features(9, seed=seed)
    mean = known.mean(dim=0)
    chosen: list[int] = []
    for _ in range(6):
        left = [image for image in range(9) if image not in chosen]
        distance = {image: float((mean - known[[*chosen, image]].mean(dim=0)).norm()) for image in left}
        chosen.append(min(left, key=lambda image: distance[image]))
    assert herd(known, 6).tolist() == chosen


def test_exemplars_are_few_where_images_are() -> None:
    """Each image once; the first one is that which is nearest to the mean."""
    known = features(4)
    assert sorted(herd(known, 10).tolist()) == [0, 1, 2, 3]
    nearest = (known - known.mean(dim=0)).norm(dim=1).argmin()
    assert herd(known, 1).tolist() == [int(nearest)]


@pytest.mark.parametrize("mirror", [False, True])
def test_the_nearest_mean_answers(mirror: bool) -> None:
    """Means of features of length 1, of exemplars and of their mirror images, against a loop over classes."""
    known = learner(19, mirror=mirror)
    known.learn(0)
    known.learn(1)
    model, memory = known.model.eval(), known.strategy.memory.everything()

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
    memory = known.strategy.memory.everything()
    with torch.no_grad():
        features = known.model.eval().backbone(x)
    features = features / features.norm(dim=1, keepdim=True)
    for label in range(2):
        assert torch.equal(memory.x[memory.y == label], x[y == label][herd(features[y == label], 4)])


def test_a_class_without_exemplars_is_never_the_answer() -> None:
    """Its mean is 0, which is nearer than others to what is far from them."""
    known = learner(6)
    known.learn(0)
    model = known.model.eval()
    model.means[1] = 0
    model.means[0] *= -1
    assert set(model(known.test_images(0), 0).argmax(dim=1).tolist()) == {0}


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
    torch.testing.assert_close(loss.detach(), total / 3)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, (logits.detach().sigmoid() - targets) / 3)


def test_first_task_has_no_teacher() -> None:
    """Its loss is the binary cross-entropy of the labels; it has no stage that asks what was known, and others have."""
    logits = torch.zeros(2, 2, dtype=torch.float64)
    assert float(distillation_loss(logits, torch.tensor([0, 1]), None)) == pytest.approx(2 * math.log(2))
    known = learner(18)
    stages: list[tuple[str, int]] = []
    known.strategy.on_progress = lambda progress: stages.append((progress.stage, progress.task))
    known.learn(0)
    known.learn(1)
    first, second = ([stage for stage, task in dict.fromkeys(stages) if task == index] for index in (0, 1))
    assert first == ["training", "exemplars"]
    assert second == ["teaching", "training", "exemplars"]


def test_what_is_taught_is_what_was_known() -> None:
    """Probabilities of the earlier classes by the network before the task, of new images and exemplars, in batches."""
    known = learner(18)
    known.learn(0)
    before = copy.deepcopy(known.model).eval()
    taught: list[Tensor] = []
    strategy = known.strategy
    strategy.pause = lambda stage: taught.append(strategy.targets)
    images, _ = known.stream.tasks[1].train.gather(torch.arange(len(known.stream.tasks[1].train)))
    together = torch.cat([images, strategy.memory.everything().x])
    known.learn(1)
    with torch.no_grad():
        head = before.heads[0]
        logits = before.backbone(together) @ head.weight[:2].T + head.bias[:2]
    torch.testing.assert_close(taught[0], 1 / (1 + (-logits).exp()))
    assert taught[0] is taught[-1] and strategy.targets is None
    assert not same(before.backbone.state_dict(), known.model.backbone.state_dict())


def test_targets_belong_to_their_images() -> None:
    """However batches are shuffled, in each of them: positions are those in all tables, one behind another."""
    values = torch.arange(11.0).view(11, 1, 1, 1)
    tables = [
        TaskImages(values, torch.arange(start, stop), torch.arange(start, stop), 1, 1, hides_task=True)
        for start, stop in ((0, 7), (7, 11))
    ]
    loader = MixedBatches(tables, 5)
    with RandomState(0).active():
        batches = list(loader)
    assert [len(y) for _, y, _, _ in batches] == [5, 6] and len(loader) == 2  # one image alone joins the others
    for x, y, positions, t in batches:
        assert torch.equal(x.flatten(), y.float()) and torch.equal(positions, y)
        assert t.tolist() == [0] * len(y)
    order = torch.cat([y for _, y, _, _ in batches]).tolist()
    assert sorted(order) == list(range(11)) != order


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
        kept = strategy.memory.everything()
        exemplars = [kept.x[kept.y == label] for label in range(2 * (task + 1))]
        for earlier, now in zip(before, exemplars, strict=False):
            assert torch.equal(earlier[: len(now)], now)
        before = exemplars
        assert {len(images) for images in before} <= {min(memory // len(before), size) for size in range(6, 10)}
    assert max(sizes) <= memory
    assert known.sizes.memory_by_kind.get("exemplars", 0) == sizes[-1] * (64 + 2)


def test_old_classes_are_answered_without_a_label() -> None:
    """After the last task there is a logit for each class, whatever task is asked for."""
    known = learner(18, epochs=10).learn_all()
    images = known.test_images(0)
    logits = known.model(images, None)[0]
    assert logits.shape == (len(images), 6)
    assert torch.equal(known.model(images, 2), logits)


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


@pytest.mark.long
def test_forgets_less_than_fine_tuning(tmp_path: Path) -> None:
    """On real images: the digits, of which two come with each task. Fine-tuning knows those of the last one."""
    found = {}
    for name, options in (("icarl", {"memory": 100, "mirror": False}), ("naive", {})):
        given = {"backbone": "mlp", "epochs": 8, **options, **CLASS}
        record = seu_bench.run(name, "split_digits", protocol="smoke", options=given, results=tmp_path)
        found[name] = record.metrics
    assert found["naive"]["acc"] < 0.35
    assert found["icarl"]["acc"] > 0.7
    assert found["icarl"]["forgetting"] < found["naive"]["forgetting"] - 0.4


def test_published_steps_of_the_learning_rate() -> None:
    """Divided by 5 after 49 and after 63 of 70 epochs."""
    trial = Trial("icarl", {"backbone": "mlp", "memory": 6, "rate_steps": True}, scenario="class")
    known = trial.learner("tiny_three", brief=False)
    rates: list[float] = []
    known.strategy.pause = lambda stage: rates.append(known.strategy.optimizer.param_groups[0]["lr"])
    known.learn(0)
    assert rates == pytest.approx([0.05] * 7 + [0.01] * 2 + [0.002])
