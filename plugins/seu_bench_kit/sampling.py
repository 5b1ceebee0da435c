"""Stages that learn from samples: choose a network, train it on one half of the images, score it on the other.

The paper's searcher and creator work so (algorithms 2 and 4), and so may others: what they sample and how they learn
from its score is all that differs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import torch
from torch import nn

from seu_bench.config.protocol import Schedule, SearchSchedule
from seu_bench.data.images import TaskImages
from seu_bench.models.flops import RepeatedBatches
from seu_bench.training.loops import Forward, clip_gradients, epoch_rate, evaluate, make_optimizer, set_rate
from seu_bench.training.stage import EpochReport, Result, Stage
from seu_bench_kit.components import SearchTask, recalibration_passes
from seu_bench_kit.networks import GenotypeNetwork, ProxyNetwork

#: What happens to parameters that an epoch's sample does not use. ``still``: nothing. ``drift``: momentum and weight
#: decay continue to move those that were used before, as with PyTorch 1.1's zero-filled gradients (published code).
Unsampled: TypeAlias = Literal["still", "drift"]

Norm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def train_epoch(
    forward: Forward,
    parameters: list[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    images: TaskImages,
    schedule: Schedule,
    on_batch: Callable[[int], None],
    unsampled: Unsampled = "still",
    network: Callable[[], Hashable] = lambda: None,
) -> float:
    """Train with cross-entropy on all images once, shuffled.

    Args:
        forward: images ``[N, C, H, W]`` -> logits ``[N, num_classes]``, in training mode.
        parameters: to clip.
        optimizer: of the parameters.
        images: of one task and split.
        schedule: batch size and largest gradient norm.
        on_batch: called with the number of images of each batch.
        unsampled: treatment of parameters that get no gradient.
        network: called before each batch; returns what tells networks of different cost apart, where ``forward`` is not
            the same one for all batches. Of each the operations of one batch are counted.

    Returns:
        Mean loss per image.
    """
    total = torch.zeros((), device=images.device)
    with RepeatedBatches() as repeated:
        for x, y in images.batches(schedule.batch_size, shuffle=True):
            repeated.begin(network())
            optimizer.zero_grad(set_to_none=unsampled == "still")
            loss = nn.functional.cross_entropy(forward(x), y)
            loss.backward()
            clip_gradients(parameters, schedule.clip_norm)
            optimizer.step()
            total += loss.detach() * len(y)
            repeated.end(len(y))
            on_batch(len(y))
    return float(total) / len(images)


def recalibrate(
    trained: nn.Module,
    forward: Forward,
    images: TaskImages,
    limit: int,
    batch_size: int,
    on_batch: Callable[[int], None],
) -> None:
    """Replace the running statistics of the BatchNorms that a sample uses by the means over its batches.

    Each batch has the same weight, so that only whole batches are passed; nothing is drawn, for a task's images are
    shuffled already. BatchNorms that the sample does not use, and all outside of ``trained``, keep what they have.

    Args:
        trained: the BatchNorms to estimate are in it; the caller has set evaluation mode.
        forward: of the sample, images ``[N, C, H, W]`` -> logits.
        images: those that the sample was trained on.
        limit: images that are passed at most; none where it is 0, or where there is no BatchNorm, and nothing changes.
        batch_size: images per batch; fewer images than that are one batch.
        on_batch: called with the number of images of each batch.
    """
    norms = [norm for norm in trained.modules() if isinstance(norm, Norm) and norm.track_running_stats]
    part = images.part(0, recalibration_passes(limit, len(images), batch_size) if norms else 0)
    before = [(norm.training, norm.momentum) for norm in norms]
    for norm in norms:
        norm.training = True  # each by itself, for a frozen unit refuses to train
    with torch.no_grad(), RepeatedBatches() as repeated:
        for number, (x, y) in enumerate(part.batches(batch_size, shuffle=False) if len(part) else (), start=1):
            for norm in norms:
                norm.momentum = 1 / number  # 1 first, which forgets what was there
            repeated.begin()
            forward(x)
            repeated.end(len(y))
            on_batch(len(y))
    for norm, (training, momentum) in zip(norms, before, strict=True):
        norm.training, norm.momentum = training, momentum


Sampled = TypeVar("Sampled")


def proxy_network(task: SearchTask, schedule: SearchSchedule) -> ProxyNetwork:
    """Make a proxy network on a task's device, its weights drawn from torch's generators."""
    made = ProxyNetwork(task.input, task.num_classes, schedule.cells, schedule.channels, task.space)
    return made.to(task.device, non_blocking=True)


def genotype_network(task: SearchTask, schedule: SearchSchedule, genotype: Any) -> GenotypeNetwork:
    """Make a network of one genotype at the proxy's size, its weights drawn from torch's generators."""
    size = (schedule.cells, schedule.channels)
    return GenotypeNetwork(genotype, task.input, task.num_classes, *size, task.space).to(task.device, non_blocking=True)


class SampledStage(Stage[Result], Generic[Sampled, Result]):
    """Stage whose epochs sample a network, train it on one half of the training images and score it on the other.

    A subclass calls :meth:`prepare` when it has made what trains.

    Args:
        name, task, seed, device: as of :class:`~seu_bench.training.Stage`.
        schedule: of the stage, options applied.
        images: the task's training images.
        recalibration_images: images of the first half, at most, on which BatchNorm's statistics are estimated anew
            before a sample is scored; 0: samples are scored with the statistics that training left, by which they may
            answer by chance. Subclasses hand on :class:`~seu_bench.config.ScoringOptions`, whose passes
            :func:`~seu_bench.training.schedule_passes` counts.
    """

    state_attributes: tuple[str, ...] = ("trained", "optimizer")

    #: What happens to parameters that an epoch's sample does not use.
    unsampled: Unsampled = "still"

    def __init__(
        self,
        name: str,
        task: int,
        schedule: Schedule,
        images: TaskImages,
        seed: int,
        device: torch.device,
        recalibration_images: int = 0,
    ) -> None:
        super().__init__(name, task, schedule.epochs, seed, device)
        self.schedule = schedule
        self.recalibration_images = recalibration_images
        self.train_images, self.score_images = images.halves()

    def prepare(self, trained: nn.Module) -> None:
        """Make the optimiser of ``trained``, which each epoch switches to training and to evaluation mode."""
        self.trained = trained
        self.parameters = list(trained.parameters())
        self.optimizer = make_optimizer(self.parameters, self.schedule)

    @abstractmethod
    def sample(self) -> Sampled:
        """Draw the sample of the coming epoch."""

    @abstractmethod
    def forward_of(self, sampled: Sampled) -> Forward:
        """Return the forward pass of a sample: images ``[N, C, H, W]`` -> logits ``[N, num_classes]``."""

    @abstractmethod
    def learn(self, sampled: Sampled, accuracy: float, loss: float) -> None:
        """Update from the accuracy in [0, 1] and the mean loss on the second half."""

    def run_epoch(self) -> EpochReport:
        """Sample, train one epoch, recalibrate, measure, learn."""
        sampled = self.sample()
        forward = self.forward_of(sampled)
        set_rate(self.optimizer, epoch_rate(self.schedule, self.epoch))
        self.trained.train()
        loss = train_epoch(
            forward,
            self.parameters,
            self.optimizer,
            self.train_images,
            self.schedule,
            self.count_images,
            self.unsampled,
        )
        self.trained.eval()
        limit, batch_size = self.recalibration_images, self.schedule.batch_size
        recalibrate(self.trained, forward, self.train_images, limit, batch_size, self.count_images)
        accuracy, score_loss = evaluate(forward, self.score_images, batch_size, self.count_images)
        if not math.isfinite(score_loss):
            return EpochReport(score_loss, accuracy)  # it diverged, and the stage ends here
        self.note_reward(accuracy, self.score_images)
        self.learn(sampled, accuracy, score_loss)
        return EpochReport(loss, accuracy)
