"""MNTDP-D's rule as a creator: the related task by nearest neighbours, then every prefix of its path is tried."""

from __future__ import annotations

from torch import Tensor

from seu_bench.training import BestWeights, EpochReport, epoch_rate, make_optimizer, set_rate
from seu_bench_creators import KnnPrefixOptions
from seu_bench_creators.paths import Path, PrefixCreation, earlier_paths, newest_path, prefixes
from seu_bench_kit import CreationTask, knn_accuracy, train_epoch


class KnnPrefixCreation(PrefixCreation):
    """The creation of one task's path, as MNTDP-D chooses one (Veniat, Denoyer & Ranzato, ICLR 2021).

    1. *Prior.* Of each earlier path the features of this task's images are computed, and k nearest neighbours, fitted
       on images of the first half, are scored on images of the second. The best path is the only one considered; of
       equal ones the latest.
    2. *Candidates.* "The first p units of it, new ones after" for p = 0 to all. Each is trained on the first half from
       the same initial weights, for its share of the schedule's epochs and with a cosine of its own, and measured on
       the second half. The most accurate is taken, with its weights; of equal ones that which reuses more.

    It differs from MNTDP-D in the budget, which is the schedule's for all candidates together; in the head, which is
    always new; and in that training goes on afterwards from the weights of the best. With fewer epochs than candidates
    so many of these are tried, evenly spread, the smallest and the largest prefix among them.
    """

    state_attributes = ("trained", "optimizer", "initial", "best", "candidates", "accuracies")

    def __init__(self, options: KnnPrefixOptions, task: CreationTask) -> None:
        whole = options.applied_to(task.schedule)
        paths = prefixes(earlier_paths(task.model, task.task)[0], newest_path(task.model))
        self.lengths = _spread_places(len(paths), whole.epochs)
        self.share = whole.epochs // len(self.lengths)
        schedule = whole.of_epochs(self.share)
        super().__init__(options, task, schedule, whole.epochs, self.share * len(self.lengths))
        self.options = options
        self.initial, self.best = BestWeights(self.trained), BestWeights(self.trained)
        self.initial.keep()
        self.candidates: list[Path] = []
        self.accuracies: list[float] = []

    def score(self, features: Tensor, labels: Tensor, queries: Tensor, query_labels: Tensor) -> float:
        """Accuracy of the nearest neighbours."""
        return knn_accuracy(features, labels, queries, query_labels, k=self.options.k)

    def run_epoch(self) -> EpochReport:
        """One epoch of one candidate; after its last it is measured."""
        if self.epoch == 0:
            paths = prefixes(self.best_earlier(self.options.prior_images), newest_path(self.model))
            self.candidates = [paths[place] for place in self.lengths]
        which, done = divmod(self.epoch, self.share)
        if done == 0:
            self.initial.restore()
            self.optimizer = make_optimizer(self.parameters, self.schedule)
        self.model.set_path(self.task, self.candidates[which])
        set_rate(self.optimizer, epoch_rate(self.schedule, done))
        self.model.train()
        parts = self.forward, self.parameters, self.optimizer, self.train_images, self.schedule
        loss = train_epoch(*parts, self.count_images)
        if done < self.share - 1:
            return EpochReport(loss)
        shares = len(self.candidates)
        accuracy = self.measure(min(len(self.score_images), max(1, self.half // shares)), shares)
        if accuracy >= max(self.accuracies, default=0.0):
            self.best.keep()
        self.accuracies.append(accuracy)
        return EpochReport(loss, accuracy)

    def result(self) -> Path:
        """The most accurate candidate, with the weights that it had."""
        self.best.restore()
        best = max(self.accuracies)
        return self.candidates[max(place for place, value in enumerate(self.accuracies) if value == best)]


def _spread_places(count: int, most: int) -> list[int]:
    """At most ``most`` of the places 0 to ``count - 1``, evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [0] if most == 1 else [round(place * (count - 1) / (most - 1)) for place in range(most)]
