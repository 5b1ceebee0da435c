"""PackNet's masks and weights: what a task keeps, what it computes with, and what cannot move."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from support.commands import Command
from support.tiny import (
    build,
    class_stream,
    context,
    learn,
    logits_of,
    registry,
    same,
    weights,
)
from torch import Tensor, nn

from seu_bench.data import InputShape
from seu_bench.data.streams import TaskStream
from seu_bench.training.stage import StageProgress
from seu_bench_backbones.networks import mlp, resnet18
from seu_bench_kit import AlexNetShape
from seu_bench_kit.blocks import alexnet
from seu_bench_methods.packnet import Held, PackedModel, kept_count, largest

CLASSES = (2, 3, 4, 2)
SHAPES = {"mlp": (1, 8, 8), "alexnet": (3, 8, 8), "resnet18": (1, 8, 8)}


def model(backbone: str = "mlp") -> PackedModel:
    """A model of which no task has any weight."""
    torch.manual_seed(0)
    made: tuple[nn.Module, int]
    if backbone == "alexnet":
        made = alexnet(AlexNetShape.of(3, 8, 8, 0.05)), 102
    else:
        made = (
            mlp(InputShape("image", (1, 8, 8)), 0.04)
            if backbone == "mlp"
            else resnet18(InputShape("image", (1, 8, 8)), 0.1)
        )
    return PackedModel(*made, CLASSES)


def keep(packed: PackedModel, fraction: float) -> list[Tensor]:
    """Let the next task keep what pruning leaves, after its free weights were drawn anew."""
    task = len(packed.masks)
    packed.begin(task)
    with torch.no_grad():
        for weight, free in zip(packed.weights(), packed.free(), strict=True):
            weight.copy_(torch.where(free, torch.randn_like(weight), weight))
    kept = largest(packed.weights(), packed.free(), fraction)
    packed.pack(kept)
    packed.finish()
    return kept


def images(backbone: str = "mlp", count: int = 5) -> Tensor:
    return torch.randn(count, *SHAPES[backbone], generator=torch.Generator().manual_seed(1))


each = pytest.mark.parametrize("backbone", SHAPES)


@pytest.mark.parametrize(
    ("free", "fraction", "kept"),
    [
        (8, 0.5, 4),
        (10, 0.75, 2),  # 7.5 to prune: 8, the even one
        (5, 0.5, 3),  # 2.5 to prune: 2, the even one
        (7, 0.5, 3),
        (100, 0.9, 10),
        (2, 0.75, 1),  # not 0: while any is free a task keeps one
        (1, 0.75, 1),
        (0, 0.75, 0),
        (300, 0.001, 300),
    ],
)
def test_counts_by_hand(free: int, fraction: float, kept: int) -> None:
    assert kept_count(free, fraction) == kept


def test_the_smallest_are_pruned() -> None:
    """By magnitude, among the free ones; of equal ones those with the lower place are pruned first."""
    weight = torch.tensor([[0.3, -0.9, 0.1], [5.0, 0.5, -0.2]], dtype=torch.float64)
    free = torch.tensor([[True, True, True], [False, True, True]])
    assert largest([weight], [free], 0.75)[0].tolist() == [[False, True, False], [False, False, False]]
    tied = torch.tensor([0.5, -0.5, 0.1, 0.5, -0.5, 0.0], dtype=torch.float64)
    every, none = torch.ones(6, dtype=torch.bool), torch.zeros(6, dtype=torch.bool)
    kept = largest([weight, tied, torch.zeros(4), tied], [free, every, every[:4], none], 0.5)
    assert kept[0].tolist() == [[True, True, False], [False, True, False]]
    assert kept[1].tolist() == [False, True, False, True, True, False]
    assert kept[2].tolist() == [False, False, True, True]
    assert not kept[3].any()


@each
@pytest.mark.parametrize("fraction", [0.5, 0.75, 0.9])
def test_masks_are_disjoint_and_counted(backbone: str, fraction: float) -> None:
    """In every layer each task keeps what the rule says of what the tasks before it left, and none twice."""
    packed = model(backbone)
    left = [weight.numel() for weight in packed.weights()]
    assert packed.mask_bits == 0 and packed.count == sum(left)
    for task in range(len(CLASSES)):
        keep(packed, fraction)
        expected = [max(1, free - round(fraction * free)) if free else 0 for free in left]
        assert [int(mask.sum()) for mask in packed.kept_weights(task, task)] == expected
        left = [free - kept for free, kept in zip(left, expected, strict=True)]
        assert [int(mask.sum()) for mask in packed.free()] == left
        assert packed.mask_bits == (task + 1) * packed.count
        assert packed.packed_masks() == (packed.masks,)
        assert tuple(packed.masks.shape) == (task + 1, -(-packed.count // 8)) and packed.masks.dtype == torch.uint8
    for one in range(len(CLASSES)):
        for other in range(one):
            pairs = zip(packed.kept_weights(one, one), packed.kept_weights(other, other), strict=True)
            assert not any(bool((a & b).any()) for a, b in pairs)


@each
def test_a_task_computes_with_weights_up_to_its_own(backbone: str) -> None:
    """As a plain network whose other weights are 0, bit by bit; whatever later tasks and free weights are."""
    packed = model(backbone).eval()
    x = images(backbone)
    found = []
    for task in range(3):
        keep(packed, 0.5)
        packed.eval()
        plain = model(backbone).eval()
        plain.load_architecture(packed.architecture())
        plain.load_state_dict(packed.state_dict())
        with torch.no_grad():
            for weight, kept in zip(plain.weights(), packed.kept_weights(0, task), strict=True):
                assert torch.equal(weight, weight * kept)  # what no task keeps is 0
            found.append(packed.forward_single_task(x, task))
            assert torch.equal(found[-1], plain.heads[task](plain.backbone(x)))
    with torch.no_grad():
        for weight, free in zip(packed.weights(), packed.free(), strict=True):
            weight[free] = 7.0
        for task, logits in enumerate(found):
            assert torch.equal(packed.forward_single_task(x, task), logits)
    alone = packed.alone(0).eval()
    assert torch.equal(alone.heads[0](alone.backbone(x)), found[0])
    mixed = packed(torch.cat([x, x]), torch.tensor([0] * 5 + [2] * 5))
    assert torch.allclose(mixed[:5, :2], found[0]) and torch.allclose(mixed[5:], found[2])


def test_held_by_hand() -> None:
    """SGD with momentum .5 and weight decay .1 at rate 1 on the gradients 2 and 3: one weight follows, one stays."""
    weight = nn.Parameter(torch.tensor([1.0, 4.0], dtype=torch.float64))
    held = Held([weight], [torch.tensor([True, False])])
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.5, weight_decay=0.1)
    expected, momentum = 1.0, 0.0
    for step in range(3):
        weight.grad = torch.tensor([2.0, 3.0], dtype=torch.float64)
        held.drop_gradients()
        assert weight.grad.tolist() == [2.0, 0.0]
        optimizer.step()
        assert weight.tolist()[1] != 4.0  # weight decay alone, and from the second step on momentum too
        held.put_back()
        momentum = (0.5 * momentum if step else 0.0) + 2.0 + 0.1 * expected
        expected -= momentum
        assert weight.tolist() == [pytest.approx(expected, rel=1e-12), 4.0]


#: Small networks; momentum and weight decay are on, and strong.
MLP: dict[str, Any] = {"backbone": "mlp", "width": 0.04, "epochs": 4, "batch_size": 8, "learning_rate": 0.1}
RESNET: dict[str, Any] = {"backbone": "resnet18", "width": 0.1, "epochs": 2, "batch_size": 8, "learning_rate": 0.05}
DECAY: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.05}
each_learning = pytest.mark.parametrize("options", [MLP, RESNET], ids=["mlp", "resnet18"])


def stream() -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], images=16)


def packnet(source: TaskStream, **options: Any) -> Any:
    return build(source, "packnet", **options)


def of_masks(strategy: Any, last: int) -> list[Tensor]:
    """The values of the weights that tasks up to ``last`` keep."""
    model = strategy.model
    return [
        weight.detach()[kept].clone() for weight, kept in zip(model.weights(), model.kept_weights(0, last), strict=True)
    ]


@each_learning
def test_kept_weights_keep_their_bits(options: dict[str, Any]) -> None:
    """Through training and retraining of later tasks, with momentum and weight decay; so do logits of every task."""
    source = stream()
    strategy, scenario = packnet(source, **options, **DECAY), source.avalanche()
    kept: list[list[Tensor]] = []
    logits: list[Tensor] = []
    shared: dict[str, Tensor] = {}
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        for earlier, values in enumerate(kept):
            assert all(torch.equal(a, b) for a, b in zip(of_masks(strategy, earlier), values, strict=True))
            assert torch.equal(logits_of(strategy.model, source, earlier), logits[earlier])
        kept.append(of_masks(strategy, task))
        logits.append(logits_of(strategy.model, source, task))
        for weight, free in zip(strategy.model.weights(), strategy.model.free(), strict=True):
            assert not weight[free].any()
            assert bool(weight[~free].any())
        others = {
            name: tensor
            for name, tensor in weights(strategy.model.backbone).items()
            if name not in strategy.model.names
        }
        assert not shared or same(others, shared)
        shared = others


def test_stages_and_schedules() -> None:
    """Half of the epochs, at a tenth of the rate, again by a cosine; pruning passes no image."""
    source = stream()
    ended: list[StageProgress] = []
    strategy = packnet(source, **MLP, on_progress=lambda it: ended.append(it) if it.done else None)
    rates: list[tuple[str, float]] = []
    step = strategy.optimizer_step
    strategy.optimizer_step = lambda: (
        rates.append((strategy._stage.name, strategy.optimizer.param_groups[0]["lr"])),
        step(),
    )[1]
    learn(source, strategy, tasks=2)
    passes = [(it.stage, it.task, it.epochs, it.image_passes) for it in ended]
    assert passes == [
        ("training", 0, 4, 4 * 32),
        ("pruning", 0, 0, 0),
        ("retraining", 0, 2, 2 * 32),
        ("training", 1, 4, 4 * 48),
        ("pruning", 1, 0, 0),
        ("retraining", 1, 2, 2 * 48),
    ]
    assert list(dict.fromkeys(rates))[4:] == [("retraining", 0.1 * 0.1), ("retraining", pytest.approx(0.005))]
    cost = registry().strategies.find("packnet").factory.cost(context(source.plan, "packnet", MLP))
    told = [it for it in cost.stages if it.task < 2 and it.name not in ("evaluation", "pruning")]
    assert {(it.name, it.task): it.image_passes for it in told} == {(*of, task): n for *of, task, _, n in passes if n}
    assert sum(it.flops or 0 for it in ended) == sum(it.flops or 0 for it in told) > 0


@pytest.mark.long
def test_cost(command: Command) -> None:
    """Parameters are those of ``naive``; masks are one bit for each weight and task, and an eighth of a byte."""
    asked = ("--benchmark", "split_cifar10", "--protocol", "paper", "--format", "json", "--no-time")
    document = json.loads(command("cost", "--strategy", "packnet", *asked).out)
    naive = json.loads(command("cost", "--strategy", "naive", *asked).out)
    convolutions = 27 * 64 + 9 * 64 * 128 + 9 * 128 * 256
    count = convolutions + 4096 * 2048 + 2048 * 2048
    assert document["mask_bits"] == [count * task for task in range(1, 6)]
    for name in ("params_total", "macs"):
        assert document[name] == naive[name]
    kept = [kept + task * -(-count // 8) for task, kept in enumerate(naive["memory_bytes"], start=1)]
    assert document["memory_bytes"] == document["memory_bytes_min"] == kept
    assert document["stages"]["training"] == naive["stages"]["training"]
    assert 2 * document["stages"]["retraining"]["train"] == document["stages"]["training"]["train"]
    assert 2 * document["train_flops"] == 3 * naive["train_flops"]
