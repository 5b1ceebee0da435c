"""Growth by inheritance: a new task's units begin as copies of the most related earlier task's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from torch import Tensor, nn

from seu_bench.models import counted_as
from seu_bench.training import EpochlessStage, EpochReport, Forward, Stage
from seu_bench_creators import InheritOptions, InheritSearchOptions, inherit_passes
from seu_bench_creators.paths import Path, earlier_paths
from seu_bench_kit import (
    CreationTask,
    SearchTask,
    extract_features,
    fit_head,
    h_score,
    knn_accuracy,
    log_evidence,
    recalibrate,
    ridge_accuracy,
)

Score: TypeAlias = Callable[[Tensor, Tensor], float]


class InheritSearch(EpochlessStage[Any]):
    """The search of one task: a genotype at random for the first task, and that one for all others.

    Weights can be inherited only by units of the same genotype. That a search for each task finds better ones than
    lots do is not shown (docs/evidence/reproduction.md), so that nothing is given up for it.
    """

    def __init__(self, options: InheritSearchOptions, task: SearchTask) -> None:
        super().__init__("search", task.task, task.seed, task.device)
        self.space = task.space
        self.earlier = tuple(task.earlier)

    def result(self) -> Any:
        """The first task's genotype, which is drawn from the stage's own randomness."""
        return self.earlier[0] if self.earlier else self.space.random_genotype()


class InheritCreation(Stage[Path]):
    """The creation of one task's path.

    1. *Relation.* Of each different earlier path the features of some of this task's training images are computed, and
       scored without training: how well do they separate this task's classes? The path of the best score is the
       *related* one; of equal ones the latest. With one earlier path nothing is computed.
    2. *Inheritance.* The task takes the new unit in every layer, and each begins with the weights and statistics of the
       related path's unit there, where both are of one genotype; others begin as they were initialised. The first
       ``shared`` layers are reused as they are.
    3. *Probe*, where it is asked for. BatchNorm's statistics are estimated on this task's images, and the head is
       fitted on the features of all of them, so that training begins with what a linear layer makes of them.

    Units that were frozen after another task rarely suit the new one as they stand: reuse saves parameters and costs
    accuracy, at every depth (docs/explanation/seu.md). Copies that go on training lose nothing; parameters are saved
    where they are not missed, in the units' width. Nothing trains here, so that it takes a tenth of a creation's passes
    at most. Source of warm starts as a baseline: "fine-tuning" in Z. Li & D. Hoiem, "Learning without Forgetting",
    ECCV 2016.
    """

    state_attributes = ("scores",)

    def __init__(self, options: InheritOptions, task: CreationTask) -> None:
        super().__init__("creation", task.task, 1, task.seed, task.device)
        self.options = options
        self.model = task.model
        self.images = task.images
        self.batch_size = task.schedule.batch_size
        self.earlier = earlier_paths(self.model, task.task)
        budget = inherit_passes(task.schedule, len(task.images)) // len(self.earlier)
        self.count = min(budget, options.images, len(task.images))
        self.scores: list[float] = []

    def run_epoch(self) -> EpochReport:
        """Score each earlier path, where there is a choice and enough images to fit and to check."""
        if len(self.earlier) > 1 and self.count >= 2 and self.options.relation != "latest":
            self.model.eval()
            self.scores = [self._score(path) for path in self.earlier]
        return EpochReport()

    def result(self) -> Path:
        """The newest unit of every layer but the shared ones, with the weights that it inherits."""
        related = self.related
        path = list(related[: self.options.shared])
        for layer in range(len(path), len(related)):
            path.append(self.model.candidates[layer] - 1)
            if self.model.has_new[layer] and self.options.copies:
                self._inherit(layer, related[layer])
        if self.options.probe:
            self._fit_head(tuple(path))
        return tuple(path)

    @property
    def related(self) -> Path:
        """The earlier path of the best score, the latest of equal ones."""
        return self.earlier[self.scores.index(max(self.scores))] if self.scores else self.earlier[0]

    def _score(self, path: Path) -> float:
        images = self.images.part(0, self.count)
        features = extract_features(lambda x: self.model.features(x, path), images, self.batch_size, self.count_images)
        with counted_as(lambda: 0):  # a score is no network
            return SCORES[self.options.relation](*features)

    def _fit_head(self, path: Path) -> None:
        model, size, trained = self.model, self.batch_size, self.model.new_units(self.task)
        model.set_path(self.task, path)
        model.eval()
        features: Forward = lambda x: model.features(x, path)  # noqa: E731
        recalibrate(trained, features, self.images, self.options.images, size, self.count_images)
        found = extract_features(features, self.images, size, self.count_images)
        with counted_as(lambda: 0):  # less than a hundredth of what training takes
            fit_head(cast(nn.Linear, trained[-1]), *found)

    def _inherit(self, layer: int, index: int) -> None:
        """Copy the unit's weights to the new one, if they are of one shape."""
        new, old = (self.model.unit(layer, place) for place in (-1, index))
        given, there = old.state_dict(), new.state_dict()
        if {name: it.shape for name, it in given.items()} == {name: it.shape for name, it in there.items()}:
            new.load_state_dict(given)


def _halves(accuracy: Callable[[Tensor, Tensor, Tensor, Tensor], float]) -> Score:
    """A classifier's accuracy as a score: it is fitted on the first half and measured on the second."""

    def score(features: Tensor, labels: Tensor) -> float:
        half = len(labels) // 2
        return accuracy(features[:half], labels[:half], features[half:], labels[half:])

    return score


#: Scores of features ``[N, F]`` with labels ``[N]``; higher is better.
SCORES: Final[Mapping[str, Score]] = {
    "ridge": _halves(ridge_accuracy),
    "knn": _halves(knn_accuracy),
    "h_score": h_score,
    "log_evidence": log_evidence,
}
