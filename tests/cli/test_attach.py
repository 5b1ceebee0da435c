"""``--attach``: plugins and metrics of Avalanche added to a run, from its learning to the leaderboard."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import FEW_IMAGES, Command

import seu_bench
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record
from seu_bench_submissions.claims import claim_faults

#: A stranger's file: plugins that move the weights, with a state and without, and metrics.
MINE = """
import os

import torch
from avalanche.core import SupervisedPlugin
from avalanche.evaluation import PluginMetric
from avalanche.evaluation.metric_results import MetricValue
from avalanche.evaluation.metrics import ExperienceAccuracy


class Shift(SupervisedPlugin):
    # Moves all weights a little, the more the more batches there were.
    def __init__(self):
        super().__init__()
        self.batches = 0

    def after_update(self, strategy, **kwargs):
        self.batches += 1
        with torch.no_grad():
            for weight in strategy.model.parameters():
                weight.add_(1e-5 * self.batches)
        if self.batches == int(os.environ.get("STOP_AT", "0")):
            raise KeyboardInterrupt


class SavedShift(Shift):
    def state_dict(self):
        return {"batches": self.batches, "anchor": torch.zeros(10)}

    def load_state_dict(self, state):
        self.batches = state["batches"]


class Evaluations(PluginMetric):
    # How many evaluations of a task it has seen.
    def __init__(self):
        super().__init__()
        self.seen = 0

    def reset(self):
        self.seen = 0

    def result(self):
        return self.seen

    def after_eval_exp(self, strategy):
        self.seen += 1
        task = strategy.experience.current_experience
        return [MetricValue(self, f"seen/{task}", self.seen, 0), MetricValue(self, "lost", float("nan"), 0)]

    def __str__(self):
        return "Evaluations"


class SavedEvaluations(Evaluations):
    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


class Needs(SupervisedPlugin):
    def __init__(self, strength):
        super().__init__()


class Neither:
    pass
"""
SMALL = ("-o", "backbone=mlp", "-o", "width=0.1")


@pytest.fixture
def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A ranked benchmark of two tasks; the stranger's file lies beside it, where PYTHONPATH leads."""
    (tmp_path / "my_parts.py").write_text(MINE)
    (tmp_path / "few.toml").write_text(FEW_IMAGES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield tmp_path / "few.toml"
    sys.modules.pop("my_parts", None)


def made(command: Command, benchmark: Path, *more: object) -> Record:
    results = benchmark.parent / "results"
    answer = command("run", "--benchmark", benchmark, *SMALL, "--results", results, "-q", *more)
    assert answer.status == 0, answer.err
    return read_record(results / "runs" / answer.out.strip())


@pytest.mark.parametrize("strategy", ["naive", "avalanche.training.supervised:Naive"])
def test_metrics(command: Command, benchmark: Path, strategy: str) -> None:
    """Avalanche's own and a stranger's give values by name, and change nothing of what is learned."""
    own = "avalanche.evaluation.metrics:ExperienceAccuracy"
    asked = ("--strategy", strategy)
    record = made(command, benchmark, *asked, "--attach", "my_parts:Evaluations", "--attach", own)
    plain = made(command, benchmark, *asked)
    assert record.attach == ("my_parts:Evaluations", own)
    last = {f"Top1_Acc_Exp/eval_phase/test_stream/Task00{t}/Exp00{t}": record.accuracy_matrix[1][t] for t in range(2)}
    assert record.attached == {**last, "seen/0": 2.0, "seen/1": 3.0, "lost": None}
    named = {code.name: code.kind for code in record.code if code.kind != "benchmark file"}
    named.pop(strategy, None)
    assert named == dict.fromkeys(record.attach, "attached metric")
    assert all(code.sha256 for code in record.code)
    assert (plain.attach, plain.attached) == ((), {})
    assert (record.accuracy_matrix, record.memory_bytes) == (plain.accuracy_matrix, plain.memory_bytes)
    assert "attach" not in plain.run_id and "attached" in record.run_id


@pytest.mark.parametrize(
    "strategy", ["naive", pytest.param("avalanche.training.supervised:Naive", marks=pytest.mark.long)]
)
def test_plugin_that_changes_weights(command: Command, benchmark: Path, strategy: str) -> None:
    """What is learned differs, leaderboards keep it apart and name it, and verify and show take it."""
    results = benchmark.parent / "results"
    ids = [
        made(command, benchmark, "--strategy", strategy, *more)
        for more in ((), ("--attach", "my_parts:Shift"), ("--attach", "my_parts:SavedShift"))
    ]
    plain, shifted, saved = ids
    weights = [seu_bench.load_model(it.run_id, results=results).network.state_dict()["heads.0.bias"] for it in ids]
    assert not torch.equal(weights[0], weights[1]) and torch.equal(weights[1], weights[2])
    assert shifted.memory_bytes == (None, None)
    if strategy == "naive":
        assert saved.memory_bytes == tuple((it or 0) + 40 for it in plain.memory_bytes)
    board = next((results / "leaderboards").glob("*.md")).read_text()
    assert "attach=my\\_parts:Shift" in board or "attach=my_parts:Shift" in board
    assert len(seu_bench.leaderboard(results).frame) == 3
    for record in ids:
        assert command("verify", record.run_id, "--results", results, "--benchmark", benchmark).status == 0
        assert command("show", record.run_id, "--results", results).status == 0
    (benchmark.parent / "my_parts.py").write_text(MINE + "\n")
    asked = ("--benchmark", benchmark, *SMALL, "--results", results, "--strategy", strategy)
    assert "other code" in command("run", *asked, "--attach", "my_parts:Shift").err


@pytest.mark.parametrize("resumes", [True, False])
def test_stopped(command: Command, benchmark: Path, monkeypatch: pytest.MonkeyPatch, resumes: bool) -> None:
    """Stopped in the second task a run goes on, if what changes its weights has a state, and ends as one that was
    never stopped; otherwise it says that it starts over, and does."""
    plugin = "my_parts:SavedShift" if resumes else "my_parts:Shift"
    asked = ("--strategy", "naive", "--attach", f"{plugin},my_parts:SavedEvaluations,my_parts:Evaluations")
    asked = (*asked, "-o", "epochs=3")
    whole, stopped = made(command, benchmark, *asked), benchmark.parent / "stopped"
    given = ("run", "--benchmark", benchmark, *SMALL, "--checkpoint-every", 0, "--results", stopped, *asked)
    monkeypatch.setenv("STOP_AT", "5")
    first = command(*given)
    monkeypatch.delenv("STOP_AT")
    second = command(*given)
    assert (first.status, second.status) == (130, 0), second.err
    told = " ".join(first.err.split())
    assert (f"{plugin} has no state that can be saved: if it is stopped, the run starts over" in told) is not resumes
    assert ("resuming from" in second.err) is resumes
    record = read_record(stopped / "runs" / whole.run_id)
    assert (record.weights_sha256, record.accuracy_matrix) == (whole.weights_sha256, whole.accuracy_matrix)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("my_parts", "is no class"),
        ("nowhere:Shift", "cannot be imported: ModuleNotFoundError"),
        ("my_parts:Shfit", "did you mean 'Shift'?"),
        ("my_parts:Neither", "no plugin and no metric"),
        ("my_parts:MINE.x", "cannot be imported: AttributeError"),
        ("my_parts:Needs", "cannot be constructed without arguments"),
        ("os:getcwd", "is no class"),
    ],
)
def test_refused(command: Command, benchmark: Path, path: str, why: str) -> None:
    """With its name and a hint, before anything is written."""
    results = benchmark.parent / "results"
    answer = command("run", "--strategy", "naive", "--benchmark", benchmark, "--attach", path, "--results", results)
    assert answer.status == 2 and "Traceback" not in answer.err
    assert why in answer.err and path in answer.err and "hint: " in answer.err
    assert not results.exists()


@pytest.mark.parametrize("change", [{"attach": ("planted:It",)}, {"strategy": "planted:It"}])
def test_of_a_stranger(command: Command, benchmark: Path, change: dict[str, Any]) -> None:
    """What a submitted record names by an import path is not imported."""
    record = made(command, benchmark, "--strategy", "naive").model_copy(update=change)
    (benchmark.parent / "planted.py").write_text("raise SystemExit('imported')")
    assert "not imported" in claim_faults(Registry(), record)[0]
