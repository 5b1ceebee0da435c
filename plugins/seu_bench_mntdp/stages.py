"""The stages of a task: the prior, the training of a candidate, the measurement of one without new modules, and the
search of variant s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.data import TaskImages
from seu_bench.models import RepeatedBatches, counted_as
from seu_bench.training import (
    EpochReport,
    Stage,
    TaskData,
    TrainingStage,
    clip_gradients,
    cosine_rate,
    evaluate,
    set_rate,
)
from seu_bench_kit import knn_accuracy
from seu_bench_mntdp.network import Choices, Path


class PriorStage(Stage[int]):
    """Which learned task is related to the new one: that on whose features nearest neighbours separate the new task's
    classes best. They are fitted on training images and scored on validation images.

    An epoch measures one body, which is a path without its head. Of tasks whose neighbours are equally good, as all are
    that share a body, that one counts whose own head, as it is, answers best, and of these the latest.

    Args:
        method: that has learned a task or more.
        data: of the new task, with validation images.
    """

    state_attributes = ("scores",)

    def __init__(self, method: Any, data: TaskData) -> None:
        self.bodies = bodies(method.model.paths)
        seed = method.seed_for("prior", data.index)
        super().__init__("prior", data.index, len(self.bodies), seed, method.device)
        self.method = method
        # The first ones: a task's images are in random order.
        self.fitted = data.train.part(0, method.options.prior_images)
        self.scored = data.train if data.valid is None else data.valid
        #: By task the accuracies of neighbours and of its own head.
        self.scores: dict[int, tuple[float, float]] = {}

    def run_epoch(self) -> EpochReport:
        """Score all tasks of one body."""
        tasks = self.bodies[self.epoch]
        self.method.model.eval()
        fitted, scored = (self._features(images, tasks[0]) for images in (self.fitted, self.scored))
        with counted_as(lambda: 0):  # neighbours are no network
            accuracy = knn_accuracy(*fitted, *scored, k=self.method.options.k)
        self.scores = self.scores | {task: (accuracy, self._head_accuracy(task, *scored)) for task in tasks}
        return EpochReport(accuracy=accuracy)

    def result(self) -> int:
        """The related task."""
        return max(self.scores, key=lambda task: (self.scores[task], task))

    def _features(self, images: TaskImages, task: int) -> tuple[Tensor, Tensor]:
        rows, labels = [], []
        with torch.no_grad(), RepeatedBatches() as repeated:
            for x, y in images.batches(self.method.eval_mb_size, shuffle=False):
                repeated.begin()
                rows.append(self.method.model.features(x, task))
                repeated.end(len(y))
                labels.append(y)
                self.count_images(len(y))
        return torch.cat(rows), torch.cat(labels)

    def _head_accuracy(self, task: int, features: Tensor, labels: Tensor) -> float:
        if not self.method.model.can_reuse_head(task):
            return 0.0
        with torch.no_grad():
            answers = self.method.model.head(task)(features).argmax(dim=1)
        return float((answers == labels).double().mean())


def bodies(paths: Sequence[Path]) -> list[list[int]]:
    """Tasks by the body that they share, in the order in which the bodies were made."""
    found: dict[Path, list[int]] = {}
    for task, path in enumerate(paths):
        found.setdefault(path[:-1], []).append(task)
    return list(found.values())


class CandidateStage(TrainingStage):
    """Train the new modules of the candidate that is tried; the result is its accuracy on the validation images.

    With ``restore=best_valid`` the weights of the lowest validation loss are kept and it is their accuracy; otherwise
    the last ones. What epochs report is the loss in training and the accuracy on the validation images.

    Args:
        method: that learns.
        data: of the task.
        name: of the stage.
    """

    state_attributes = ("waited", "accuracy")

    def __init__(self, method: Any, data: TaskData, name: str) -> None:
        super().__init__(method, data, name)
        self.method = method
        #: Steps since the lowest validation loss, and the accuracy of the weights that would be kept.
        self.waited = 0
        self.accuracy = 0.0

    def run_epoch(self) -> EpochReport:
        """One epoch of training and one pass over the validation images, after which no patience may be left."""
        if self.method.lr_schedule == "cosine":
            set_rate(self.method.optimizer, cosine_rate(self.schedule, self.epoch))
        self.method.training_mode()
        report = self.train_epoch()
        selects, is_last = self.restores == "best_valid", self.epoch == self.epochs - 1
        if self.data.valid is None or not len(self.data.valid) or not (selects or is_last):
            return report
        accuracy, loss = measure(self, self.method, self.data)
        self.waited += self.method.batches_per_epoch
        if loss < self.best.loss or not selects:
            self.accuracy, self.waited = accuracy, 0
        if selects:
            self.best.offer(loss)
            patience = self.method.options.patience
            self.ended = patience is not None and self.waited >= patience
        return EpochReport(report.loss, accuracy)

    def result(self) -> float:
        """Accuracy in [0, 1] with the weights that are kept; 0 where there are no validation images."""
        super().result()
        return self.accuracy


class ReusedStage(Stage["float | None"]):
    """Measure a candidate in which nothing is new; the result is its accuracy on the validation images.

    Args:
        method: in whose model it is tried; where none is, because a head does not fit, the result is ``None``.
        data: of the task.
        name: of the stage.
    """

    def __init__(self, method: Any, data: TaskData, name: str) -> None:
        epochs = 0 if method.model.tried is None else 1
        super().__init__(name, data.index, epochs, method.seed_for(name, data.index), method.device)
        self.method = method
        self.data = data

    def run_epoch(self) -> EpochReport:
        """One pass over the validation images."""
        accuracy, loss = measure(self, self.method, self.data)
        return EpochReport(loss, accuracy)

    def result(self) -> float | None:
        """Accuracy in [0, 1]."""
        return self.report.accuracy


def measure(stage: Stage[Any], method: Any, data: TaskData) -> tuple[float, float]:
    """Accuracy in [0, 1] and loss of a task as it is computed now, on its validation images."""
    images = data.train if data.valid is None else data.valid
    method.model.eval()
    forward = partial(method.model.forward_single_task, task_label=data.index)
    return evaluate(forward, images, method.eval_mb_size, stage.count_images)


class PathPolicy:
    """Draws for each place, independently of the others, one of its options, and learns from rewards.

    The loss of a draw is ``-(reward - baseline) * sum over places of log p(its option)`` (R. J. Williams, "Simple
    Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning", Machine Learning 8, 1992);
    the baseline is the mean of the rewards before it, so that the first reward teaches nothing. Logits begin at 0.

    Args:
        options: number of options of each place, 1 or more.
        learning_rate: of Adam on the logits.
    """

    def __init__(self, options: Sequence[int], learning_rate: float) -> None:
        self.logits = [torch.zeros(count, requires_grad=True) for count in options]
        self.optimizer = torch.optim.Adam(self.logits, lr=learning_rate)
        self.rewards = 0
        self.baseline = 0.0

    def draw(self) -> list[int]:
        """One option of each place, by torch's global generator."""
        return [int(torch.multinomial(probabilities, 1)) for probabilities in self.probabilities]

    def learn(self, drawn: Sequence[int], reward: float) -> None:
        """A step by the reward of what was drawn."""
        advantage = reward - self.baseline if self.rewards else 0.0
        with torch.enable_grad(), torch.autocast("cpu", enabled=False):
            chosen = [torch.log_softmax(logits, 0)[at] for logits, at in zip(self.logits, drawn, strict=True)]
            loss = -advantage * torch.stack(chosen).sum()
            self.optimizer.zero_grad()
            loss.backward()
        self.optimizer.step()
        self.rewards += 1
        self.baseline += (reward - self.baseline) / self.rewards

    @property
    def probabilities(self) -> list[Tensor]:
        """Of the options of each place."""
        return [torch.softmax(logits.detach(), 0) for logits in self.logits]

    def most_probable(self) -> list[int]:
        """The most probable option of each place; of equal ones the first."""
        return [shares.index(max(shares)) for shares in (each.tolist() for each in self.probabilities)]

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        logits = [logits.detach().clone() for logits in self.logits]
        return {**vars(self), "logits": logits, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        with torch.no_grad():
            for logits, saved in zip(self.logits, state["logits"], strict=True):
                logits.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.rewards, self.baseline = state["rewards"], state["baseline"]


class PathSearch(Stage[Choices]):
    """Variant s: a path is drawn for each batch, trained on it, and its loss is the reward.

    At each place the options are the module of the related path and a new one; a head of another number of classes is
    no option. The reward of a batch is ``-cross-entropy - new_module_cost * new modules``, before the step of the new
    modules on the same batch. The result is the most probable path, of equals that which reuses.

    Args:
        method: that learns; the candidate that is tried has a new module at every place.
        data: of the task.
        related: path of the related task.
    """

    state_attributes = ("trained", "optimizer", "policy")

    def __init__(self, method: Any, data: TaskData, related: Path) -> None:
        self.schedule, self.model = method.schedule, method.model
        seed = method.seed_for("search", data.index)
        super().__init__("search", data.index, self.schedule.epochs, seed, method.device)
        self.method = method
        self.data = data
        self.choices: list[Choices] = [(number, None) for number in related]
        if not self.model.can_reuse_head(self.model.unit_tasks[-1][related[-1]]):
            self.choices[-1] = (None,)
        self.policy = PathPolicy([len(options) for options in self.choices], method.options.path_learning_rate)
        self.trained = self.model.trainable_module(data.index)
        method.begin_training(self.trained, self.schedule)
        self.optimizer = method.optimizer

    def run_epoch(self) -> EpochReport:
        """One epoch; each batch has a path of its own."""
        total, correct, cost = 0.0, 0, self.method.options.new_module_cost
        if self.method.lr_schedule == "cosine":
            set_rate(self.optimizer, cosine_rate(self.schedule, self.epoch))
        self.model.train()
        with RepeatedBatches() as repeated:
            for x, y in self.data.train.batches(self.schedule.batch_size, shuffle=True):
                drawn = self.policy.draw()
                path = self._path(drawn)
                self.model.choose(path)
                repeated.begin(path)
                logits = self.model.forward_single_task(x, self.task)
                loss = nn.functional.cross_entropy(logits, y)
                if loss.requires_grad:  # there is something new
                    self._step(loss)
                repeated.end(len(y))
                value = float(loss.detach())
                self.policy.learn(drawn, -value - cost * sum(choice is None for choice in path))
                total, correct = total + value * len(y), correct + int((logits.detach().argmax(dim=1) == y).sum())
                self.count_images(len(y))
        return EpochReport(total / len(self.data.train), correct / len(self.data.train))

    def result(self) -> Choices:
        """The most probable path."""
        return self._path(self.policy.most_probable())

    def _path(self, drawn: list[int]) -> Choices:
        return tuple(options[at] for options, at in zip(self.choices, drawn, strict=True))

    def _step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        if self.schedule.clip_norm is not None:
            clip_gradients(list(self.trained.parameters()), self.schedule.clip_norm)
        self.optimizer.step()
