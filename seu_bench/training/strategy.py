"""Base of strategies: an Avalanche strategy that learns each task in phases.

It is a ``SupervisedTemplate``: Avalanche's plugins and evaluators receive the callbacks they know, and it runs from a
plain Avalanche script. It adds a fresh optimiser and schedule per task, validation after each epoch with the best
weights restored, and no optimiser state or copy of frozen weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self

import torch
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from seu_bench.config.common_options import SelectingOptions, TrainingOptions
from seu_bench.config.protocol import Schedule
from seu_bench.config.run import ComputeConfig
from seu_bench.data.avalanche import BatchLoader, task_images
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.training.batches import WholeBatches
from seu_bench.training.callbacks import LeanCallbacks, SilentLogger
from seu_bench.training.context import feature_caching
from seu_bench.training.interfaces import StrategyContext, checked_options
from seu_bench.training.loops import evaluate
from seu_bench.training.optim import clip_gradients, make_sgd
from seu_bench.training.phases import PhaseRunner
from seu_bench.training.stage import Pause, ProgressCallback
from seu_bench.training.state import fitting
from seu_bench.training.task import Phase, TaskData
from seu_bench.training.training_stage import EpochMeter, TrainingStage
from seu_bench.utils.seeding import derive_seed


class StagedStrategy(LeanCallbacks, WholeBatches, SupervisedTemplate):  # type: ignore[type-arg]
    """Base class of strategies. A subclass overrides :meth:`phases`, or :meth:`penalty`, or both.

    Args:
        model: network with one head per task.
        schedule: epochs, batch size and learning rate of the training stage.
        seed: seed of everything random.
        lr_schedule: ``cosine`` (per task, to ``min_learning_rate``) or ``constant``.
        restore: whether the weights of the best validation loss are restored, or those of the last epoch remain.
        device: device to train on.
        eval_mb_size: images per batch in evaluation.
        compute: precision, memory for outputs of frozen layers, compilation.
        on_progress: callback for the progress of every stage.
        plugins: Avalanche plugins.
        evaluator: Avalanche's; silent by default.
        avalanche: further arguments of the next class, for strategies that have one of Avalanche's among their bases.

    Example:
        ::

            class Anchored(StagedStrategy):
                state_attributes = ("anchor",)

                def phases(self, task: TaskData) -> Sequence[Phase]:
                    return [Phase(lambda: self.training_stage(task), lambda _: self.drop_anchor())]
    """

    model: MultiHeadModel

    #: Whether it is trained once on the whole stream: a reference, and no lifelong learner.
    whole_stream = False

    #: Names of attributes that hold state beside the model's, as tensors and plain values.
    state_attributes: tuple[str, ...] = ()

    #: Whether a run resumes between two epochs, or between two tasks only; see :attr:`resumable`.
    resumes_within_tasks = True

    def __init__(
        self,
        *,
        model: MultiHeadModel,
        schedule: Schedule,
        seed: int = 0,
        lr_schedule: Literal["cosine", "constant"] = "cosine",
        restore: Literal["best_valid", "last"] = "best_valid",
        device: str | torch.device = "cpu",
        eval_mb_size: int = 512,
        compute: ComputeConfig | None = None,
        on_progress: ProgressCallback | None = None,
        plugins: Sequence[Any] | None = None,
        evaluator: EvaluationPlugin | None = None,
        avalanche: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            model=model,
            # Avalanche wants an optimiser now; each training stage makes its own. A group may be empty, as a model may.
            optimizer=torch.optim.SGD([{"params": list(model.parameters())}], lr=schedule.learning_rate),
            train_mb_size=schedule.batch_size,
            train_epochs=schedule.epochs,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=plugins,
            evaluator=EvaluationPlugin(loggers=[SilentLogger()]) if evaluator is None else evaluator,  # type: ignore[no-untyped-call]
            **(avalanche or {}),
        )
        self.schedule = schedule
        self.seed = seed
        self.lr_schedule = lr_schedule
        self.restore = restore
        self.compute = compute or ComputeConfig()
        #: Largest bytes of cached features so far; ``None`` where the model has no frozen layers.
        self.peak_feature_bytes = 0 if model.has_frozen_layers else None
        self.on_progress = on_progress
        self.model.to(self.device)
        self.epoch_meter: EpochMeter | None = None
        #: Whether a run can resume with it. The state of Avalanche's plugins is known to a subclass at best.
        knows_itself = bool(self.state_attributes) or type(self).get_extra_state is not StagedStrategy.get_extra_state
        self.resumable = knows_itself or not plugins
        #: Called after every epoch of every stage.
        self.pause: Pause | None = None
        self._clipped: list[nn.Parameter] = []
        self._phases = PhaseRunner(self)
        self.forget_listeners()

    @classmethod
    def of(cls, context: StrategyContext, *, model: MultiHeadModel, **more: Any) -> Self:
        """Create the strategy for a run.

        Args:
            context: options, protocol, seed, device and callbacks of the run.
            model: network with one head per task.
            more: further arguments of the constructor; they take precedence over those of the context.

        Raises:
            RequestError: the context's options are no :class:`~seu_bench.config.common_options.TrainingOptions`.
        """
        options = checked_options(context, TrainingOptions)
        arguments: dict[str, Any] = {
            "schedule": options.applied_to(context.protocol.training),
            "seed": context.seed,
            "lr_schedule": options.lr_schedule,
            "restore": options.restore if isinstance(options, SelectingOptions) else "last",
            "device": context.device,
            "eval_mb_size": context.protocol.eval_batch_size,
            "compute": context.compute,
            "on_progress": context.on_progress,
            "evaluator": context.evaluator,
        }
        return cls(model=model, **(arguments | more))

    # ------------------------------------------------------------------ overridden by subclasses

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return the phases that learn a task, in order; by default training alone.

        It must not change the strategy itself: a resumed run calls it again. Changes belong into
        :attr:`Phase.make` and :attr:`Phase.apply`.

        Args:
            task: training and validation images of the task.
        """
        return [Phase(lambda: self.training_stage(task))]

    def validation_loss(self, task: TaskData, on_batch: Callable[[int], None]) -> float | None:
        """Return the mean loss per validation image, by which weights are selected.

        Args:
            task: the task's images.
            on_batch: called with the number of images of each batch.

        Returns:
            Cross-entropy plus :meth:`penalty`; ``None`` without validation images.
        """
        if task.valid is None or not len(task.valid):
            return None
        self.model.eval()
        forward = partial(self.model.forward_single_task, task_label=task.index)
        _, loss = evaluate(forward, task.valid, self.eval_mb_size, on_batch)
        with torch.no_grad():
            penalty = self.penalty()
        self.model.train()
        return loss + (0.0 if penalty is None else float(penalty))

    def penalty(self) -> Tensor | None:
        """Return a scalar to add to the loss of every batch and to the validation loss; ``None`` adds nothing."""
        return None

    def trained_module(self, task: TaskData) -> nn.Module:
        """Return the module that the training stage trains; by default the trainable part of the task's path."""
        return self.model.trainable_module(task.index)

    def describe(self) -> dict[str, Any]:
        """Return fields of the record that only this strategy knows, e.g. ``genotypes`` and ``paths``."""
        return {}

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state beside the model's, between two phases: tensors and plain values.

        By default the attributes named by :attr:`state_attributes`, whose values must be replaced, never changed in
        place.
        """
        return {name: getattr(self, name) for name in self.state_attributes}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned; the model is restored already."""
        for name in self.state_attributes:
            setattr(self, name, state[name])

    # ------------------------------------------------------------------ resuming

    @property
    def learned(self) -> int:
        """Number of tasks learned so far."""
        return int(self.clock.train_exp_counter)

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from: between two epochs, or between two tasks."""
        clock = {name: value for name, value in vars(self.clock).items() if isinstance(value, int)}
        return self._phases.state_dict() | {"clock": clock}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; on a strategy that has learned nothing yet.

        Raises:
            CheckpointError: it does not fit this strategy.
        """
        with fitting("the strategy"):
            for name, value in state["clock"].items():
                if not isinstance(value, int) or not isinstance(getattr(self.clock, name), int):
                    raise ValueError(f"the clock's {name} is {value!r}")
                setattr(self.clock, name, value)
        self._phases.load_state_dict(state)

    # ------------------------------------------------------------------ for subclasses

    def training_stage(self, task: TaskData) -> TrainingStage:
        """Create the stage that trains the task's path, with Avalanche's callbacks around every batch."""
        return TrainingStage(self, task)

    def seed_for(self, purpose: str, task: int) -> int:
        """Return the seed of one purpose in one task, e.g. ``seed_for("search", 3)``."""
        return derive_seed(self.seed, purpose, task)

    def training_mode(self) -> None:
        """Make the model ready for an epoch of training."""
        self.model.train()

    # ------------------------------------------------------------------ Avalanche's flow

    def _before_eval_exp(self, **kwargs: Any) -> None:
        self.forget_listeners()
        super()._before_eval_exp(**kwargs)  # type: ignore[no-untyped-call]

    def criterion(self) -> Tensor:
        """Loss of the present batch."""
        loss: Tensor = super().criterion()  # type: ignore[no-untyped-call]
        penalty = self.penalty() if self.is_training else None
        return loss if penalty is None else loss + penalty

    def optimizer_step(self) -> None:
        """Clip the gradient's norm, then step."""
        if self.schedule.clip_norm is not None:
            clip_gradients(self._clipped, self.schedule.clip_norm)
        self.optimizer.step()

    def _after_training_iteration(self, **kwargs: Any) -> None:
        if self.epoch_meter is not None and self.mb_output is not None:
            self.epoch_meter.add(self.loss, self.mb_output, self.mb_y)
        super()._after_training_iteration(**kwargs)

    def _train_exp(self, experience: Any, eval_streams: Any = None, **kwargs: Any) -> None:
        index, loader = self._task_of(experience), self.dataloader
        # A plugin may have put a loader of its own there, e.g. one that mixes in a memory.
        is_ours = isinstance(loader, BatchLoader)
        train = loader.images if is_ours else task_images(experience.dataset.train(), index, self.device)
        valid = self._validation_of(experience, eval_streams)
        with feature_caching(self.model, self.compute, self.train_mb_size, self.device) as cache:
            if cache is not None:
                train, valid = cache.number(train), None if valid is None else cache.number(valid)
                if is_ours:
                    self.dataloader = BatchLoader(train, loader.batch_size, shuffle=loader.shuffle)
            try:
                task = TaskData(index, train, valid)
                self._phases.run(task, self.phases(task))
            finally:
                if cache is not None:
                    self.peak_feature_bytes = max(self.peak_feature_bytes or 0, cache.peak_bytes)

    def begin_training(self, module: nn.Module) -> None:
        """A fresh optimiser over what trains in ``module``."""
        self._clipped = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.optimizer = make_sgd(self._clipped, self.schedule)

    def train_one_epoch(self) -> None:
        """One epoch over the training images, with Avalanche's callbacks."""
        self.forget_listeners()
        self._before_training_epoch()  # type: ignore[no-untyped-call]
        self.training_epoch()  # type: ignore[no-untyped-call]
        self._after_training_epoch()  # type: ignore[no-untyped-call]
