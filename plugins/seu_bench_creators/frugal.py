"""Growth that has to pay: reuse the beginning of an earlier path, grow the rest, as far as the mixed score gains."""

from __future__ import annotations

import itertools
import random

from torch import Tensor

from seu_bench.metrics import mixed_score
from seu_bench.models import counted_as
from seu_bench.training import EpochReport, Stage, cosine_rate, evaluate, make_sgd, set_rate
from seu_bench_creators import FrugalOptions
from seu_bench_creators.paths import Path, earlier_paths, newest_path, prefixes
from seu_bench_kit import CreationTask, path_features, recalibrate, recalibration_passes, ridge_accuracy, train_epoch


class FrugalCreation(Stage[Path]):
    """The creation of one task's path.

    Why it should beat the MDL creator on the mixed score at no more image passes:

    - MDL ranks units by accuracy alone, from one noisy epoch each, and prefers units that were tried less: whether a
      unit is worth its parameters plays no part. Here the paths that are compared are scored by what the benchmark
      scores, accuracy and size together.
    - MDL draws a unit per layer at random: with n old units a new one is trained in one epoch of n + 1, each time among
      other neighbours. Here the only paths are *prefixes*: the first k layers of one earlier path, new units after
      them. Early layers are the general ones, where reuse costs least (Yosinski et al., NeurIPS 2014), and L + 2 paths
      can be compared where there are thousands. All share the new units, and every second batch trains the path that
      is all new, so that new units are well trained when they are judged, and when training starts from them.
    - Which earlier path is worth beginning with, and how good it is as it stands, is measured without training: by
      ridge regression on its features.

    Then each path is measured on the second half and the one of the highest mixed score is taken: that of the mean
    accuracy and of the parameters that the super model would have. For tasks learned before, whose accuracies a creator
    must not know, the best accuracy among the paths stands in; of equal ones the smaller path is taken.

    Half of the images that MDL would score are there for the probes, half for the comparison, at most; and as many as
    MDL would recalibrate BatchNorm's statistics on are shared among the paths that have new units, whose statistics are
    estimated anew before each is measured: they train by turns, and share the new units.
    """

    state_attributes = ("trained", "optimizer", "contenders", "accuracies")

    def __init__(self, options: FrugalOptions, task: CreationTask) -> None:
        self.schedule = options.applied_to(task.schedule)
        super().__init__("creation", task.task, self.schedule.epochs, task.seed, task.device)
        self.options = options
        self.model = task.model
        self.train_images, self.score_images = task.images.halves()
        self.trained = self.model.new_units(task.task)
        self.parameters = list(self.trained.parameters())
        self.optimizer = make_sgd(self.parameters, self.schedule)
        self.earlier = earlier_paths(self.model, task.task)
        self.contenders: list[Path] = []
        self.accuracies: list[float] = []

    def run_epoch(self) -> EpochReport:
        """Train the contenders on the first half, each batch one of them; measure all after the last epoch."""
        if self.epoch == 0:
            self.contenders = self._prefixes(self._best_earlier())
        set_rate(self.optimizer, cosine_rate(self.schedule, self.epoch))
        self.model.train()
        turns = itertools.count(self.epoch)  # which continue where an epoch has a single batch

        def contender() -> Path:
            # The path that is all old has nothing to train but a head, and is judged without it.
            which = 0 if next(turns) % 2 == 0 else random.randrange(max(1, len(self.contenders) - 1))
            self.model.set_path(self.task, self.contenders[which])
            return self.contenders[which]

        def forward(images: Tensor) -> Tensor:
            return self.model.forward_single_task(images, self.task)

        loss = train_epoch(
            forward,
            self.parameters,
            self.optimizer,
            self.train_images,
            self.schedule,
            self.count_images,
            network=contender,
        )
        if self.epoch < self.epochs - 1:
            return EpochReport(loss)
        self.accuracies = self._measured()
        return EpochReport(loss, max(self.accuracies))

    def result(self) -> Path:
        """The contender of the highest mixed score; the last, which is the smallest, of equal ones."""
        learned = sum(task != self.task for task in self.model.paths)
        best = max(self.accuracies)
        scores = [
            mixed_score(100 * (learned * best + accuracy) / (learned + 1), self._stored(path))
            for path, accuracy in zip(self.contenders, self.accuracies, strict=True)
        ]
        return max(zip(scores, range(len(scores)), self.contenders, strict=True))[2]

    def _prefixes(self, old: Path) -> list[Path]:
        """From all new to all old; only all new where there are too few images to compare them on."""
        new = newest_path(self.model)
        paths = prefixes(old, new)
        return paths if len(paths) + 1 <= self._evaluations // 2 else paths[:1]

    def _best_earlier(self) -> Path:
        """Earlier path whose features separate this task's classes best; of equal ones the latest."""
        half = self._evaluations // 2 // len(self.earlier) // 2
        count = min(half, self.options.probe_images // 2, len(self.train_images), len(self.score_images))
        if len(self.earlier) == 1 or count < 1:
            return self.earlier[0]
        self.model.eval()
        accuracies = [self._probe(path, count) for path in self.earlier]
        return self.earlier[accuracies.index(max(accuracies))]

    def _probe(self, path: Path, count: int) -> float:
        fit, check = (
            path_features(self.model, path, images.part(0, count), self.schedule.batch_size, self.count_images)
            for images in (self.train_images, self.score_images)
        )
        with counted_as(lambda: 0):  # it is no network
            return ridge_accuracy(*fit, *check)

    def _measured(self) -> list[float]:
        """Accuracy of every contender on the same images; the all-old path is probed: its head saw other features."""
        has_old = len(self.contenders) > 1
        growing = self.contenders[:-1] if has_old else self.contenders
        shares = len(growing) + 2 * has_old  # a probe looks at twice as many images
        count = min(len(self.train_images), len(self.score_images), max(1, self._evaluations // 2 // shares))
        images = self.score_images.part(0, count)
        batch_size, options = self.schedule.batch_size, self.options
        budget = self.epochs * recalibration_passes(options.recalibration_images, len(self.train_images), batch_size)
        limit = min(options.recalibration_images, budget // len(growing))

        def forward(x: Tensor) -> Tensor:
            return self.model.forward_single_task(x, self.task)

        self.model.eval()
        accuracies = []
        for path in growing:
            self.model.set_path(self.task, path)
            recalibrate(self.trained, forward, self.train_images, limit, batch_size, self.count_images)
            accuracy, _ = evaluate(forward, images, batch_size, self.count_images)
            accuracies.append(accuracy)
        if has_old:
            accuracies.append(self._probe(self.contenders[-1], count))
        for accuracy in accuracies:
            self.rewarded(accuracy, images)
        return accuracies

    @property
    def _evaluations(self) -> int:
        """Images that the MDL creator would score in as many epochs."""
        return self.epochs * len(self.score_images)

    def _stored(self, path: Path) -> int:
        stored = sum(parameter.numel() for parameter in self.model.parameters())
        layers = [layer for layer, is_new in enumerate(self.model.has_new) if is_new]
        for layer, unit in zip(layers, list(self.trained)[: len(layers)], strict=True):
            if path[layer] != self.model.candidates[layer] - 1:
                stored -= sum(parameter.numel() for parameter in unit.parameters())
        return stored
