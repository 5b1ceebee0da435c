"""Old units first: paths of old units are scored by a head alone, then each layer may bring its new unit."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch

from seu_bench.training import BestWeights, Forward
from seu_bench_creators import ReuseFirstOptions
from seu_bench_creators.paths import Path, earlier_paths
from seu_bench_kit import CreationTask, SampledStage


class ReuseFirstCreation(SampledStage[Path, Path]):
    """The creation of one task's path.

    First paths of old units only: those of earlier tasks, the latest first, then mixtures drawn at random; only the
    head trains. The best of them stands. Then the layers, from the last to the first: the new unit takes the old one's
    place for its share of the epochs and stays if the accuracy on the second half is higher by more than ``min_gain``
    than before; otherwise head and new units are as they were. Later layers come first because they are more specific
    to a task than earlier ones (Yosinski et al., "How transferable are features in deep neural networks?", NeurIPS
    2014).

    Both phases together take the schedule's epochs. Where these are fewer than there are layers, the first layers
    stay old.
    """

    state_attributes = (*SampledStage.state_attributes, "path", "accuracy", "kept")

    def __init__(self, options: ReuseFirstOptions, task: CreationTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__(
            "creation", task.task, schedule, task.images, task.seed, task.device, options.recalibration_images
        )
        self.options = options
        self.model = task.model
        self.prepare(self.model.new_units(task.task))
        self.old_epochs = max(1, round(options.old_share * self.epochs))
        new_layers = [layer for layer, is_new in enumerate(self.model.has_new) if is_new][::-1]
        each = max(1, (self.epochs - self.old_epochs) // max(1, len(new_layers)))
        #: The layer whose new unit each of the later epochs tries.
        self.trials = [layer for layer in new_layers for _ in range(each)][: self.epochs - self.old_epochs]
        # What is left over goes to the last one tried.
        self.trials += self.trials[-1:] * (self.epochs - self.old_epochs - len(self.trials))
        self.earlier = earlier_paths(self.model, task.task)
        self.path: Path = ()
        self.accuracy = -math.inf
        self.kept = BestWeights(self.trained)

    def sample(self) -> Path:
        """A path of old units, or the best one with a new unit in one layer."""
        trial = self.epoch - self.old_epochs
        if trial < 0:
            return self._old_path()
        layer = self.trials[trial]
        if trial == 0 or self.trials[trial - 1] != layer:
            self.kept.restore()
        path = list(self.path)
        path[layer] = self.model.candidates[layer] - 1
        return tuple(path)

    def forward_of(self, sampled: Path) -> Forward:
        """The super model on the path."""
        self.model.set_path(self.task, sampled)

        def forward(images: torch.Tensor) -> torch.Tensor:
            return self.model.forward_single_task(images, self.task)

        return forward

    def learn(self, sampled: Path, accuracy: float, loss: float) -> None:
        """Keep path and weights where they gain."""
        # A unit that was taken continues to train in its later epochs: only what is new must gain.
        is_rival = self.epoch >= self.old_epochs and sampled != self.path
        if accuracy > self.accuracy + self.options.min_gain * is_rival:
            self.path, self.accuracy = sampled, accuracy
            self.kept.keep()

    def result(self) -> Path:
        """The best path, with the weights it was scored with."""
        self.kept.restore()
        return self.path

    def _old_path(self) -> Path:
        if self.epoch < len(self.earlier):
            return self.earlier[self.epoch]
        counts: Sequence[int] = [
            count - is_new for count, is_new in zip(self.model.candidates, self.model.has_new, strict=True)
        ]
        return tuple(random.randrange(count) for count in counts)
