"""Every stage resumes bit by bit, keeps its randomness to itself, reports truly and counts what it passes forward."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from support.tiny import (
    all_threads,
    build,
    class_stream,
    context,
    genotype,
    learn,
    one_thread,
)
from torch import Tensor, nn

from seu_bench.config.protocol import CreationSchedule, Schedule, SearchSchedule
from seu_bench.errors import CheckpointError, RunError
from seu_bench.training.backbones import backbone_model
from seu_bench.training.loops import BestWeights, clip_gradients, epoch_rate
from seu_bench.training.rehearsal import rehearse
from seu_bench.training.stage import EpochReport, Stage, StageProgress, TaskData
from seu_bench.training.state import checkpoint_error_context, difference, not_finite
from seu_bench.training.strategy import StagedStrategy, TrainingStage
from seu_bench.utils.seeding import RandomState
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.components import CreationTask, SearchTask
from seu_bench_seu.mdl import MdlCreation, MdlSearch
from seu_bench_seu.options import CreationOptions, SearchOptions

setup_module, teardown_module = one_thread, all_threads

CPU = torch.device("cpu")
STREAM = class_stream([[0, 1], [2, 3]], images=23)
SEARCH = SearchSchedule(epochs=4, batch_size=8, cells=3, channels=2, min_learning_rate=0.001)
CREATION = CreationSchedule(epochs=4, batch_size=8, old_unit_epochs=1)


def search(seed: int = 3, schedule: SearchSchedule = SEARCH, **options: Any) -> MdlSearch:
    task = SearchTask(STREAM.tasks[1].train, 1, 2, STREAM.plan.input, CellSpace(), schedule, seed, CPU)
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


STAGES: dict[str, Callable[..., Stage[Any]]] = {"search": search, "creation": creation, "training": training}
every_stage = pytest.mark.parametrize("make", STAGES.values(), ids=STAGES)


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


@pytest.mark.parametrize("limit", [1e-3, 5.0, 1e6, float("nan")])
def test_gradients_are_clipped_as_torch_does(limit: float) -> None:
    """Bit for bit, whether there is something to clip or not; parameters without a gradient are left out."""
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


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ({"a": torch.ones(2), "b": [torch.ones(1), torch.tensor([1.0, float("nan")])]}, "b[1]"),
        ({"a": {"b": torch.tensor(float("-inf"))}}, "a.b"),
        ({"a": torch.tensor([2**62]), "b": float("inf")}, None),
    ],
)
def test_not_finite(state: Any, name: str | None) -> None:
    """The tensor is named; plain numbers may be infinite."""
    assert not_finite(state) == name


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        ({"a": [torch.ones(2), 1]}, {"a": (torch.ones(2), 1)}, None),
        ({"a": [torch.ones(2), 1]}, {"a": [torch.ones(2), True]}, "a[1]"),
        ({"a": {"b": torch.ones(2)}}, {"a": {"b": torch.ones(2).double()}}, "a.b"),
        ({"a": {"b": torch.ones(2)}}, {"a": {"c": torch.ones(2)}}, "a"),
        ({"a": {"b": torch.ones(2), "c": 1}}, {"a": {"b": torch.ones(2), "d": 1}}, "a"),
        ({"a": torch.ones(())}, {"a": 1.0}, "a"),
        ({"a": [None, "x"]}, {"a": [None]}, "a"),
    ],
)
def test_difference(one: Any, other: Any, place: str | None) -> None:
    """The first place is named; lists and tuples of equal parts are equal."""
    assert difference(one, other) == difference(other, one) == place


def test_errors_of_loading() -> None:
    """Any error becomes one of ours, with the receiver and the first line; those that are ours stay as they are."""
    with (
        pytest.raises(CheckpointError, match="the state does not fit task 3: KeyError: 'weights'") as caught,
        checkpoint_error_context("task 3"),
    ):
        raise KeyError("weights")
    assert isinstance(caught.value.__cause__, KeyError) and "--restart" in str(caught.value.remedy)
    ours = RunError("of another stage")
    with pytest.raises(RunError) as same, checkpoint_error_context("task 3"):
        raise ours
    assert same.value is ours


#: Of 16 images of a task a quarter is withheld for validation; batches of 8 and 4, two epochs.
IMAGES, TRAIN, BATCHES, EPOCHS = 8, 12, 2, 2


class Repeating(StagedStrategy):
    """Passes its first batch once more with every batch but the first."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.first: Tensor | None = None

    def criterion(self) -> Tensor:
        loss = super().criterion()
        if not self.is_training:
            return loss
        if self.first is None:
            self.first = self.mb_x
            return loss
        self.count_images(len(self.first))
        return loss + self.model.forward_single_task(self.first, 0).square().mean()


class Noting(StagedStrategy):
    """Notes the length of each batch, in place."""

    state_attributes = ("sizes", "fixed")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.sizes: list[int] = []
        self.fixed = torch.zeros(3)

    def criterion(self) -> Tensor:
        if self.is_training:
            self.sizes.append(len(self.mb_x))
        return super().criterion()


def test_state_within_a_phase() -> None:
    """It has what the phase found beside what there is now, whatever changes in place; what did not change, once."""
    stream = class_stream([[0, 1]], images=IMAGES)
    made = context(stream.plan, "naive", {"backbone": "linear", "epochs": EPOCHS, "batch_size": 8})
    strategy = Noting.of(made, model=backbone_model(made))
    states: list[dict[str, Any]] = []
    strategy.pause = lambda _: states.append(copy.deepcopy(strategy.state_dict()))
    learn(stream, strategy)
    assert [state["own"]["sizes"] for state in states] == [[], []]
    assert [state["own_now"]["sizes"] for state in states] == [[8, 4], [8, 4, 8, 4]]
    assert all(state["own"]["fixed"] is state["own_now"]["fixed"] for state in states)
    resumed = Noting.of(made, model=backbone_model(made))
    resumed.load_state_dict(states[0])
    learn(stream, resumed)
    assert resumed.sizes == [8, 4, 8, 4] and states[0]["own_now"]["sizes"] == [8, 4]
    assert vars(resumed.clock) == vars(strategy.clock)


def test_passes_beyond_the_batch() -> None:
    """Image passes and operations are those that the estimate has for them, though the first batch is a plain one."""
    stream = class_stream([[0, 1], [2, 3]], images=IMAGES)
    ended: list[StageProgress] = []
    options = {"backbone": "linear", "epochs": EPOCHS, "batch_size": 8, "restore": "last"}
    made = context(stream.plan, "naive", options, on_progress=lambda it: ended.append(it) if it.done else None)
    learn(stream, Repeating.of(made, model=backbone_model(made)))
    assert [task.num_train for task in made.plan.tasks] == [TRAIN, TRAIN]
    more = [8 * (BATCHES * EPOCHS - 1), 8 * BATCHES * EPOCHS]
    cost = rehearse(lambda context: Repeating.of(context, model=backbone_model(context)), made)
    assert [it.image_passes for it in ended] == [EPOCHS * TRAIN + images for images in more]
    assert sum(it.flops or 0 for it in ended) == cost.train_flops == cost.train_flops_min


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


def test_epoch_rate() -> None:
    """From the first rate to the last along half a cosine; the floor would be reached one epoch after the end."""
    schedule = Schedule(epochs=4, learning_rate=0.025)
    rates = [epoch_rate(schedule, epoch) for epoch in range(5)]
    root = math.sqrt(0.5)
    expected = [0.025, 0.025 * (1 + root) / 2, 0.0125, 0.025 * (1 - root) / 2, 0]
    assert rates == pytest.approx(expected, abs=1e-17)
    floor = Schedule(epochs=100, learning_rate=0.025, min_learning_rate=0.001)
    assert epoch_rate(floor, 0) == 0.025 and epoch_rate(floor, 50) == pytest.approx(0.013, abs=1e-17)
    assert epoch_rate(floor, 99) == pytest.approx(0.001 + 0.012 * (1 + math.cos(0.99 * math.pi)), abs=1e-17)
