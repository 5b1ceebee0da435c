"""The search of a task's growth: trials of numbers of units that the controller draws (Xu & Zhu 2018)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.config import Schedule
from seu_bench.data import TaskImages
from seu_bench.models import GrowingNetwork
from seu_bench.training import (
    BestWeights,
    EpochReport,
    Stage,
    TaskData,
    cosine_rate,
    evaluate,
    make_sgd,
    set_rate,
    train_epoch,
)
from seu_bench.utils import RandomState
from seu_bench_rcl.controller import Controller, reward_of


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search.

    Attributes:
        schedule: of SGD in each trial, whose length its epochs are.
        trials: networks that are tried.
        max_units: that a layer gets at most.
        unit_penalty: reward lost per unit.
        controller_learning_rate, baseline_learning_rate: of Adam.
        cosine: whether SGD's rate follows the cosine in each trial or stays.
        select: whether a trial's weights are those of its lowest validation loss, or the last.
    """

    schedule: Schedule
    trials: int = 50
    max_units: int = 29
    unit_penalty: float = 1e-4
    controller_learning_rate: float = 1e-3
    baseline_learning_rate: float = 5e-3
    cosine: bool = True
    select: bool = True


@dataclass(frozen=True)
class Growth:
    """What a task adds.

    Attributes:
        units: added to each layer.
        reward: of the trial that it was.
        weights: of the network's ``trainable_module``, after the trial.
    """

    units: tuple[int, ...]
    reward: float
    weights: Mapping[str, Tensor]


class Trial:
    """A network that shares all weights of another one, frozen, and adds the units and the head of the next task.

    Args:
        model: whose weights are shared; it is not changed.
        units: to add to each layer, by torch's global generator.
        schedule: of SGD.
        device: of the computation.
    """

    def __init__(self, model: GrowingNetwork, units: Sequence[int], schedule: Schedule, device: torch.device) -> None:
        self.units = tuple(units)
        self.task = len(model.heads)
        # What a copy has in common with the original is what is in the memo from the start.
        shared = [*model.parameters(), *(layer.weighted for layer in model.chain)]
        self.network = deepcopy(model, {id(each): each for each in shared})
        self.network.grow(self.units, device)
        self.trained: nn.Module = self.network.trainable_module(self.task)
        self.parameters = list(self.trained.parameters())
        self.optimizer = make_sgd(self.parameters, schedule)
        self.best = BestWeights(self.trained)
        #: Of the weights that it would end with now.
        self.accuracy: float | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Images ``[N, C, H, W]`` -> logits ``[N, classes]``."""
        return self.network.forward_single_task(x, self.task)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        return {
            "units": list(self.units),
            "weights": self.trained.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "best": self.best.state_dict(),
            "accuracy": self.accuracy,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned of a trial of the same units."""
        self.trained.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.best.load_state_dict(state["best"])
        self.accuracy = state["accuracy"]


def trial_passes(images: int, valid: int, epochs: int, *, select: bool) -> tuple[int, int]:
    """Image passes of a trial.

    Args:
        images: training images of the task.
        valid: validation images.
        epochs: of the trial.
        select: whether the validation images are passed after each epoch, or after the last.

    Returns:
        Images that train and images that are scored. Without validation images, those of the first and of the second
        half of the training images, which are scored once.
    """
    if not valid:
        return epochs * (images // 2), images - images // 2
    return epochs * images, (epochs if select else 1) * valid


class GrowthSearch(Stage[Growth]):
    """Trial by trial: draw units, train them, reward the controller. The result is the trial of the best reward.

    An epoch of the stage is an epoch of a trial, so that a long trial can be interrupted. Trials train on the training
    images and are scored on the validation images; where there are none, on either half of the training images. A
    trial's weights are those of its lowest loss on the validation images, if these select, and the last otherwise.

    Args:
        model: frozen, as the tasks before left it; it is not changed.
        data: of the task.
        eval_batch_size: images per batch in scoring.
    """

    def __init__(
        self,
        model: GrowingNetwork,
        data: TaskData,
        settings: SearchSettings,
        seed: int,
        device: torch.device,
        eval_batch_size: int = 512,
    ) -> None:
        super().__init__("search", data.index, settings.trials * settings.schedule.epochs, seed, device)
        self.model = model
        self.settings = settings
        self.eval_batch_size = eval_batch_size
        self.train_images: TaskImages
        self.score_images: TaskImages
        if data.valid is not None and len(data.valid):
            self.train_images, self.score_images = data.train, data.valid
            self.selects = settings.select
        else:
            self.train_images, self.score_images = data.train.halves()
            self.selects = False
        with self.randomness.active():
            self.controller = Controller(
                len(model.chain),
                settings.max_units + 1,
                settings.controller_learning_rate,
                settings.baseline_learning_rate,
            )
        self.trial: Trial | None = None
        self.best: Growth | None = None

    def run_epoch(self) -> EpochReport:
        """An epoch of the present trial, after which the last one of a trial scores it and teaches the controller."""
        schedule = self.settings.schedule
        at = self.epoch % schedule.epochs
        if self.trial is None:
            self.trial = Trial(self.model, self.controller.draw(), schedule, self.device)
        trial = self.trial
        if self.settings.cosine:
            set_rate(trial.optimizer, cosine_rate(schedule, at))
        trial.network.train()
        loss = None
        # A single training image leaves the first half empty.
        if len(self.train_images):
            loss = train_epoch(
                trial.forward, trial.parameters, trial.optimizer, self.train_images, schedule, self.passed
            )
        is_last = at == schedule.epochs - 1
        accuracy = self._score(trial, is_last=is_last) if is_last or self.selects else None
        if is_last:
            self._end(trial)
        return EpochReport(loss, accuracy)

    def result(self) -> Growth:
        """The growth of the best reward, the first of equal ones."""
        if self.best is None:
            raise RuntimeError("no trial has ended")
        return self.best

    def get_extra_state(self) -> dict[str, Any]:
        """The controller, the present trial, and the best one so far."""
        best = self.best
        return {
            "controller": self.controller.state_dict(),
            "trial": None if self.trial is None else self.trial.state_dict(),
            "best": None
            if best is None
            else {"units": list(best.units), "reward": best.reward, "weights": dict(best.weights)},
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.controller.load_state_dict(state["controller"])
        self.trial = None
        if (begun := state["trial"]) is not None:
            # Its first weights are drawn, and replaced.
            with RandomState(0, self.device).active():
                self.trial = Trial(self.model, begun["units"], self.settings.schedule, self.device)
            self.trial.load_state_dict(begun)
        best = state["best"]
        self.best = None if best is None else Growth(tuple(best["units"]), best["reward"], dict(best["weights"]))

    def _score(self, trial: Trial, *, is_last: bool) -> float:
        """Measure the accuracy of the present weights, and note them if a trial that ended now would have them."""
        trial.network.eval()
        accuracy, loss = evaluate(trial.forward, self.score_images, self.eval_batch_size, self.passed)
        is_best = self.selects and loss < trial.best.loss
        if is_best:
            trial.best.offer(loss)
        # Where no loss is finite, as with the last weights, the last accuracy counts.
        if is_best or (is_last and trial.best.loss == math.inf):
            trial.accuracy = accuracy
        return accuracy

    def _end(self, trial: Trial) -> None:
        """Learn from the reward of a trial, and keep it if it is the best."""
        trial.best.restore()
        accuracy = trial.accuracy or 0.0
        self.rewarded(accuracy, self.score_images)
        reward = reward_of(accuracy, trial.units, self.settings.unit_penalty)
        if self.best is None or reward > self.best.reward:
            self.best = Growth(trial.units, reward, trial.trained.state_dict())
        self.controller.learn(trial.units, reward)
        self.trial = None
