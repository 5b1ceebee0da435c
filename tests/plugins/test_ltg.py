"""Learn to Grow: the mixture and its steps are the formulas', the right choice is found, adapters count, nothing old
ever changes."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from support.commands import Command
from support.tiny import (
    CPU,
    all_threads,
    build,
    class_stream,
    context,
    learn,
    logits_of,
    one_thread,
    raw_dataset,
    registry,
    same,
    weights,
)
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.cli.tables import record_summary
from seu_bench.config.protocol import Schedule
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream
from seu_bench.errors import RunError
from seu_bench.models.alexnet import AlexNetShape
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.results.record import Record
from seu_bench.training.interfaces import Cost
from seu_bench.training.stage import StageProgress
from seu_bench.training.task import TaskData
from seu_bench_ltg.costing import arch_batches
from seu_bench_ltg.layer import Choice, Decision, GrowingLayer, Position, Stop
from seu_bench_ltg.mixture import Mixture
from seu_bench_ltg.model import GrowingAlexNet
from seu_bench_ltg.search import SearchSettings, StructureSearch

setup_module, teardown_module = one_thread, all_threads

positions = pytest.mark.parametrize("position", ["pre", "post"])

#: One channel, 8x8, without dropout: what is computed has one answer.
SHAPE = AlexNetShape(1, 8, 8, (2, 3, 4), 5, dropout=(0.0,) * 5)

#: What becomes of a layer: its kind and its unit.
NEW, REUSE, ADAPT = (Choice("new", 1), Choice("reuse", 0), Choice("adapt", 0))


def network(position: Position = "pre", shape: AlexNetShape = SHAPE, classes: tuple[int, ...] = (2, 3, 2, 2)) -> Any:
    """A network that learned its first task: one frozen unit per layer, weights from seed 0."""
    torch.manual_seed(0)
    model = GrowingAlexNet(shape, classes, position)
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


def rescaled(module: nn.Module) -> None:
    """He's initialisation of what trains: narrow layers then hand on signals of the size that they get."""
    for part in module.modules():
        if isinstance(part, (nn.Conv2d, nn.Linear)) and part.weight.requires_grad:
            nn.init.kaiming_normal_(part.weight)
            nn.init.zeros_(part.bias)


def search(model: GrowingAlexNet, data: TaskImages, *, batch: int = 64, seed: int = 3, **more: Any) -> StructureSearch:
    """The search of task 1 with a mixture from a fixed seed."""
    torch.manual_seed(1)
    mixture = Mixture(model, 1)
    schedule = Schedule(epochs=more.pop("epochs", 4), batch_size=batch, **more.pop("schedule", {}))
    valid = more.pop("valid", None)
    return StructureSearch(
        model, mixture, TaskData(1, data, valid), SearchSettings(schedule=schedule, **more), seed, CPU
    )


# --- the mixture --------------------------------------------------------------------------------------------------


def rectified(x: Tensor) -> Tensor:
    """ReLU and, of images, pooling: written as it is defined, without the layer's own code."""
    x = x.clamp(min=0)
    return x if x.dim() == 2 else x.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(-2, -1))


def mixed_by_hand(model: GrowingAlexNet, mixture: Mixture, x: Tensor) -> Tensor:
    """The mixture's logits by the formula: every candidate computed by itself, from its own parts."""
    for layer, mixed in zip(map(model.layer, range(5)), mixture.mixed(), strict=True):
        x = x.flatten(1) if layer.linear else x
        outputs = []
        for choice in mixed.candidates:
            if choice.kind == "new":
                parts = [mixed.unit(x)]
            else:
                parts = [part(x) for part in (layer.units[choice.unit], *layer.adapters_of(choice.unit))]
            if choice.kind == "adapt":
                parts.append(mixed.adapters[choice.unit](x))
            outputs.append(sum(map(rectified, parts)) if layer.position == "post" else rectified(sum(parts)))
        exponentials = mixed.architecture.exp()
        x = sum(each * out for each, out in zip(exponentials / exponentials.sum(), outputs, strict=True))
    return functional.linear(x, model.heads[1].weight, model.heads[1].bias)


def penalty_by_hand(mixture: Mixture) -> Tensor:
    """R of a network of :data:`SHAPE` from the sizes of its additions, written out."""
    adapters, units = (1 * 2 + 2, 2 * 3 + 3, 3 * 4 + 4, None, None), (20, 57, 112, 25, 30)
    total = torch.zeros(())
    for mixed, adapter, unit in zip(mixture.mixed(), adapters, units, strict=True):
        weights_ = mixed.architecture.exp() / mixed.architecture.exp().sum()
        total = total + weights_[-1] * math.log10(1 + unit)
        if adapter is not None:
            count = len(mixed.adapters)
            total = total + weights_[count : 2 * count].sum() * math.log10(1 + adapter)
    return total


@pytest.fixture(params=["pre", "post"])
def stacked(request: pytest.FixtureRequest) -> GrowingAlexNet:
    """Two units per layer, and an adapter at the first one's convolutions."""
    model = network(request.param)
    grown(model, 2, ADAPT, ADAPT, ADAPT, REUSE, REUSE)
    grown(model, 3, NEW, NEW, NEW, NEW, NEW)
    return model


def test_candidates() -> None:
    """c reuse, c adapt and one new in convolutions, c reuse and one new in linear layers, in this order."""
    model = network()
    grown(model, 3, NEW, NEW, NEW, NEW, NEW)
    found = [[str(choice) for choice in layer.candidates] for layer in Mixture(model, 1).mixed()]
    assert found == [["reuse 0", "reuse 1", "adapt 0", "adapt 1", "new"]] * 3 + [["reuse 0", "reuse 1", "new"]] * 2


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
    for mixed in mixture.mixed():
        nn.init.zeros_(mixed.architecture)
    adapt, new = (math.log10(5), math.log10(10), math.log10(17)), tuple(map(math.log10, (21, 58, 113, 26, 31)))
    expected = (sum(adapt) + sum(new[:3])) / 3 + sum(new[3:]) / 2
    assert mixture.penalty().item() == pytest.approx(expected, rel=1e-6)


def test_architecture_weights_begin_in_the_unit_interval() -> None:
    """They are drawn from U(0, 1), and not all alike."""
    torch.manual_seed(0)
    model = network()
    drawn = torch.cat([a.detach() for _ in range(40) for a in Mixture(model, 1).architecture()])
    assert 0 <= float(drawn.min()) < 0.05 and 0.95 < float(drawn.max()) < 1
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.05)


def test_dropout_of_candidates_is_drawn_for_each() -> None:
    """In training two outputs of one unit differ by their masks; in evaluation nothing is drawn."""
    model = network(shape=AlexNetShape(1, 8, 8, (2, 3, 4), 5))
    layer = model.layer(0)
    mixed = Mixture(model, 1).mixed()[0]
    for parameter in mixed.adapters.parameters():
        nn.init.zeros_(parameter)
    model.train()
    reuse, adapt, _ = mixed.outputs(layer, images().store)
    assert not torch.equal(reuse, adapt)
    model.eval()
    reuse, adapt, _ = mixed.outputs(layer, images().store)
    assert torch.equal(reuse, adapt)


# --- one step -----------------------------------------------------------------------------------------------------


def loss_by_hand(stage: StructureSearch, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy plus the penalty, both by hand."""
    logits = mixed_by_hand(stage.model, stage.mixture, x)
    chosen = logits.gather(1, y[:, None]).flatten()
    return (logits.logsumexp(dim=1) - chosen).mean() + stage.settings.size_penalty * penalty_by_hand(stage.mixture)


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


def test_best_state_and_its_choice_are_restored() -> None:
    """What is chosen are the candidates of the lowest validation loss, penalty included, with their weights then."""
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


def test_the_first_of_equal_candidates() -> None:
    """Ties go to the oldest unit; the largest weight wins otherwise."""
    mixture = Mixture(network(), 1)
    for mixed in mixture.mixed():
        nn.init.ones_(mixed.architecture)
    assert [str(decision.choice) for decision in mixture.decisions()] == ["reuse 0"] * 5
    with torch.no_grad():
        for mixed in mixture.mixed():
            mixed.architecture[1] = 2
    assert [str(decision.choice) for decision in mixture.decisions()] == ["adapt 0"] * 3 + ["new"] * 2


# --- the right choice ---------------------------------------------------------------------------------------------


def test_a_task_that_comes_again_reuses_everything() -> None:
    """Classes 4 and 5 look like 0 and 1: nothing is worth its size, and only the head trains."""
    source = class_stream([[0, 1], [4, 5]], images=32)
    options = {"epochs": 4, "batch_size": 8, "learning_rate": 0.05, "size_penalty": 0.1, "arch_learning_rate": 0.2}
    strategy = learn(source, build(source, "ltg", **options), tasks=1)
    before = weights(strategy.model)
    scenario = source.avalanche()
    strategy.train(scenario.train_stream[1], eval_streams=[scenario.streams["valid"]])
    assert strategy.describe()["choices"][1] == ("reuse 0",) * 5
    moved = {name for name, tensor in strategy.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"heads.1.weight", "heads.1.bias"}
    assert count_parameters(strategy.model) == sum(tensor.numel() for tensor in before.values())


def found(fault: str = "none", position: Position = "pre", colour: int = 0) -> list[str]:
    """What a search chooses over old units with a ``fault``, where labels are the sign of one of two colours.

    Faults: ``dead``, the first linear layer's unit is zero behind ReLU; ``blind``, the first convolution's unit does
    not see the second colour. Candidates start with equal weights.
    """
    torch.manual_seed(0)
    model = GrowingAlexNet(AlexNetShape(2, 8, 8, (6, 6, 6), 12, dropout=(0.0,) * 5), (2, 2), position)
    model.grow_anew(0)
    rescaled(model)
    if fault == "dead":
        nn.init.zeros_(model.layer(3).units[0].weight)
        nn.init.constant_(model.layer(3).units[0].bias, -50)
    elif fault == "blind":
        nn.init.zeros_(model.layer(0).units[0].weight[:, 1])
    model.freeze()
    labels = torch.arange(96) % 2
    store = 0.1 * torch.randn(96, 2, 8, 8)
    store[:, 1 - colour] += torch.randn(96, 1, 1)
    store[:, colour] += (2.0 * labels - 1)[:, None, None]
    data = TaskImages(store, torch.arange(96), labels, 1, 2)
    mixture = Mixture(model, 1)
    rescaled(mixture)
    for architecture in mixture.architecture():
        nn.init.zeros_(architecture)
    settings = SearchSettings(Schedule(epochs=12, batch_size=16, learning_rate=0.1), 0.04, 0.05)
    stage = StructureSearch(model, mixture, TaskData(1, data, data), settings, 0, CPU)
    return [str(decision.choice) for decision in stage.run()]


def test_useless_features_are_replaced() -> None:
    """A linear layer without a usable unit gets a new one; with the same unit alive it is reused."""
    assert found("none")[3] == "reuse 0"
    assert found("dead")[3] == "new"


@positions
def test_a_blind_unit_is_adapted(position: Position) -> None:
    """Of a colour that the old unit does not see an adapter is enough, and smaller than a new unit; of the one that it
    does see the old unit is."""
    assert found("blind", position, colour=0)[0] == "reuse 0"
    assert found("blind", position, colour=1)[0] == "adapt 0"


# --- adapters count, and old paths keep theirs --------------------------------------------------------------------


@positions
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_chosen_adapter_changes_the_output(position: Position, layer: int) -> None:
    """Another weight of the adapter is another output of its task, and of no earlier one."""
    model = network(position)
    grown(model, 1, *(ADAPT if index == layer else REUSE for index in range(5)))
    model.eval()
    x = images().store
    with torch.no_grad():
        before = [model(x, task) for task in (0, 1)]
        nn.init.constant_(model.layer(layer).adapters_of(0)[0].bias, 3.0)
        after = [model(x, task) for task in (0, 1)]
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


@positions
def test_adapters_stack(position: Position) -> None:
    """Three tasks adapt one unit: each path has the adapters that were there when it was made, and a reuse those of
    its own time; outputs are the sum of terms by hand."""
    model = network(position)
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
        terms = parts[: count + 1]
        by_hand = sum(map(rectified, terms)) if position == "post" else rectified(sum(terms))
        torch.testing.assert_close(layer(x, Stop(0, count)), by_hand)
    path = count_parameters(model.task_module(2)) - count_parameters(model.heads[2])
    assert path == 20 + 57 + 112 + 25 + 30 + 2 * 4


def test_decisions_must_fit() -> None:
    """No unit that is not there, no adapter of a linear layer, no module too many or too few."""
    layer = network().layer(0)
    linear = network().layer(4)
    wrong: list[tuple[GrowingLayer, Decision]] = [
        (layer, Decision(Choice("reuse", 1))),
        (layer, Decision(ADAPT)),
        (layer, Decision(REUSE, layer.make_adapter())),
        (layer, Decision(Choice("new", 0), layer.make_unit())),
        (linear, Decision(ADAPT, linear.make_unit())),
    ]
    for where, decision in wrong:
        with pytest.raises(ValueError, match="does not fit a layer of 1 units"):
            where.grow(decision, 1)


def test_an_unlearned_task_has_no_path() -> None:
    """It is refused with the way out."""
    with pytest.raises(RunError, match="task 3 has no path yet"):
        network()(images().store, 3)


def stream(**more: Any) -> TaskStream:
    """Three tasks, heads of unequal width."""
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], **{"images": 16, **more})


#: Structures that differ from task to task, in little time.
LIVELY: dict[str, Any] = {"epochs": 2, "batch_size": 8, "arch_learning_rate": 0.3, "size_penalty": 0.0}


@positions
def test_forgets_exactly_nothing(position: str) -> None:
    """After later tasks old weights, heads and logits have the same bits; the paths are described as they were."""
    source = stream()
    strategy = build(source, "ltg", adapter=position, **LIVELY)
    scenario = source.avalanche()
    kept: list[tuple[Mapping[str, Tensor], Tensor]] = []
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        kept.append((weights(strategy.model.task_module(task)), logits_of(strategy.model, source, task)))
        for earlier, (state, logits) in enumerate(kept):
            assert same(weights(strategy.model.task_module(earlier)), state)
            assert torch.equal(logits_of(strategy.model, source, earlier), logits)
    described = strategy.describe()
    assert described["choices"][0] == ("new",) * 5 and described["paths"][0] == (0,) * 5
    assert {choice for task in described["choices"][1:] for choice in task} != {"reuse 0"}
    for layer, made in enumerate(described["unit_tasks"]):
        news = [task for task in range(3) if described["choices"][task][layer] == "new"]
        assert list(made) == news
        for task in range(3):
            assert described["paths"][task][layer] == strategy.model.choices[task][layer].unit
    given = {"run_id": "a", "status": "running", "strategy": "ltg", "benchmark": "b", "benchmark_version": 1}
    record = Record(**given, protocol="p", seed=0, **described)
    assert Record.model_validate_json(record.model_dump_json()).choices == described["choices"]


def test_one_task() -> None:
    """Nothing is searched for where there is one task."""
    source = class_stream([[0, 1, 2]], images=16)
    seen: list[StageProgress] = []
    strategy = learn(source, build(source, "ltg", on_progress=seen.append))
    assert {report.stage for report in seen} == {"training"}
    assert logits_of(strategy.model, source, 0).shape == (36, 3)


def test_depends_on_the_seed_alone() -> None:
    """The same seed gives the same structure and bits whatever was drawn before; another seed gives others."""
    found = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        strategy = learn(stream(), build(stream(), "ltg", seed=seed, **LIVELY))
        found.append((strategy.describe(), weights(strategy.model)))
    assert found[0][0] == found[1][0] and same(found[0][1], found[1][1])
    assert not same(found[0][1], found[2][1])


# --- the stage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_resumes_bit_by_bit(epochs: int) -> None:
    """A new search that loads the state after some epochs ends as the uninterrupted one does."""

    def make() -> StructureSearch:
        # With dropout, and a validation loss that rises in the end.
        shape = AlexNetShape(1, 8, 8, (2, 3, 4), 5)
        return search(network(shape=shape), images(22), valid=images(seed=7), batch=4, arch_learning_rate=0.2)

    def ending(stage: StructureSearch) -> dict[str, Tensor]:
        chosen = [layer.candidates.index(d.choice) for layer, d in zip(stage.mixture.mixed(), stage.run(), strict=True)]
        measured = torch.tensor([stage.epoch, stage.image_passes, stage.best.loss, stage.report.loss or 0])
        return {**weights(stage.mixture), "chosen": torch.tensor(chosen), "measured": measured}

    expected = ending(make())
    first = make()
    for _ in range(epochs):
        first.advance()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = make()
    torch.manual_seed(99)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert second.epoch == epochs
    assert same(ending(second), expected)


@pytest.mark.parametrize(("cosine", "rates"), [(True, [0.1, 0.05]), (False, [0.1, 0.1])])
def test_rates(cosine: bool, rates: list[float]) -> None:
    """SGD follows the cosine or stays; Adam's rate stays, and its momenta are the paper's."""
    stage = search(network(), images(), epochs=2, cosine=cosine, schedule={"learning_rate": 0.1})
    found = []
    for _ in range(2):
        stage.advance()
        found.append(stage.optimizer.param_groups[0]["lr"])
    assert found == pytest.approx(rates)
    group = stage.arch_optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.025, (0.5, 0.999), 0.001)


def test_options_reach_the_search() -> None:
    """The search takes its own epochs and weight decay, and otherwise what training has."""
    source = stream()
    given = {"epochs": 7, "batch_size": 5, "weight_decay": 0.1, "learning_rate": 0.2, "momentum": 0.3, "clip_norm": 2}
    plain = build(source, "ltg", **given).search
    assert plain.schedule == Schedule(**{**given, "weight_decay": 0.0003})
    assert (plain.size_penalty, plain.arch_learning_rate, plain.arch_weight_decay) == (0.001, 0.025, 0.001)
    own = {"search_epochs": 3, "search_weight_decay": 0.2, "arch_learning_rate": 0.5, "arch_weight_decay": 0.6}
    other = build(source, "ltg", **given, **own, size_penalty=0, lr_schedule="constant", restore="last").search
    assert (other.schedule.epochs, other.schedule.weight_decay) == (3, 0.2)
    assert (other.size_penalty, other.arch_learning_rate, other.arch_weight_decay) == (0, 0.5, 0.6)
    assert (other.cosine, other.select) == (False, False)


# --- sizes and costs ----------------------------------------------------------------------------------------------


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
        *("cost", "--format", "json", "--strategy", "ltg", "--benchmark", benchmark, "--protocol", "paper")
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


@pytest.mark.parametrize("restore", ["best_valid", "last"])
def test_cost_holds(restore: str) -> None:
    """Sizes lie in the range, and image passes are exact, for halves that leave a batch of one image too."""
    source = class_stream([[0, 1], [2, 3, 4], [5, 6]], data=raw_dataset([17, 17, 16, 16, 16, 23, 23], [4] * 7))
    options = {**LIVELY, "restore": restore, "search_epochs": 3}
    seen: list[StageProgress] = []
    strategy = build(source, "ltg", on_progress=seen.append, **options)
    cost = cost_of(source, options)
    scenario = source.avalanche()
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        assert cost.params_total_min[task] <= count_parameters(strategy.model) <= cost.params_total[task]
    found = {(report.stage, report.task): report.image_passes for report in seen if report.done}
    assert found == {(s.name, s.task): s.image_passes for s in cost.stages if s.name != "evaluation"}


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


def test_architecture_batches_are_those_of_the_loader() -> None:
    """The closed form of an epoch's steps counts the batches that are made."""
    for count in range(2, 40):
        data = images(count)
        for size in (1, 2, 3, 8, 64):
            first, second = data.halves()
            made = list(first.batches(size, shuffle=True))
            expected = (len(made), min(size, len(second)))
            assert arch_batches(count, Schedule(batch_size=size)) == expected


def test_no_image_to_spare() -> None:
    """One training image leaves the first half empty: no step is made, and nothing breaks."""
    stage = search(network(), images(1))
    assert len(stage.run()) == 5
    assert stage.image_passes == 0 == arch_batches(1, Schedule())[0]


def test_nothing_outside_is_disturbed() -> None:
    """Making and running a search draws nothing from whoever is outside."""
    source = stream()
    strategy = build(source, "ltg", **LIVELY)
    torch.manual_seed(5)
    np.random.seed(5)
    expected = (torch.rand(2).tolist(), np.random.rand(2).tolist())
    torch.manual_seed(5)
    np.random.seed(5)
    learn(source, strategy)
    assert (torch.rand(2).tolist(), np.random.rand(2).tolist()) == expected


def test_choices_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A reader of the record sees them in words, literally."""
    given = {"run_id": "a", "status": "running", "strategy": "ltg", "benchmark": "b", "benchmark_version": 1}
    record = Record(**given, protocol="p", seed=0, choices=(("new", "new"), ("reuse 0", "[bold]adapt 0")))
    Console(width=100).print(record_summary(record))
    assert "- task 1: reuse 0, [bold]adapt 0\n" in capsys.readouterr().out.replace(" \n", "\n")
