"""PathNet learns: what the search keeps, what stays as it was in bits, tiny epochs, resuming."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.plugins.pathnet import QUICK, stream
from support.tiny import all_threads, build, learn, one_thread, same, weights
from torch import Tensor

from seu_bench.training.stage import EpochReport, StageProgress, TaskData
from seu_bench_pathnet import method
from seu_bench_pathnet.method import PathSearch
from seu_bench_pathnet.network import Path, Turn, distinct

setup_module, teardown_module = one_thread, all_threads


def searching(restore: str = "best_valid", **options: Any) -> tuple[Any, PathSearch]:
    """A strategy, and the search of its first task."""
    source = stream()
    strategy = build(source, "pathnet", **{**QUICK, "restore": restore, **options})
    strategy.experience = source.avalanche().train_stream[0]
    strategy.adapted_dataset = strategy.experience.dataset
    strategy.make_train_dataloader()
    task = source.tasks[0]
    (phase,) = strategy.phases(TaskData(0, task.train, task.valid))
    return strategy, phase.make()


def watched(stage: PathSearch, after_epoch: Callable[[], None]) -> None:
    """Run a stage; call back after each epoch's training, before anything is judged or restored."""
    train_epoch = stage.train_epoch

    def trained() -> EpochReport:
        report = train_epoch()
        after_epoch()
        return report

    stage.train_epoch = trained  # type: ignore[method-assign]
    stage.run()


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ([3, 2, 4, 5], 1),
        ([1, 2, 3, 4], 0),
        ([4, 3, 2, 1], 3),
        ([4, 3, math.nan, 2], 3),
        ([4, 3, 2.5, 3], 2),
        ([2, 2, 2, 2], 0),
    ],
)
def test_the_best_validation_loss_decides(monkeypatch: pytest.MonkeyPatch, losses: list[float], best: int) -> None:
    """Of two generations of an epoch for each path: the path of the lowest loss is kept with the weights that had it,
    and each generation begins with the best weights so far."""
    strategy, stage = searching(epochs=2, generations=2)
    given, passed = iter(losses), []

    def judged(forward: Any, images: Any, batch_size: int, on_batch: Any) -> tuple[float, float]:
        passed.append(images)
        return 0.5, next(given)

    monkeypatch.setattr(method, "evaluate", judged)
    snapshots: list[dict[str, Tensor]] = []
    paths: list[Path] = []

    def noted() -> None:
        snapshots.append(weights(stage.module))
        paths.append(strategy.model.tried[0])

    starts: list[dict[str, Tensor]] = []
    begin = stage._begin

    def begun(turn: Turn) -> None:
        starts.append(weights(stage.module))
        begin(turn)

    monkeypatch.setattr(stage, "_begin", begun)
    watched(stage, noted)
    assert all(images is stage.data.valid for images in passed) and len(passed) == 4
    assert not any(same(snapshots[one], snapshots[other]) for one in range(4) for other in range(one))
    assert same(weights(stage.module), snapshots[best])
    assert strategy.model.tried[0] == paths[best]
    assert same(starts[1], snapshots[0])  # paths share their weights
    assert same(starts[2], snapshots[0 if losses[0] <= losses[1] else 1])


@pytest.mark.parametrize(
    ("accuracies", "best"), [([0.5, 0.6, 0.9, 0.8], 0), ([0.5, 0.6, 0.7, 0.7], 0), ([1, 1, 0.1, 0.2], 1)]
)
def test_without_selection_the_last_generation_decides(
    monkeypatch: pytest.MonkeyPatch, accuracies: list[float], best: int
) -> None:
    """The path that was right more often while it trained in the last generation; the last weights stay."""
    strategy, stage = searching("last", epochs=2, generations=2)
    train_epoch, given = stage.train_epoch, iter(accuracies)
    contenders: list[Path] = []

    def trained() -> EpochReport:
        contenders.append(strategy.model.tried[0])
        return EpochReport(train_epoch().loss, next(given))

    monkeypatch.setattr(stage, "train_epoch", trained)
    monkeypatch.setattr(method, "evaluate", lambda *_: pytest.fail("validation images were passed"))
    last: list[dict[str, Tensor]] = []
    watched(stage, lambda: last.append(weights(stage.module)))
    assert strategy.model.tried[0] == contenders[2 + best]
    assert same(weights(stage.module), last[3]) and not same(last[3], last[2])


def test_error_of_a_generation_is_the_mean_of_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """.2 and .6 lose against .5 and .5, though the second epoch was the best of all."""
    strategy, stage = searching("last", epochs=2, generations=1)
    given, contenders = iter([0.2, 0.6, 0.5, 0.5]), []

    def trained() -> EpochReport:
        contenders.append(strategy.model.tried[0])
        return EpochReport(1.0, next(given))

    monkeypatch.setattr(stage, "train_epoch", trained)
    stage.run()
    assert strategy.model.tried[0] == contenders[2] != contenders[0]


def test_only_the_path_moves() -> None:
    """In a turn the modules of the contender's path and the head train; all others keep their bits."""
    strategy, stage = searching(epochs=2, generations=2)
    model = strategy.model
    before = [weights(model)]

    def noted() -> None:
        path, now = model.tried[0], weights(model)
        assert path == distinct(stage.tournament.paths[stage.turns[stage.epoch].contender])
        on_path = {f"layers.{layer}.{index}." for layer, used in enumerate(path) for index in used} | {"heads.0."}
        for name, tensor in now.items():
            moved = not torch.equal(tensor, before[-1][name])
            assert moved == any(name.startswith(start) for start in on_path), name
        before.append(now)

    begin = stage._begin

    def begun(turn: Turn) -> None:
        before.append(weights(model))
        begin(turn)

    stage._begin = begun  # type: ignore[method-assign]
    watched(stage, noted)
    assert len(before) == 9


def test_free_modules_are_drawn_anew() -> None:
    """Before a later task those off all kept paths get weights that hang on seed and task, not on what was learned."""
    made = []
    for active in (1, 3):
        source = stream()
        strategy = learn(source, build(source, "pathnet", **{**QUICK, "active": active}), tasks=1)
        before = weights(strategy.model)
        task = source.tasks[1]
        strategy.phases(TaskData(1, task.train, task.valid))[0].make()
        after = weights(strategy.model)
        frozen = {name for name, each in strategy.model.named_parameters() if not each.requires_grad}
        free = {name for name in after if name.startswith("layers.")} - frozen
        assert free and frozen
        assert all(torch.equal(before[name], after[name]) for name in after if name not in free)
        assert not any(torch.equal(before[name], after[name]) for name in free)
        made.append(({name: after[name] for name in free}, frozen))
    assert made[0][1] != made[1][1]
    common = made[0][0].keys() & made[1][0].keys()
    assert common and all(torch.equal(made[0][0][name], made[1][0][name]) for name in common)


@pytest.mark.parametrize(("epochs", "generations", "tournaments"), [(1, 20, 1), (3, 20, 3), (4, 2, 2)])
def test_few_epochs(epochs: int, generations: int, tournaments: int) -> None:
    """With fewer epochs than generations there is one for each epoch; passes are twice the epochs in any case."""
    source = stream()
    seen: list[StageProgress] = []
    options = {**QUICK, "epochs": epochs, "generations": generations}
    strategy = build(source, "pathnet", on_progress=seen.append, **options)
    bred: list[int] = []
    learn(source, strategy, tasks=1)
    last = seen[-1]
    task = source.tasks[0]
    assert (last.stage, last.epochs) == ("search", 2 * epochs)
    assert last.image_passes == 2 * epochs * (len(task.train) + len(task.valid))
    _, stage = searching(epochs=epochs, generations=generations)
    stage.tournament.breed = lambda modules: bred.append(modules)  # type: ignore[method-assign]
    stage.run()
    assert bred == [5] * tournaments
