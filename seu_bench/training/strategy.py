"""Base of strategies: an Avalanche strategy that learns each task in phases.

Avalanche's plugins and evaluators receive the callbacks they know, and it runs from a plain Avalanche script. It adds a
fresh optimiser and schedule per task, and validation after each epoch with the best weights restored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self

import torch
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from seu_bench.config.common_options import SelectingOptions, TrainingOptions
from seu_bench.config.protocol import Schedule
from seu_bench.config.run import ComputeConfig
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.training.interfaces import StrategyContext
from seu_bench.training.loops import EpochMeter, clip_gradients, evaluate, make_sgd
from seu_bench.training.phases import Phase, PhasedStrategy, TaskData
from seu_bench.training.stage import ProgressCallback
from seu_bench.training.task_inference import task_inference
from seu_bench.training.task_training import PlateauStage, TrainingStage
from seu_bench.training.template import SilentLogger
from seu_bench.utils.seeding import derive_seed


class StagedStrategy(PhasedStrategy, SupervisedTemplate):  # type: ignore[type-arg]
    """Base of strategies: override :meth:`phases` or :meth:`penalty`, list own state in :attr:`state_attributes`.

    Args:
        model: network with one head per task.
        schedule: epochs, batch size and learning rate of the training stage.
        seed: seed of everything random.
        lr_schedule: ``cosine`` (per task, to ``min_learning_rate``), ``constant``, or ``plateau``.
        restore: whether the weights of the best validation loss are restored, or those of the last epoch remain.
        device: device to train on.
        eval_mb_size: images per batch in evaluation.
        compute: precision, memory for outputs of frozen layers, compilation.
        on_progress: callback for the progress of every stage.
        plugins: Avalanche plugins.
        evaluator: Avalanche's; silent by default.
        avalanche: further arguments of the next class, for strategies that have one of Avalanche's among their bases.

    Example::

        class Anchored(StagedStrategy):
            state_attributes = ("anchor",)

            def phases(self, task: TaskData) -> Sequence[Phase]:
                return [Phase(lambda: self.training_stage(task), lambda _: self.drop_anchor())]
    """

    #: Whether it is trained once on the whole stream: a reference, and no lifelong learner.
    whole_stream = False

    #: Name of the option that is the strength of the penalty, for whoever should lower it.
    penalty_strength = "the penalty's strength"

    def __init__(
        self,
        *,
        model: MultiHeadModel,
        schedule: Schedule,
        seed: int = 0,
        lr_schedule: Literal["cosine", "constant", "plateau"] = "cosine",
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
            compute=compute or ComputeConfig(),
            on_progress=on_progress,
            **(avalanche or {}),
        )
        self.schedule = schedule
        self.seed = seed
        self.lr_schedule = lr_schedule
        self.restore = restore
        self.epoch_meter: EpochMeter | None = None
        self._clipped: list[nn.Parameter] = []

    @classmethod
    def of(cls, context: StrategyContext, *, model: MultiHeadModel, **more: Any) -> Self:
        """Create the strategy for a run.

        Args:
            context: options, protocol, seed, device and callbacks of the run.
            model: network with one head per task.
            more: further arguments of the constructor; they take precedence over those of the context.
        """
        # Where nothing is trained by SGD the options have no schedule.
        options = context.options if isinstance(context.options, TrainingOptions) else TrainingOptions()
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
        strategy = cls(model=model, **(arguments | more))
        strategy.task_inference = task_inference(context)
        return strategy

    # ------------------------------------------------------------------ overridden by subclasses

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return the phases that learn a task, in order; by default training alone.

        It must not change the strategy: a resumed run calls it again. Changes belong into a phase's functions.

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
        """Return a scalar to add to each batch's and the validation loss of the task in training; ``None``: nothing."""
        return None

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """Return the largest second derivative of a quadratic penalty, by which unstable settings are noticed.

        Args:
            trained: names of the model's parameters that train; others cannot become unstable.

        Returns:
            It, as of the present weights and options; ``None`` where there is no such penalty.
        """
        return None

    def trained_module(self, task: TaskData) -> nn.Module:
        """Return the module that the training stage trains; by default the trainable part of the task's path."""
        return self.model.trainable_module(task.index)

    def describe(self) -> dict[str, Any]:
        """Return fields of the record that only this strategy knows, e.g. ``genotypes`` and ``paths``."""
        return {}

    # ------------------------------------------------------------------ for subclasses

    def training_stage(self, task: TaskData) -> TrainingStage:
        """Create the stage that trains the task's path, with Avalanche's callbacks around every batch."""
        return PlateauStage(self, task) if self.lr_schedule == "plateau" else TrainingStage(self, task)

    def seed_for(self, purpose: str, task: int) -> int:
        """Return the seed of one purpose in one task, e.g. ``seed_for("search", 3)``."""
        return derive_seed(self.seed, purpose, task)

    def batch_signature(self) -> Hashable:
        """Return what tells batches of different cost per image apart, whose operations are then counted once each.

        It is asked for when the batch is there; by default all cost the same.
        """
        return None

    def training_mode(self) -> None:
        """Make the model ready for an epoch of training; called once before each."""
        self.model.train()

    # ------------------------------------------------------------------ Avalanche's flow

    def criterion(self) -> Tensor:
        """Loss of the present batch, in training (:attr:`is_training`) with :meth:`penalty`; in evaluation without."""
        loss: Tensor = super().criterion()  # type: ignore[no-untyped-call]
        penalty = self.penalty() if self.is_training else None
        return loss if penalty is None else loss + penalty

    def optimizer_step(self) -> None:
        """Clip the gradient's norm, then step."""
        if self.schedule.clip_norm is not None:
            clip_gradients(self._clipped, self.schedule.clip_norm)
        self.optimizer.step()

    def _before_training_iteration(self, **kwargs: Any) -> None:
        if self.epoch_meter is not None:
            self.epoch_meter.begin(self.batch_signature())
        super()._before_training_iteration(**kwargs)

    def _after_training_iteration(self, **kwargs: Any) -> None:
        if self.epoch_meter is not None and self.mb_output is not None:
            self.epoch_meter.add(self.loss, self.mb_output, self.mb_y)
        super()._after_training_iteration(**kwargs)

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """A fresh optimiser over what trains in ``module``."""
        self._clipped = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.optimizer = make_sgd(self._clipped, schedule)
