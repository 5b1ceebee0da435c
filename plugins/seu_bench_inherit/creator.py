"""The creator that inherits: which earlier task is related, and new units that begin as copies of its."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import torch
from torch import Tensor

from seu_bench.models import counted_as
from seu_bench.training import EpochReport, Stage
from seu_bench_inherit import InheritOptions, passes
from seu_bench_kit import CreationTask, h_score, knn_accuracy, log_evidence, path_features, ridge_accuracy

#: A unit of each layer, by creation order.
Path: TypeAlias = tuple[int, ...]


class InheritCreation(Stage[Path]):
    """The creation of one task's path.

    1. *Relation.* Of each different earlier path the features of some of this task's training images are computed, and
       scored without training: how well do they separate this task's classes? The path of the best score is the
       *related* one; of equal ones the latest. With one earlier path nothing is computed.
    2. *Inheritance.* The task takes the new unit in every layer, and each begins with the weights and statistics of the
       related path's unit there, where both are of one genotype; others begin as they were initialised. The first
       ``shared`` layers are reused as they are.

    Why it should beat the MDL creator at a fraction of its cost:

    - What a creation trains to find out is which units suit the task as they stand. Units that were frozen after
      another task rarely do: reuse saves parameters and costs accuracy, at every depth (docs/explanation/seu.md).
      Copies that go on training cost parameters and lose nothing, and where tasks are related they begin closer to the
      end than new weights. Parameters are saved where they are not missed, in the units' width (``-o width=0.5``).
    - Nothing trains: two halves of :attr:`InheritOptions.images` per earlier path are passed forward once, a tenth of a
      creation's passes at most.

    A copy is made when the creation ends; earlier units are read and never changed, so that nothing is forgotten.
    Source of the scores: :mod:`seu_bench_kit.transferability`; of warm starts between the tasks of a growing
    network as a baseline: "fine-tuning" in Z. Li & D. Hoiem, "Learning without Forgetting", ECCV 2016.

    Args:
        options: what is scored and copied.
        task: the super model with its new units, and the task's training images.

    Example:
        ``path = InheritCreation(InheritOptions(), task).run()``
    """

    state_attributes = ("scores",)

    def __init__(self, options: InheritOptions, task: CreationTask) -> None:
        super().__init__("creation", task.task, 1, task.seed, task.device)
        self.options = options
        self.model = task.model
        self.images = task.images
        self.batch_size = task.schedule.batch_size
        earlier = sorted((learned for learned in self.model.paths if learned != task.task), reverse=True)
        #: Different paths, the latest first.
        self.earlier: list[Path] = list(dict.fromkeys(self.model.paths[learned] for learned in earlier))
        budget = passes(task.schedule, len(task.images)) // len(self.earlier)
        self.count = min(budget, options.images, len(task.images))
        self.scores: list[float] = []

    def run_epoch(self) -> EpochReport:
        """Score each earlier path, where there is a choice and enough images to fit and to check."""
        if len(self.earlier) == 1 or self.count < 2 or self.options.relation == "latest":
            return EpochReport()
        self.model.eval()
        images = self.images.part(0, self.count)
        for path in self.earlier:
            features, labels = path_features(self.model, path, images, self.batch_size, self.count_images)
            with counted_as(lambda: 0):  # a score is no network
                self.scores.append(SCORES[self.options.relation](features, labels))
        return EpochReport()

    def result(self) -> Path:
        """The newest unit of every layer but the shared ones, with the weights that it inherits."""
        related = self.related
        path = list(related[: self.options.shared])
        for layer in range(len(path), len(related)):
            path.append(self.model.candidates[layer] - 1)
            if self.model.has_new[layer] and self.options.copies:
                self._inherit(layer, related[layer])
        return tuple(path)

    @property
    def related(self) -> Path:
        """The earlier path of the best score, the latest of equal ones."""
        return self.earlier[self.scores.index(max(self.scores))] if self.scores else self.earlier[0]

    def _inherit(self, layer: int, index: int) -> None:
        """Copy the unit's weights to the new one, if they are of one shape."""
        new, old = (self.model.unit(layer, place) for place in (-1, index))
        given = old.state_dict()
        if _shapes(given) == _shapes(new.state_dict()):
            new.load_state_dict(given)


def _shapes(state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in state.items()}


def _halves(accuracy: Callable[[Tensor, Tensor, Tensor, Tensor], float]) -> Callable[[Tensor, Tensor], float]:
    """A classifier's accuracy as a score: it is fitted on the first half and measured on the second."""

    def score(features: Tensor, labels: Tensor) -> float:
        half = len(labels) // 2
        return accuracy(features[:half], labels[:half], features[half:], labels[half:])

    return score


#: Scores of features ``[N, F]`` with labels ``[N]``; higher is better.
SCORES: Final[Mapping[str, Callable[[Tensor, Tensor], float]]] = {
    "ridge": _halves(ridge_accuracy),
    "knn": _halves(knn_accuracy),
    "h_score": h_score,
    "log_evidence": log_evidence,
}
