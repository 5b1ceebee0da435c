"""The guard around plugins' stages changes nothing where nothing is wrong, and names the plugin where something is."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.guarded import CPU, NAMED, Plain, guarded
from support.tiny import all_threads, build, class_stream, genotype, one_thread, same, weights
from torch import Tensor

from seu_bench.config.protocol import CreationSchedule, SearchSchedule
from seu_bench.errors import PluginError, RunError
from seu_bench.training.stage import EpochReport, StageProgress
from seu_bench.utils.seeding import RandomState
from seu_bench_kit.components import CreationTask, SearchTask
from seu_bench_kit.search_space import OPERATIONS, SearchSpace
from seu_bench_seu.creator import MdlCreation
from seu_bench_seu.options import CreationOptions, SearchOptions
from seu_bench_seu.searcher import MdlSearch

setup_module, teardown_module = one_thread, all_threads


STREAM = class_stream([[0, 1], [2, 3]], images=23)


SEARCH = SearchSchedule(epochs=3, batch_size=8, cells=3, channels=2)


CREATION = CreationSchedule(epochs=3, batch_size=8, old_unit_epochs=1)


def fails(*_: object) -> Any:
    raise ZeroDivisionError("this is broken")


# --- nothing is wrong -------------------------------------------------------------------------------------------------


def test_what_is_told_and_found() -> None:
    """The result comes through; epochs, images, seconds and reports are the plugin's, stage and task the strategy's."""
    seen: list[StageProgress] = []
    stage = guarded(Plain)
    assert stage.run(seen.append) == "found"
    assert [(told.epoch, told.image_passes, told.done) for told in seen] == [
        (0, 0, False),
        (1, 4, False),
        (2, 8, False),
        (3, 12, True),
    ]
    assert {(told.stage, told.task, told.epochs) for told in seen} == {("search", 1, 3)}
    assert (stage.epoch, stage.image_passes, stage.report) == (3, 12, EpochReport(0.5, 0.25))
    assert seen[-1].report == EpochReport(0.5, 0.25)
    assert 0 < stage.inner.seconds <= stage.seconds < 60


def test_a_stage_that_ends_early() -> None:
    """The guard ends with it, also where it is resumed at its end, and tells the epochs that were taken."""

    def enough(stage: Plain) -> EpochReport:
        stage.ended = stage.epoch == 1
        return EpochReport(0.5, 0.25)

    seen: list[StageProgress] = []
    stage = guarded(lambda: Plain(act=enough))
    stage.advance(), stage.advance()
    again = guarded(lambda: Plain(act=enough))
    again.load_state_dict(stage.state_dict())
    for each, epochs in ((guarded(lambda: Plain(act=enough)), 2), (again, 2)):
        assert each.run(seen.append) == "found"
        assert (each.epoch, seen[-1].epoch, seen[-1].epochs, seen[-1].done) == (epochs, epochs, epochs, True)


def search(guard: bool, seed: int = 3) -> Any:
    """The paper's search, with the guard or without."""
    task = SearchTask(STREAM.tasks[1].train, 1, 2, SearchSpace(), SEARCH, seed, CPU)
    if not guard:
        return MdlSearch(SearchOptions(), task)
    return guarded(lambda: MdlSearch(SearchOptions(), task), fault=task.space.fault)


def creation(guard: bool, seed: int = 3) -> Any:
    """The paper's creation, with the guard or without."""
    model = build(STREAM, "seu", genotype="darts_v1").model
    with RandomState(1).active():
        for task in (0, 1):
            model.expand(genotype(), task)
            model.keep(task, [task] * 4)
            if task == 0:
                model.freeze()
    given = CreationTask(model, STREAM.tasks[1].train, 1, CREATION, seed, CPU)
    if not guard:
        return MdlCreation(CreationOptions(), given)
    return guarded(lambda: MdlCreation(CreationOptions(), given), kind="creator", fault=model.path_fault)


def ending(stage: Any) -> dict[str, Tensor]:
    """Run to the end: everything that is left then, as tensors."""
    found = stage.run()
    inner: Any = getattr(stage, "inner", stage)
    left: dict[str, Tensor] = {}
    for name, vectors in inner.tables.state_dict().items():
        left |= {f"{name}{place}": vector for place, vector in enumerate(vectors)}
    if isinstance(inner, MdlSearch):
        left |= weights(inner.network)
        edges = (*found.normal, *found.reduction)
        left["found"] = torch.tensor([(edge.source, OPERATIONS.index(edge.operation)) for edge in edges])
    else:
        left |= weights(inner.model)
        left["found"] = torch.tensor(found)
    left["counts"] = torch.tensor([stage.epoch, stage.image_passes])
    left["measured"] = torch.tensor([stage.report.loss, stage.report.accuracy], dtype=torch.float64)
    left["drawn"] = stage.randomness.state_dict()["torch"].clone()
    return left


both = pytest.mark.parametrize(
    "make", [pytest.param(search, id="search", marks=pytest.mark.long), pytest.param(creation, id="creation")]
)


@both
def test_bit_by_bit_as_without(make: Callable[..., Any]) -> None:
    """Weights, tables, result, counts, reports and draws are what they are without the guard."""
    expected = ending(make(False))
    stage = make(True)
    torch.manual_seed(6)
    at = torch.get_rng_state()
    assert same(ending(stage), expected)
    assert torch.equal(torch.get_rng_state(), at)
    assert not same(ending(make(True, seed=4)), expected)


@both
@pytest.mark.parametrize("epochs", [0, 2])
def test_resumes_bit_by_bit(make: Callable[..., Any], epochs: int) -> None:
    """A new guarded stage that loads a safe checkpoint after k epochs ends as an uninterrupted one without a guard."""
    first = make(True)
    for _ in range(epochs):
        first.advance()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    first.run()
    file.seek(0)
    second = make(True)
    torch.manual_seed(99)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert (second.epoch, second.inner.epoch) == (epochs, epochs)
    assert second.randomness is second.inner.randomness
    assert same(ending(second), ending(make(False)))


# --- what is told of a failure ----------------------------------------------------------------------------------------


def test_any_error_is_named() -> None:
    """Kind, name, plugin, package, stage and task; what was raised follows, and is the cause."""
    for stage in (lambda: guarded(fails), lambda: guarded(lambda: Plain(act=fails)).run()):
        with pytest.raises(RunError, match=NAMED + "ZeroDivisionError: this is broken") as caught:
            stage()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert caught.value.remedy == "choose another searcher, or report it to the author of a-package"


def test_result_that_cannot_be_used() -> None:
    """The fault that was found is told; the result does not come out."""
    said = NAMED + "its result cannot be used: 'found' is no number"
    with pytest.raises(RunError, match=said):
        guarded(Plain, fault=lambda found: f"{found!r} is no number").run()


@pytest.mark.parametrize("at", [0, 4, 5])
def test_watcher_is_not_the_plugin(at: int) -> None:
    """A watcher's exception comes out as it is, from within an epoch as from between two."""
    error = PluginError("the watcher broke")

    def fail(progress: StageProgress) -> None:
        if progress.image_passes == at:
            raise error

    def tell_at_once(stage: Any) -> None:
        if at == 5:
            stage._notified = -math.inf
            stage.passed(1)

    with pytest.raises(PluginError) as caught:
        guarded(lambda: Plain(act=tell_at_once)).run(fail)
    assert caught.value is error
