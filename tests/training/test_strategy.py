"""Both strategies learn from plain Avalanche scripts, depend on the seed alone, and see only what they may."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support.tiny import (
    all_threads,
    build,
    class_stream,
    learn,
    one_thread,
    same,
    weights,
)

from seu_bench.data.streams import TaskStream
from seu_bench.training.loops import TrainingStage
from seu_bench.training.stage import Phase, TaskData

setup_module, teardown_module = one_thread, all_threads

both = pytest.mark.parametrize("name", ["seu", "naive"])
#: For what the contract of every strategy asks, too.
both_at_length = pytest.mark.parametrize("name", [pytest.param("seu", marks=pytest.mark.long), "naive"])

#: Enough to learn the textures: what each strategy needs.
LEARNING: dict[str, dict[str, Any]] = {
    "seu": {"channels": 4, "epochs": 6, "batch_size": 8, "searcher__epochs": 1},
    "naive": {"epochs": 6, "batch_size": 8},
}


def stream(**more: Any) -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4]], **{"images": 16, **more})


def misled(split: str) -> TaskStream:
    """The labels of one split turned round: what is learned makes its loss grow, so it would choose early weights."""
    source = class_stream([[0, 1], [2, 3]], images=24)
    for task in source.tasks:
        labels: torch.Tensor = getattr(task, split).labels
        labels.copy_(1 - labels)
    return source


@both
def test_never_selects_on_test(name: str) -> None:
    """Test and training streams among the evaluation streams change nothing: only validation images select."""
    options = {**LEARNING[name], "epochs": 4, **({"genotype": "darts_v1"} if name == "seu" else {})}

    def learned(split: str, streams: list[str] | None) -> dict[str, torch.Tensor]:
        source = misled(split)
        strategy, scenario = build(source, name, **options), source.avalanche()
        chosen = None if streams is None else [scenario.streams[each] for each in streams]
        for experience in scenario.train_stream[:1]:
            strategy.train(experience, eval_streams=chosen)
        return weights(strategy.model)

    unselected = learned("test", None)
    assert same(learned("test", ["test", "train"]), unselected)
    assert same(learned("test", ["test", "valid"]), learned("test", ["valid"]))
    assert not same(learned("valid", ["valid"]), unselected)  # a stream that does select chooses otherwise


@both
@pytest.mark.long
def test_validation_images_select(name: str) -> None:
    """The weights kept are those of the lowest validation loss: poisoned images keep the last epoch's."""
    kept = {}
    for restore in ("best_valid", "last"):
        options = {**LEARNING[name], "epochs": 4, "restore": restore}
        options |= {"genotype": "darts_v1"} if name == "seu" else {}
        usual, poisoned = misled("valid"), misled("valid")
        valid = poisoned.tasks[0].valid
        valid.store[valid.rows] = math.nan
        for source, kind in ((usual, "usual"), (poisoned, "poisoned")):
            kept[restore, kind] = weights(learn(source, build(source, name, **options), tasks=1).model)
    assert same(kept["last", "usual"], kept["last", "poisoned"])
    assert same(kept["last", "usual"], kept["best_valid", "poisoned"])
    assert not same(kept["last", "usual"], kept["best_valid", "usual"])


@both_at_length
def test_an_experience_as_evaluation_stream(name: str) -> None:
    """As in Avalanche, a single experience may stand where a stream may, and selects the same weights."""
    found = []
    for single in (False, True):
        strategy, scenario = build(stream(), name, epochs=3), stream().avalanche()
        valid = scenario.streams["valid"]
        strategy.train(scenario.train_stream[0], eval_streams=[valid[0] if single else valid])
        found.append(weights(strategy.model))
    assert same(found[0], found[1])


@pytest.mark.parametrize(("batch_size", "batches"), [(5, 5), (23, 1), (100, 1)])
def test_batches_of_an_epoch_are_numbered(batch_size: int, batches: int) -> None:
    """24 images: a strategy knows which batch of how many it trains on; one image left over is no batch."""
    source = class_stream([[0, 1]], images=16)
    strategy, found = build(source, "naive", epochs=2, batch_size=batch_size), []
    forward = strategy.forward

    def watched() -> torch.Tensor:
        found.append((strategy.batch_number, strategy.batches_per_epoch))
        logits: torch.Tensor = forward()
        return logits

    strategy.forward = watched
    learn(source, strategy)
    assert found == 2 * [(number, batches) for number in range(batches)]


# --- streams of unusual shapes ------------------------------------------------------------------------------------


# --- forgetting ---------------------------------------------------------------------------------------------------


def test_training_in_two_stages() -> None:
    """Each has its own name, seed and length, and its learning rate falls over that: SGDR's cosine at 1/2 of 2 epochs
    is half of the first rate, at 3/4 of 4 epochs 0.146 of it."""
    source, rates, done = stream(), [], []
    strategy: Any = build(source, "naive", backbone="mlp", epochs=4, learning_rate=1.0)
    short = strategy.schedule.model_copy(update={"epochs": 2})

    def phases(task: TaskData) -> list[Phase]:
        return [
            Phase(lambda: TrainingStage(strategy, task, "head", short), lambda _: rates.append(strategy.optimizer)),
            Phase(lambda: TrainingStage(strategy, task), lambda _: rates.append(strategy.optimizer)),
        ]

    strategy.phases = phases
    strategy.pause = lambda stage: done.append((stage.name, stage.epochs, stage.epoch))
    learn(source, strategy, 1)
    assert done == [("head", 2, epoch) for epoch in (1, 2)] + [("training", 4, epoch) for epoch in (1, 2, 3, 4)]
    assert [optimizer.param_groups[0]["lr"] for optimizer in rates] == pytest.approx([0.5, 0.14644661])
    task = TaskData(0, source.tasks[0].train, source.tasks[0].valid)
    stages = [TrainingStage(strategy, task, name) for name in ("training", "head")]
    assert not torch.equal(*(stage.randomness.state_dict()["torch"] for stage in stages))
