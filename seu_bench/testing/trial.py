"""A strategy on trial: resolved, built, trained and evaluated in the way a run does it, on tiny streams."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from avalanche.training.plugins import EvaluationPlugin
from torch import Tensor, nn

from seu_bench.config.run import Request
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.runner import execute
from seu_bench.plugin.manager import load_plugins
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.testing.streams import TinyStreams
from seu_bench.training.callbacks import SilentLogger
from seu_bench.training.evaluators import AccuracyMatrix, ModelSizes
from seu_bench.training.interfaces import Cost

#: Epochs of the trials that need not learn much.
BRIEF = 2


@dataclass(frozen=True)
class Trial:
    """Which strategy is tried, and how.

    Attributes:
        strategy: its name.
        options: with which it learns quickly, by key as after ``-o``.
        plugins: to be registered beside those installed: a package that is tried without installing it.
        exact_passes: whether its cost estimate gives image passes exactly.
        searcher, creator: for strategies that take them; the strategy's own where left out.
    """

    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    plugins: Sequence[object] = ()
    exact_passes: bool = True
    searcher: str | None = None
    creator: str | None = None

    @cached_property
    def registry(self) -> Registry:
        """What is installed, ``plugins`` and the tiny streams."""
        manager = load_plugins()
        for index, plugin in enumerate((*self.plugins, TinyStreams())):
            manager.register(plugin, name=f"trial-{index}")
        return Registry(manager)

    def resolved(self, benchmark: str, *, seed: int = 0, brief: bool = True, **fields: Any) -> ResolvedRun:
        """The run on one of :data:`~seu_bench.testing.streams.TINY`; a ``brief`` one need not learn much.

        Args:
            fields: further ones of the :class:`~seu_bench.config.run.Request`.
        """
        options = dict(self.options)
        if brief and "epochs" in self.registry.strategies.find(self.strategy).factory.options.model_fields:
            options["epochs"] = BRIEF
        request = Request(
            strategy=self.strategy,
            benchmark=benchmark,
            searcher=self.searcher,
            creator=self.creator,
            seed=seed,
            options=options,
            **fields,
        )
        return resolve(self.registry, request)

    def learner(
        self,
        benchmark: str,
        *,
        seed: int = 0,
        brief: bool = True,
        change: Callable[[TaskStream], None] | None = None,
        disturb: Callable[[], None] | None = None,
        feature_cache: int | None = None,
    ) -> Learner:
        """A strategy that has learned nothing yet.

        Args:
            seed: the strategy's; the stream's is 0, so that every seed learns the same images.
            change: done to the stream before the strategy is built.
            disturb: called before the strategy is built, before each training and before each evaluation.
            feature_cache: bytes for outputs of frozen layers; ``None``: the default.
        """
        run = self.resolved(benchmark, seed=seed, brief=brief, feature_cache=feature_cache)
        stream = build_stream(run.spec.benchmark, run.load, run.limits, 0)
        if change is not None:
            change(stream)
        return Learner(run, stream, disturb)

    def record(self, benchmark: str, results: Path) -> Record:
        """The record of a brief run."""
        return execute(self.registry, self.resolved(benchmark, results=results, device="cpu")).record


class Learner:
    """A strategy and the stream that it learns, task by task, as a plain Avalanche script would.

    Attributes:
        matrix, sizes: what a run's evaluators measure.
        whole_stream: whether it is trained once on all tasks, as
            :attr:`~seu_bench.training.strategy.StagedStrategy.whole_stream` says.
    """

    def __init__(
        self,
        run: ResolvedRun,
        stream: TaskStream,
        disturb: Callable[[], None] | None = None,
    ) -> None:
        self.run = run
        self.stream = stream
        self.tasks = len(stream.tasks)
        self.scenario = stream.avalanche()
        self.matrix = AccuracyMatrix(self.tasks)
        self.sizes = ModelSizes()
        self._disturb: Callable[[], None] = disturb or (lambda: None)
        evaluator = EvaluationPlugin(self.matrix, self.sizes, loggers=[SilentLogger()], collect_all=False)  # type: ignore[no-untyped-call]
        self.context = run.context(stream.plan, evaluator=evaluator)
        self._disturb()
        self.strategy: Any = run.strategy.build(self.context)
        self.whole_stream = bool(getattr(self.strategy, "whole_stream", False))

    @cached_property
    def cost(self) -> Cost:
        """What the strategy's factory expects."""
        return self.run.strategy.cost(self.context)

    @property
    def model(self) -> Any:
        """The strategy's model, as it is now."""
        return self.strategy.model

    def learn(self, task: int) -> None:
        """Train on one task, and evaluate all tasks up to it.

        A strategy that trains on the whole stream is trained at the last task, and not before.
        """
        train, valid, test = (self.scenario.streams[name] for name in ("train", "valid", "test"))
        last = task == self.tasks - 1
        if self.whole_stream and not last:
            return
        self._disturb()
        if self.whole_stream:
            self.strategy.train(train, eval_streams=[valid])
        else:
            self.strategy.train(train[task], eval_streams=[[valid[task]]])
        self._disturb()
        self.strategy.eval(test[: task + 1])

    def learn_all(self) -> Learner:
        """Every task in turn."""
        for task in range(self.tasks):
            self.learn(task)
        return self

    def evaluate(self) -> None:
        """Evaluate all tasks."""
        self.strategy.eval(self.scenario.streams["test"])

    def weights(self) -> dict[str, Tensor]:
        """A copy of everything in the model's state."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def test_images(self, task: int) -> Tensor:
        """A task's test images ``[N, C, H, W]``."""
        images = self.stream.tasks[task].test
        return images.gather(torch.arange(len(images)))[0]

    def logits(self, task: int) -> Tensor:
        """Logits ``[N, num_classes]`` of a task's test images in evaluation mode."""
        return evaluated(self.model, self.test_images(task), task)


def require(holds: bool, otherwise: str) -> None:
    """Fail the test with a sentence for the strategy's author."""
    __tracebackhide__ = True
    if not holds:
        pytest.fail(otherwise)


def evaluated(model: Any, images: Tensor, task: int) -> Tensor:
    """Logits ``[N, num_classes]`` in evaluation mode, without gradients; every module's mode is restored."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.no_grad():
        logits: Tensor = model.forward_single_task(images, task)
    for module, mode in modes.items():
        module.training = mode
    return logits


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two states are equal bit by bit; NaN equals nothing."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def stored_parameters(model: nn.Module) -> dict[int, nn.Parameter]:
    """The parameters among what ``model`` stores, shared ones once, by identity."""
    state = model.state_dict(keep_vars=True)
    return {id(tensor): tensor for tensor in state.values() if isinstance(tensor, nn.Parameter)}


def used_parameters(model: Any, images: Tensor, task: int) -> dict[int, nn.Parameter]:
    """The parameters that a task's logits were computed from, by identity, found by autograd.

    Every parameter of ``model`` has ``requires_grad`` afterwards: not for a model that goes on learning.
    """
    model.eval()
    model.requires_grad_(True)
    with torch.enable_grad():
        logits: Tensor = model.forward_single_task(images, task)
    found: dict[int, nn.Parameter] = {}
    pending: list[Any] = [logits.grad_fn]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, nn.Parameter):
            found[id(variable)] = variable
        pending += [following for following, _ in node.next_functions]
    return found


def drawn() -> tuple[bytes, bytes, object]:
    """Where the global generators of torch, NumPy and ``random`` stand."""
    numpy_state: Any = np.random.get_state(legacy=True)
    place = numpy_state[1].tobytes() + repr(numpy_state[2:]).encode()
    return torch.get_rng_state().numpy().tobytes(), place, random.getstate()
