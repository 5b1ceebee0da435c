"""Methods that keep no image: LwF, the penalties of SI, MAS and RWalk, CWR*, and training from scratch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import (
    benchmark,
    class_stream,
    context,
    learn,
    raw_dataset,
    registry,
    same,
    weights,
)
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench.config.protocol import ImageLimits
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.testing.streams import class_split
from seu_bench.training.monitoring import bytes_by_kind

SMALL: dict[str, Any] = {"backbone": "mlp", "width": 0.05, "epochs": 2, "batch_size": 8}


def stream(**more: Any) -> TaskStream:
    return class_stream([[0, 1], [2, 3], [4, 5]], **({"images": 16} | more))


def stream_of(scenario: str) -> TaskStream:
    """Two tasks of two classes in a scenario."""
    spec = benchmark(class_split([(0, 1), (2, 3)]) | {"scenario": scenario})
    return build_stream(spec, lambda _: raw_dataset([16] * 4, [4] * 4), ImageLimits(), 0)


def build(name: str, source: TaskStream, **options: Any) -> Any:
    stages: list[Any] = []
    made = context(source.plan, name, SMALL | options, on_progress=stages.append)
    strategy: Any = registry().strategies.find(name).factory.build(made)
    strategy.seen = stages
    return strategy


def train(strategy: Any, source: TaskStream, task: int) -> None:
    """Learn one task."""
    strategy.train(source.avalanche().train_stream[task], eval_streams=[])


def all_images(source: TaskStream, task: int) -> tuple[Tensor, Tensor]:
    images = source.tasks[task].train
    return images.gather(torch.arange(len(images)))


def sums(tensors: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(tensor.sum()) for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("name", "training", "afterwards"),
    [
        ("lwf", [2, 6, 6], 0),
        ("si", [2, 2, 2], 0),
        ("mas", [2, 2, 2], 1),
        ("rwalk", [4, 4, 4], 0),
        ("cwr", [2, 2, 2], 0),
    ],
)
def test_image_passes(name: str, training: list[int], afterwards: int) -> None:
    """In two epochs: LwF's teacher and student pass each image once more, RWalk measures a gradient of its own."""
    source = stream()
    strategy = learn(source, build(name, source))
    for task, passes in enumerate(training):
        images = len(source.tasks[task].train)
        found = {it.stage: it.image_passes for it in strategy.seen if it.done and it.task == task}
        assert found.pop("training") == passes * images
        assert sum(found.values()) == afterwards * images


@pytest.mark.parametrize(
    ("name", "copies"), [("lwf", 1), ("si", 3), ("mas", 2), ("rwalk", 4), ("cwr", 0), ("from_scratch", 1)]
)
def test_bytes_between_tasks(name: str, copies: int) -> None:
    """So many numbers for each parameter beside the model's, where all have a gradient; nothing of a batch is left."""
    made = context((source := stream()).plan, name, SMALL)
    strategy: Any = registry().strategies.find(name).factory.build(made)
    for task in range(2):
        train(strategy, source, task)
        taken = bytes_by_kind(strategy.kept())
        model, heads = taken.pop("parameters"), strategy.model.heads
        # RWalk has importances and penalties of the last task's head alone.
        absent = 2 * 4 * sum(it.numel() for head in (heads[0], heads[2]) for it in head.parameters())
        assert sum(taken.values()) == copies * model - (absent if name == "rwalk" else 0)


@pytest.mark.parametrize(
    ("backbone", "scenario"),
    [("alexnet", "task"), ("resnet18", "task"), ("resnet18", "class"), ("mlp", "domain")],
)
def test_lwf_by_hand(backbone: str, scenario: str) -> None:
    """Distilled is what the network answered after the task before, in evaluation mode: over the old heads, or over the
    old classes of the one head. The teacher's statistics stay."""
    source = stream_of(scenario)
    torch.manual_seed(0)
    strategy = build("lwf", source, backbone=backbone, width=0.02, epochs=1, alpha=3.0, temperature=2.5, dropout=0.0)
    assert strategy.model.scenario == scenario
    train(strategy, source, 0)
    strategy.model.begin_task(1)
    x, y = all_images(source, 1)
    strategy.model.eval()
    with torch.no_grad():
        before = strategy.model(x, 0)[:, :2]
        strategy.model.train()
        for weight in strategy.model.heads[0].parameters():
            weight.add_(torch.randn(weight.shape))
        now = strategy.model(x, 0)[:, :2]
        teacher = weights(strategy.model) | {name: it.clone() for name, it in strategy.teacher.items()}
        logits = strategy.model(x, 1)
        loss = strategy.batch_loss(x, y, torch.full((len(x),), 1), logits)
    target, answer = (before / 2.5).softmax(1), (now / 2.5).softmax(1)
    distance = (target * (target.log() - answer.log())).sum() / len(x)
    assert float(distance) > 1e-3
    torch.testing.assert_close(loss, cross_entropy(logits, y) + 3.0 * distance)
    assert same(strategy.teacher, teacher)


def test_si_by_hand() -> None:
    """Of a task of one step the importance is gradient times step by squared step and damping."""
    source = stream()
    options = {"batch_size": 100, "epochs": 1, "momentum": 0, "weight_decay": 0, "clip_norm": 1e9, "dropout": 0}
    strategy = build("si", source, eps=0.01, **options)
    begin, rate = weights(strategy.model), strategy.schedule.learning_rate
    x, y = all_images(source, 0)
    cross_entropy(strategy.model(x, 0), y).backward()
    slopes = {name: it.grad.clone() for name, it in strategy.model.named_parameters() if it.grad is not None}
    train(strategy, source, 0)
    for name, slope in slopes.items():
        torch.testing.assert_close(strategy.model.get_parameter(name), begin[name] - rate * slope)
        expected = rate * slope.square() / ((rate * slope).square() + 0.01)
        torch.testing.assert_close(strategy.importances[name], expected.clamp(max=0.001))
        torch.testing.assert_close(strategy.sums[name], expected)
        assert torch.equal(strategy.anchor[name], strategy.model.get_parameter(name))
    assert max(float(it.max()) for it in strategy.importances.values()) == float(torch.tensor(0.001))
    strategy.options = strategy.options.model_copy(update={"si_lambda": 3.0})
    with torch.no_grad():
        for weight in strategy.model.parameters():
            weight.add_(0.5)
    held = sum(sums(strategy.importances).values())
    assert strategy.penalty().item() == pytest.approx(1.5 * 0.25 * held)


@pytest.mark.parametrize("backbone", ["alexnet", "resnet18"])
def test_mas_measures_what_was_learned(backbone: str) -> None:
    """Importances are gradients in evaluation mode, by hand; measuring them moves no statistics; tasks are merged."""
    source, merged = stream(images=8, test=4), {}
    strategy = build("mas", source, backbone=backbone, width=0.02, epochs=1, batch_size=100, alpha=0.3)
    model, measure = strategy.model, strategy.after_task
    seen: list[dict[str, Tensor]] = []
    strategy.after_task = lambda task: (seen.append(weights(model)), measure(task))
    for task in range(2):
        train(strategy, source, task)
        assert same(seen[-1], weights(model))
        model.eval()
        model.zero_grad()
        model(all_images(source, task)[0], task).square().sum(dim=1).mean().backward()
        for name, parameter in model.named_parameters():
            new = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.abs()
            merged[name] = 0.3 * merged[name] + 0.7 * new if task else new
            torch.testing.assert_close(strategy.importances[name], merged[name])
        model.zero_grad()
        assert same(strategy.anchor, dict(model.named_parameters()))


def test_rwalk_by_hand() -> None:
    """Two tasks of two batches, a score after each batch: Fisher information, scores and penalties."""
    source = class_stream([[0, 1], [2, 3]], images=16)
    options = {"batch_size": len(source.tasks[0].train), "epochs": 2, "dropout": 0, "delta_t": 1, "ewc_alpha": 0.7}
    strategy = build("rwalk", source, **options)
    model, named = strategy.model, dict(strategy.model.named_parameters())
    eps, steps = torch.finfo(torch.float32).eps, []
    step = strategy.optimizer_step

    def noted() -> None:
        loss = cross_entropy(model(strategy.mb_x, strategy.mb_task_id), strategy.mb_y)
        slopes = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        before = {name: it.detach().clone() for name, it in named.items()}
        step()
        moved = {name: it.detach() - before[name] for name, it in named.items()}
        steps.append({name: (it, moved[name]) for name, it in zip(named, slopes, strict=True) if it is not None})

    strategy.optimizer_step = noted
    fisher: dict[str, Tensor] = {}
    scores: dict[str, Tensor] = {}
    for task in range(2):
        steps.clear()
        train(strategy, source, task)
        new = {name: torch.zeros_like(it) for name, it in named.items()}
        for batch in steps:
            fisher = {n: 0.7 * g**2 + 0.3 * fisher[n] if n in fisher else g**2 for n, (g, _) in batch.items()}
            for name, (slope, moved) in batch.items():
                new[name] -= slope * moved / (0.5 * fisher[name] * moved**2 + eps)
        scores = {name: 0.5 * (scores[name] + new[name]) for name in new} if task else new
        assert strategy.fisher.keys() == fisher.keys() == strategy.penalties.keys()
        most, best = (max(float(it.max()) for it in each.values()) for each in (fisher, scores))
        for name in fisher:
            torch.testing.assert_close(strategy.fisher[name], fisher[name])
            torch.testing.assert_close(strategy.scores[name], scores[name], rtol=1e-3, atol=1e-2 * best)
            expected = fisher[name] / most + scores[name].relu() / best
            torch.testing.assert_close(strategy.penalties[name], expected, rtol=1e-3, atol=1e-2)
    assert not any(name.startswith("heads.0") for name in fisher)


def test_cwr_consolidates_one_head() -> None:
    """A class that comes back begins where it was left, and both are weighed by the roots of their images."""
    source = stream_of("domain")
    strategy = build("cwr", source)
    train(strategy, source, 0)
    first, trained = weights(strategy.model.heads[0])["weight"], []
    end = strategy.after_task
    begun = []
    begin = strategy.begin_training
    strategy.begin_training = lambda *given: (begun.append(weights(strategy.model.heads[0])["weight"]), begin(*given))
    strategy.after_task = lambda task: (trained.append(weights(strategy.model.heads[0])["weight"]), end(task))
    train(strategy, source, 1)
    assert torch.equal(begun[0], first)
    old, new = (torch.bincount(it.train.labels).float()[:, None] for it in source.tasks)
    ratio = (old / new).sqrt()
    expected = (ratio * first + trained[0] - trained[0].mean()) / (ratio + 1)
    torch.testing.assert_close(strategy.model.heads[0].weight.detach(), expected)
    assert strategy.images_seen == (old + new).flatten().tolist()
