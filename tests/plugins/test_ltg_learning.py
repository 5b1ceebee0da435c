"""Learn to Grow: adapters and paths, streams, and states."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping

import pytest
import torch
from support.plugins.ltg import (
    ADAPT,
    LIVELY,
    REUSE,
    grown,
    images,
    network,
    positions,
    rectified,
    search,
    stream,
)
from support.tiny import (
    all_threads,
    build,
    class_stream,
    learn,
    logits_of,
    one_thread,
    same,
    weights,
)
from torch import Tensor, nn

from seu_bench.config.protocol import Schedule
from seu_bench.errors import RunError
from seu_bench.models.sizes import count_parameters
from seu_bench.results.record import Record
from seu_bench.training.stage import StageProgress, TaskData
from seu_bench_kit.blocks import AlexNetShape
from seu_bench_ltg.method import StructureSearch
from seu_bench_ltg.network import Choice, Decision, GrowingLayer, Position, Stop

setup_module, teardown_module = one_thread, all_threads


# --- adapters count, and old paths keep theirs ------------------------------------------------------------------------


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


@pytest.mark.long
def test_depends_on_the_seed_alone() -> None:
    """The same seed gives the same structure and bits whatever was drawn before; another seed gives others."""
    found = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        strategy = learn(stream(), build(stream(), "ltg", seed=seed, **LIVELY))
        found.append((strategy.describe(), weights(strategy.model)))
    assert found[0][0] == found[1][0] and same(found[0][1], found[1][1])
    assert not same(found[0][1], found[2][1])


# --- the stage --------------------------------------------------------------------------------------------------------


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
    plain = build(source, "ltg", **given)
    assert plain.options.searching(plain.schedule) == Schedule(**{**given, "weight_decay": 0.0003})
    assert (plain.options.size_penalty, plain.options.arch_learning_rate) == (0.001, 0.025)
    own = {"search_epochs": 3, "search_weight_decay": 0.2, "arch_learning_rate": 0.5, "arch_weight_decay": 0.6}
    other = build(source, "ltg", **given, **own, size_penalty=0, lr_schedule="constant", restore="last")
    stage = other.search_stage(TaskData(1, source.tasks[1].train, source.tasks[1].valid))
    assert (stage.epochs, stage.schedule.epochs, stage.optimizer.param_groups[0]["weight_decay"]) == (3, 3, 0.2)
    group = stage.arch_optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], stage.options.size_penalty) == (0.5, 0.6, 0)
    stage.run()
    assert stage.optimizer.param_groups[0]["lr"] == 0.2 and stage.best.loss == math.inf
