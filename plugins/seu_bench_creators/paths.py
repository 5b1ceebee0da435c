"""Paths through a super model, as creators compare them; and the creation that takes all new units."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from seu_bench.config import CreationSchedule, ScoringOptions
from seu_bench.models import counted_as
from seu_bench.training import EpochlessStage, Stage, evaluate, make_optimizer
from seu_bench_creators import AllNewOptions
from seu_bench_kit import CreationTask, GrowingModel, extract_features, recalibrate, recalibration_passes

Path: TypeAlias = tuple[int, ...]


def earlier_paths(model: GrowingModel, task: int) -> list[Path]:
    """The different paths of the tasks learned before ``task``, the latest first."""
    tasks = sorted((earlier for earlier in model.paths if earlier != task), reverse=True)
    return list(dict.fromkeys(model.paths[earlier] for earlier in tasks))


def newest_path(model: GrowingModel) -> Path:
    """The last candidate of each layer: the new unit; where all tasks share a stem, the shared one."""
    return tuple(count - 1 for count in model.candidates)


def prefixes(old: Path, new: Path) -> list[Path]:
    """The different paths that begin as an old one does and go on with new units, from all new to all old."""
    return list(dict.fromkeys(old[:length] + new[length:] for length in range(len(new) + 1)))


class AllNewCreation(EpochlessStage[Path]):
    """Take the new unit of each layer, without any trial or training."""

    def __init__(self, options: AllNewOptions, task: CreationTask) -> None:
        super().__init__("creation", task.task, task.seed, task.device)
        self.model = task.model

    def result(self) -> Path:
        """The newest unit of each layer."""
        return newest_path(self.model)


class PrefixCreation(Stage[Path]):
    """Base of creations that compare prefixes of one earlier path, new units behind them, which train by turns.

    Half of the images that the MDL creator would score in as many epochs are there for the choice of the earlier path,
    half for the comparison, at most. Before a prefix is measured BatchNorm's statistics are estimated anew.

    Args:
        options: of the creator.
        task: model and images.
        schedule: of the training of a prefix.
        budget: epochs of all prefixes together.
        epochs: of the stage.
    """

    def __init__(
        self, options: ScoringOptions, task: CreationTask, schedule: CreationSchedule, budget: int, epochs: int
    ) -> None:
        super().__init__("creation", task.task, epochs, task.seed, task.device)
        self.schedule, self.budget = schedule, budget
        self.recalibration_images = options.recalibration_images
        self.model = task.model
        self.train_images, self.score_images = task.images.halves()
        #: Half of the images that MDL would score.
        self.half = budget * len(self.score_images) // 2
        self.trained = self.model.new_units(task.task)
        self.parameters = list(self.trained.parameters())
        self.optimizer = make_optimizer(self.parameters, schedule)
        self.earlier = earlier_paths(self.model, task.task)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the task on the path that is set."""
        return self.model.forward_single_task(x, self.task)

    @abstractmethod
    def score(self, features: Tensor, labels: Tensor, queries: Tensor, query_labels: Tensor) -> float:
        """How well an earlier path's features separate the classes: fitted on the first, measured on the others."""

    def probe(self, path: Path, count: int) -> float:
        """Score a path on so many images of either half."""
        self.model.eval()
        features: Callable[[Tensor], Tensor] = lambda x: self.model.features(x, path)  # noqa: E731
        fit, check = (
            extract_features(features, images.part(0, count), self.schedule.batch_size, self.count_images)
            for images in (self.train_images, self.score_images)
        )
        with counted_as(lambda: 0):  # it is no network
            return self.score(*fit, *check)

    def best_earlier(self, limit: int) -> Path:
        """The earlier path of the best score on ``limit`` images at most; of equal ones the latest."""
        share = self.half // len(self.earlier) // 2
        count = min(share, limit // 2, len(self.train_images), len(self.score_images))
        if len(self.earlier) == 1 or count < 1:
            return self.earlier[0]
        scores = [self.probe(path, count) for path in self.earlier]
        return self.earlier[scores.index(max(scores))]

    def measure(self, count: int, shares: int) -> float:
        """Accuracy of the path that is set on so many images, one of ``shares`` paths that are measured."""
        size, limit = self.schedule.batch_size, self.recalibration_images
        limit = min(limit, self.budget * recalibration_passes(limit, len(self.train_images), size) // shares)
        self.model.eval()
        recalibrate(self.trained, self.forward, self.train_images, limit, size, self.count_images)
        images = self.score_images.part(0, count)
        accuracy, _ = evaluate(self.forward, images, size, self.count_images)
        self.note_reward(accuracy, images)
        return accuracy
