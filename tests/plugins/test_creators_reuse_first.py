"""Reuse first: old units are scored first, new ones must gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from support.plugins.creators import PATHS, STREAM, all_of, creation, grown, task_of
from support.tiny import all_threads, one_thread, same, weights
from torch import Tensor

from seu_bench_creators import ReuseFirstOptions
from seu_bench_creators.reuse_first import ReuseFirstCreation
from seu_bench_kit.components import CreationTask

pytestmark = pytest.mark.long

setup_module, teardown_module = one_thread, all_threads


class Told(ReuseFirstCreation):
    """Reuse first with accuracies that a test gives, by epoch; it also keeps the weights that each epoch begins and
    ends with."""

    def __init__(self, accuracies: Sequence[float], options: ReuseFirstOptions, task: CreationTask) -> None:
        super().__init__(options, task)
        self.told = accuracies
        self.tried: list[tuple[int, ...]] = []
        self.begun: list[dict[str, Tensor]] = []
        self.left: list[dict[str, Tensor]] = []

    def forward_of(self, sampled: tuple[int, ...]) -> Any:
        """Paths tried, and their weights."""
        self.tried.append(sampled)
        self.begun.append(weights(self.trained))
        return super().forward_of(sampled)

    def learn(self, sampled: tuple[int, ...], accuracy: float, loss: float) -> None:
        """Learn from another accuracy."""
        self.left.append(weights(self.trained))
        super().learn(sampled, self.told[self.epoch], loss)


def told(*accuracies: float, task: int = 2, stem: str = "selectable", **options: Any) -> Told:
    """With as many epochs as there are accuracies."""
    given = task_of(grown(task, stem=stem), task, epochs=len(accuracies), images=5)
    return Told(accuracies, ReuseFirstOptions(**options), given)


def changed_layers(path: Sequence[int], other: Sequence[int]) -> list[int]:
    return [layer for layer, (one, two) in enumerate(zip(path, other, strict=True)) if one != two]


def test_old_units_have_the_first_word() -> None:
    """The first epochs try paths of old units only: those of earlier tasks, the latest first, then mixtures; they train
    the head and nothing else."""
    stage = told(*[0.5] * 12, task=3, old_share=1.0)
    start = weights(stage.trained)
    stage.run()
    assert stage.tried[:3] == [PATHS[2], PATHS[1], PATHS[0]]
    old = [count - 1 for count in stage.model.candidates]
    assert all(0 <= index < count for path in stage.tried for index, count in zip(path, old, strict=True))
    # Nine draws out of 2 * 2 * 2 * 3 mixtures.
    assert len(set(stage.tried[3:])) > 4
    for left in stage.left:
        assert {name for name, tensor in left.items() if not torch.equal(tensor, start[name])} == {
            "4.weight",
            "4.bias",
        }


@pytest.mark.parametrize(
    ("epochs", "layers"),
    [
        (1, []),
        (2, [3]),
        (6, [3, 2, 1, 0]),
        # Seven for old units; three for each layer, and the one left over for the last.
        (20, [3, 3, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0, 0]),
    ],
)
def test_layers_from_last_to_first(epochs: int, layers: list[int]) -> None:
    """Later epochs try the new unit of one layer each, the last layer first; where nothing gains, all else is old."""
    stage = told(*[0.5] * epochs)
    stage.run()
    tried = stage.tried[epochs - len(layers) :]
    assert [changed_layers(path, stage.tried[0]) for path in tried] == [[layer] for layer in layers]
    assert all(path[layer] == stage.model.candidates[layer] - 1 for path, layer in zip(tried, layers, strict=True))


def test_new_unit_stays_where_it_gains() -> None:
    """It stays if the accuracy is higher by more than ``min_gain``; otherwise head and new units are bit by bit what
    they were, for the next layer and at the end."""
    # Old paths; then layers 3 (gains no more than asked), 2 (gains), 1 (falls), 0 (gains). Eighths are exact.
    stage = told(0.25, 0.5, 0.625, 0.75, 0.5, 1.0, min_gain=0.125)
    while stage.epoch < stage.epochs:
        stage.advance()
    old = PATHS[0]
    assert stage.tried[1] == old
    assert stage.tried[2:] == [(0, 0, 0, 2), (0, 0, 1, 0), (0, 2, 1, 0), (1, 0, 1, 0)]
    # Every epoch trains.
    assert all(not same(begun, ended) for begun, ended in zip(stage.begun, stage.left, strict=True))
    for epoch, before in ((2, 1), (3, 1), (4, 3), (5, 3)):
        assert same(stage.begun[epoch], stage.left[before])
    assert stage.result() == (1, 0, 1, 0)
    assert same(weights(stage.trained), stage.left[5])


def test_reuse_first_measures_the_second_half() -> None:
    """It learns from the accuracy on the second half, in evaluation mode, of the path tried."""
    stage = creation("reuse_first", epochs=2)
    assert isinstance(stage, ReuseFirstCreation)
    stage.advance()
    model: Any = stage.model
    x, y = all_of(STREAM.tasks[2].train.part(10, 20))
    model.eval()
    with torch.no_grad():
        right = model.forward_single_task(x, 2).argmax(dim=1) == y
    assert stage.accuracy == stage.report.accuracy == int(right.sum()) / 10
    assert stage.path == model.paths[2] == PATHS[1]
