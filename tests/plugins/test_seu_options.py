"""Every choice on which the paper and its code disagree can be set, runs, and changes what it should."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import (
    build,
    class_stream,
    genotype,
    learn,
    super_model,
    weights,
)
from torch import Tensor

from seu_bench.errors import RunError
from seu_bench.training.stage import StageProgress, TaskData
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.genotypes import uniform_genotype
from seu_bench_seu.mdl import MdlCreation, MdlSearch
from seu_bench_seu.super_model import SuperModel

pytestmark = pytest.mark.long

STREAM = class_stream([[0, 1], [2, 3]], images=16)


def data(task: int) -> TaskData:
    return TaskData(task, STREAM.tasks[task].train, STREAM.tasks[task].valid)


def search_of(**options: Any) -> MdlSearch:
    """The search stage that a strategy with these options makes."""
    stage: MdlSearch = build(STREAM, "seu", **options)._search(data(1)).inner
    return stage


def creation_of(**options: Any) -> MdlCreation:
    """The creation stage of the second task that a strategy with these options makes."""
    strategy = learn(STREAM, build(STREAM, "seu", **{"genotype": "darts_v1", "epochs": 1, **options}), tasks=1)
    strategy._expand(data(1), strategy._genotype)
    stage: MdlCreation = strategy._creation(data(1)).inner
    return stage


def test_defaults_are_the_specifications() -> None:
    """Without options: sum, the sampled only, two tables of 14, the two strongest edges, o_size, a floor of .001."""
    for stage in (search_of(), creation_of()):
        tables = stage.tables
        assert (tables.normalisation, tables.scope, tables.alpha) == ("sum", "sampled", 0.01)
        assert stage.schedule.min_learning_rate == 0.001 and stage.schedule.momentum == 0.9
        assert stage.schedule.weight_decay == 0.0003 and stage.schedule.clip_norm == 5
        assert stage.options.unsampled == "still" and stage.options.tie_break == "random"
        assert stage.options.recalibration_images == 1024
    assert len(search_of().tables.probabilities) == 28 and search_of().space == CellSpace("top2", 2, True)
    assert [epochs.tolist() for epochs in creation_of().tables.epochs] == [[30, 0]] * 4
    made = build(STREAM, "seu")
    assert (made.lr_schedule, made.restore, made.options.warm_start, made.model.stem) == (
        *("cosine", "best_valid", True),
        "selectable",
    )
    assert made._genotype is None and made.schedule.min_learning_rate == 0


def test_preset_paper_literal() -> None:
    """The paper word for word: sum, sampled, no head start, all 14 edges, one table, one decay, no floor, cosine."""
    search = search_of(preset="paper_literal", weight_decay=0.002)
    creation = creation_of(preset="paper_literal", weight_decay=0.002)
    for stage in (search, creation):
        assert (stage.tables.normalisation, stage.tables.scope) == ("sum", "sampled")
        assert (stage.options.recalibration_images, stage.options.tie_break) == (0, "first")
        assert stage.schedule.weight_decay == 0.002 and stage.schedule.min_learning_rate == 0
    assert len(search.tables.probabilities) == 14 and search.space == CellSpace("all14", 1, True)
    assert len(search.result().normal) == 14 and search.result().normal == search.result().reduction
    assert [epochs.tolist() for epochs in creation.tables.epochs] == [[0, 0]] * 4
    assert build(STREAM, "seu", preset="paper_literal").lr_schedule == "cosine"


def test_preset_code() -> None:
    """The published code: softmax, all, head start, strongest edges, script decay, floor, constant rate, no norm."""
    search, creation = search_of(preset="code"), creation_of(preset="code")
    for stage in (search, creation):
        assert (stage.tables.normalisation, stage.tables.scope) == ("softmax", "all")
        assert (stage.options.recalibration_images, stage.options.tie_break) == (0, "first")
        assert stage.schedule.weight_decay == 0.0003 and stage.schedule.min_learning_rate == 0.001
    assert search.space == CellSpace("top2", 2, False)
    assert [epochs.tolist() for epochs in creation.tables.epochs] == [[30, 0]] * 4
    made = build(STREAM, "seu", preset="code")
    assert made.lr_schedule == "constant" and made.restore == "best_valid" and made.options.warm_start


@pytest.mark.parametrize("warm", [True, False])
def test_warm_start(warm: bool) -> None:
    """Training goes on from the weights of creation, or from fresh ones of what is new; old units stay either way."""
    states: dict[str, dict[str, torch.Tensor]] = {}

    def watch(told: StageProgress) -> None:
        if told.task == 1 and (told.stage, told.epoch) in (("creation", 4), ("training", 0)):
            states[told.stage] = weights(strategy.model)

    creator = {"creator__epochs": 4, "creator__alpha": 0.3, "creator__restore": "last"}
    strategy = build(STREAM, "seu", on_progress=watch, warm_start=warm, genotype="darts_v1", **creator)
    path = learn(STREAM, strategy).model.paths[1]
    assert 1 in path
    new = tuple(f"layers.{layer}.{index}." for layer, index in enumerate(path) if index == 1)
    for name, tensor in states["training"].items():
        if name.endswith("num_batches_tracked"):
            continue
        if not warm and name.startswith(new):
            assert tensor.ndim == 1 or not torch.equal(tensor, states["creation"][name])
            assert not name.endswith("running_mean") or not tensor.any()
        elif warm or not name.startswith("heads.1."):
            assert torch.equal(tensor, states["creation"][name])


def test_ties() -> None:
    """Of equal candidates the first is taken, or one by lot that the seed decides."""
    first = search_of(searcher__tie_break="first").result()
    assert {(edge.source, edge.operation) for edge in first.normal} == {(0, "max_pool_3x3"), (1, "max_pool_3x3")}
    stage = search_of()
    with stage.randomness.active():
        lots = [stage.result() for _ in range(3)]
    assert len({first, *lots}) == 4
    other = search_of()
    with other.randomness.active():
        assert other.result() == lots[0]
    assert creation_of(creator__tie_break="first").result() == (0, 0, 0, 0)
    creation = creation_of()
    with creation.randomness.active():
        assert len({creation.result() for _ in range(5)}) > 1


DARTS, MIXTURE, POOLS = genotype(), genotype("mdenas_mixture"), uniform_genotype("max_pool_3x3")


def images(count: int = 4, channels: int = 1) -> Tensor:
    return torch.randn(count, channels, 8, 8, generator=torch.Generator().manual_seed(0))


def grown() -> SuperModel:
    """Two tasks learned by name: the second took new units at layers 1 and 3, old ones elsewhere."""
    model = super_model()
    model.expand(DARTS, 0)
    model.keep(0, [0, 0, 0, 0])
    model.freeze()
    model.expand(MIXTURE, 1)
    model.keep(1, [0, 1, 0, 1])
    model.freeze()
    return model


def test_keep_deletes_what_was_not_chosen() -> None:
    """New units off the path go; every other unit keeps its index and its weights."""
    model = super_model()
    model.expand(DARTS, 0)
    model.keep(0, [0, 0, 0, 0])
    model.freeze()
    model.expand(MIXTURE, 1)
    units = [list(layer) for layer in model.layers]
    model.keep(1, [0, 1, 0, 1])
    assert model.candidates == [1, 2, 1, 2]
    assert model.unit_tasks == [[0], [0, 1], [0], [0, 1]]
    assert model.unit_genotypes == [[it.to_dict() for it in made] for made in ([DARTS], [DARTS, MIXTURE]) * 2]
    for layer, before in zip(model.layers, units, strict=True):
        assert list(layer) == before[: len(layer)]
    assert model.paths == {0: (0, 0, 0, 0), 1: (0, 1, 0, 1)}
    assert model.has_new == [False, True, False, True]


def test_freeze_and_what_trains() -> None:
    """New units on the path and the task's head train; frozen units and other heads do not."""
    model = grown()
    model.expand(POOLS, 2)
    model.set_path(2, [1, 0, 0, 2])
    expected = {id(p) for layer, index in ((0, 1), (3, 2)) for p in model.layers[layer][index].parameters()}
    expected |= {id(p) for p in model.heads[2].parameters()}
    assert {id(p) for p in model.trainable_module(2).parameters()} == expected
    assert all(p.requires_grad for p in model.trainable_module(2).parameters())
    everything_new = {id(p) for layer in model.layers for p in layer[-1].parameters()}
    everything_new |= {id(p) for p in model.heads[2].parameters()}
    assert {id(p) for p in model.new_units(2).parameters()} == everything_new
    model.train()(images(), 2).square().sum().backward()
    touched = {id(p) for p in model.parameters() if p.grad is not None}
    assert touched == expected
    frozen = [unit for layer in model.layers for unit in layer if unit.frozen]
    assert len(frozen) == 6 and not any(module.training for unit in frozen for module in unit.modules())


class Broken(CellSpace):
    """A space whose units cannot be made."""

    def unit(self, genotype: Any, place: Any) -> Any:
        raise KeyError("kernel")


def test_a_space_that_fails_is_named() -> None:
    """Not the strategy, which is as it should be."""
    with pytest.raises(RunError, match=r"space Broken failed to make a unit of layer 1 .*KeyError: 'kernel'"):
        super_model(space=Broken()).expand(genotype(), 0)
