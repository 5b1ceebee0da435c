"""Growth that has to pay: reuse the beginning of an earlier path, grow the rest, as far as the mixed score gains."""

from __future__ import annotations

import itertools
import random

from torch import Tensor

from seu_bench.metrics import mixed_score
from seu_bench.training import EpochReport, epoch_rate, set_rate
from seu_bench_creators import FrugalOptions
from seu_bench_creators.paths import Path, PrefixCreation, newest_path, prefixes
from seu_bench_kit import CreationTask, ridge_accuracy, train_epoch


class FrugalCreation(PrefixCreation):
    """The creation of one task's path: the prefix whose accuracy and size together score best.

    - MDL ranks units by accuracy alone, from one noisy epoch each: whether a unit is worth its parameters plays no
      part. Here paths are scored by what the benchmark scores, accuracy and size together.
    - MDL draws a unit per layer at random: with n old units a new one is trained in one epoch of n + 1. Here the only
      paths are *prefixes*: the first k layers of one earlier path, new units after them. Early layers are the general
      ones, where reuse costs least (Yosinski et al., NeurIPS 2014). All share the new units, and every second batch
      trains the path that is all new, so that these are well trained when they are judged.
    - Which earlier path is worth beginning with, and how good it is as it stands, is measured without training: by
      ridge regression on its features.

    Then each path is measured on the second half and the one of the highest mixed score is taken: that of the mean
    accuracy and of the parameters that the super model would have. For tasks learned before, whose accuracies a creator
    must not know, the best accuracy among the paths stands in; of equal ones the smaller path is taken.
    """

    state_attributes = ("trained", "optimizer", "contenders", "accuracies")

    def __init__(self, options: FrugalOptions, task: CreationTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__(options, task, schedule, schedule.epochs, schedule.epochs)
        self.options, self.later_parameters = options, task.later_parameters
        self.contenders: list[Path] = []
        self.accuracies: list[float] = []

    def score(self, features: Tensor, labels: Tensor, queries: Tensor, query_labels: Tensor) -> float:
        """Accuracy of ridge regression."""
        return ridge_accuracy(features, labels, queries, query_labels)

    def run_epoch(self) -> EpochReport:
        """Train the contenders on the first half, each batch one of them; measure all after the last epoch."""
        if self.epoch == 0:
            self.contenders = prefixes(self.best_earlier(self.options.probe_images), newest_path(self.model))
            if len(self.contenders) + 1 > self.half:  # too few images to compare them on
                del self.contenders[1:]
        set_rate(self.optimizer, epoch_rate(self.schedule, self.epoch))
        self.model.train()
        turns = itertools.count(self.epoch)  # which continue where an epoch has a single batch

        def contender() -> Path:
            # The path that is all old has nothing to train but a head, and is judged without it.
            which = 0 if next(turns) % 2 == 0 else random.randrange(max(1, len(self.contenders) - 1))
            self.model.set_path(self.task, self.contenders[which])
            return self.contenders[which]

        parts = self.forward, self.parameters, self.optimizer, self.train_images, self.schedule
        loss = train_epoch(*parts, self.count_images, network=contender)
        if self.epoch < self.epochs - 1:
            return EpochReport(loss)
        self.accuracies = self._measure_contenders()
        return EpochReport(loss, max(self.accuracies))

    def result(self) -> Path:
        """The contender of the highest mixed score; the last, which is the smallest, of equal ones."""
        learned = sum(task != self.task for task in self.model.paths)
        best = max(self.accuracies)
        scores = [
            mixed_score(100 * (learned * best + accuracy) / (learned + 1), self._stored_parameters(path))
            for path, accuracy in zip(self.contenders, self.accuracies, strict=True)
        ]
        return max(zip(scores, range(len(scores)), self.contenders, strict=True))[2]

    def _measure_contenders(self) -> list[float]:
        """Accuracy of every contender on the same images; the all-old path is probed: its head saw other features."""
        has_old = len(self.contenders) > 1
        growing = self.contenders[:-1] if has_old else self.contenders
        shares = len(growing) + 2 * has_old  # a probe looks at twice as many images
        count = min(len(self.train_images), len(self.score_images), max(1, self.half // shares))
        accuracies = []
        for path in growing:
            self.model.set_path(self.task, path)
            accuracies.append(self.measure(count, len(growing)))
        if has_old:
            accuracies.append(self.probe(self.contenders[-1], count))
            self.note_reward(accuracies[-1], self.score_images.part(0, count))
        return accuracies

    def _stored_parameters(self, path: Path) -> int:
        stored = sum(parameter.numel() for parameter in self.model.parameters()) - self.later_parameters
        layers = [layer for layer, is_new in enumerate(self.model.has_new) if is_new]
        for layer, unit in zip(layers, list(self.trained)[: len(layers)], strict=True):
            if path[layer] != self.model.candidates[layer] - 1:
                stored -= sum(parameter.numel() for parameter in unit.parameters())
        return stored
