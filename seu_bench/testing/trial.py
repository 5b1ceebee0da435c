"""A strategy on trial: resolved, built, trained and evaluated in the way a run does it, on tiny streams."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from avalanche.training.plugins import EvaluationPlugin
from torch import Tensor, nn

from seu_bench.config.run import Request
from seu_bench.config.streams import Scenario
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.checkpoint import is_resumable
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.runner import execute
from seu_bench.models.modes import modes_kept
from seu_bench.models.sizes import count_bytes
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import Record
from seu_bench.testing.streams import TinyStreams
from seu_bench.training.interfaces import Cost
from seu_bench.training.monitoring import LABEL_BYTES, AccuracyMatrix, ModelSizes, SilentLogger
from seu_bench.training.stage import StageProgress
from seu_bench.training.strategy import StagedStrategy
from seu_bench.utils.hardware import computing_with


def load_registry(plugins: Sequence[object] = ()) -> Registry:
    """Return the registry of installed plugins, of ``plugins`` and of the tiny streams."""
    manager = load_plugins()
    for index, plugin in enumerate((*plugins, TinyStreams())):
        if isinstance(plugin, ModuleType):
            manager.add_methods(f"trial-{index}", plugin)
        manager.register(plugin, name=f"trial-{index}")
    return Registry(manager)


@dataclass(frozen=True)
class Trial:
    """A strategy on trial: resolved, built, trained and evaluated as a run does it, on tiny streams.

    Attributes:
        strategy: registered name.
        options: options with which it learns quickly, by key as after ``-o``.
        plugins: modules or objects to register beside the installed plugins.
        exact_passes: whether its cost estimate gives image passes exactly.
        searcher, creator: for strategies that take them; the strategy's own by default.
        scenario: of the streams.

    Example:
        >>> learner = Trial("naive").learner("tiny_two").learn_all()
        >>> learner.matrix.result()[1][0]  # accuracy of the first task after the second
    """

    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    plugins: Sequence[object] = ()
    exact_passes: bool = True
    searcher: str | None = None
    creator: str | None = None
    scenario: Scenario = "task"

    @cached_property
    def registry(self) -> Registry:
        """Installed plugins, ``plugins`` and the tiny streams."""
        return load_registry(self.plugins)

    def resolved(self, benchmark: str, *, seed: int = 0, brief: bool = True, **fields: Any) -> ResolvedRun:
        """Resolve a run on one of :data:`~seu_bench.testing.streams.TINY`.

        Args:
            seed: of the run.
            brief: whether it trains for two epochs only, for checks of something else than accuracy.
            fields: further fields of the :class:`~seu_bench.config.run.Request`.
        """
        options, factory = dict(self.options), self.registry.strategies.find(self.strategy).factory
        if brief and "epochs" in factory.options.model_fields:
            options["epochs"] = 2
        if getattr(factory, "uses_encoder", False):
            options["benchmark.stream.input.encoder"] = "tiny"
        if self.scenario != "task":
            options["benchmark.stream.scenario"] = self.scenario
        fields |= {"searcher": self.searcher, "creator": self.creator, "options": options}
        return resolve(self.registry, Request(strategy=self.strategy, benchmark=benchmark, seed=seed, **fields))

    def learner(
        self,
        benchmark: str,
        *,
        seed: int = 0,
        brief: bool = True,
        change: Callable[[TaskStream], None] = lambda _: None,
        disturb: Callable[[], None] = lambda: None,
        feature_cache: int | None = None,
        first_tasks: int | None = None,
    ) -> Learner:
        """Build the strategy and its stream; nothing is learned yet.

        Args:
            benchmark: one of :data:`~seu_bench.testing.streams.TINY`.
            seed: of the strategy; the stream's is 0, so that every seed learns the same images.
            brief: see :meth:`resolved`.
            change: applied to the stream before the strategy is built.
            disturb: called before the strategy is built, before each training and before each evaluation.
            feature_cache: bytes for cached features; ``None``: the default.
            first_tasks: how many of the benchmark's tasks the stream has; ``None``: all.
        """
        run = self.resolved(benchmark, seed=seed, brief=brief, feature_cache=feature_cache)
        stream = build_stream(run.spec.benchmark, run.load, run.limits, 0, first_tasks=first_tasks, encoder=run.encoder)
        change(stream)
        return Learner(run, stream, disturb)

    def record(self, benchmark: str, results: Path) -> Record:
        """Run briefly and return the record."""
        return execute(self.registry, self.resolved(benchmark, results=results, device="cpu")).record


class Learner:
    """A strategy that learns a stream task by task, as a plain Avalanche script would; made by :meth:`Trial.learner`.

    Attributes:
        run, stream, strategy: what is on trial; ``tasks`` is the number of tasks.
        matrix, sizes: measurements of a run's evaluators.
        passes: image passes of each stage that ended, by its name and task.
        whole_stream: whether it is trained once on all tasks.
    """

    def __init__(self, run: ResolvedRun, stream: TaskStream, disturb: Callable[[], None] = lambda: None) -> None:
        self.run = run
        self.stream = stream
        self.tasks = len(stream.tasks)
        self.scenario = stream.avalanche()
        self.matrix = AccuracyMatrix(self.tasks)
        encoder = run.encoder_record
        self.sizes = ModelSizes(
            {}
            if encoder is None or encoder.trained
            else {"params_total": encoder.params, "memory_bytes": encoder.bytes}
        )
        self.passes: Counter[tuple[str, int]] = Counter()
        self._disturb = disturb
        evaluator = EvaluationPlugin(self.matrix, self.sizes, loggers=[SilentLogger()], collect_all=False)  # type: ignore[no-untyped-call]
        self.context = run.context(stream.plan, evaluator=evaluator, on_progress=self._count)
        self._disturb()
        self.strategy: Any = run.strategy.build(self.context)
        self.whole_stream = bool(getattr(self.strategy, "whole_stream", False))

    def _count(self, progress: StageProgress) -> None:
        self.passes[progress.stage, progress.task] += progress.image_passes * progress.done

    @cached_property
    def cost(self) -> Cost:
        """Estimate of the strategy's factory."""
        return self.run.cost(self.context)

    @property
    def model(self) -> Any:
        """Model of the strategy."""
        return self.strategy.model

    def learn(self, task: int) -> None:
        """Train on one task, and evaluate all tasks up to it.

        A strategy that trains on the whole stream is trained at the last task, and not before.
        """
        if self.whole_stream and task < self.tasks - 1:
            return
        train, valid, test = (self.scenario.streams[name] for name in ("train", "valid", "test"))
        self._disturb()
        if self.whole_stream:
            self.strategy.train(train, eval_streams=[valid])
        else:
            self.strategy.train(train[task], eval_streams=[[valid[task]]])
        self._disturb()
        self.strategy.eval(test[: task + 1])

    def learn_all(self) -> Learner:
        """Learn every task in turn."""
        for task in range(self.tasks):
            self.learn(task)
        return self

    def evaluate(self) -> None:
        """Evaluate all tasks."""
        self.strategy.eval(self.scenario.streams["test"])

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of the model's state."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def test_images(self, task: int) -> Tensor:
        """Return a task's test images ``[N, C, H, W]``."""
        images = self.stream.tasks[task].test
        return images.gather(torch.arange(len(images)))[0]

    def logits(self, task: int) -> Tensor:
        """Logits ``[N, outputs]`` of a task's test images in evaluation mode."""
        return evaluate_logits(self.model, self.test_images(task), task)

    def choices(self, task: int) -> int:
        """Number of classes among which an image is classified after learning a task."""
        plan = self.stream.plan
        return sum(plan.classes_per_task[: task + 1]) if plan.scenario == "class" else plan.tasks[task].num_classes

    def outputs(self, task: int) -> int:
        """Number of outputs that answer for a task: all classes learned where one head answers."""
        plan = self.stream.plan
        one_head = plan.scenario == "class" and getattr(self.strategy, "task_inference", None) is None
        return sum(plan.classes_per_task) if one_head else plan.tasks[task].num_classes


class Contract:
    """Attributes of all contracts. They compute with one thread: images this small only wait for a second one."""

    options: ClassVar[Mapping[str, Any]] = {}
    plugins: ClassVar[Sequence[object]] = ()
    exact_passes: ClassVar[bool] = True
    scenario: ClassVar[Scenario] = "task"

    @pytest.fixture(autouse=True)
    def _one_thread(self) -> Iterator[None]:
        with computing_with(1):
            yield


def require(holds: bool, otherwise: str) -> None:
    """Fail the test with a sentence for the strategy's author."""
    __tracebackhide__ = True
    if not holds:
        pytest.fail(otherwise)


def evaluate_logits(model: Any, images: Tensor, task: int) -> Tensor:
    """Logits ``[N, num_classes]`` in evaluation mode, without gradients; every module's mode is restored."""
    with modes_kept(model), torch.no_grad():
        model.eval()
        logits: Tensor = model.forward_single_task(images, task)
    return logits


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Return whether two states are equal bit by bit; NaN equals nothing."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def from_file(state: Mapping[str, Any]) -> Any:
    """Return a state as it comes back from a file; fail if it holds more than tensors and plain values."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    try:
        return torch.load(file, weights_only=True)
    except Exception as error:
        first = str(error).partition("\n")[0]
        pytest.fail(f"the state holds more than tensors and plain values: {type(error).__name__}: {first}")


def used_parameters(model: Any, images: Tensor, task: int) -> set[nn.Parameter]:
    """Return the parameters that a task's logits are computed from, found by autograd.

    Every parameter of ``model`` has ``requires_grad`` afterwards.
    """
    model.eval()
    model.requires_grad_(True)
    with torch.enable_grad():
        pending: list[Any] = [model.forward_single_task(images, task).grad_fn]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            pending += [following for following, _ in node.next_functions]
    variables = (getattr(node, "variable", None) for node in seen)
    return {variable for variable in variables if isinstance(variable, nn.Parameter)}


def drawn() -> tuple[bytes, bytes, object]:
    """Return the states of the global generators of torch, NumPy and ``random``."""
    numpy_state: Any = np.random.get_state(legacy=True)
    place = numpy_state[1].tobytes() + repr(numpy_state[2:]).encode()
    return torch.get_rng_state().numpy().tobytes(), place, random.getstate()


# ------------------------------------------------------------------ sizes


def check_sizes(learner: Learner, task: int) -> None:
    """Fail unless what was measured after a task is what the model and the strategy's state hold, and was forecast."""
    sizes, cost, model = learner.sizes, learner.cost, learner.model
    require(bool(sizes.params_total), "no sizes were measured: hand context.evaluator on")
    total, active, masks = sizes.params_total[-1], sizes.params_active[-1], sizes.mask_bits[-1]
    held = sum(it.numel() for it in {*model.state_dict(keep_vars=True).values()} if isinstance(it, nn.Parameter))
    held += sizes.further["params_total"]
    require(total == held, f"task {task}: {total} parameters were counted, and the model's state holds {held}")
    require(active <= total, f"task {task}: {active} active parameters of {total} in all")
    room, no_masks = 8 * count_bytes(model.packed_masks()), (0,) * learner.tasks
    require(
        masks <= room,
        f"task {task}: mask_bits is {masks}, and packed_masks() returns tensors of {room} bits: where masks are kept, "
        "it must return them",
    )
    ranges: list[tuple[str, Sequence[int], int, Sequence[int]]] = [
        ("parameters", cost.params_total_min, total, cost.params_total),
        ("macs", cost.macs_min, sizes.macs[-1], cost.macs),
        ("bits of masks", cost.mask_bits_min or cost.mask_bits or no_masks, masks, cost.mask_bits or no_masks),
    ]
    if (memory := sizes.memory_bytes[-1]) is not None:
        _check_memory(learner, task, memory)
        if cost.memory_bytes:
            ranges.append(("bytes of memory", cost.memory_bytes_min, memory, cost.memory_bytes))
    for what, least, found, most in ranges:
        require(
            least[task] <= found <= most[task],
            f"task {task}: {found} {what} were measured, and cost said {least[task]} to {most[task]}",
        )


def _check_memory(learner: Learner, task: int, memory: int) -> None:
    parts = learner.sizes.memory_by_kind
    require(sum(parts.values()) == memory, f"task {task}: {memory} bytes of memory are not the sum of {parts}")
    if not is_resumable(learner.strategy):
        return
    state, plan = from_file(learner.strategy.state_dict()), learner.stream.plan
    image, generator = plan.input.shape, torch.get_rng_state().shape
    own = [it for it in _tensors(state["own"]) if it.dtype != torch.uint8 or it.shape != generator]
    model = sum(it.nbytes for it in _tensors(state["weights"]))
    whole, learned = model + sum(it.nbytes for it in own), model
    for it in own:
        if it.shape[1:] == image:
            learned += len(it) * (prod(image) + LABEL_BYTES)
        elif it.dtype != torch.int64:  # not places of images in a stream
            learned += it.nbytes
    if getattr(type(learner.strategy), "kept", None) is StagedStrategy.kept:
        require(memory == whole, f"task {task}: {memory} bytes of memory were counted, and the state holds {whole}")
    require(
        memory >= learned,
        f"task {task}: {memory} bytes of memory were counted ({parts}), and the state that learning goes on from holds "
        f"{learned}: kept() must return all of it",
    )


def _tensors(state: Any) -> list[Tensor]:
    """The tensors of a state in any nesting, those at one place in memory once."""
    found: dict[Any, Tensor] = {}
    pending = [state]
    while pending:
        it = pending.pop()
        if isinstance(it, Tensor) and it.numel():
            found[it.data_ptr(), it.shape] = it
        elif isinstance(it, Mapping | list | tuple):
            pending += it.values() if isinstance(it, Mapping) else it
    return [*found.values()]
