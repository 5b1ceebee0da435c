"""Every choice on which the paper and its code disagree can be set, runs, and changes what it should."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import all_threads, build, class_stream, context, learn, logits_of, one_thread, same, weights

from seu_bench.errors import RequestError
from seu_bench.training.stage import StageProgress, TaskData
from seu_bench_kit.search_space import SearchSpace
from seu_bench_seu.building import make_super_model
from seu_bench_seu.creator import MdlCreation
from seu_bench_seu.searcher import MdlSearch

pytestmark = pytest.mark.long

setup_module, teardown_module = one_thread, all_threads

STREAM = class_stream([[0, 1], [2, 3]], images=16)
SINGLE: list[dict[str, Any]] = [
    {},
    {"preset": "paper_literal"},
    {"preset": "code"},
    {"preset": "code", "code_cells": 4},
    {"cells": 5},
    {"channels": 3},
    {"edges": "all14"},
    {"cell_types": 1},
    {"stem": "shared"},
    {"factorized_reduce_norm": False},
    {"lr_schedule": "constant"},
    {"restore": "last"},
    {"warm_start": False},
    {"statistics": "per_task"},
    {"warm_start": False, "stem": "shared", "statistics": "per_task"},
    {"tie_weight_decay": True},
    {"genotype": "darts_v2"},
    {"momentum": 0.0},
    {"clip_norm": 0.5},
    {"min_learning_rate": 0.01},
    *({f"{part}__normalisation": "softmax"} for part in ("searcher", "creator")),
    *({f"{part}__update": "all"} for part in ("searcher", "creator")),
    *({f"{part}__unsampled": "drift"} for part in ("searcher", "creator")),
    *({f"{part}__tie_break": "first"} for part in ("searcher", "creator")),
    *({f"{part}__recalibration_images": 0} for part in ("searcher", "creator")),
    *({f"{part}__min_learning_rate": 0.0} for part in ("searcher", "creator")),
    {"searcher__alpha": 0.1},
    {"creator__old_unit_epochs": 0},
    {"creator__restore": "last"},
]


#: Of these ``make test`` runs the ones that change what is built most; ``make test-long`` runs the others.
USUAL = ({"preset": "code", "code_cells": 4}, {"stem": "shared"}, {"warm_start": False})


@pytest.mark.parametrize(
    "options", [pytest.param(each, id=str(each), marks=[] if each in USUAL else pytest.mark.long) for each in SINGLE]
)
def test_runs(options: dict[str, Any]) -> None:
    """A whole stream is learned and computed with it, and nothing is forgotten."""
    small = {"epochs": 1, "searcher__epochs": 1, "creator__epochs": 2, "searcher__batch_size": 8}
    strategy = build(STREAM, "seu", **{**small, **options})
    first: list[torch.Tensor] = []
    scenario = STREAM.avalanche()
    for experience in scenario.train_stream:
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        first.append(logits_of(strategy.model, STREAM, 0))
    assert bool(torch.isfinite(logits_of(strategy.model, STREAM, 1)).all())
    assert torch.equal(first[0], first[1])
    described = strategy.describe()
    assert len(described["genotypes"]) == len(described["paths"]) == 2
    assert [len(path) for path in described["paths"]] == [len(strategy.model.plans) + 1] * 2


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


def test_options_win_over_the_preset() -> None:
    """Options given besides a preset are kept."""
    search = search_of(preset="code", searcher__normalisation="sum", factorized_reduce_norm=True)
    assert (search.tables.normalisation, search.tables.scope) == ("sum", "all")
    assert search.space.factorized_reduce_norm


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


@pytest.mark.parametrize(("lr_schedule", "rate"), [("constant", 0.025), ("cosine", 0.0125)])
def test_lr_schedule(lr_schedule: str, rate: float) -> None:
    """The last of two epochs has half the rate by cosine and all of it otherwise."""
    for name in ("seu", "naive"):
        options = {"genotype": "darts_v1"} if name == "seu" else {}
        strategy = learn(STREAM, build(STREAM, name, lr_schedule=lr_schedule, **options), tasks=1)
        assert strategy.optimizer.param_groups[0]["lr"] == pytest.approx(rate, abs=1e-17)


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


def test_old_unit_epochs() -> None:
    """Old units start with so many epochs, the new one with none."""
    assert [epochs.tolist() for epochs in creation_of(creator__old_unit_epochs=7).tables.epochs] == [[7, 0]] * 4
    shared = creation_of(creator__old_unit_epochs=7, stem="shared").tables.epochs
    assert [epochs.tolist() for epochs in shared] == [[7], [7, 0], [7, 0], [7, 0]]


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


def test_shared_stem() -> None:
    """One stem serves all tasks."""
    model = learn(STREAM, build(STREAM, "seu", stem="shared")).model
    assert len(model.layers[0]) == 1 and model.unit_tasks[0] == [0]


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


def test_unsampled_parameters_drift_or_stay() -> None:
    """Once used, parameters go on moving under `drift`; under `still` those that an epoch does not use keep still."""
    moved = {}
    for unsampled in ("still", "drift"):
        stage = search_of(searcher__unsampled=unsampled)
        stage.advance()
        used = {name for name, p in stage.network.named_parameters() if p.grad is not None}
        before = weights(stage.network)
        first = [table.tolist() for table in stage.tables.epochs]
        stage.advance()
        again = [table.tolist() for table in stage.tables.epochs]
        idle = []
        for name in used:
            if ".edges." in name:
                _, cell, _, row, index, *_ = name.split(".")
                place = int(row) + 14 * stage.network.cells[int(cell)].plan.reduction
                if first[place][int(index)] == again[place][int(index)] == 1:
                    idle.append(name)
        assert idle
        moved[unsampled] = [not torch.equal(stage.network.state_dict()[name], before[name]) for name in idle]
    assert not any(moved["still"]) and all(moved["drift"])


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


@pytest.mark.parametrize(("width", "channels"), [(1.0, 4), (0.5, 2), (0.7, 3), (0.01, 1), (2.5, 10)])
def test_width(width: float, channels: int) -> None:
    """A factor of the protocol's channels, which are rounded, and one at least."""
    given = context(STREAM.plan, "seu", {"width": width})
    assert given.protocol.model.channels == 4 and make_super_model(given).channels == channels


def test_width_and_channels() -> None:
    """Two answers to one question are refused; a width of 1 is none."""
    assert make_super_model(context(STREAM.plan, "seu", {"width": 1.0, "channels": 3})).channels == 3
    with pytest.raises(RequestError, match="leave out one of them"):
        context(STREAM.plan, "seu", {"width": 0.5, "channels": 3})
