"""A method of one class: what it assigns is its state, what it overrides is used where it belongs, and is counted."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

import onnxruntime
import pytest
import torch
from avalanche.core import SupervisedPlugin
from support.tiny import all_threads, class_stream, context, disturb, learn, one_thread, same, weights
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench import Method, Reservoir, hookimpl
from seu_bench.config import BackboneOptions, SelectingOptions
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream
from seu_bench.engine.onnx_export import onnx_bytes
from seu_bench.engine.saved_model import LearnedModel, build_model, parse_weights, read_weights
from seu_bench.errors import PluginError
from seu_bench.plugin.methods import MethodFactory
from seu_bench.testing import Trial
from seu_bench.testing.trial import from_file
from seu_bench.training import TaskData, memory_of
from seu_bench.training.stage import Stage, StageProgress

setup_module, teardown_module = one_thread, all_threads


class Mine(Method):
    """Plain training."""

    class Options(BackboneOptions, SelectingOptions):
        """As of ``naive``."""


class Remembering(Mine):
    """Has state of every kind, which changes with every batch."""

    def setup(self) -> None:
        self.memory = Reservoir(10)
        self.sums: dict[str, Any] = {"pixels": torch.zeros(64), "drawn": [torch.zeros(3)]}
        self.batches = 0
        self.generator = torch.Generator().manual_seed(3)
        self._scratch = object()

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        self.batches += 1
        self.sums["pixels"] += x.flatten(1).sum(0)
        self.sums["drawn"] = [torch.rand(3, generator=self.generator)]
        loss = cross_entropy(logits, y) * (1 + float(self.sums["drawn"][0].sum()))
        if len(self.memory):
            old = self.memory.draw(4)
            loss = loss + cross_entropy(self.replay(old.x, old.task), old.y)
        self.memory.add(x=x, y=y, task=task)
        return loss


def stream() -> TaskStream:
    """Three tasks of two classes, 30 images each."""
    return class_stream([[0, 1], [2, 3], [4, 5]], images=20)


def made(method: type[Method], source: TaskStream, *, on_progress: Any = None, **options: Any) -> Any:
    """A method on a small network, for two epochs in batches of 8."""
    given = {"backbone": "mlp", "width": 0.04, "epochs": 2, "batch_size": 8, **options}
    return method.build(context(source.plan, "naive", given, on_progress=on_progress))


def stopped(method: type[Method], source: TaskStream, **options: Any) -> dict[str, Any]:
    """The state of a run after the first epoch of its second task, as it comes back from a file."""
    states: list[dict[str, Any]] = []
    strategy = made(method, source, **options)

    def pause(stage: Stage[Any]) -> None:
        if (stage.task, stage.epoch) == (1, 1):
            states.append(copy.deepcopy(from_file(strategy.state_dict())))

    strategy.pause = pause
    learn(source, strategy, tasks=2)
    return states[0]


def resumed(method: type[Method], source: TaskStream, state: dict[str, Any], **options: Any) -> Any:
    """The method that goes on from there, in another process as it were, to the end of the second task."""
    strategy = made(method, source, **options)
    disturb()
    strategy.load_state_dict(state)
    scenario = source.avalanche()
    strategy.train(scenario.train_stream[1], eval_streams=[scenario.streams["valid"]])
    return strategy


def test_what_setup_assigns_is_restored_within_a_task() -> None:
    """A memory, tensors, numbers and a generator of random numbers go on where they were, to the bit."""
    source = stream()
    whole = learn(source, made(Remembering, source), tasks=2)
    state = stopped(Remembering, source)
    assert set(state["own_now"]) == {"memory", "sums", "batches", "generator"}
    assert (state["own"]["batches"], state["own_now"]["batches"]) == (8, 12)
    again = resumed(Remembering, source, state)
    assert same(weights(again.model), weights(whole.model))
    assert again.batches == whole.batches == 16
    assert torch.equal(again.sums["pixels"], whole.sums["pixels"]) and bool(whole.sums["pixels"].any())
    assert torch.equal(again.sums["drawn"][0], whole.sums["drawn"][0])
    assert torch.equal(again.generator.get_state(), whole.generator.get_state())
    held, expected = vars(again.memory.all_images()), vars(whole.memory.all_images())
    assert same(held, expected) and len(held["y"]) == 10


def test_what_setup_assigns_is_counted() -> None:
    """In bytes by its name, images of a memory as those that they stand for; a name with an underscore is no state."""
    source = stream()
    strategy = learn(source, made(Remembering, source), tasks=1)
    found = memory_of(strategy) or {}
    assert found.pop("parameters") == 4 * sum(weight.numel() for weight in strategy.model.parameters())
    # 10 grey images of 8x8, label and task a byte each; 64 sums and 3 random numbers
    assert found == {"exemplars": 10 * (64 + 2), "sums": 4 * (64 + 3)}


def test_what_cannot_be_saved_is_refused() -> None:
    """With its name, its type and two ways out, of which one works; in a container, too."""

    class Wrong(Mine):
        def setup(self) -> None:
            self.answer = {"of": [lambda: 3]}

    class Right(Mine):
        def setup(self) -> None:
            self._answer = {"of": [lambda: 3]}

    source = stream()
    with pytest.raises(
        PluginError, match=r"Wrong.setup\(\) assigns 'answer', a dict, which cannot be saved"
    ) as refused:
        made(Wrong, source)
    assert "call it '_answer' if it never changes" in str(refused.value.remedy)
    assert made(Right, source).get_extra_state() == {}


def test_before_task_is_repeated_when_a_run_is_resumed() -> None:
    """It draws the same, so that this need not be saved; what it made of weights that moved since is restored."""

    class Preparing(Mine):
        offsets: ClassVar[list[float]] = []

        def setup(self) -> None:
            self.start = torch.zeros(0)

        def before_task(self, task: TaskData) -> None:
            self._offset = torch.rand(1)
            self.offsets.append(float(self._offset))
            self.start = next(self.model.parameters()).detach().clone()

        def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
            moved = (next(self.model.parameters()) - self.start).square().sum()
            return cross_entropy(logits * (1 + self._offset), y) + moved

    source = stream()
    whole = learn(source, made(Preparing, source), tasks=2)
    state = stopped(Preparing, source)
    again = resumed(Preparing, source, state)
    assert same(weights(again.model), weights(whole.model))
    first, second, *_ = Preparing.offsets
    assert Preparing.offsets == [first, second, first, second, second] and first != second


def test_penalty_enters_training_and_validation_loss() -> None:
    """The validation loss is that of plain training and the penalty; each step goes down both."""

    class Shrinking(Mine):
        def penalty(self) -> Tensor:
            return 100 * next(self.model.parameters()).square().sum()

    source = stream()
    strategy = made(Shrinking, source, clip_norm=1e9, learning_rate=0.001)
    task = TaskData(0, source.tasks[0].train, source.tasks[0].valid)
    strategy.model.begin_task(0)
    plain = Mine.validation_loss(made(Mine, source), task, lambda _: None)
    penalty = float(strategy.penalty().detach())
    assert penalty > 1 and plain is not None
    assert strategy.validation_loss(task, lambda _: None) == pytest.approx(plain + penalty)
    before = next(strategy.model.parameters()).detach().clone()
    learn(source, strategy, tasks=1)
    after = next(strategy.model.parameters()).detach()
    assert float(after.square().sum()) < 0.5 * float(before.square().sum())


class Preferring(Mine):
    """Answers with a preference that it keeps in the model."""

    name = "preferring"

    def setup(self) -> None:
        self.buffer("preference", torch.zeros(2))

    def after_task(self, task: TaskData) -> None:
        self.model.preference.copy_(torch.tensor([0.0, 1000.0]))

    def predict(self, x: Tensor, task: int) -> Tensor:
        return self.network.logits(x, task) + self.model.preference


class Offering:
    """A plugin that offers :class:`Preferring`."""

    @hookimpl
    def register_strategies(self, register: Any) -> None:
        register(Preferring.name, MethodFactory(Preferring))


def test_predict_answers_in_a_run_its_saved_model_and_its_export(tmp_path: Path) -> None:
    """The accuracy is that of always the second class; what was saved and what was exported answer the same."""
    trial = Trial("preferring", {"backbone": "mlp", "width": 0.05}, [Offering()])
    record = trial.record("tiny_two", tmp_path)
    assert record.status == "finished"
    source = trial.learner("tiny_two")
    shares = [float((task.test.labels == 1).float().mean()) for task in source.stream.tasks]
    assert record.accuracy_matrix[-1] == pytest.approx(shares)
    folder = tmp_path / "runs" / record.run_id
    content = read_weights(folder, record)
    model = build_model(trial.registry, *parse_weights(content, folder), record, folder)
    assert isinstance(model, LearnedModel)
    x = source.test_images(1)
    logits = model(x, task=1)
    assert bool((logits[:, 1] - logits[:, 0] > 900).all())
    session: Any = onnxruntime.InferenceSession(onnx_bytes(model, 1))
    pixels = torch.randint(256, (3, 8, 8, x.shape[1]), dtype=torch.uint8)
    exported, _ = session.run(None, {"images": pixels.numpy()})
    assert bool((torch.as_tensor(exported)[:, 1] > 900).all())


def passes(method: type[Method], **options: Any) -> list[int]:
    """Image passes of the training of two tasks of 30 images, with validation on 10 of each."""
    ended: list[StageProgress] = []
    source = stream()
    learn(source, made(method, source, on_progress=lambda it: ended.append(it) if it.done else None, **options), 2)
    return [it.image_passes for it in ended if it.stage == "training"]


def test_images_that_join_a_batch_are_counted() -> None:
    """Both those behind a batch and those of further tables pass the network and train it."""

    class Doubling(Mine):
        def extend_batch(self, x: Tensor, y: Tensor, task: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return torch.cat([x, x[:3]]), torch.cat([y, y[:3]]), torch.cat([task, task[:3]])

        def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
            assert len(x) == len(y) == len(task) == len(logits)
            return cross_entropy(logits, y)

    class Rehearsing(Mine):
        def setup(self) -> None:
            self.memory = Reservoir(12)

        def training_images(self, task: TaskData) -> list[TaskImages]:
            return [task.train, *self.memory.tables()]

        def after_task(self, task: TaskData) -> None:
            self.memory.add_images(task.train)

    validation = 2 * 10
    assert passes(Mine) == [2 * 30 + validation] * 2
    assert passes(Doubling) == [2 * (30 + 4 * 3) + validation] * 2
    assert passes(Rehearsing) == [2 * 30 + validation, 2 * (30 + 12) + validation]


def test_it_stays_an_avalanche_strategy() -> None:
    """Plugins hear the callbacks of every batch and epoch, see it, and may change the loss."""

    class Hearing(SupervisedPlugin):  # type: ignore[type-arg]
        def __init__(self) -> None:
            super().__init__()
            self.heard: list[str] = []

        def before_training_epoch(self, strategy: Any, **_: Any) -> None:
            self.heard.append("epoch")

        def before_backward(self, strategy: Any, **_: Any) -> None:
            self.heard.append("batch")
            strategy.loss = 0 * strategy.loss

        def after_training_exp(self, strategy: Any, **_: Any) -> None:
            self.heard.append(f"task {strategy.clock.train_exp_counter}")

    source, hearing = stream(), Hearing()
    strategy = made(Mine, source, weight_decay=0.0)
    strategy.plugins.append(hearing)
    before = weights(strategy.model)
    learn(source, strategy, tasks=2)
    once = (["epoch"] + 4 * ["batch"]) * 2
    assert [it for it in hearing.heard if not it.startswith("task")] == 2 * once
    assert len([it for it in hearing.heard if it.startswith("task")]) == 2
    assert same(weights(strategy.model), before)
    found = strategy.eval(source.avalanche().test_stream[:2])
    assert isinstance(found, dict)
