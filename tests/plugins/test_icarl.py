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
from support.tiny import all_threads, class_stream, context, one_thread, registry, same
from torch import Tensor, nn

import seu_bench
from seu_bench.data.images import TaskImages
from seu_bench.errors import RequestError
from seu_bench.testing import Trial
from seu_bench.testing.trial import Learner
from seu_bench.utils.seeding import RandomState
from seu_bench_icarl.exemplars import ExemplarStage, herded, nearest_means
from seu_bench_icarl.model import ExemplarModel
from seu_bench_icarl.teaching import TaughtLoader, distillation_loss, with_exemplars

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
    assert herded(known, 6).tolist() == chosen


def test_exemplars_are_few_where_images_are() -> None:
    """Each image once; the first one is that which is nearest to the mean."""
    known = features(4)
    assert sorted(herded(known, 10).tolist()) == [0, 1, 2, 3]
    nearest = (known - known.mean(dim=0)).norm(dim=1).argmin()
    assert herded(known, 1).tolist() == [int(nearest)]


class Pixels(nn.Module):
    """Pixels as features."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def model_of_pixels(classes: tuple[int, ...] = (2, 2), width: int = 4) -> ExemplarModel:
    """A model whose features are the pixels of images of 1x2x2, in float64."""
    return ExemplarModel(Pixels(), width, classes).double()


@pytest.mark.parametrize("mirror", [False, True])
def test_the_nearest_mean_answers(mirror: bool) -> None:
    """Means of features of length 1, of images and of their mirror images, against a loop over classes."""
    images = torch.rand(12, 1, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    labels = torch.tensor([0, 1] * 6)
    model = model_of_pixels((2,))
    model.begin_task(0)
    split = TaskImages(images, torch.arange(12), labels, 0, 1)
    exemplars, means = ExemplarStage(
        model, split, [], classes=2, memory=7, mirror=mirror, batch_size=5, seed=0, device=torch.device("cpu")
    ).run()
    expected = []
    for label in range(2):
        own = images[labels == label].flatten(1)
        unit = own / own.norm(dim=1, keepdim=True)
        chosen = images[labels == label][herded(unit, 3)]
        assert torch.equal(exemplars[label], chosen)
        versions = [chosen, chosen[..., [1, 0]]] if mirror else [chosen]
        units = [(flat / flat.norm(dim=1, keepdim=True)).mean(dim=0) for flat in (it.flatten(1) for it in versions)]
        mean = torch.stack(units).mean(dim=0)
        expected.append(mean / mean.norm())
    torch.testing.assert_close(means, torch.stack(expected))
    model.answer_by(means)
    logits = model(images, 0)
    unit = images.flatten(1) / images.flatten(1).norm(dim=1, keepdim=True)
    squares = torch.stack([(unit - mean).square().sum(dim=1) for mean in expected], dim=1)
    # All of an image's logits are higher by the same 1, the squared length of its feature.
    torch.testing.assert_close(logits, 1 - squares)
    assert torch.equal(logits.argmax(dim=1), squares.argmin(dim=1))


def test_a_class_without_exemplars_is_never_the_answer() -> None:
    """Its mean is 0, which is nearer than others to what is far from them."""
    means = nearest_means([torch.tensor([[0.6, 0.8]]), torch.zeros(0, 2)])
    assert means[1].tolist() == [0.0, 0.0]
    model = ExemplarModel(Pixels(), 2, (2,))
    model.begin_task(0)
    model.answer_by(means)
    assert model(torch.tensor([[[[-0.6, -0.8]]]]), 0).argmax(dim=1).tolist() == [0]


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
    strategy.pause = lambda stage: taught.append(strategy.taught)
    images, _ = known.stream.tasks[1].train.gather(torch.arange(len(known.stream.tasks[1].train)))
    together = torch.cat([images, *strategy.exemplars])
    known.learn(1)
    with torch.no_grad():
        head = before.heads[0]
        logits = before.backbone(together) @ head.weight[:2].T + head.bias[:2]
    torch.testing.assert_close(taught[0], 1 / (1 + (-logits).exp()))
    assert taught[0] is taught[-1] and strategy.taught is None
    assert not same(before.backbone.state_dict(), known.model.backbone.state_dict())


def test_targets_belong_to_their_images() -> None:
    """However batches are shuffled, in each of them."""
    images = TaskImages(torch.arange(11.0).view(11, 1, 1, 1), torch.arange(11), torch.arange(11), 1, 1, hides_task=True)
    loader = TaughtLoader(images, 5, 10 * torch.arange(11.0).view(11, 1))
    with RandomState(0).active():
        batches = list(loader)
    assert [len(y) for _, y, _, _ in batches] == [5, 6] and len(loader) == 2  # one image alone joins the others
    for x, y, targets, t in batches:
        assert torch.equal(x.flatten(), y.float()) and torch.equal(targets, 10 * x.flatten(1))
        assert t.tolist() == [0] * len(y)
    order = torch.cat([y for _, y, _, _ in batches]).tolist()
    assert sorted(order) == list(range(11)) != order


def learner(memory: int, **options: Any) -> Learner:
    """iCaRL on three tiny tasks of two classes."""
    given = {"backbone": "mlp", "memory": memory, **options}
    return Trial("icarl", given, scenario="class").learner("tiny_three")


@pytest.mark.parametrize("memory", [7, 13, 100])
def test_memory_is_never_larger(memory: int) -> None:
    """After every stage of every task; exemplars of a class are the first of those that it had before."""
    known = learner(memory)
    strategy, sizes = known.strategy, []
    strategy.pause = lambda stage: sizes.append(sum(map(len, strategy.exemplars)))
    before: list[Tensor] = []
    for task in range(3):
        known.learn(task)
        sizes.append(sum(map(len, strategy.exemplars)))
        assert len(strategy.exemplars) == 2 * (task + 1)
        for earlier, now in zip(before, strategy.exemplars, strict=False):
            assert torch.equal(earlier[: len(now)], now)
        before = list(strategy.exemplars)
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
    assert known.model.answers_by_means


def test_exemplars_join_the_new_images() -> None:
    """With their classes as labels, behind the images of the task; no task label is told."""
    new = TaskImages(torch.rand(4, 1, 2, 2), torch.tensor([3, 1]), torch.tensor([2, 3]), 1, 1, hides_task=True)
    earlier = [torch.rand(2, 1, 2, 2), torch.rand(1, 1, 2, 2)]
    together = with_exemplars(new, earlier)
    images, labels = together.gather(torch.arange(5))
    assert torch.equal(images, torch.cat([new.store[[3, 1]], *earlier]))
    assert labels.tolist() == [2, 3, 0, 0, 1]
    assert together.task_label == 0 and with_exemplars(new, []) is new


def test_more_classes_than_exemplars_are_refused() -> None:
    """Before anything is learned, by run and by cost alike."""
    with pytest.raises(RequestError, match="6 classes have no exemplar each in a memory of 5") as error:
        learner(5)
    assert "give 6 at least" in str(error.value.remedy)


@pytest.mark.parametrize(("memory", "exact"), [(200, True), (13, False)])
def test_cost_of_classes_of_unequal_size(memory: int, exact: bool) -> None:
    """Where a class has fewer images than exemplars are asked of it, memory and operations lie in the range."""
    given = {"backbone": "mlp", "memory": memory}
    known = Trial("icarl", given, scenario="class").learner("tiny_lopsided")
    cost = known.cost
    for task in range(2):
        known.learn(task)
        found = known.sizes.memory_bytes[-1]
        assert found is not None and cost.memory_bytes_min[task] <= found <= cost.memory_bytes[task]
        kept = sum(map(len, known.strategy.exemplars))
        planned = [planned.num_train for planned in known.stream.plan.tasks[: task + 1]]
        assert (kept == sum(planned)) == exact
        assert (cost.memory_bytes_min[task] == cost.memory_bytes[task]) == exact


@pytest.mark.parametrize("mirror", [False, True])
def test_passes_of_a_published_step(mirror: bool) -> None:
    """Two tasks of two classes of 30 images, a memory of 20: counted by hand."""
    plan = class_stream([[0, 1], [2, 3]], images=40).plan
    plan = dataclasses.replace(plan, scenario="class")
    options = {"backbone": "mlp", "memory": 20, "epochs": 5, "mirror": mirror, **CLASS}
    made = context(plan, "icarl", options)
    found = {
        (stage.name, stage.task): (stage.train, stage.evaluate)
        for stage in registry().strategies.find("icarl").factory.cost(made).stages
        if stage.name != "evaluation"
    }
    versions = 2 if mirror else 1
    assert found == {
        ("training", 0): (5 * 60, 0),
        ("exemplars", 0): (0, 60 + versions * 20),
        ("teaching", 1): (0, 60 + 20),
        ("training", 1): (5 * (60 + 20), 0),
        ("exemplars", 1): (0, 60 + versions * 20),
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
