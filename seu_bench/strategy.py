"""The Avalanche strategy base of our own strategies: tasks are learned in stages, batches are gathered whole.

It is a ``SupervisedTemplate``: Avalanche's plugins and evaluators see the callbacks they know, and it runs from a
plain Avalanche script. What it adds: a fresh optimiser and schedule per task, validation after each epoch with the
best weights restored, and no optimiser state or copy for what does not train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from seu_bench.callbacks import LeanCallbacks
from seu_bench.loading import BatchLoader, TaskImages, task_images
from seu_bench.multihead import MultiHeadModel
from seu_bench.seeding import derive_seed
from seu_bench.spec import Schedule
from seu_bench.stages import BestWeights, EpochReport, Stage, Watcher, cosine_rate, make_sgd, set_rate


@dataclass(frozen=True)
class TaskData:
    """What may be used to learn a task: its training and validation images. Its test images are not here."""

    index: int
    train: TaskImages
    valid: TaskImages | None


@dataclass(frozen=True)
class Step:
    """A stage of learning a task, made when its turn comes, and what is done with its result."""

    make: Callable[[], Stage[Any]]
    apply: Callable[[Any], None] | None = None


class StagedStrategy(LeanCallbacks, SupervisedTemplate):  # type: ignore[type-arg,misc]
    """Base of our strategies. A subclass says in :meth:`steps` how a task is learned.

    Args:
        model: with one head per task.
        schedule: of the training stage.
        seed: everything random hangs on it.
        lr_schedule: ``cosine`` (per task, to ``min_learning_rate``) or ``constant``.
        restore: whether the weights of the best validation loss are restored, or those of the last epoch kept.
        device: where to train.
        eval_mb_size: images per batch in evaluation.
        watch: told of every stage's progress.
        plugins, evaluator: Avalanche's; the evaluator is silent by default.
    """

    model: MultiHeadModel

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
        watch: Watcher | None = None,
        plugins: Sequence[Any] | None = None,
        evaluator: EvaluationPlugin | None = None,
    ) -> None:
        super().__init__(
            model=model,
            # Avalanche wants an optimiser now; each training stage makes its own.
            optimizer=torch.optim.SGD(model.parameters(), lr=schedule.learning_rate),
            train_mb_size=schedule.batch_size,
            train_epochs=schedule.epochs,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=plugins,
            evaluator=EvaluationPlugin(loggers=[SilentLogger()]) if evaluator is None else evaluator,  # type: ignore[no-untyped-call]
        )
        self.schedule = schedule
        self.seed = seed
        self.lr_schedule = lr_schedule
        self.restore = restore
        self.watch = watch
        self.model.to(self.device)
        self.epoch_meter: EpochMeter | None = None
        self._clipped: list[nn.Parameter] = []
        self.forget_listeners()

    # ------------------------------------------------------------------ what a subclass says

    def steps(self, task: TaskData) -> Sequence[Step]:
        """The stages that ``task`` is learned by, in order; training alone by default."""
        return [Step(lambda: self.training_stage(task))]

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
        self.model.train()
        return float(total) / len(task.valid)

    def describe(self) -> dict[str, Any]:
        """Fields of the record that only this strategy can fill, e.g. genotypes and paths."""
        return {}

    # ------------------------------------------------------------------ for subclasses

    def training_stage(self, task: TaskData) -> TrainingStage:
        """The stage that trains the task's path with Avalanche's callbacks around it."""
        return TrainingStage(self, task)

    def seed_for(self, purpose: str, task: int) -> int:
        """The seed of one purpose in one task."""
        return derive_seed(self.seed, purpose, task)

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

    def optimizer_step(self) -> None:
        """Clip the gradient's norm, then step."""
        if self.schedule.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._clipped, self.schedule.clip_norm)
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
            loader.images if isinstance(loader, BatchLoader) else task_images(self.adapted_dataset, index, self.device)
        )
        valid = self._validation_of(experience, eval_streams)
        task = TaskData(index, train, valid)
        for step in self.steps(task):
            result = step.make().run(self.watch)
            if step.apply is not None:
                step.apply(result)

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


class EpochMeter:
    """Mean loss and accuracy over an epoch, accumulated on the device: one synchronisation per epoch."""

    def __init__(self, device: torch.device) -> None:
        self._loss = torch.zeros((), device=device)
        self._correct = torch.zeros((), device=device, dtype=torch.int64)
        self._images = 0

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count a batch with its mean ``loss``."""
        count = len(labels)
        self._loss += loss.detach().squeeze() * count
        self._correct += (logits.detach().argmax(dim=1) == labels).sum()
        self._images += count

    @property
    def report(self) -> EpochReport:
        """Mean loss per image and accuracy."""
        if not self._images:
            return EpochReport()
        return EpochReport(float(self._loss) / self._images, int(self._correct) / self._images)


class TrainingStage(Stage[None]):
    """Train a task's path; after each epoch validate, at the end restore the best weights (published code)."""

    def __init__(self, strategy: StagedStrategy, task: TaskData) -> None:
        super().__init__(
            "training",
            task.index,
            strategy.schedule.epochs,
            strategy.seed_for("training", task.index),
            strategy.device,
        )
        self.strategy = strategy
        self.data = task
        self.module = strategy.model.trainable_module(task.index)
        self.best = BestWeights(self.module)
        strategy.begin_training(self.module)

    def run_epoch(self) -> EpochReport:
        """One epoch of training and one pass over the validation images."""
        strategy = self.strategy
        if strategy.lr_schedule == "cosine":
            set_rate(strategy.optimizer, cosine_rate(strategy.schedule, self.epoch))
        strategy.model.train()
        meter = _CountingMeter(self, strategy.device)
        strategy.epoch_meter = meter
        try:
            strategy.train_one_epoch()
        finally:
            strategy.epoch_meter = None
        report = meter.report
        if strategy.restore == "best_valid":
            loss = strategy.validation_loss(self.data, self.passed)
            if loss is not None:
                self.best.offer(loss)
        return report

    def result(self) -> None:
        """Restore the best weights."""
        self.best.restore()

    def own_state(self) -> dict[str, Any]:
        """Weights, optimiser and best weights."""
        return {
            "weights": self.module.state_dict(),
            "optimizer": self.strategy.optimizer.state_dict(),
            "best": self.best.state_dict(),
        }

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`own_state` gave."""
        self.module.load_state_dict(state["weights"])
        self.strategy.optimizer.load_state_dict(state["optimizer"])
        self.best.load_state_dict(state["best"])


class _CountingMeter(EpochMeter):
    """An epoch meter that counts image passes for its stage as well."""

    def __init__(self, stage: Stage[Any], device: torch.device) -> None:
        super().__init__(device)
        self._stage = stage

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count a batch."""
        super().add(loss, logits, labels)
        self._stage.passed(len(labels))


class SilentLogger(BaseLogger):
    """A logger that logs nothing: without one, Avalanche warns that there is none."""
