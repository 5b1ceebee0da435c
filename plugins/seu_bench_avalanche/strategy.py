"""Avalanche's strategies as staged ones: its plugins and templates unchanged, around our training loop.

Everything that Avalanche's algorithms do happens in its own callbacks. What differs from a stock script is what every
strategy here shares: batches gathered whole, a fresh optimiser and a cosine schedule per task, gradient clipping,
stages that are timed and counted, and randomness that hangs on the run's seed alone. As in Avalanche, all of the model
trains, and the last weights are used.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from avalanche.training.supervised import ER_ACE as StockErAce  # noqa: N811
from avalanche.training.supervised import Cumulative as StockCumulative
from avalanche.training.supervised import JointTraining as StockJoint
from torch import nn

from seu_bench.data import MixedLoader
from seu_bench.errors import RunError
from seu_bench.models import BackboneModel
from seu_bench.training import EpochMeter, EpochReport, Phase, Stage, StagedStrategy, TaskData, TrainingStage, fitting
from seu_bench.utils import RandomState, derive_seed
from seu_bench_avalanche.memory import Memory
from seu_bench_avalanche.passes import PassCounter


class AvalancheStrategy(StagedStrategy):
    """Avalanche's plugins around the training loop.

    Args:
        methods: the plugins that make the strategy; their work after a task is a stage called ``consolidation``.
        memory: what they remember between two tasks; without it the strategy learns, and its state cannot be saved.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.
    """

    model: BackboneModel

    #: Its plugins keep what they like while a task is learned, so that a run resumes after completed tasks only.
    resumes_within_tasks = False

    def __init__(
        self,
        *,
        model: BackboneModel,
        methods: Sequence[Any] = (),
        memory: type[Memory] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model=model, plugins=list(methods), **options)
        self.methods = list(methods)
        for method in self.methods:
            self.penalty_strength = getattr(method, "penalty_strength", self.penalty_strength)
        self.passes = PassCounter(model)
        self.randomness = RandomState(derive_seed(self.seed, "avalanche"), self.device)
        self.memory = None if memory is None else memory(self)
        self.resumable = memory is not None
        self._not_put_back: Mapping[str, Any] | None = None

    def train(self, experiences: Any, eval_streams: Any = None, **kwargs: Any) -> Any:
        """Train as Avalanche does; what its plugins draw outside of stages comes from the run's seed."""
        with self.randomness.active(), without_deprecations():
            return super().train(experiences, eval_streams, **kwargs)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state between two tasks, beside the model's weights and the clock: tensors and plain values.

        Raises:
            RunError: it was made without a ``memory``.
        """
        waiting = self._not_put_back
        return {
            "randomness": self.randomness.state_dict(),
            "known_tasks": sorted(self.model.known_train_tasks_labels),
            "memory": self._required_memory().state() if waiting is None else dict(waiting),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` gave. The model has its weights already; what is remembered is put back
        when the next task begins, since only its experience leads to the images of earlier tasks.

        Raises:
            RunError: it was made without a ``memory``.
            KeyError, TypeError: the state is no strategy's of this kind.
        """
        self._required_memory()
        self.randomness.load_state_dict(state["randomness"])
        self.model.known_train_tasks_labels = set(state["known_tasks"])
        self._not_put_back = dict(state["memory"])

    def kept(self) -> Mapping[str, Any]:
        """Return the model and what the methods keep of earlier tasks; nothing without a ``memory``."""
        if self.memory is None:
            return {}
        return {"parameters": list(self.model.parameters()), "buffers": self.model, **self.memory.contents()}

    def _put_back(self) -> None:
        with fitting("what the strategy remembers"):
            self._required_memory().load(self._not_put_back or {}, self.experience.origin_stream)
        self._not_put_back = None

    def _required_memory(self) -> Memory:
        if self.memory is None:
            raise RunError(
                "the state of these plugins between two tasks cannot be saved",
                where=", ".join(type(method).__name__ for method in self.methods) or type(self).__name__,
                remedy="give the strategy a memory (seu_bench_avalanche.memory), or learn all tasks in one process",
            )
        return self.memory

    def training_mode(self) -> None:
        """Leave the mode as training began with and the plugins set it: CWR* freezes layers."""

    def training_stage(self, task: TaskData) -> TrainingStage:
        """The training stage, which counts every pass through the backbone."""
        return CountedTraining(self, task)

    def trained_module(self, task: TaskData) -> nn.Module:
        """All of the model: distillation, replay and penalties reach every head."""
        return self.model

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """That of the plugin that makes the strategy, if it has a quadratic penalty."""
        found: float | None = None
        for method in self.methods:
            if hasattr(method, "penalty_curvature"):
                found = method.penalty_curvature(trained)
        return found

    def make_train_dataloader(self, *arguments: Any, **kwargs: Any) -> None:
        """Whole batches, also of data sets that a strategy put together from several tasks."""
        dataset: Any = self.adapted_dataset
        labels = getattr(getattr(dataset, "targets_task_labels", None), "uniques", ())
        if not getattr(dataset, "is_one_task", True) or len(labels) > 1:
            self.dataloader = MixedLoader(dataset, self.train_mb_size)
        else:
            super().make_train_dataloader(*arguments, **kwargs)

    def _before_training_exp(self, **kwargs: Any) -> None:
        if self._not_put_back is not None:
            self._put_back()
        # Avalanche's own models note this when they adapt; LwF distils the heads of these tasks.
        self.model.known_train_tasks_labels.add(self._task_of(self.experience))
        super()._before_training_exp(**kwargs)  # type: ignore[no-untyped-call]

    def _after_training_exp(self, **kwargs: Any) -> None:
        if self.methods:
            Consolidation(self, kwargs).run(self.on_progress)
        for plugin in self.plugins:
            if plugin not in self.methods and hasattr(plugin, "after_training_exp"):
                plugin.after_training_exp(self, **kwargs)


class Cumulative(AvalancheStrategy, StockCumulative):
    """Trains on the images of all tasks so far."""


class ErAce(AvalancheStrategy, StockErAce):
    """Experience replay with asymmetric cross-entropy."""


class Joint(AvalancheStrategy, StockJoint):  # type: ignore[type-arg]
    """Trains once on the whole stream."""

    whole_stream = True

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """One training stage, booked on the last task."""
        return super().phases(replace(task, index=len(self._experiences) - 1))

    def _before_training_exp(self, **kwargs: Any) -> None:
        self.model.known_train_tasks_labels.update(map(self._task_of, self._experiences))
        super()._before_training_exp(**kwargs)

    def check_model_and_optimizer(self, *arguments: Any, **kwargs: Any) -> None:
        """Have the model take note of all tasks."""
        self.model.begin_task(len(self._experiences) - 1)

    def _after_training_exp(self, **kwargs: Any) -> None:
        # It stops after the first experience, by when it has learned them all.
        self.experience = self._experiences[-1]
        self.clock.train_exp_counter = len(self._experiences) - 1
        super()._after_training_exp(**kwargs)


class CountedTraining(TrainingStage):
    """Training in which every pass through the backbone counts, those of teachers and memories included."""

    def train_epoch(self) -> EpochReport:
        """One epoch."""
        strategy = self.strategy
        if not isinstance(strategy, AvalancheStrategy):
            raise TypeError("only an AvalancheStrategy counts its passes")
        meter = strategy.epoch_meter = EpochMeter(strategy.device)
        try:
            with strategy.passes.reporting_to(self.passed):
                strategy.train_one_epoch()
        finally:
            strategy.epoch_meter = None
        return meter.report


class Consolidation(Stage[None]):
    """Updates of the methods after a task: importances, teachers, memories."""

    def __init__(self, strategy: AvalancheStrategy, arguments: Mapping[str, Any]) -> None:
        task = int(strategy.experience.current_experience)
        super().__init__("consolidation", task, 1, strategy.seed_for("consolidation", task), strategy.device)
        self.strategy = strategy
        self.arguments = arguments

    def run_epoch(self) -> EpochReport:
        """Each method's callback once."""
        with self.strategy.passes.reporting_to(self.passed):
            for method in self.strategy.methods:
                if hasattr(method, "after_training_exp"):
                    method.after_training_exp(self.strategy, **self.arguments)
        return EpochReport()

    def result(self) -> None:
        """Return nothing: the methods hold the result."""

    def get_extra_state(self) -> dict[str, Any]:
        """Return no state: there is a single epoch."""
        return {}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Ignore ``state``, which is empty."""


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Avalanche warns of parts of itself that it calls; it is pinned, and whoever runs a benchmark can do nothing.

    Ignoring is not enough: it sets its own warnings to be shown always, so they are caught as well.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
    for warning in caught:
        if not issubclass(warning.category, DeprecationWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
