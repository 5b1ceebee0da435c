"""Options decided task by task: the rule on prescribed accuracies, and runs that decide, resumed or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.tiny import registry

from seu_bench import hookimpl
from seu_bench.config.run import Request
from seu_bench.engine.deciding import TUNING, Decider
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption, RequestError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import without_times
from seu_bench.results.record_parts import DecisionRecord
from seu_bench.training.stage import EpochReport, StageProgress


class Prescribed:
    """A strategy whose accuracy on a new task is a function of its options; it notes what it is asked."""

    def __init__(self, accuracy: Callable[[float, float], float]) -> None:
        self.accuracy = accuracy
        self.tried: list[tuple[float, float]] = []
        self.loaded: list[Mapping[str, Any]] = []

    def build(self, context: Any) -> Any:
        run, watch, matrix = context
        options = run.options

        def evaluate(_: Any) -> None:
            self.tried.append((options.ewc_lambda, options.learning_rate))
            matrix.matrix[-1][-1] = self.accuracy(*self.tried[-1])

        def train(*_: Any, **__: Any) -> None:
            watch(StageProgress("training", 1, 1, 1, EpochReport(), 10, 0.0, done=True))

        return SimpleNamespace(load_state_dict=self.loaded.append, train=train, eval=evaluate, pause=None)


def decided(accuracy: Callable[[float, float], float], rule: str, task: int = 1) -> tuple[DecisionRecord, Any, Any]:
    """A decision on a prescribed strategy, the strategy, and the recorder."""
    strategy = Prescribed(accuracy)
    run = resolve(registry(), Request(strategy="ewc", protocol="smoke", stability_decay=rule))
    before = tuple(DecisionRecord(options={}, accuracy=0, reachable=0, trials=0) for _ in range(task))
    record = Record(
        run_id="x", status="running", strategy="ewc", benchmark="x", benchmark_version=1, protocol="x", seed=0
    ).model_copy(update={"decisions": before})
    recorder: Any = SimpleNamespace(record=record, stages=[])
    recorder.watch = recorder.stages.append
    decider = Decider(replace(run, strategy=strategy), recorder, lambda *parts: parts, lambda _: None)  # type: ignore[arg-type]
    learner = SimpleNamespace(state_dict=lambda: {"weights": [1]})
    assert decider.decide(task, learner, None, None, None, lambda _: None)
    assert not decider.decide(task, learner, None, None, None, lambda _: None)
    return recorder.record.decisions[-1], strategy, recorder


def test_rule() -> None:
    """Each rate without a penalty, then the best one with a penalty that is halved until the accuracy suffices."""
    found, strategy, recorder = decided(
        lambda penalty, rate: (0.9 if rate == 0.05 else 0.8) - penalty / 1000, "ewc_lambda=800,learning_rate=0.1|0.05"
    )
    assert strategy.tried == [(0, 0.1), (0, 0.05), (800, 0.05), (400, 0.05), (200, 0.05), (100, 0.05)]
    assert found.options == {"ewc_lambda": 100.0, "learning_rate": 0.05}
    assert (found.reachable, found.accuracy, found.trials) == (0.9, pytest.approx(0.8), 6)
    assert all(state == {"weights": [1]} for state in strategy.loaded)
    assert [stage.stage for stage in recorder.stages] == [TUNING] * 6


def test_bounds() -> None:
    """At the tolerance itself a value is taken; after so many searches the last one is; the first task decays none."""
    at_once, strategy, _ = decided(lambda penalty, _: 0.5 if penalty == 0 else 0.25, "ewc_lambda=8,tolerance=0.5")
    assert (at_once.options, at_once.trials) == ({"ewc_lambda": 8.0}, 2)
    never, strategy, _ = decided(lambda penalty, _: float(penalty == 0), "ewc_lambda=8,searches=3")
    assert [penalty for penalty, _ in strategy.tried] == [0, 8, 4, 2]
    assert (never.options, never.accuracy) == ({"ewc_lambda": 2.0}, 0)
    first, strategy, _ = decided(lambda *_: 0.7, "ewc_lambda=8,learning_rate=0.1|0.2", task=0)
    assert (first.options, first.trials) == ({"ewc_lambda": 8.0, "learning_rate": 0.1}, 2)


class Stopper:
    """Asks a run to stop after so many epochs, of trials or not."""

    def __init__(self, stop: StopRequest, after: int) -> None:
        self.stop, self.after = stop, after
        self.epochs = 0

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Count."""
        self.epochs += 1
        if self.epochs == self.after:
            self.stop.ask(Interruption("stopped by the test", 143))


RULE = "ewc_lambda=1e6,learning_rate=0.05|0.01,tolerance=0.05,searches=2"


def make(results: Path, after: int = 0, **more: Any) -> tuple[Record, int]:
    """A run on two tasks that decides, with a checkpoint after each epoch; and how many reports there were."""
    known = {"strategy": "ewc", "protocol": "smoke", "limit": 16, "first_tasks": 2, "evaluation": "validation"}
    request = Request(
        **{**known, "options": {"epochs": 2, "batch_size": 8}, "stability_decay": RULE, **more},
        device="cpu",
        results=results,
        checkpoint_every=0.0,
    )
    plugins, stop = Registry(), StopRequest()
    watcher = Stopper(stop, after)
    plugins.manager.register(watcher, name="watcher")
    return execute(plugins, resolve(plugins, request), stop=stop).record, watcher.epochs


def test_run(tmp_path: Path) -> None:
    """Every task has a decision; it is learned with its options as a run is that was given them; trials are counted."""
    record, reports = make(tmp_path / "whole")
    assert len(record.decisions) == 2
    assert all(made.options["ewc_lambda"] in (1e6, 5e5) for made in record.decisions)
    trials = sum(made.trials for made in record.decisions)
    assert trials >= 2 + 3
    tried = [stage.task for stage in record.stages if stage.name == TUNING]
    assert len(tried) == 2 * trials  # ewc has two stages
    assert tried == sorted(tried)
    assert record.metrics["image_passes"] == sum(
        stage.image_passes for stage in record.stages if stage.name != "evaluation"
    )
    for after in (2, reports - 3):
        with pytest.raises(Interruption):
            make(tmp_path / str(after), after)
        resumed, _ = make(tmp_path / str(after))
        assert without_times(resumed) == without_times(record), after
    assert "decided" in record.run_id


def test_equal_to_constant_options(tmp_path: Path) -> None:
    """Where every decision is the same, the run learns as one of these options, on half of its validation images."""
    rule = "ewc_lambda=4,learning_rate=0.05,tolerance=0.999"
    record, _ = make(tmp_path, stability_decay=rule, options={"epochs": 2, "batch_size": 8, "restore": "last"})
    assert {made.options["ewc_lambda"] for made in record.decisions} == {4.0}
    options = {"epochs": 2, "batch_size": 8, "restore": "last", "ewc_lambda": 4.0, "learning_rate": 0.05}
    constant, _ = make(tmp_path, stability_decay=None, options=options)
    assert constant.accuracy_matrix == record.accuracy_matrix


@pytest.mark.parametrize(
    ("strategy", "message"),
    [("joint", "cannot go back to where a task began"), ("naive", "it does not take ewc_lambda")],
)
def test_refused(strategy: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=message):
        make(tmp_path, strategy=strategy)
    assert not list(tmp_path.glob("runs/*/record.json"))
