"""Learn to Grow: the mixture, the steps of its search, and what it finds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest
import torch
from support.commands import Command
from support.tiny import (
    CPU,
    build,
    class_stream,
    context,
    registry,
    same,
    weights,
)
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.config.protocol import Schedule
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.training.interfaces import Cost
from seu_bench.training.stage import TaskData
from seu_bench_kit.blocks import AlexNetShape
from seu_bench_ltg.method import LearnToGrow, StructureSearch
from seu_bench_ltg.network import Choice, Decision, GrowingAlexNet, Mixture, Stop

#: One channel, 8x8, without dropout: what is computed has one answer.
SHAPE = AlexNetShape(1, 8, 8, (2, 3, 4), 5, dropout=(0.0,) * 5)


#: What becomes of a layer: its kind and its unit.
NEW, REUSE, ADAPT = (Choice("new", 1), Choice("reuse", 0), Choice("adapt", 0))


def network(shape: AlexNetShape = SHAPE, classes: tuple[int, ...] = (2, 3, 2, 2)) -> Any:
    """A network that learned its first task: one frozen unit per layer, weights from seed 0."""
    torch.manual_seed(0)
    model = GrowingAlexNet(shape, classes)
    model.grow_anew(0)
    model.freeze()
    return model


def grown(model: GrowingAlexNet, task: int, *choices: Choice) -> None:
    """Let a task choose, with fresh modules, and freeze it."""
    decisions = []
    for index, choice in enumerate(choices):
        layer = model.layer(index)
        made = {"new": layer.make_unit, "adapt": layer.make_adapter, "reuse": lambda: None}[choice.kind]()
        decisions.append(Decision(choice, made))
    model.grow(task, decisions)
    model.freeze()


def images(count: int = 12, task: int = 1, seed: int = 0) -> TaskImages:
    """Noise with two labels."""
    generator = torch.Generator().manual_seed(seed)
    store = torch.randn(count, 1, 8, 8, generator=generator)
    return TaskImages(store, torch.arange(count), torch.arange(count) % 2, task, 1)


def search(
    model: GrowingAlexNet,
    data: TaskImages,
    *,
    valid: TaskImages | None = None,
    mixture: Mixture | None = None,
    batch: int = 64,
    epochs: int = 4,
    seed: int = 3,
    cosine: bool = True,
    schedule: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> StructureSearch:
    """The search of task 1, by default with a mixture from a fixed seed."""
    torch.manual_seed(1)
    training = Schedule(epochs=epochs, batch_size=batch, **schedule)
    method = LearnToGrow(model=model, schedule=training, seed=seed, lr_schedule="cosine" if cosine else "constant")
    method.begin(LearnToGrow.Options(search_weight_decay=training.weight_decay, **options), stream().plan)
    return StructureSearch(method, TaskData(1, data, valid), mixture or Mixture(model, 1))


def rectified(x: Tensor) -> Tensor:
    """ReLU and, of images, pooling: written as it is defined, without the layer's own code."""
    x = x.clamp(min=0)
    return x if x.dim() == 2 else x.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(-2, -1))


def stream(**more: Any) -> TaskStream:
    """Three tasks, heads of unequal width."""
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], **{"images": 16, **more})


def mixed_by_hand(model: GrowingAlexNet, mixture: Mixture, x: Tensor) -> Tensor:
    """The mixture's logits by the formula: every candidate computed by itself, from its own parts."""
    for layer, mixed in zip(map(model.layer, range(5)), mixture.mixed_layers(), strict=True):
        x = x.flatten(1) if layer.linear else x
        outputs = []
        for choice in mixed.candidates:
            if choice.kind == "new":
                parts = [mixed.unit(x)]
            else:
                parts = [part(x) for part in (layer.units[choice.unit], *layer.adapters_of(choice.unit))]
            if choice.kind == "adapt":
                parts.append(mixed.adapters[choice.unit](x))
            outputs.append(rectified(sum(parts)))
        exponentials = mixed.architecture.exp()
        x = sum(each * out for each, out in zip(exponentials / exponentials.sum(), outputs, strict=True))
    return functional.linear(x, model.heads[1].weight, model.heads[1].bias)


def penalty_by_hand(mixture: Mixture) -> Tensor:
    """R of a network of :data:`SHAPE` from the sizes of its additions, written out."""
    adapters, units = (1 * 2 + 2, 2 * 3 + 3, 3 * 4 + 4, None, None), (20, 57, 112, 25, 30)
    total = torch.zeros(())
    for mixed, adapter, unit in zip(mixture.mixed_layers(), adapters, units, strict=True):
        weights_ = mixed.architecture.exp() / mixed.architecture.exp().sum()
        total = total + weights_[-1] * math.log10(1 + unit)
        if adapter is not None:
            count = len(mixed.adapters)
            total = total + weights_[count : 2 * count].sum() * math.log10(1 + adapter)
    return total


@pytest.fixture
def stacked() -> GrowingAlexNet:
    """Two units per layer, and an adapter at the first one's convolutions."""
    model = network()
    grown(model, 2, ADAPT, ADAPT, ADAPT, REUSE, REUSE)
    grown(model, 3, NEW, NEW, NEW, NEW, NEW)
    return model


def test_mixture_is_the_formula(stacked: GrowingAlexNet) -> None:
    """Logits of two units, one with an adapter already, are those of every candidate computed by itself."""
    mixture = Mixture(stacked, 1)
    x = images().store
    torch.testing.assert_close(mixture(stacked, x), mixed_by_hand(stacked, mixture, x), rtol=1e-5, atol=1e-6)


def test_penalty_by_hand(stacked: GrowingAlexNet) -> None:
    """R counts what adapting and new units would add, by their softmax weights; reuse is free."""
    mixture = Mixture(stacked, 1)
    torch.testing.assert_close(mixture.penalty(), penalty_by_hand(mixture))
    single = network()
    mixture = Mixture(single, 1)
    for mixed in mixture.mixed_layers():
        nn.init.zeros_(mixed.architecture)
    adapt, new = (math.log10(5), math.log10(10), math.log10(17)), tuple(map(math.log10, (21, 58, 113, 26, 31)))
    expected = (sum(adapt) + sum(new[:3])) / 3 + sum(new[3:]) / 2
    assert mixture.penalty().item() == pytest.approx(expected, rel=1e-6)


def loss_by_hand(stage: StructureSearch, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy plus the penalty, both by hand."""
    logits = mixed_by_hand(stage.model, stage.mixture, x)
    chosen = logits.gather(1, y[:, None]).flatten()
    return (logits.logsumexp(dim=1) - chosen).mean() + stage.options.size_penalty * penalty_by_hand(stage.mixture)


def adam_by_hand(stage: StructureSearch, x: Tensor, y: Tensor) -> list[Tensor]:
    """The architecture weights after a first step of Adam: whatever the momenta, along g / (|g| + eps)."""
    found = []
    for a, gradient in zip(
        stage.architecture, torch.autograd.grad(loss_by_hand(stage, x, y), stage.architecture), strict=True
    ):
        g = gradient + 0.01 * a.detach()
        found.append(a.detach() - 0.05 * g / (g.abs() + 1e-8))
    return found


def sgd_by_hand(stage: StructureSearch, x: Tensor, y: Tensor) -> list[Tensor]:
    """The other weights after a first step of SGD at rate 0.1, decay 0.02, the gradient cut to norm 0.05."""
    gradients = torch.autograd.grad(loss_by_hand(stage, x, y), stage.weights)
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    assert norm > 0.05
    return [
        w.detach() - 0.1 * (g * 0.05 / (norm + 1e-6) + 0.02 * w.detach())
        for w, g in zip(stage.weights, gradients, strict=True)
    ]


STEP: dict[str, Any] = {
    "size_penalty": 0.3,
    "arch_learning_rate": 0.05,
    "arch_weight_decay": 0.01,
    "schedule": {"learning_rate": 0.1, "weight_decay": 0.02, "clip_norm": 0.05},
}


def test_architecture_step(stacked: GrowingAlexNet) -> None:
    """Adam on the gradient that autograd finds of the formula; no other weight moves, and none gets a gradient."""
    stage = search(stacked, images(), **STEP)
    x, y = images(seed=5).store, images().labels
    expected, old, new = adam_by_hand(stage, x, y), weights(stacked), [w.detach().clone() for w in stage.weights]
    stage.arch_step(x, y)
    for a, by_hand in zip(stage.architecture, expected, strict=True):
        torch.testing.assert_close(a.detach(), by_hand, rtol=1e-4, atol=1e-5)
    assert same(weights(stacked), old)
    assert all(torch.equal(one, other) for one, other in zip(stage.weights, new, strict=True))
    assert all(weight.grad is None for weight in stage.weights)


def test_weight_step(stacked: GrowingAlexNet) -> None:
    """SGD with decay and clipping on the formula's gradient; architecture weights, old units, old adapters and the
    other heads stay."""
    stage = search(stacked, images(), **STEP)
    x, y = images(seed=5).store, images().labels
    expected, old = sgd_by_hand(stage, x, y), weights(stacked)
    architecture = [a.detach().clone() for a in stage.architecture]
    stage.weight_step(x, y)
    for weight, by_hand in zip(stage.weights, expected, strict=True):
        torch.testing.assert_close(weight.detach(), by_hand, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(one, other) for one, other in zip(stage.architecture, architecture, strict=True))
    moved = {name for name, tensor in stacked.state_dict().items() if not torch.equal(tensor, old[name])}
    assert moved == {"heads.1.weight", "heads.1.bias"}
    assert {id(parameter) for parameter in stage.weights}.isdisjoint(id(p) for p in stacked.layers.parameters())


def test_an_epoch_alternates_on_the_halves() -> None:
    """An epoch of one batch: first the architecture on the second half, then the weights on the first."""
    stage = search(network(), images(), **STEP)
    first, second = images().halves()
    expected = adam_by_hand(stage, *second.gather(torch.arange(6)))
    with torch.no_grad():
        begun = [a.clone() for a in stage.architecture]
        for a, moved in zip(stage.architecture, expected, strict=True):
            a.copy_(moved)
    by_hand = sgd_by_hand(stage, *first.gather(torch.arange(6)))
    with torch.no_grad():
        for a, before in zip(stage.architecture, begun, strict=True):
            a.copy_(before)
    stage.advance()
    for found, wanted in zip([*stage.architecture, *stage.weights], [*expected, *by_hand], strict=True):
        torch.testing.assert_close(found.detach(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "size", "first_adapter", "column"), [(3, 32, 256, 12_957_824), (1, 28, 128, 9_286_656)]
)
def test_published_sizes(channels: int, size: int, first_adapter: int, column: int) -> None:
    """Adapters and a whole new column at full width."""
    with torch.device("meta"):
        model = GrowingAlexNet(AlexNetShape.of(channels, size, size), (2,))
        adapters = [model.layer(index).make_adapter() for index in range(3)]
        heads = count_parameters(model)
        model.grow_anew(0)
    assert [count_parameters(adapter) for adapter in adapters] == [first_adapter, 8320, 33_024]
    assert count_parameters(model) - heads == column


@pytest.mark.parametrize(
    ("benchmark", "least", "column"),
    [
        ("split_cifar10", 12_978_314, 12_957_824),
        ("split_cifar100", 13_162_724, 12_957_824),
        ("mixture", 13_097_156, 12_957_824),
        ("pmnist", 9_491_556, 9_286_656),
    ],
)
def test_cost_is_from_all_reused_to_all_new(command: Command, benchmark: str, least: int, column: int) -> None:
    """At least the fixed network's size; at most a column more for each later task."""
    answer = command(
        *("cost", "--no-time", "--format", "json", "--strategy", "ltg", "--benchmark", benchmark, "--protocol", "paper")
    )
    assert answer.status == 0
    document = json.loads(answer.out)
    tasks = len(document["tasks"])
    assert document["params_total_min"] == [least] * tasks
    assert document["params_total"] == [least + task * column for task in range(tasks)]
    if benchmark == "pmnist":
        adapters = 784 * 64 + 196 * 64 * 128 + 49 * 128 * 256
        assert document["macs"] == [document["macs_min"][0] + task * adapters for task in range(10)]
        half, steps = 54_000 // 2, -(-27_000 // 128)
        assert document["stages"]["search"] == {
            "train": 9 * 50 * (half + steps * 128),
            "evaluate": 9 * 50 * 6000,
            "image_passes": 9 * 50 * (half + steps * 128 + 6000),
        }


def cost_of(source: TaskStream, options: Mapping[str, Any]) -> Cost:
    found: Cost = registry().strategies.find("ltg").factory.cost(context(source.plan, "ltg", options))
    return found


def rescaled(module: nn.Module) -> None:
    """He's initialisation of what trains: narrow layers then hand on signals of the size that they get."""
    for part in module.modules():
        if isinstance(part, (nn.Conv2d, nn.Linear)) and part.weight.requires_grad:
            nn.init.kaiming_normal_(part.weight)
            nn.init.zeros_(part.bias)


def test_best_state_and_its_choice_are_restored() -> None:
    """The candidates of the lowest validation loss, penalty included, are chosen, with their weights then."""
    valid = images(24, seed=7)  # other noise, of which nothing can be learned: its loss goes up and down
    model = network()
    rescaled(model.requires_grad_(True))
    model.freeze()
    schedule = {"learning_rate": 0.3}
    stage = search(
        model, images(24), valid=valid, batch=3, epochs=8, size_penalty=0.02, cosine=False, schedule=schedule
    )
    rescaled(stage.mixture)
    losses, kept = [], []
    while stage.epoch < stage.epochs:
        stage.advance()
        with torch.no_grad():
            losses.append(float(loss_by_hand(stage, valid.store, valid.labels)))
        kept.append(weights(stage.mixture))
    best = losses.index(min(losses))
    assert 0 < best < 7
    stage.run()
    assert stage.best.loss == pytest.approx(losses[best], rel=1e-5)
    assert same(weights(stage.mixture), kept[best])


def test_the_largest_path_is_the_cost() -> None:
    """A path through all adapters has exactly the most multiply-accumulates, one of new units the least."""
    source = stream()
    options = {"width": 0.25}
    cost = cost_of(source, options)
    for kind, expected in (("adapt", cost.macs), ("new", cost.macs_min)):
        model: GrowingAlexNet = build(source, "ltg", **options).model
        model.grow_anew(0)
        for task in (1, 2):
            new = Choice("new", task)
            grown(model, task, *[Choice("adapt", 0) if kind == "adapt" else new] * 3, *[new] * 2)
        model.eval()
        for task in range(3):
            found = count_macs(lambda x, task=task, model=model: model(x, task), (1, 8, 8), CPU)  # type: ignore[misc]
            assert found == expected[task]
    assert all(before < after for before, after in pairwise(cost.macs[::2]))


def test_adapters_stack() -> None:
    """Three tasks adapt one unit: each path has the adapters that were there when it was made, and a reuse those of
    its own time; outputs are the sum of terms by hand."""
    model = network()
    x = images().store
    logits: list[Tensor] = []
    model.eval()
    for task, first in enumerate((None, ADAPT, ADAPT, REUSE)):
        if first is not None:
            grown(model, task, first, *[REUSE] * 4)
        with torch.no_grad():
            logits.append(model(x, task))
            assert all(torch.equal(model(x, earlier), logits[earlier]) for earlier in range(task + 1))
    assert [model.paths[task][0] for task in range(4)] == [Stop(0, count) for count in (0, 1, 2, 2)]
    layer = model.layer(0)
    parts = [part(x) for part in (layer.units[0], *layer.adapters_of(0))]
    for count in range(3):
        torch.testing.assert_close(layer(x, Stop(0, count)), rectified(sum(parts[: count + 1])))
    path = count_parameters(model.task_module(2)) - count_parameters(model.heads[2])
    assert path == 20 + 57 + 112 + 25 + 30 + 2 * 4
