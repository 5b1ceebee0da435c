"""Strategies of Avalanche by their import path: learned as they are, and refused where they cannot be."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Replay
from support.commands import Command
from torch import nn

import seu_bench
from seu_bench.config.run import Request
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.plugin.registry import Registry
from seu_bench.training.backbones import backbone_model
from seu_bench.training.monitoring import SilentLogger
from seu_bench.utils.seeding import RandomState, derive_seed

REPLAY = "avalanche.training.supervised:Replay"
SMALL: dict[str, Any] = {"backbone": "mlp", "width": 0.1, "epochs": 2, "mem_size": 20}
ASKED: tuple[object, ...] = ("--protocol", "smoke", "--limit", 40)
ASKED += tuple(word for key, value in SMALL.items() for word in ("-o", f"{key}={value}"))


def test_as_it_is(tmp_path: Path) -> None:
    """To the bit what a script of Avalanche's own learns with the same model, optimiser, images and random numbers."""
    record = seu_bench.run(REPLAY, protocol="smoke", limit=40, options=SMALL, results=tmp_path, seed=3)
    run = resolve(Registry(), Request(strategy=REPLAY, protocol="smoke", limit=40, options=SMALL, seed=3))
    device = torch.device("cpu")
    stream = build_stream(run.spec.benchmark, run.load, run.limits, 3, device, **run.part)
    benchmark, context = stream.avalanche(), run.context(stream.plan)
    schedule, model = context.protocol.training, backbone_model(context)
    evaluator = EvaluationPlugin(accuracy_metrics(experience=True), loggers=[SilentLogger()])  # type: ignore[no-untyped-call]
    strategy = Replay(
        model=model,
        optimizer=torch.optim.SGD(
            model.parameters(), schedule.learning_rate, schedule.momentum, weight_decay=schedule.weight_decay
        ),
        criterion=nn.CrossEntropyLoss(),
        mem_size=20,
        train_mb_size=schedule.batch_size,
        train_epochs=2,
        eval_mb_size=context.protocol.eval_batch_size,
        evaluator=evaluator,
    )
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("ignore")
        for task, experience in enumerate(benchmark.streams["train"]):
            with RandomState(derive_seed(3, "training", task)).active():
                strategy.train(experience, [])
    learned = seu_bench.load_model(record.run_id, results=tmp_path).network.state_dict()
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in learned.items())


def test_what_is_measured(tmp_path: Path) -> None:
    """Passes of its memory are counted, with the operations; what it keeps is not known; it says that it starts over.

    From the second task on a batch has as many images of the memory as new ones.
    """
    record = seu_bench.run(REPLAY, protocol="smoke", limit=40, options=SMALL, results=tmp_path)
    trained = [stage for stage in record.stages if stage.name == "training"]
    assert [stage.image_passes for stage in trained][:1] == [2 * 40]
    assert all(2 * 40 < stage.image_passes <= 4 * 40 for stage in trained[1:])
    per_image = {stage.flops / stage.image_passes for stage in trained if stage.flops}
    # No gradient of the images themselves: less than three times the forward pass, and the same for each.
    assert len(per_image) == 1 and 2 * 2 * record.macs[0] < per_image.pop() < 3 * 2 * record.macs[0]
    assert [len(stage.losses) for stage in trained] == [2] * 5 and {stage.epochs for stage in trained} == {2}
    assert record.memory_bytes == (None,) * 5
    assert {(code.kind, code.name, code.sha256 is not None) for code in record.code} == {("strategy", REPLAY, True)}
    again = seu_bench.run(REPLAY, protocol="smoke", limit=40, options=SMALL, results=tmp_path, restart=True)
    assert (again.accuracy_matrix, again.weights_sha256) == (record.accuracy_matrix, record.weights_sha256)
    other = seu_bench.run(REPLAY, protocol="smoke", limit=40, options=SMALL, results=tmp_path, seed=1)
    assert other.accuracy_matrix != record.accuracy_matrix


def test_from_the_command_line(command: Command, tmp_path: Path) -> None:
    """Its options are listed, its cost is forecast, its folder has a plain name; it is verified and shown."""
    listed = command("list", "strategies", REPLAY)
    assert listed.status == 0 and "mem_size" in listed.out
    assert command("cost", "--strategy", REPLAY, *ASKED).status == 0
    run = command("run", "--strategy", REPLAY, *ASKED, "--results", tmp_path, "-q")
    assert run.status == 0 and ":" not in run.out
    for name in ("verify", "show"):
        assert command(name, run.out.strip(), "--results", tmp_path).status == 0, name
    stopped = command("run", "--strategy", REPLAY, *ASKED, "--results", tmp_path, "--seed", 1, "--max-seconds", 0.01)
    assert stopped.status == 75
    told = " ".join(stopped.err.split())
    assert told.count(f"strategy {REPLAY} has no state that can be saved: if it is stopped, the run starts over") == 1
    assert command("run", "--strategy", REPLAY, *ASKED, "--results", tmp_path, "--seed", 1).status == 0


@pytest.mark.parametrize(
    ("name", "reference"), [("JointTraining", "joint"), ("Cumulative", "cumulative"), ("GDumb", None)]
)
@pytest.mark.parametrize(
    "scenario", ["class", *(pytest.param(name, marks=pytest.mark.long) for name in ("task", "domain"))]
)
def test_references(tmp_path: Path, name: str, reference: str | None, scenario: str) -> None:
    """Those that see all images again are references, the whole stream is one stage; each verifies."""
    path = f"avalanche.training.supervised:{name}"
    options = {key: value for key, value in SMALL.items() if key != "mem_size"}
    options["benchmark.stream.scenario"] = scenario
    record = seu_bench.run(path, protocol="smoke", limit=40, options=options, results=tmp_path)
    of_name = seu_bench.results.REFERENCE_ROWS.get(reference or "")
    assert record.reference == of_name
    assert len([it for it in record.stages if it.name == "training"]) == (1 if reference == "joint" else 5)
    assert None not in record.accuracy_matrix[-1]
    from seu_bench.engine.verification import verify

    assert verify(Registry(), record.run_id, results=tmp_path).passed


@pytest.mark.parametrize(
    ("path", "options", "why"),
    [
        ("avalanche.training.supervised:Nave", (), "did you mean 'Naive'?"),
        ("avalanche.trainig:Naive", (), "No module named 'avalanche.trainig'"),
        ("avalanche.training.plugins:EWCPlugin", (), "is no strategy of Avalanche"),
        ("avalanche.training.supervised:ICaRL", (), "its constructor needs what no option can give"),
        ("avalanche.training.supervised:GEM", (), "patterns_per_exp"),
        (REPLAY, ("mem_siz=3",), "did you mean 'mem_size'?"),
        (REPLAY, ("mem_size=few",), "mem_size"),
        (REPLAY, ("lr_schedule=cosine",), "lr_schedule"),
        (REPLAY, ("clip_norm=1.0",), "clip_norm"),
        (REPLAY, ("frozen=true",), "frozen"),
    ],
)
def test_refused(command: Command, tmp_path: Path, path: str, options: tuple[str, ...], why: str) -> None:
    """Before anything is written, with a hint."""
    more = [word for option in options for word in ("-o", option)]
    answer = command("run", "--strategy", path, "--protocol", "smoke", *more, "--results", tmp_path / "results")
    assert answer.status == 2 and "Traceback" not in answer.err
    assert why in answer.err and "hint: " in answer.err
    assert path in answer.err or why == "frozen"
    assert not list(tmp_path.rglob("record.json"))
