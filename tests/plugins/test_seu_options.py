"""Every choice on which the paper and its code disagree can be set, runs, and changes what it should."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import all_threads, build, class_stream, context, learn, one_thread, same, weights

from seu_bench.training.stage import StageProgress, TaskData
from seu_bench_kit.search_space import SearchSpace
from seu_bench_seu.building import make_super_model
from seu_bench_seu.creator import MdlCreation
from seu_bench_seu.searcher import MdlSearch

pytestmark = pytest.mark.long

setup_module, teardown_module = one_thread, all_threads

STREAM = class_stream([[0, 1], [2, 3]], images=16)


# --- what each changes --------------------------------------------------------------------------------------------


def data(task: int) -> TaskData:
    return TaskData(task, STREAM.tasks[task].train, STREAM.tasks[task].valid)


def search_of(**options: Any) -> MdlSearch:
    """The search stage that a strategy with these options makes."""
    stage: MdlSearch = build(STREAM, "seu", **options)._search(data(1)).inner
    return stage


def creation_of(**options: Any) -> MdlCreation:
    """The creation stage of the second task that a strategy with these options makes."""
    strategy = learn(STREAM, build(STREAM, "seu", **{"genotype": "darts_v1", "epochs": 1, **options}), tasks=1)
    strategy._expand(data(1), strategy.genotype)
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
    assert len(search_of().tables.probabilities) == 28 and search_of().space == SearchSpace("top2", 2, True)
    assert [epochs.tolist() for epochs in creation_of().tables.epochs] == [[30, 0]] * 4
    made = build(STREAM, "seu")
    assert (made.lr_schedule, made.restore, made.warm_start, made.model.stem) == (
        *("cosine", "best_valid", True),
        "selectable",
    )
    assert made.genotype is None and made.schedule.min_learning_rate == 0


def test_preset_paper_literal() -> None:
    """The paper word for word: sum, sampled, no head start, all 14 edges, one table, one decay, no floor, cosine."""
    search = search_of(preset="paper_literal", weight_decay=0.002)
    creation = creation_of(preset="paper_literal", weight_decay=0.002)
    for stage in (search, creation):
        assert (stage.tables.normalisation, stage.tables.scope) == ("sum", "sampled")
        assert (stage.options.recalibration_images, stage.options.tie_break) == (0, "first")
        assert stage.schedule.weight_decay == 0.002 and stage.schedule.min_learning_rate == 0
    assert len(search.tables.probabilities) == 14 and search.space == SearchSpace("all14", 1, True)
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
    assert search.space == SearchSpace("top2", 2, False)
    assert [epochs.tolist() for epochs in creation.tables.epochs] == [[30, 0]] * 4
    made = build(STREAM, "seu", preset="code")
    assert made.lr_schedule == "constant" and made.restore == "best_valid" and made.warm_start


def test_code_cells() -> None:
    """Cells of their own for the preset of the code, without effect otherwise; given cells win."""
    for options, cells in (
        ({"preset": "code", "code_cells": 4}, 4),
        ({"code_cells": 4}, 3),
        ({"preset": "code"}, 3),
        ({"preset": "code", "code_cells": 4, "cells": 5}, 5),
    ):
        made: Any = context(STREAM.plan, "seu", options)
        assert len(make_super_model(made).layers) == cells + 1


@pytest.mark.parametrize("warm", [True, False])
def test_warm_start(warm: bool) -> None:
    """Training goes on from the weights of creation, or from fresh ones of what is new; old units stay either way."""
    states: dict[str, dict[str, torch.Tensor]] = {}
    made: list[Any] = []

    def watch(progress: StageProgress) -> None:
        if progress.task == 1 and (progress.stage, progress.done, progress.epoch) in (
            ("creation", True, 4),
            ("training", False, 0),
        ):
            states[progress.stage] = weights(made[0].model)

    made.append(
        build(
            STREAM,
            "seu",
            on_progress=watch,
            warm_start=warm,
            genotype="darts_v1",
            creator__epochs=4,
            creator__alpha=0.3,
            creator__restore="last",
        )
    )
    model = learn(STREAM, made[0]).model
    assert any(index == 1 for index in model.paths[1])
    new = {f"layers.{layer}.{index}." for layer, index in enumerate(model.paths[1]) if index == 1} | {"heads.1."}
    for name, tensor in states["training"].items():
        if name.endswith("num_batches_tracked"):
            continue
        if not warm and name.startswith(tuple(new)):
            fixed = name.endswith((".bias", ".running_mean", ".running_var")) or tensor.ndim == 1
            assert fixed or not torch.equal(tensor, states["creation"][name])
        else:
            assert torch.equal(tensor, states["creation"][name])
    if not warm:
        units = [name for name in states["training"] if name.startswith(tuple(new - {"heads.1."}))]
        means = [states["training"][name] for name in units if name.endswith("running_mean")]
        assert means and not any(bool(mean.any()) for mean in means)


def test_tie_weight_decay() -> None:
    """Search and creation take the decay of training, unless they are given one."""
    for options, decay in (
        ({"weight_decay": 0.07}, 0.0003),
        ({"weight_decay": 0.07, "tie_weight_decay": True}, 0.07),
        ({"weight_decay": 0.07, "tie_weight_decay": True, "searcher__weight_decay": 0.5}, 0.5),
    ):
        stage = search_of(**options)
        assert stage.optimizer.param_groups[0]["weight_decay"] == decay
    assert creation_of(weight_decay=0.07).optimizer.param_groups[0]["weight_decay"] == 0.0003
    tied = creation_of(weight_decay=0.07, tie_weight_decay=True)
    assert tied.optimizer.param_groups[0]["weight_decay"] == 0.07


def test_fixed_genotype_skips_the_search() -> None:
    """With a published genotype there is no search stage, and every new unit has it."""
    seen: set[tuple[str, int]] = set()
    strategy = build(
        STREAM, "seu", genotype="darts_v2", on_progress=lambda progress: seen.add((progress.stage, progress.task))
    )
    learn(STREAM, strategy)
    assert seen == {("training", 0), ("creation", 1), ("training", 1)}
    found = {unit for layer in strategy.model.unit_genotypes for unit in layer}
    assert found == {strategy.genotype}


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


def test_restore() -> None:
    """`last` keeps the last epoch's weights in training; `best_valid` those of the lowest validation loss."""
    found = {}
    for restore in ("last", "best_valid"):
        epochs: list[dict[str, torch.Tensor]] = []
        made: list[Any] = []

        def watch(progress: StageProgress, made: list[Any] = made, epochs: list[Any] = epochs) -> None:
            if not progress.done and progress.epoch == len(epochs):
                epochs.append(weights(made[0].model))

        options = {"genotype": "darts_v1", "epochs": 5, "learning_rate": 0.5, "lr_schedule": "constant"}
        made.append(build(STREAM, "seu", restore=restore, on_progress=watch, **options))
        final = weights(learn(STREAM, made[0], tasks=1).model)
        found[restore] = final
        if restore == "best_valid":
            losses = []
            for state in epochs[1:]:
                made[0].model.load_state_dict(state)
                losses.append(made[0].validation_loss(data(0), lambda _: None))
            made[0].model.load_state_dict(final)
            assert made[0].validation_loss(data(0), lambda _: None) <= min(losses)
    assert not same(found["last"], found["best_valid"])
