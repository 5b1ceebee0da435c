"""Learners to which a task is added: the contract refuses those that look ahead, and runs that are extended are, for
every strategy, bit by bit those that knew all tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.stopping import Stopping
from support.tried import ADAPTING_SEU, ALL, FIXED_SEU, each, tried
from torch import Tensor
from torch.nn.functional import cross_entropy

from scripts import extending
from seu_bench import Method, Reservoir, hookimpl
from seu_bench.config.run import Request
from seu_bench.engine.extending import extend
from seu_bench.engine.resolve import resolve, scenarios_of
from seu_bench.engine.runner import Outcome, execute
from seu_bench.errors import Interruption
from seu_bench.models.backbone import BackboneModel
from seu_bench.plugin.methods import MethodFactory
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.testing import StrategyContract, Trial
from seu_bench.testing.streams import TinyStreams
from seu_bench.training.interfaces import StrategyContext
from seu_bench.training.stage import TaskData

OPEN = {"benchmark.stream.input.normalise": "first_task"}


class Dividing(Method):
    """Replay from a memory that is divided among the tasks of the stream."""

    name = "dividing"

    def setup(self) -> None:
        self.memory = Reservoir(24 // len(self.plan.tasks))

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        loss = cross_entropy(logits, y)
        if len(self.memory):
            old = self.memory.draw(4)
            loss = loss + cross_entropy(self.replay(old.x, old.task), old.y)
        return loss

    def after_task(self, task: TaskData) -> None:
        self.memory.add_images(task.train)


class Honest(Dividing):
    """The same, which says so."""

    name = "honest"

    def needs_whole_stream(self) -> str | None:
        return "its memory is divided among all tasks"


class Late(Dividing):
    """The same, which says so when it is too late."""

    name = "late"

    def needs_whole_stream(self) -> str | None:
        return "its memory is divided among all tasks" if self.learned else None


class Rowed(Method):
    """Counts the images of each class in a row for each."""

    name = "rowed"
    scenarios = ("class",)

    def setup(self) -> None:
        self.counts = torch.zeros(sum(self.plan.classes_per_task))

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        self.counts += torch.bincount(y, minlength=len(self.counts))
        return cross_entropy(logits, y, self.counts.max() / (1 + self.counts[: logits.shape[1]]))


class Growing(Rowed):
    """The same, which says how it grows."""

    name = "growing"

    def lengthen(self, name: str, state: Any, added: Sequence[str]) -> Any:
        return torch.cat([state, self.counts[len(state) :]])


class Drawing(Method):
    """Draws a preference behind the heads of all tasks."""

    name = "drawing"
    scenarios = ("task",)

    @classmethod
    def make_model(cls, context: StrategyContext) -> BackboneModel:
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8))
        model = BackboneModel(network, 8, context.plan.classes_per_task)
        model.register_buffer("preference", torch.randn(()))
        return model

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        return cross_entropy(logits, y) * self.model.get_buffer("preference").exp()


METHODS = {it.name: it for it in (Dividing, Honest, Late, Rowed, Growing, Drawing)}


class Offering:
    """A plugin that offers them."""

    @hookimpl
    def register_strategies(self, register: Any) -> None:
        for name, method in METHODS.items():
            register(name, MethodFactory(method))


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("dividing", r"one is that knew of three: .* differs. Nothing may hang on how many tasks"),
        ("late", "say so before the first one"),
        ("rowed", r"cannot learn a third one: RuntimeError"),
        ("drawing", r"weights.preference differs"),
    ],
)
def test_contract_refuses_what_looks_ahead(strategy: str, said: str) -> None:
    """A share of the tasks to come, a reason that comes late, rows of classes to come, draws behind those of all."""
    with pytest.raises(pytest.fail.Exception, match=said):
        StrategyContract().test_extends_to_the_same_weights(Trial(strategy, {}, [Offering()]))


def test_contract_skips_what_says_so_and_passes_what_grows() -> None:
    """A reason is told; a state that says how it grows is as sound as any."""
    with pytest.raises(pytest.skip.Exception, match="its memory is divided among all tasks"):
        StrategyContract().test_extends_to_the_same_weights(Trial("honest", {}, [Offering()]))
    StrategyContract().test_extends_to_the_same_weights(Trial("growing", {}, [Offering()]))


def test_default_memory_of_gem_says_which_option_helps() -> None:
    """One that is divided among the tasks to come cannot grow; a share of each task can."""
    with pytest.raises(pytest.skip.Exception, match="-o patterns_per_experience=100 keeps so many of each"):
        StrategyContract().test_extends_to_the_same_weights(Trial("gem", {"backbone": "mlp"}))


def registry_with(*plugins: object) -> Registry:
    """Installed plugins, the tiny streams, and more."""
    manager = load_plugins()
    for number, plugin in enumerate((TinyStreams(), *plugins)):
        manager.register(plugin, name=f"test-{number}")
    return Registry(manager)


def run(trial: Trial, results: Path, **more: Any) -> Outcome:
    """Run a trial on three tasks to which others may be added, or on the first of them."""
    options = {**trial.options, **OPEN}
    if getattr(trial.registry.strategies.find(trial.strategy).factory, "uses_encoder", False):
        options["benchmark.stream.input.encoder"] = "tiny"
    if trial.scenario != "task":
        options["benchmark.stream.scenario"] = trial.scenario
    fields = {"strategy": trial.strategy, "creator": trial.creator, "benchmark": "tiny_three", "results": results}
    registry = registry_with()
    return execute(registry, resolve(registry, Request(options=options, device="cpu", **fields, **more)))


def kept(outcome: Outcome) -> tuple[dict[str, bytes], bytes]:
    """The tensors of a run's model, by name, and the file of its learner."""
    folder = outcome.path.parent
    weights = load_file(folder / "model.safetensors")
    return {name: it.numpy().tobytes() for name, it in weights.items()}, (folder / "learner.safetensors").read_bytes()


@pytest.mark.parametrize("strategy", each([*(name for name in ALL if name != "joint"), FIXED_SEU, ADAPTING_SEU]))
def test_extended_run_is_the_run_of_all_tasks(strategy: str, tmp_path: Path) -> None:
    """Stopped within the new task and resumed, it has the id, the matrix, the image passes and every bit of the weights
    and of the learner of a run that knew all tasks; what passes is the new task alone."""
    trial = tried(strategy)
    known = scenarios_of(trial.registry.strategies.find(trial.strategy).factory)
    trial = replace(trial, scenario="class" if "class" in known else trial.scenario)
    whole, short = run(trial, tmp_path / "whole"), run(trial, tmp_path / "parts", first_tasks=2)
    watcher = Stopping(task=2)
    given: dict[str, Any] = {"benchmark": "tiny_three", "results": tmp_path / "parts", "device": "cpu"}
    parts = registry_with(watcher)
    stages = {it.name for it in whole.record.stages if it.task == 2 and it.name != "evaluation"}
    if stages - {"moments", "means"}:  # there is an epoch to be stopped after
        with pytest.raises(Interruption):
            extend(parts, short.record.run_id, stop=watcher.stop, checkpoint_every=0.0, **given)
        assert watcher.seen == {2}
    extended = extend(registry_with(), short.record.run_id, **given)
    assert extended.record.run_id == whole.record.run_id != short.record.run_id
    assert extended.record.accuracy_matrix == whole.record.accuracy_matrix
    assert kept(extended) == kept(whole)
    assert extended.record.metrics["image_passes"] == whole.record.metrics["image_passes"]


def test_page_names_every_strategy() -> None:
    """Each has its row."""
    names = re.findall(r"^\| `(\w+)` \|", extending.PAGE.read_text("utf-8"), re.MULTILINE)
    assert names == sorted(registry_with().strategies)


@pytest.mark.long
def test_page_says_what_each_strategy_does() -> None:
    """It is what the script writes."""
    assert extending.PAGE.read_text("utf-8") == extending.page(), "python scripts/extending.py --write"
