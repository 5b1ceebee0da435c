"""The Avalanche strategy base of our own strategies: tasks are learned in stages, batches are gathered whole.

It is a ``SupervisedTemplate``: Avalanche's plugins and evaluators see the callbacks they know, and it runs from a
plain Avalanche script. What it adds: a fresh optimiser and schedule per task, validation after each epoch with the
best weights restored, and no optimiser state or copy for what does not train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import torch
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from seu_bench.config.common_options import SelectingOptions, TrainingOptions
from seu_bench.config.protocol import Schedule
from seu_bench.config.run import ComputeConfig
from seu_bench.data.avalanche import BatchLoader, task_images
from seu_bench.data.images import TaskImages
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.training.callbacks import LeanCallbacks
from seu_bench.training.context import features_kept
from seu_bench.training.interfaces import StrategyContext, checked_options
from seu_bench.training.optim import clip_gradients, make_sgd
from seu_bench.training.phases import PhaseRunner
from seu_bench.training.stage import Pause, Watcher
from seu_bench.training.state import fitting
from seu_bench.training.task import Phase, TaskData
from seu_bench.training.training_stage import EpochMeter, TrainingStage
from seu_bench.utils.seeding import derive_seed

#: What whoever writes a strategy needs of this package.
__all__ = ["SilentLogger", "StagedStrategy", "Phase", "TaskData"]


class StagedStrategy(LeanCallbacks, SupervisedTemplate):  # type: ignore[type-arg,misc]
    """Base of our strategies. A subclass says in :meth:`phases` how a task is learned.

    Args:
        model: with one head per task.
        schedule: of the training stage.
        seed: everything random hangs on it.
        lr_schedule: ``cosine`` (per task, to ``min_learning_rate``) or ``constant``.
        restore: whether the weights of the best validation loss are restored, or those of the last epoch kept.
        device: where to train.
        eval_mb_size: images per batch in evaluation.
        compute: precision, memory for outputs of frozen layers, compilation.
        watch: told of every stage's progress.
        plugins, evaluator: Avalanche's; the evaluator is silent by default.
        avalanche: further arguments of the next class, for strategies that have one of Avalanche's among their bases.
    """

    model: MultiHeadModel

    #: Whether it is trained once on the whole stream: no lifelong learner, but a reference for those who are.
    whole_stream = False

    #: Attributes of a subclass that hold what it remembers beside its model, as tensors and plain values.
    state_attributes: tuple[str, ...] = ()

    #: Whether it can go on from between two epochs, or from between two tasks only; see :attr:`resumable`.
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
        watch: Watcher | None = None,
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
        #: Bytes of features kept at the most, so far; ``None`` where the model has no frozen layers.
        self.peak_feature_bytes = 0 if model.has_frozen_layers else None
        self.watch = watch
        self.model.to(self.device)
        self.epoch_meter: EpochMeter | None = None
        #: Whether a run can go on with it. What plugins of Avalanche remember is known to a subclass at best.
        knows_itself = bool(self.state_attributes) or type(self).get_extra_state is not StagedStrategy.get_extra_state
        self.resumable = knows_itself or not plugins
        #: Called after every epoch of every stage.
        self.pause: Pause | None = None
        self._clipped: list[nn.Parameter] = []
        self._phases = PhaseRunner(self)
        self.forget_listeners()

    @classmethod
    def of(cls, context: StrategyContext, *, model: MultiHeadModel, **more: Any) -> Self:
        """The strategy for a run's context; ``more`` goes to the constructor.

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
            "watch": context.watch,
            "evaluator": context.evaluator,
        }
        return cls(model=model, **(arguments | more))

    # ------------------------------------------------------------------ what a subclass says

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """The stages that ``task`` is learned by, in order; training alone by default. It changes nothing itself."""
        return [Phase(lambda: self.training_stage(task))]

    def validation_loss(self, task: TaskData, on_batch: Callable[[int], None]) -> float | None:
        """Mean loss per validation image, by which weights are selected; ``None`` without validation images."""
        if task.valid is None or not len(task.valid):
            return None
        self.model.eval()
        total = torch.zeros((), device=self.device)
        with torch.no_grad():
            for x, y in task.valid.batches(self.eval_mb_size, shuffle=False):
                logits = self.model.forward_single_task(x, task.index)
                total += nn.functional.cross_entropy(logits, y, reduction="sum")
                on_batch(len(y))
            penalty = self.penalty()
        self.model.train()
        return float(total) / len(task.valid) + (0.0 if penalty is None else float(penalty))

    def penalty(self) -> Tensor | None:
        """A scalar that is added to the loss of every batch, and to the validation loss; ``None``: nothing."""
        return None

    def trained_module(self, task: TaskData) -> nn.Module:
        """What the training stage trains: the trainable part of the task's path by default."""
        return self.model.trainable_module(task.index)

    def describe(self) -> dict[str, Any]:
        """Fields of the record that only this strategy can fill, e.g. genotypes and paths."""
        return {}

    def get_extra_state(self) -> dict[str, Any]:
        """What a subclass remembers beside its model, between two steps: tensors and plain values. By default what
        :attr:`state_attributes` names; those values must be replaced, never changed: the state is that of now."""
        return {name: getattr(self, name) for name in self.state_attributes}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Remember what :meth:`get_extra_state` gave; the model is back already."""
        for name in self.state_attributes:
            setattr(self, name, state[name])

    # ------------------------------------------------------------------ going on where a run was left

    @property
    def learned(self) -> int:
        """Tasks that were learned."""
        return int(self.clock.train_exp_counter)

    def state_dict(self) -> dict[str, Any]:
        """All that decides how learning goes on from here: between two epochs, or between two tasks."""
        clock = {name: value for name, value in vars(self.clock).items() if isinstance(value, int)}
        return self._phases.state_dict() | {"clock": clock}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave; on a strategy that has learned nothing yet.

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
        """The stage that trains the task's path with Avalanche's callbacks around it."""
        return TrainingStage(self, task)

    def seed_for(self, purpose: str, task: int) -> int:
        """The seed of one purpose in one task."""
        return derive_seed(self.seed, purpose, task)

    def training_mode(self) -> None:
        """Make the model ready for an epoch of training."""
        self.model.train()

    # ------------------------------------------------------------------ Avalanche's flow

    def make_train_dataloader(self, *arguments: Any, **kwargs: Any) -> None:
        """Whole batches by index in place of Avalanche's loader."""
        images = task_images(self.adapted_dataset, self._task_of(self.experience), self.device)
        self.dataloader = BatchLoader(images, self.train_mb_size, shuffle=True)

    def make_eval_dataloader(self, *arguments: Any, **kwargs: Any) -> None:
        """Whole batches by index in place of Avalanche's loader."""
        images = task_images(self.adapted_dataset, self._task_of(self.experience), self.device)
        self.dataloader = BatchLoader(images, self.eval_mb_size, shuffle=False)

    def _before_eval_exp(self, **kwargs: Any) -> None:
        self.forget_listeners()
        super()._before_eval_exp(**kwargs)  # type: ignore[no-untyped-call]

    def check_model_and_optimizer(self, *arguments: Any, **kwargs: Any) -> None:
        """Nothing: stages grow the model and make their optimisers."""

    def model_adaptation(self, model: Any = None) -> Any:
        """Nothing: evaluating must not change the model."""
        return self.model if model is None else model

    def _unpack_minibatch(self) -> None:
        # Batches are on the device already; the task labels stay on the CPU, where choosing a head costs no sync.
        batch = self.mbatch
        if isinstance(batch, list) and batch[0].device != self.device:
            self.mbatch = [*(tensor.to(self.device, non_blocking=True) for tensor in batch[:-1]), batch[-1]]

    def forward(self) -> Tensor:
        """Logits of the present batch on its task's path."""
        logits: Tensor = self.model(self.mb_x, self.mb_task_id)
        return logits

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
        index = self._task_of(experience)
        loader = self.dataloader
        # A plugin may have put a loader of its own there, e.g. one that mixes in a memory.
        train = (
            loader.images
            if isinstance(loader, BatchLoader)
            else task_images(experience.dataset.train(), index, self.device)
        )
        valid = self._validation_of(experience, eval_streams)
        with features_kept(self.model, self.compute, self.train_mb_size, self.device) as cache:
            if cache is not None:
                train, valid = cache.number(train), None if valid is None else cache.number(valid)
                if isinstance(loader, BatchLoader):
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

    @staticmethod
    def _task_of(experience: Any) -> int:
        return int(experience.current_experience)

    def _validation_of(self, experience: Any, eval_streams: Any) -> TaskImages | None:
        """The validation images among ``eval_streams``; streams of other names are never selected on."""
        for stream in eval_streams or ():
            for candidate in stream if isinstance(stream, Iterable) else [stream]:
                if candidate.origin_stream.name.startswith("valid") and self._task_of(candidate) == self._task_of(
                    experience
                ):
                    return task_images(candidate.dataset.eval(), self._task_of(candidate), self.device)
        return None


class SilentLogger(BaseLogger):
    """A logger that logs nothing: without one, Avalanche warns that there is none."""
