"""MNTDP-D's rule as a creator: the related task by nearest neighbours, then every prefix of its path is tried."""

from __future__ import annotations

from torch import Tensor

from seu_bench.models import counted_as
from seu_bench.training import BestWeights, EpochReport, Stage, cosine_rate, evaluate, make_sgd, set_rate
from seu_bench_creators import KnnPrefixOptions
from seu_bench_creators.paths import Path, earlier_paths, newest_path, prefixes
from seu_bench_kit import CreationTask, knn_accuracy, path_features, recalibrate, recalibration_passes, train_epoch


class KnnPrefixCreation(Stage[Path]):
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

    Half of the images that the MDL creator would score are there for the prior, half for the candidates, at most.
    """

    state_attributes = ("trained", "optimizer", "initial", "best", "candidates", "accuracies", "priors")

    def __init__(self, options: KnnPrefixOptions, task: CreationTask) -> None:
        schedule = options.applied_to(task.schedule)
        self.model = task.model
        self.earlier = earlier_paths(self.model, task.task)
        new = newest_path(self.model)
        self.lengths = _spread(len(prefixes(self.earlier[0], new)), schedule.epochs)
        self.share = schedule.epochs // len(self.lengths)
        super().__init__("creation", task.task, self.share * len(self.lengths), task.seed, task.device)
        self.schedule = schedule.model_copy(update={"epochs": self.share})
        self.options = options
        self.budget = schedule.epochs
        self.train_images, self.score_images = task.images.halves()
        self.trained = self.model.new_units(task.task)
        self.parameters = list(self.trained.parameters())
        self.optimizer = make_sgd(self.parameters, self.schedule)
        self.initial, self.best = BestWeights(self.trained), BestWeights(self.trained)
        self.initial.keep()
        self.candidates: list[Path] = []
        self.accuracies: list[float] = []
        self.priors: list[float] = []

    def run_epoch(self) -> EpochReport:
        """One epoch of one candidate; after its last it is measured."""
        if self.epoch == 0:
            paths = prefixes(self._related(), newest_path(self.model))
            self.candidates = [paths[place] for place in self.lengths]
        which, done = divmod(self.epoch, self.share)
        if done == 0:
            self.initial.restore()
            self.optimizer = make_sgd(self.parameters, self.schedule)
        self.model.set_path(self.task, self.candidates[which])
        set_rate(self.optimizer, cosine_rate(self.schedule, done))
        self.model.train()
        loss = train_epoch(
            self._forward, self.parameters, self.optimizer, self.train_images, self.schedule, self.count_images
        )
        if done < self.share - 1:
            return EpochReport(loss)
        accuracy = self._measured()
        if accuracy >= max(self.accuracies, default=0.0):
            self.best.keep()
        self.accuracies.append(accuracy)
        return EpochReport(loss, accuracy)

    def result(self) -> Path:
        """The most accurate candidate, with the weights that it had."""
        self.best.restore()
        best = max(self.accuracies)
        return self.candidates[max(place for place, value in enumerate(self.accuracies) if value == best)]

    def _forward(self, x: Tensor) -> Tensor:
        return self.model.forward_single_task(x, self.task)

    def _related(self) -> Path:
        """The earlier path whose features separate this task's classes best; of equal ones the latest."""
        half = self._evaluations // 2 // len(self.earlier) // 2
        count = min(half, self.options.prior_images // 2, len(self.train_images), len(self.score_images))
        if len(self.earlier) == 1 or count < 1:
            return self.earlier[0]
        self.model.eval()
        self.priors = [self._prior(path, count) for path in self.earlier]
        return self.earlier[self.priors.index(max(self.priors))]

    def _prior(self, path: Path, count: int) -> float:
        fit, check = (
            path_features(self.model, path, images.part(0, count), self.schedule.batch_size, self.count_images)
            for images in (self.train_images, self.score_images)
        )
        with counted_as(lambda: 0):  # it is no network
            return knn_accuracy(*fit, *check, k=self.options.k)

    def _measured(self) -> float:
        """Accuracy of the present candidate on the second half, or on as much of it as the budget allows."""
        shares, options, batch_size = len(self.candidates), self.options, self.schedule.batch_size
        count = min(len(self.score_images), max(1, self._evaluations // 2 // shares))
        budget = self.budget * recalibration_passes(options.recalibration_images, len(self.train_images), batch_size)
        limit = min(options.recalibration_images, budget // shares)
        self.model.eval()
        recalibrate(self.trained, self._forward, self.train_images, limit, batch_size, self.count_images)
        images = self.score_images.part(0, count)
        accuracy, _ = evaluate(self._forward, images, batch_size, self.count_images)
        self.rewarded(accuracy, images)
        return accuracy

    @property
    def _evaluations(self) -> int:
        """Images that the MDL creator would score in as many epochs."""
        return self.budget * len(self.score_images)


def _spread(count: int, most: int) -> list[int]:
    """At most ``most`` of the places 0 to ``count - 1``, evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [0] if most == 1 else [round(place * (count - 1) / (most - 1)) for place in range(most)]
