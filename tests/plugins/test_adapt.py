"""Adapted units: they begin as the old ones, leave them alone, train, are counted, told, reused and forecast."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import Command
from support.components import all_of, creation, grown
from support.components import task_of as creation_task
from support.tiny import all_threads, one_thread, same, weights
from torch import nn

import seu_bench
from seu_bench.models.sizes import count_parameters, state_bytes
from seu_bench.results.record import read_record
from seu_bench.testing import Trial
from seu_bench_kit import Adapted
from seu_bench_seu.adapt import AdaptCreation, wrap
from seu_bench_seu.options import ADAPTER
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads


def inputs(layer: int, model: SuperModel) -> tuple[torch.Tensor, ...]:
    """What a unit of a layer is called with."""
    if layer == 0:
        return (torch.rand(6, 1, 8, 8),)
    place = model.places[layer - 1]
    side = 8 // 2 ** sum(it.reduction for it in model.places[: layer - 1])
    older = side * 2 if place.after_reduction else side
    return torch.rand(6, place.older, older, older), torch.rand(6, place.newer, side, side)


@pytest.mark.parametrize("rank", [None, 1])
@pytest.mark.parametrize("layer", range(4))
def test_begins_as_the_old_unit_which_stays(layer: int, rank: int | None) -> None:
    """Bit by bit in evaluation; in training it computes as a copy in training mode, and its own statistics move."""
    model = grown()
    old = model.unit(layer, 0)
    x, adapter = inputs(layer, model), wrap({**ADAPTER, "rank": rank}, old, model.outputs[layer])
    before, twin = weights(old), copy.deepcopy(old)
    adapter.eval()
    assert torch.equal(adapter(old, *x), old(*x))
    adapter.train()
    twin.frozen = False
    twin.train()
    y = adapter(old, *x)
    assert torch.equal(y, twin(*x))
    y.sum().backward()
    assert adapter.weights[-1].grad.abs().sum() > 0
    assert same(weights(old), before) and not any(it.training for it in old.modules())
    assert len(adapter.norms) > 0
    for own, name in zip(adapter.norms, adapter.names, strict=True):
        statistics = dict(twin.get_submodule(name).named_buffers())
        assert same(dict(own.named_buffers()), statistics)
        assert not same(statistics, dict(old.get_submodule(name).named_buffers()))


def test_old_unit_is_itself_after_a_failure() -> None:
    """Modes and momentum are given back."""
    model = grown()
    old: Any = model.unit(1, 0)
    adapter = wrap(ADAPTER, old, model.outputs[1])
    adapter.norms[0].momentum = 0.5
    with pytest.raises(TypeError):
        adapter(old)
    assert not any(it.training for it in old.modules())
    assert {it.momentum for it in old.modules() if isinstance(it, nn.BatchNorm2d)} == {0.1}


@pytest.mark.parametrize("stem", ["selectable", "shared"])
def test_candidates(stem: str) -> None:
    """Each old unit adapted, and the new one; a shared stem as it is; what was adapted is not adapted again."""
    model = grown(stem=stem)
    stage = creation("adapt", model)
    assert isinstance(stage, AdaptCreation)
    old = [[it.old for it in units if isinstance(it, Adapted)] for units in stage.units]
    assert old == [[] if stem == "shared" else [0], [0, 1], [0], [0, 1]]
    assert [units[-1] for units in stage.units] == [count - 1 for count in model.candidates]
    path = tuple(units[0] for units in stage.units)
    model.keep(2, path)
    model.freeze()
    model.expand(model.space.from_dict(model.unit_genotypes[1][0]), 3)
    again = AdaptCreation(stage.options, creation_task(model, 3))  # type: ignore[arg-type]
    assert [[it.old for it in units if isinstance(it, Adapted)] for units in again.units] == old
    assert model.path_fault([Adapted(2, ADAPTER, nn.Identity())] * 4) is not None
    model.set_path(3, model.paths[2])  # as it is, an adapted unit is one like others


def test_only_the_chosen_adapters_are_stored() -> None:
    """Parameters and bytes are those of the model before, and of the adapters on the path."""
    model = grown()
    stage = creation("adapt", model)
    path = list(stage.run())
    path[1:3] = [stage.units[1][0], stage.units[2][0]]  # type: ignore[attr-defined]
    path[0], path[3] = (model.candidates[layer] - 1 for layer in (0, 3))
    new = [model.unit(layer, -1) for layer in (1, 2)]
    adapters = [it.module for it in path if isinstance(it, Adapted)]
    expected = [
        count(model) - count(*new) + count(*adapters) for count in (lambda *it: count_parameters(*it), state_bytes)
    ]
    x = all_of(creation_task(model).images)[0]
    model.eval()
    model.set_path(2, path)
    before = model.forward_single_task(x, 2)
    model.keep(2, path)
    assert [count_parameters(model), state_bytes(model)] == expected
    assert torch.equal(model.forward_single_task(x, 2), before)
    assert model.choices(2, model.paths[2]) == ("new", "adapt", "adapt", "new")
    assert count_parameters(model.task_module(2)) == count_parameters(
        *adapters, model.unit(0, -1), model.unit(3, -1), model.unit(1, 0), model.unit(2, 0), model.heads[2]
    )
    moving = {id(it) for it in model.trainable_module(2).parameters()}
    assert all(id(it) in moving for adapter in adapters for it in adapter.parameters())
    assert not any(id(it) in moving for it in model.unit(1, 0).parameters())
    assert "unit 2 of layer 1" not in model.frozen_state()
    model.freeze()
    assert "module.weights.0" in model.frozen_state()["unit 2 of layer 1"]


def test_other_genotypes_are_refused() -> None:
    """Such as that of another version."""
    with pytest.raises(ValueError, match="an adapter is"):
        wrap({"adapter": "3x3"}, grown().unit(0, 0), 6)


@pytest.mark.long
@pytest.mark.parametrize("space", ["darts_cell", "mbconv", "dense"])
@pytest.mark.parametrize("stem", ["selectable", "shared"])
def test_forecast_is_a_bound(space: str, stem: str) -> None:
    """Sizes and operations of paths that are all adapted, all new, and mixed, lie in the range."""
    for choose in (0, -1, None):
        learner = Trial(
            "seu", {"space": space, "stem": stem, "channels": 6}, searcher="random", creator="adapt"
        ).learner("tiny_three")
        if choose is not None:
            strategy = learner.strategy
            strategy._creation = _chooses(strategy, choose, strategy._creation)
        learner.learn_all()
        cost = learner.cost
        for low, found, high in (
            (cost.params_total_min, learner.sizes.params_total, cost.params_total),
            (cost.macs_min, learner.sizes.macs, cost.macs),
        ):
            assert all(a <= b <= c for a, b, c in zip(low, found, high, strict=True)), (choose, low, found, high)
        assert cost.memory_bytes_min[-1] <= state_bytes(learner.model) <= cost.memory_bytes[-1]


def _chooses(strategy: Any, at: int, usual: Any) -> Any:
    def creation(task: Any) -> Any:
        stage = usual(task)
        stage.inner.result = lambda: tuple(units[at] for units in stage.inner.units)
        return stage

    return creation


EXAMPLE = Path(seu_bench.__file__).resolve().parents[1] / "examples" / "scaled_units.py"


@pytest.mark.long
def test_example(command: Command, tmp_path: Path) -> None:
    """The tutorial's creator holds to the contract, and its run is told, forecast and verified."""
    assert command("check-plugin", EXAMPLE).status == 0
    few = ("--plugin", EXAMPLE, "--protocol", "smoke", "--creator", "scaled", "-o", "genotype=darts_v1", "-q")
    for shift in ("true", "false"):
        folder = tmp_path / shift
        answer = command("run", *few, "-o", f"creator.shift={shift}", "--results", folder)
        assert answer.status == 0, answer.err
        (run,) = (folder / "runs").iterdir()
        record = read_record(run)
        assert record.choices == (("new",) * 4, *[("adapt",) * 4] * 4)
        assert record.metrics["forgetting"] == 0
        answer = command("verify", run, "--plugin", EXAMPLE)
        assert answer.status == 0 and "no difference found" in answer.out
