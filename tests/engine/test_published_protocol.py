"""The protocol ``published`` of class-incremental CIFAR: what methods learn by, and a run of it that is cut short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seu_bench
from seu_bench.config.protocol import FIRST
from seu_bench.config.run import Request
from seu_bench.config.streams import Augmentation, ClassSplit
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.verification import verify
from seu_bench.errors import Interruption
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record

BENCHMARKS = ("split_cifar100_class", "split_cifar10_class")
#: Epochs, milestones and weight decay of the first task and of later ones, by github.com/G-U-N/PyCIL (see the file).
INITIAL = (200, (60, 120, 170), 5e-4)
SCHEDULES = {
    "naive": (INITIAL, (80, (40, 70), 2e-4)),
    "replay": (INITIAL, (70, (30, 50), 2e-4)),
    "derpp": (INITIAL, (70, (30, 50), 2e-4)),
    "wa": (INITIAL, (170, (60, 100, 140), 2e-4)),
    "bic": ((170, (60, 100, 140), 2e-4),) * 2,
    "lucir": ((160, (80, 120), 5e-4),) * 2,
    "der": (INITIAL, (170, (80, 120, 150), 2e-4)),
    "joint": (INITIAL,) * 2,
    "icarl": ((70, (49, 63), 1e-5),) * 2,
}


def resolved(strategy: str, benchmark: str = BENCHMARKS[0], **options: Any) -> ResolvedRun:
    request = Request(strategy=strategy, benchmark=benchmark, protocol="published", options=options)
    return resolve(Registry(), request)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("strategy", SCHEDULES)
def test_schedules(strategy: str, benchmark: str) -> None:
    """Nothing is clipped, and an option is for all tasks."""
    for options, expected in (({}, SCHEDULES[strategy]), ({"epochs": 1}, None)):
        run = resolved(strategy, benchmark, **options)
        schedules = [run.options.applied_to(run.spec.protocol.training).of_task(task) for task in (0, 1)]  # type: ignore[attr-defined]
        assert all(not it.clip_norm and it.optimizer == "sgd" for it in schedules)
        found = tuple(tuple(getattr(it, key) for key in FIRST) for it in schedules)
        assert found == expected if expected else [epochs for epochs, *_ in found] == [1, 1]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_stream_is_theirs(benchmark: str) -> None:
    """All images train, augmented, in the order of seed 1993; other protocols keep the stream of the file."""
    stream = resolved("naive", benchmark).spec.benchmark.stream
    assert isinstance(stream, ClassSplit)
    assert (stream.class_order, stream.order, stream.validation) == (1993, "fixed", 0)
    assert stream.input.augment == Augmentation(crop=4, flip=True, brightness=63 / 255)
    usual = resolve(Registry(), Request(strategy="naive", benchmark=benchmark, protocol="paper")).spec.benchmark.stream
    assert (usual.validation, usual.input.augment) == (0.1, Augmentation())  # type: ignore[union-attr]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_method_that_rehearses_has_the_same_memory(benchmark: str) -> None:
    for name, entry in Registry().strategies.items():
        if "memory" in entry.factory.options.model_fields and "class" in entry.factory.scenarios:
            assert resolved(name, benchmark).options.memory == 2000, name  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["naive", "replay", "icarl"])
def test_run_cut_short(tmp_path: Path, strategy: str) -> None:
    """Learns, is stopped after its first epoch, goes on to the same weights, and is verified."""
    fields: dict[str, Any] = {"protocol": "published", "options": {"epochs": 2}, "limit": 40, "first_tasks": 2}
    fields |= {"synthetic": True, "checkpoint_every": 0}

    def learned(folder: str, **more: Any) -> Record:
        return seu_bench.run(strategy, BENCHMARKS[0], results=tmp_path / folder, **fields, **more)

    whole = learned("whole")
    with pytest.raises(Interruption):
        learned("parts", max_seconds=1e-3)
    assert [*tmp_path.glob("parts/runs/*/checkpoints/*")]
    resumed = learned("parts")
    assert resumed.run_id == whole.run_id and resumed.weights_sha256 == whole.weights_sha256 is not None
    assert verify(Registry(), whole.run_id, results=tmp_path / "parts").passed
