"""DEN as a strategy: stages and what each moves, earlier tasks while the network grows, resuming, costs, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support.tiny import all_threads, one_thread

from seu_bench.errors import RequestError
from seu_bench.testing import Learner, Trial
from seu_bench_den.method import Den

#: Every stage runs.
ALWAYS = {"loss_threshold": 0.0, "split_threshold": 0.0, "epochs": 2, "width": 0.05, "expand_by": 3, "split_limit": 2}
#: Neither expansion nor splitting does.
NEVER = {"loss_threshold": 1e9, "split_threshold": 1e9, "epochs": 2, "width": 0.05}


def setup_module() -> None:
    one_thread()


def teardown_module() -> None:
    all_threads()


def learner(options: dict[str, Any], benchmark: str = "tiny_two", **more: Any) -> Learner:
    return Trial("den", options).learner(benchmark, brief=False, **more)


@pytest.fixture
def reports() -> Iterator[Callable[[Learner], list[Any]]]:
    """Keeps the last report of each stage of a learner's strategy."""

    def watch(found: Learner) -> list[Any]:
        seen: list[Any] = []
        found.strategy.on_progress = lambda progress: seen.append(progress) if progress.done else None
        return seen

    yield watch


def test_stages(reports: Callable[[Learner], list[Any]]) -> None:
    """Their order, their length, and passes as the estimate says where all are needed."""
    found = learner(ALWAYS)
    seen = reports(found)
    found.learn_all()
    train, valid = (len(getattr(found.stream.tasks[0], name)) for name in ("train", "valid"))
    full = 2 * (train + valid)
    assert [(each.stage, each.task, each.epoch, each.image_passes) for each in seen] == [
        ("training", 0, 2, full),
        ("selection", 1, 2, 2 * train),
        ("training", 1, 2, full),
        ("expansion", 1, 2, full),
        ("drift", 1, 2, full),
        ("splitting", 1, 2, full),
    ]
    estimated = [stage for stage in found.cost.stages if stage.name != "evaluation"]
    assert {(cost.name, cost.task): cost.image_passes for cost in estimated} == {
        (each.stage, each.task): each.image_passes for each in seen
    }


def test_stages_that_are_not_needed(reports: Callable[[Learner], list[Any]]) -> None:
    """The network is as large as at first, but for the new head; sizes are the least of the estimate."""
    found = learner(NEVER)
    seen = reports(found)
    found.learn_all()
    assert [each.epoch for each in seen if each.stage in ("expansion", "splitting")] == [0, 0]
    assert found.model.widths(1) == found.model.widths(0) == (20, 20)
    assert found.sizes.params_total[1] == found.cost.params_total_min[1]


def test_each_stage_moves_what_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The selection moves the head, the retraining the sub-graph, the expansion what was added, the others all."""
    found = learner(ALWAYS)
    found.learn(0)
    moved: dict[str, set[str]] = {}
    before: dict[str, torch.Tensor] = {}
    trained = Den._trained

    def watched(strategy: Den, task: Any, name: str, *arguments: Any, **more: Any) -> Any:
        stage = trained(strategy, task, name, *arguments, **more)
        before.clear()
        before.update({key: value.clone() for key, value in strategy.model.state_dict().items()})
        result = stage.result

        def ended() -> Any:
            done = result()
            now = strategy.model.state_dict()
            moved[name] = {key for key in now if not torch.equal(now[key], before[key])}
            return done

        stage.result = ended
        return stage

    def part(strategy: Den, task: Any) -> None:
        select(strategy, task)
        for units in strategy.reached:
            units[::2] = False

    select = Den._select
    monkeypatch.setattr(Den, "_trained", watched)
    monkeypatch.setattr(Den, "_select", part)
    found.learn(1)
    head = {"heads.1.weight", "heads.1.bias"}
    old = {f"layers.{index}.{kind}.0" for index in (0, 1) for kind in ("own", "biases")}
    new = {f"layers.{index}.{kind}.1" for index in (0, 1) for kind in ("own", "biases")} | {"layers.1.across.1"}
    assert moved["selection"] == head
    assert moved["training"] == head | old
    assert moved["expansion"] == head | new
    assert moved["drift"] == moved["splitting"] == head | old | new


def test_retraining_moves_the_subgraph_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the units reached, weights of the others keep their bits; those between reached ones move."""
    found = learner(NEVER)
    found.learn(0)
    kept: dict[str, Any] = {}
    select, expand = Den._select, Den._expand

    def part(strategy: Den, task: Any) -> None:
        select(strategy, task)
        for units in strategy.reached:
            units[::2] = False
        kept["before"] = [strategy.model.layer(index).weight(1).detach().clone() for index in (0, 1)]
        kept["reached"] = [units.clone() for units in strategy.reached]

    def measure(strategy: Den, task: Any, loss: float) -> None:
        kept["after"] = [strategy.model.layer(index).weight(1).detach().clone() for index in (0, 1)]
        expand(strategy, task, loss)

    monkeypatch.setattr(Den, "_select", part)
    monkeypatch.setattr(Den, "_expand", measure)
    found.learn(1)
    first, second = kept["reached"]
    changed = [one != other for one, other in zip(kept["before"], kept["after"], strict=True)]
    assert not bool(changed[0][~first].any())
    assert not bool(changed[1][~second].any())
    assert not bool(changed[1][:, ~first].any())
    assert bool(changed[0][first].any())
    assert bool(changed[1][second][:, first].any())


def test_split_restores_units() -> None:
    """With a threshold of 0 and no limit all old units are as before the task, at the moment that they are split."""
    found = learner({**ALWAYS, "split_limit": 100, "loss_threshold": 1e9})
    found.learn(0)
    before, seen = found.logits(0), []
    split = found.strategy._split

    def splitting(task: Any) -> None:
        drifted = found.logits(0)
        split(task)
        seen.append((drifted, found.logits(0)))

    found.strategy._split = splitting
    found.learn(1)
    ((drifted, restored),) = seen
    assert not torch.equal(drifted, before)
    assert torch.equal(restored, before)
    assert found.model.added(1) == (20, 20)


def test_sizes_at_most() -> None:
    """By hand, for 64 pixels, layers of 20, heads of 2, and 3 units added and 2 split in each later task."""
    cost = learner(ALWAYS, "tiny_three").cost

    def path(units: int) -> int:
        return 65 * units + (units + 1) * units + 2 * (units + 1)

    heads = [2 * (units + 1) for units in (20, 25)]
    assert cost.params_total == (path(20), path(25) + heads[0], path(30) + sum(heads))
    assert cost.params_total_min == (path(20), path(20) + heads[0], path(20) + 2 * heads[0])
    assert cost.macs == tuple(64 * units + units * units + 2 * units for units in (20, 25, 30))
    assert cost.memory_bytes == tuple(4 * params for params in cost.params_total)


@pytest.mark.parametrize(
    ("backbone", "told"),
    [
        ("alexnet", "linear layers alone: this one has convolutions"),
        ("resnet18", "needs a backbone that is a chain"),
        ("linear", "needs a backbone that is a chain"),
    ],
)
def test_other_backbones_are_refused(backbone: str, told: str) -> None:
    with pytest.raises(RequestError, match=told) as error:
        learner({"backbone": backbone})
    assert error.value.remedy == "choose one with -o backbone=mlp or -o backbone=den_mlp"
