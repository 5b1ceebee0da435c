"""Every strategy makes a whole run on a pretended accelerator: nothing is on the wrong device, and training does not
wait for it; planted faults are noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.tried import ADAPTING_SEU, ALL, PROBING_SEU, each, tried
from torch import Tensor

import seu_bench
import seu_bench.training.loops
from seu_bench.data.images import TaskImages
from seu_bench.engine.runner import execute
from seu_bench.errors import RunError
from seu_bench.testing.pretended_card import PretendedCard, pretended_card
from seu_bench.utils.seeding import RandomState

#: Waits of an epoch of training, however many steps it has: a mean loss, an accuracy, and what validation says.
MOST = 4
#: What a step cannot do without.
WAITING = {
    "gem": "a quadratic program for each batch, which is solved on the processor",
    "mir": "which remembered images are replayed is found on the card, and the host chooses their heads",
}


def run(name: str, results: Path) -> PretendedCard:
    """A brief run of a strategy, of four images a batch, where that can be said."""
    trial = tried(name)
    if "batch_size" in trial.registry.strategies.find(trial.strategy).factory.options.model_fields:
        trial = replace(trial, options={**trial.options, "batch_size": 4})
    resolved = trial.resolved("tiny_unequal", results=results, device="cuda")
    with pretended_card() as card:
        assert execute(trial.registry, resolved).record.status == "finished"
    return card


@pytest.mark.parametrize("name", each([*ALL, ADAPTING_SEU, PROBING_SEU]))
def test_training_does_not_wait(name: str, tmp_path: Path) -> None:
    card = run(name, tmp_path)
    assert not card.mismatches
    waits = card.waits_per_epoch()
    assert (max(waits.values(), default=0) > MOST) == (name in WAITING), (waits, card.lines())


def test_augmentation_does_not_wait(tmp_path: Path) -> None:
    changes = {"flip": True, "crop": 1, "brightness": 0.2, "contrast": 0.2}
    options = {f"benchmark.stream.input.augment.{name}": value for name, value in changes.items()} | {"batch_size": 4}
    with pretended_card() as card:
        seu_bench.run("naive", protocol="smoke", limit=40, results=tmp_path, device="cuda", options=options)
    assert 0 < card.waits_per_epoch()["training"] <= MOST


def _positions_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are gathered by positions that were not moved."""
    gather = TaskImages._gather
    monkeypatch.setattr(
        TaskImages, "_gather", lambda images, here, given, augmenter: gather(images, given, given, augmenter)
    )


def _labels_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    gather = TaskImages._gather

    def gathered(*given: object) -> tuple[Tensor, Tensor]:
        images, labels = gather(*given)  # type: ignore[arg-type]
        return images, labels.cpu()

    monkeypatch.setattr(TaskImages, "_gather", gathered)


def _sum_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss is summed on the processor."""
    add = seu_bench.training.loops.EpochMeter.add

    def added(meter: seu_bench.training.loops.EpochMeter, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        meter._loss = meter._loss.cpu()
        add(meter, loss, logits, labels)

    monkeypatch.setattr(seu_bench.training.loops.EpochMeter, "add", added)


def _generator_on_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of the card's generator is kept on it."""
    capture = RandomState._capture

    def captured(state: RandomState) -> dict[str, object]:
        found = capture(state)
        return {**found, "cuda": found["cuda"].to("cuda")} if "cuda" in found else found

    monkeypatch.setattr(RandomState, "_capture", captured)


@pytest.mark.parametrize(
    "plant", [_positions_on_the_host, _labels_on_the_host, _sum_on_the_host, _generator_on_the_card]
)
def test_notices_what_a_card_would_refuse(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch)
    with pytest.raises(RunError, match="pretended card"):
        run("naive", tmp_path)


def test_notices_a_wait_of_each_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add = seu_bench.training.loops.EpochMeter.add

    def added(meter: seu_bench.training.loops.EpochMeter, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        add(meter, loss * float(loss > 0), logits, labels)

    monkeypatch.setattr(seu_bench.training.loops.EpochMeter, "add", added)
    assert run("naive", tmp_path).waits_per_epoch()["training"] > MOST


def test_counts_each_kind_of_wait() -> None:
    """By hand, in an epoch of nobody: numbers fetched, masks, copies back; not copies to the card that go on."""
    with pretended_card() as card:
        rows = torch.arange(6.0).to("cuda", non_blocking=True)
        assert rows.device.type == "cuda" and not card.waits
        _ = float(rows[0]), rows[rows > 2], rows.cpu(), rows.tolist(), rows.nonzero()
    assert sum(card.waits.values()) == 5
    assert rows.device.type == "cpu"
