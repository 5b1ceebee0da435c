"""Every stage resumes bit by bit, keeps its randomness to itself, reports truly and counts what it passes forward."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import (
    SMALL,
    all_threads,
    build,
    class_stream,
    context,
    disturb,
    genotype,
    learn,
    one_thread,
    registry,
    same,
    weights,
)
from torch import nn

from seu_bench.config.protocol import CreationSchedule, Schedule, SearchSchedule
from seu_bench.errors import RunError
from seu_bench.training.loops import BestWeights, clip_gradients, cosine_rate, make_sgd, set_rate
from seu_bench.training.stage import EpochReport, Stage, StageProgress, TaskData
from seu_bench.training.strategy import TrainingStage
from seu_bench.utils.seeding import RandomState, derive_seed
from seu_bench_kit.components import CreationTask, SearchTask
from seu_bench_kit.search_space import OPERATIONS, SearchSpace
from seu_bench_seu.creator import MdlCreation
from seu_bench_seu.options import CreationOptions, SearchOptions
from seu_bench_seu.searcher import MdlSearch

setup_module, teardown_module = one_thread, all_threads

CPU = torch.device("cpu")
STREAM = class_stream([[0, 1], [2, 3]], images=23)
SEARCH = SearchSchedule(epochs=4, batch_size=8, cells=3, channels=2, min_learning_rate=0.001)
CREATION = CreationSchedule(epochs=4, batch_size=8, old_unit_epochs=1)


def search(seed: int = 3, schedule: SearchSchedule = SEARCH, **options: Any) -> MdlSearch:
    task = SearchTask(STREAM.tasks[1].train, 1, 2, SearchSpace(), schedule, seed, CPU)
    return MdlSearch(SearchOptions(**options), task)


def creation(seed: int = 3, schedule: CreationSchedule = CREATION, **options: Any) -> MdlCreation:
    """The creation of the second task of a strategy that learned the first; the same one every time."""
    model = build(STREAM, "seu", genotype="darts_v1").model
    with RandomState(1).active():
        for task in (0, 1):
            model.expand(genotype(), task)
            model.keep(task, [task] * 4)
            if task == 0:
                model.freeze()
    return MdlCreation(CreationOptions(**options), CreationTask(model, STREAM.tasks[1].train, 1, schedule, seed, CPU))


def training(seed: int = 3, **options: Any) -> TrainingStage:
    """The training of the first task."""
    strategy = build(STREAM, "seu", seed=seed, **{"epochs": 4, "genotype": "darts_v1", **options})
    scenario = STREAM.avalanche()
    strategy.experience = scenario.train_stream[0]
    strategy.adapted_dataset = strategy.experience.dataset
    strategy.make_train_dataloader()
    strategy._expand(TaskData(0, STREAM.tasks[0].train, STREAM.tasks[0].valid), genotype())
    return TrainingStage(strategy, TaskData(0, STREAM.tasks[0].train, STREAM.tasks[0].valid))


def ending(stage: Stage[Any], result: Any) -> Mapping[str, torch.Tensor]:
    """Everything that a finished stage leaves, as tensors."""
    left: dict[str, torch.Tensor] = {}
    if isinstance(stage, MdlSearch | MdlCreation):
        for name, vectors in stage.tables.state_dict().items():
            left |= {f"{name}{place}": vector for place, vector in enumerate(vectors)}
    if isinstance(stage, MdlSearch):
        left |= weights(stage.network)
        left["genotype"] = torch.tensor(
            [OPERATIONS.index(edge.operation) for edge in (*result.normal, *result.reduction)]
        )
    elif isinstance(stage, MdlCreation):
        left |= weights(stage.model)
        left["path"] = torch.tensor(result)
    elif isinstance(stage, TrainingStage):
        left |= weights(stage.strategy.model)
    left["counts"] = torch.tensor([stage.epoch, stage.image_passes])
    left["measured"] = torch.tensor([stage.report.loss, stage.report.accuracy], dtype=torch.float64)
    return left


STAGES: dict[str, Callable[..., Stage[Any]]] = {"search": search, "creation": creation, "training": training}
every_stage = pytest.mark.parametrize("make", STAGES.values(), ids=STAGES)


# --- resuming -----------------------------------------------------------------------------------------------------


@every_stage
@pytest.mark.parametrize("epochs", [pytest.param(0, marks=pytest.mark.long), 2])
def test_resumes_bit_by_bit(make: Callable[..., Stage[Any]], epochs: int) -> None:
    """A new stage that loads the state after k epochs ends as the uninterrupted one does."""
    whole = make()
    expected = ending(whole, whole.run())
    first = make()
    for _ in range(epochs):
        first.advance()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = make()
    disturb()
    second.load_state_dict(torch.load(file, weights_only=True))
    assert (second.epoch, second.seconds, second.cpu_seconds) == (epochs, first.seconds, first.cpu_seconds)
    assert same(ending(second, second.run()), expected)


@every_stage
@pytest.mark.long
def test_checkpoint_of_an_earlier_version(make: Callable[..., Stage[Any]]) -> None:
    """What was not counted then is not known, and the rest is learned as ever."""
    whole, first, second = make(), make(), make()
    expected = ending(whole, whole.run())
    first.advance()
    state = first.state_dict()
    for key in ("flops", "clipped", "guessing"):
        del state[key]
    second.load_state_dict(state)
    seen: list[StageProgress] = []
    assert same(ending(second, second.run(seen.append)), expected)
    assert (seen[-1].flops, seen[-1].clipped_share, seen[-1].chance_share) == (None, None, None)


@every_stage
def test_state_is_not_loaded_into_another_stage(make: Callable[..., Stage[Any]]) -> None:
    """The state of another stage, or of the same stage of another task, is refused before anything is changed."""
    stage = make()
    stage.advance()
    state = stage.state_dict()
    fresh = make()
    for change in ({"stage": "another"}, {"task": 5}):
        with pytest.raises(RunError, match=r"this is the state of stage .*, not of stage"):
            fresh.load_state_dict({**state, **change})
    assert fresh.epoch == 0


# --- randomness ---------------------------------------------------------------------------------------------------


@every_stage
@pytest.mark.long
def test_nothing_outside_disturbs_a_stage(make: Callable[..., Stage[Any]]) -> None:
    """Draws of others between epochs change nothing; another seed changes the result."""
    quiet = make()
    expected = ending(quiet, quiet.run())
    disturb()
    stage = make()
    while stage.epoch < stage.epochs:
        disturb()
        stage.advance()
    disturb()
    assert same(ending(stage, stage.run()), expected)
    other = make(seed=4)
    assert not same(ending(other, other.run()), expected)


@every_stage
@pytest.mark.long
def test_a_stage_disturbs_nothing_outside(make: Callable[..., Stage[Any]]) -> None:
    """The global generators of torch, NumPy and random stand after a stage where they stood before."""
    stage = make()
    disturb()
    expected = [torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()]
    disturb()
    stage.run()
    assert [torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()] == expected


def test_making_a_search_disturbs_nothing_outside() -> None:
    """The proxy's first weights come from the stage's own randomness."""
    torch.manual_seed(1)
    expected = torch.rand(2).tolist()
    torch.manual_seed(1)
    first = weights(search().network)
    assert torch.rand(2).tolist() == expected
    assert same(weights(search().network), first)
    assert not same(weights(search(seed=4).network), first)


def test_derived_seeds() -> None:
    """Each purpose has a seed of its own, and the same one on every machine."""
    seeds = {derive_seed(seed, name, task) for seed in range(3) for name in ("search", "training") for task in range(3)}
    assert len(seeds) == 18 and all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(0, "training", 3) == 6846065571232384048


# --- reports ------------------------------------------------------------------------------------------------------


@every_stage
def test_reports(make: Callable[..., Stage[Any]]) -> None:
    """The watcher is told at the start, after every epoch and at the end; passes and seconds never fall."""
    seen: list[StageProgress] = []
    stage = make()
    stage.run(seen.append)
    at = [(report.epoch, report.done) for report in seen]
    assert at[0] == (0, False) and at[-1] == (4, True) and at.count((4, True)) == 1
    assert sorted(set(at)) == [(0, False), (1, False), (2, False), (3, False), (4, True)] and at == sorted(at)
    assert {(report.stage, report.task, report.epochs) for report in seen} == {(stage.name, stage.task, 4)}
    for before, after in pairwise(seen):
        assert before.image_passes <= after.image_passes and before.seconds <= after.seconds
    assert seen[0].image_passes == 0 and seen[0].report == EpochReport()
    assert seen[-1].image_passes == stage.image_passes and seen[-1].report == stage.report
    assert stage.report.loss is not None and stage.report.accuracy is not None
    assert stage.report.loss > 0 and 0 <= stage.report.accuracy <= 1


def test_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds and CPU seconds are those of the epochs and of the result, also resumed; the curve is whole."""
    elapsed, computed = [0.0], [0.0]
    monkeypatch.setattr("seu_bench.training.stage.time.perf_counter", lambda: elapsed[0])
    monkeypatch.setattr("seu_bench.training.stage.time.process_time", lambda: computed[0])

    class Slow(TrainingStage):
        def run_epoch(self) -> EpochReport:
            elapsed[0] += 4
            computed[0] += 1
            return super().run_epoch()

    def between(_: object) -> None:
        elapsed[0] += 100

    seen: list[StageProgress] = []
    stage = training()
    stage.__class__ = Slow
    stage.run(seen.append, between)
    assert (stage.cpu_seconds, stage.seconds) == (stage.epochs, 4 * stage.epochs)
    assert {report.cpu_seconds for report in seen} == {None, stage.cpu_seconds}
    resumed = training()
    resumed.load_state_dict(stage.state_dict())
    assert (resumed.cpu_seconds, resumed.seconds, resumed.curve) == (stage.cpu_seconds, stage.seconds, stage.curve)


@every_stage
def test_loss_that_is_not_finite(make: Callable[..., Stage[Any]]) -> None:
    """A run whose loss is lost stops at once, and says where."""
    stage = make()
    stage.advance()
    modules: dict[type, str] = {MdlSearch: "network", MdlCreation: "model", TrainingStage: "module"}
    module: nn.Module = getattr(stage, modules[type(stage)])
    for parameter in module.parameters():
        parameter.data.fill_(math.nan)
    with pytest.raises(RunError, match=rf"the loss became nan in stage '{stage.name}' of task {stage.task}, epoch 2"):
        stage.run()


# --- what is passed forward ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [None, 3])
@pytest.mark.long
def test_passes_of_searcher_and_creator(epochs: int | None) -> None:
    """The factories predict exactly what the stages pass forward, also of an odd number of images: 17 train,
    the two whole batches of eight among them recalibrate, and 18 are scored."""
    count = len(STREAM.tasks[1].train)
    assert count == 35
    pairs: list[tuple[Any, Any, Any]] = [
        (
            registry().searchers.find("mdl").factory.estimate_passes(SearchOptions(epochs=epochs), SEARCH, count),
            search(epochs=epochs),
            17,
        ),
        (
            registry().creators.find("mdl").factory.estimate_passes(CreationOptions(epochs=epochs), CREATION, count),
            creation(epochs=epochs),
            17,
        ),
    ]
    for (train, evaluate), stage, half in pairs:
        assert (train, evaluate) == ((epochs or 4) * half, (epochs or 4) * (16 + half + 1))
        stage.run()
        assert stage.image_passes == train + evaluate


@pytest.mark.parametrize("restore", ["best_valid", pytest.param("last", marks=pytest.mark.long)])
@pytest.mark.parametrize("strategy", ["seu", "naive"])
def test_passes_of_a_whole_run(strategy: str, restore: str) -> None:
    """The strategy's cost is what its stages pass forward, stage by stage."""
    seen: list[StageProgress] = []
    options = {"restore": restore}
    learn(STREAM, build(STREAM, strategy, on_progress=seen.append, **options))
    found = {(report.stage, report.task): report.image_passes for report in seen if report.done}
    small = SMALL if strategy == "seu" else {"epochs": 2, "batch_size": 16}
    cost = registry().strategies.find(strategy).factory.cost(context(STREAM.plan, strategy, {**small, **options}))
    expected = {(s.name, s.task): s.image_passes for s in cost.stages if s.name != "evaluation"}
    assert found == expected
    evaluations = {s.task: (s.train, s.evaluate) for s in cost.stages if s.name == "evaluation"}
    assert evaluations == {0: (0, 24), 1: (0, 48)}


# --- schedules and best weights -----------------------------------------------------------------------------------


def test_cosine_rate() -> None:
    """From the first rate to the last along half a cosine; the floor would be reached one epoch after the end."""
    schedule = Schedule(epochs=4, learning_rate=0.025)
    rates = [cosine_rate(schedule, epoch) for epoch in range(5)]
    root = math.sqrt(0.5)
    expected = [0.025, 0.025 * (1 + root) / 2, 0.0125, 0.025 * (1 - root) / 2, 0]
    assert rates == pytest.approx(expected, abs=1e-17)
    floor = Schedule(epochs=100, learning_rate=0.025, min_learning_rate=0.001)
    assert cosine_rate(floor, 0) == 0.025 and cosine_rate(floor, 50) == pytest.approx(0.013, abs=1e-17)
    assert cosine_rate(floor, 99) == pytest.approx(0.001 + 0.012 * (1 + math.cos(0.99 * math.pi)), abs=1e-17)


@pytest.mark.parametrize("make", [search, creation], ids=["search", "creation"])
def test_stages_follow_the_cosine(make: Callable[..., Any]) -> None:
    """The optimiser's rate in each epoch is the schedule's."""
    stage = make()
    rates = []
    while stage.epoch < stage.epochs:
        stage.advance()
        rates.append(stage.optimizer.param_groups[0]["lr"])
    assert rates == [cosine_rate(stage.schedule, epoch) for epoch in range(4)]
    assert rates[0] == 0.025 and rates[2] == pytest.approx(0.013, abs=1e-17)


def test_sgd_is_made_as_scheduled() -> None:
    """Rate, momentum and weight decay reach the optimiser."""
    schedule = Schedule(learning_rate=0.3, momentum=0.7, weight_decay=0.02)
    optimizer = make_sgd([nn.Parameter(torch.ones(1))], schedule)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.3, 0.7, 0.02)
    set_rate(optimizer, 0.1)
    assert group["lr"] == 0.1


def test_best_weights() -> None:
    """The weights of the lowest loss come back, the first of equal ones; without an offer nothing changes."""
    module = nn.Linear(1, 1)
    best = BestWeights(module)
    module.weight.data.fill_(5)
    best.restore()
    assert module.weight.item() == 5
    for value, loss in ((1, 2.0), (2, 1.0), (3, 1.0), (4, 1.5), (5, math.nan)):
        module.weight.data.fill_(value)
        best.offer(loss)
    best.restore()
    assert module.weight.item() == 2 and best.loss == 1.0


def test_creation_restores_the_best_weights() -> None:
    """After creation the new units have the weights of the lowest loss on the second half, or the last ones."""
    stage = creation(restore="last")
    stage.advance()
    while stage.epoch < stage.epochs:
        stage.advance()
    last = weights(stage.best.module)
    stage.run()
    assert same(weights(stage.best.module), last) and stage.best.loss == math.inf
    stage = creation()
    lowest, kept = math.inf, last
    while stage.epoch < stage.epochs:
        stage.advance()
        if stage.best.loss < lowest:
            lowest, kept = stage.best.loss, weights(stage.best.module)
    stage.run()
    assert 0 < lowest < math.inf
    assert same(weights(stage.best.module), kept)


@pytest.mark.parametrize("limit", [1e-3, 5.0, 1e6, float("nan")])
def test_gradients_are_clipped_as_torch_does(limit: float) -> None:
    """Bit for bit, whether there is something to clip or not; parameters without a gradient are left out."""
    torch.manual_seed(0)
    ours, theirs = ([torch.nn.Parameter(torch.zeros(7, 3)) for _ in range(3)] for _ in range(2))
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        one.grad = torch.randn(7, 3)
        other.grad = one.grad.clone()
    clip_gradients(ours, limit)
    torch.nn.utils.clip_grad_norm_(theirs, limit)
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.equal(one.grad.nan_to_num(7.0), other.grad.nan_to_num(7.0))
    assert ours[2].grad is None
    clip_gradients([], limit)
