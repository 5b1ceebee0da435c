"""The parts of training: an evaluation, optimiser, learning rates, best weights, the stage of a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, TypeAlias

import torch
from avalanche.training.plugins.clock import Clock
from avalanche.training.templates.base_sgd import PeriodicEval
from torch import Tensor, nn

from seu_bench.config.protocol import Schedule
from seu_bench.data.avalanche import BatchLoader
from seu_bench.data.images import TaskImages
from seu_bench.models.flops import RepeatedBatches
from seu_bench.models.walk import named_state, parameters_of
from seu_bench.training.monitoring import implements
from seu_bench.training.stage import EpochReport, Stability, Stage, TaskData

Forward: TypeAlias = Callable[[Tensor], Tensor]


def evaluate(
    forward: Forward, images: TaskImages, batch_size: int, on_batch: Callable[[int], None]
) -> tuple[float, float]:
    """Return accuracy in [0, 1] and mean cross-entropy per image; the caller has set evaluation mode.

    Args:
        forward: images ``[N, C, H, W]`` -> logits ``[N, num_classes]``.
        images: of one task and split.
        batch_size: images per batch.
        on_batch: called with the number of images of each batch.
    """
    correct = torch.zeros((), device=images.device, dtype=torch.int64)
    total = torch.zeros((), device=images.device)
    with torch.no_grad(), RepeatedBatches() as repeated:
        for x, y in images.batches(batch_size, shuffle=False):
            repeated.begin()
            logits = forward(x)
            repeated.end(len(y))
            correct += (logits.argmax(dim=1) == y).sum()
            total += nn.functional.cross_entropy(logits, y, reduction="sum")
            on_batch(len(y))
    right, loss = _fetch(correct, total)
    return right / len(images), loss / len(images)


def _fetch(*totals: Tensor) -> list[float]:
    """Numbers of a device, for which the host waits once."""
    found: list[float] = torch.stack([total.double() for total in totals]).tolist()
    return found


class EpochMeter:
    """Mean loss and accuracy over an epoch, accumulated on the device: one synchronisation per epoch.

    ``begin`` is called when a batch is there, with what tells batches of different cost apart, ``on_batch`` with the
    number of its images when it is over.
    """

    def __init__(
        self,
        device: torch.device,
        on_batch: Callable[[int], None] = lambda _: None,
        begin: Callable[[Hashable], None] = lambda _: None,
    ) -> None:
        self._on_batch, self.begin = on_batch, begin
        self._loss = torch.zeros((), device=device)
        self._correct = torch.zeros((), device=device, dtype=torch.int64)
        self._images = 0

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count a batch with its mean ``loss``."""
        count = len(labels)
        self._loss += loss.detach().squeeze() * count
        self._correct += (logits.detach().argmax(dim=1) == labels).sum()
        self._images += count
        self._on_batch(count)

    @property
    def report(self) -> EpochReport:
        """Mean loss per image and accuracy."""
        if not self._images:
            return EpochReport()
        loss, correct = _fetch(self._loss, self._correct)
        return EpochReport(loss / self._images, correct / self._images)


def epoch_rate(schedule: Schedule, epoch: int, lr_schedule: str = "cosine") -> float | None:
    """Return the learning rate of a 0-based epoch; ``None``: it stays as the optimiser has it.

    A linear warm-up is followed by steps at milestones, where there are some, or by a cosine without restarts
    (Loshchilov & Hutter, SGDR, ICLR 2017, equation 5), or else the rate is constant.
    """
    rate, warmup, epochs = schedule.learning_rate, schedule.warmup_epochs, schedule.epochs
    if epoch < warmup:
        return rate * (epoch + 1) / (warmup + 1)
    if schedule.milestones:
        passed = (it if isinstance(it, int) else it * epochs - 1e-6 for it in schedule.milestones)  # products are round
        return rate * schedule.gamma ** sum(epoch >= it for it in passed)
    if lr_schedule == "cosine":
        span = rate - schedule.min_learning_rate
        return schedule.min_learning_rate + span * (1 + math.cos(math.pi * (epoch - warmup) / (epochs - warmup))) / 2
    return rate if warmup else None


def make_optimizer(parameters: list[nn.Parameter], schedule: Schedule) -> torch.optim.Optimizer:
    """Make a fresh optimiser, with the rate, momentum and weight decay of a schedule.

    ``fused`` reads the memory of weights, gradients and momentum once and not four times: of large linear layers on a
    CPU that is a fifth of a whole step. Momentum begins as zeros, which is the same; torch's fused step fails where
    some weights have momentum and others, not sampled yet, have none.
    """
    rate, momentum, decay = schedule.learning_rate, schedule.momentum, schedule.weight_decay
    if schedule.optimizer != "sgd":
        adam = torch.optim.Adam if schedule.optimizer == "adam" else torch.optim.AdamW
        return adam(parameters, lr=rate, betas=(momentum, 0.999), weight_decay=decay, fused=True)
    optimizer = torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=decay, fused=True)
    if momentum:
        for parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def clip_gradients(parameters: list[nn.Parameter], limit: float | None) -> None:
    """Clip gradients in place, bit for bit as ``nn.utils.clip_grad_norm_``, which multiplies by 1 below the limit.

    Where that is 0 or ``None`` nothing is done.
    """
    if not limit:
        return
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    # Asking whether the norm is larger would wait for an accelerator.
    if norm.device.type != "cpu" or not limit / (norm + 1e-6) >= 1:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)


def set_rate(optimizer: torch.optim.Optimizer, rate: float | None) -> None:
    """Set the learning rate of every parameter group; ``None`` leaves it as it is."""
    for group in optimizer.param_groups if rate is not None else ():
        group["lr"] = rate


class BestWeights:
    """Best weights of a training: those of the lowest validation loss, to be restored at the end.

    Args:
        module: what trains; nothing else is copied.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module, self.loss, self._kept = module, math.inf, dict[str, Tensor]()

    def offer(self, loss: float) -> None:
        """Save the present weights if ``loss`` is the lowest so far."""
        if loss < self.loss:
            self.loss = loss
            self.keep()

    def keep(self) -> None:
        """Save the present weights unconditionally."""
        self._kept = {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}

    def restore(self) -> None:
        """Restore the saved weights, if any."""
        if self._kept:
            self.module.load_state_dict(self._kept)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        return {"loss": self.loss, "kept": dict(self._kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.loss = state["loss"]
        self._kept = dict(state["kept"])


def _is_gapless(strategy: Any) -> bool:
    """Whether nothing is computed between the batches of an epoch: they lie ready, and nobody listens there."""
    loader, events = strategy.dataloader, ("after_training_iteration", "after_training_epoch")
    if not isinstance(loader, BatchLoader) or not isinstance(loader.images.store, Tensor):
        return False
    if getattr(strategy, "extends_batches", False):
        return False
    others = [it for it in strategy.plugins if not isinstance(it, Clock | PeriodicEval)]  # which never evaluates here
    return not any(implements(plugin, event) for plugin in others for event in events)


class TrainingStage(Stage[Any]):
    """Train a task's path; after each epoch validate, at the end restore the best weights.

    Args:
        strategy: that learns, a :class:`~seu_bench.training.StagedStrategy`.
        task: to learn.
        name: of the stage, on which its seed hangs, for strategies that train a task in several.
        schedule: of the stage; ``None``: the strategy's.
        restore: whether the best weights are restored or the last ones stay; ``None``: as the strategy does.
        keeps_start: whether those that training begins with are among them.
    """

    def __init__(
        self,
        strategy: Any,
        task: TaskData,
        name: str = "training",
        schedule: Schedule | None = None,
        restore: Literal["best_valid", "last"] | None = None,
        keeps_start: bool = False,
    ) -> None:
        self.keeps_start = keeps_start
        self.schedule = strategy.schedule if schedule is None else schedule
        super().__init__(name, task.index, self.schedule.epochs, strategy.seed_for(name, task.index), strategy.device)
        self.restores = restore or strategy.restore
        self.strategy = strategy
        self.data = task
        self.module = strategy.trained_module(task)
        self.best = BestWeights(self.module)
        strategy.begin_training(self.module, self.schedule)
        moving, named = {*map(id, parameters_of(self.module))}, named_state(strategy.model).items()
        curvature = strategy.penalty_curvature({name for name, it in named if id(it) in moving})
        if curvature is not None and self.schedule.optimizer == "sgd":
            strength, share = strategy.penalty_strength, strategy.penalty_share
            self.stability = Stability.of(self.schedule, curvature, strength, share)
        self.batch_flops: dict[Hashable, tuple[int, int]] = {}  # as RepeatedBatches knows them

    def run_epoch(self) -> EpochReport:
        """One epoch of training and one pass over the validation images."""
        strategy = self.strategy
        set_rate(strategy.optimizer, epoch_rate(self.schedule, self.epoch, strategy.lr_schedule))
        if self.keeps_start and self.epoch == 0:
            self._validate()
        strategy.training_mode()
        report = self.train_epoch()
        self._validate()
        return report

    def _validate(self) -> None:
        """Offer the present weights, where the best are to be restored."""
        loss = self.strategy.validation_loss(self.data, self.count_images) if self.restores == "best_valid" else None
        if loss is not None:
            self.best.offer(loss)

    def train_epoch(self) -> EpochReport:
        """Train for one epoch: what :meth:`count_images` counts costs the same per image in all batches."""
        strategy, counted = self.strategy, self.image_passes
        with RepeatedBatches(self.batch_flops, gapless=_is_gapless(strategy)) as repeated:

            def on_batch(images: int) -> None:
                nonlocal counted
                self.count_images(images)
                counted, before = self.image_passes, counted
                repeated.end(counted - before)  # the batch's own, and what the strategy added

            meter = strategy.epoch_meter = EpochMeter(strategy.device, on_batch, repeated.begin)
            try:
                strategy.train_one_epoch()
            finally:
                strategy.epoch_meter = None
        return meter.report

    def result(self) -> Any:
        """Restore the best weights; a subclass may return what it measured."""
        self.best.restore()

    def get_extra_state(self) -> dict[str, Any]:
        """Weights, optimiser, best weights, and what a subclass names."""
        return {
            "weights": self.module.state_dict(),
            "optimizer": self.strategy.optimizer.state_dict(),
            "best": self.best.state_dict(),
            "batch_flops": dict(self.batch_flops),
            **super().get_extra_state(),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.module.load_state_dict(state["weights"])
        self.strategy.optimizer.load_state_dict(state["optimizer"])
        self.best.load_state_dict(state["best"])
        self.batch_flops |= state["batch_flops"]
        super().set_extra_state(state)
