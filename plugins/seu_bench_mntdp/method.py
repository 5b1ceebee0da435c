"""MNTDP: modular networks with task-driven priors (Veniat et al., ICLR 2021, arXiv:2012.12631)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar, Final, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from seu_bench import Method
from seu_bench.config import SelectingOptions, TaskInferenceOptions
from seu_bench.config.protocol import OptimizerName
from seu_bench.data import TaskPlan
from seu_bench.data.avalanche import BatchLoader
from seu_bench.models import count_parameters, counted_as, state_bytes
from seu_bench.models.multihead import out_of_turn
from seu_bench.training import (
    Cost,
    EpochReport,
    Phase,
    Stage,
    StageCost,
    StrategyContext,
    TaskData,
    TrainingStage,
    epoch_rate,
    evaluate,
    evaluation_passes,
    on_meta,
    set_rate,
    width_factor,
)
from seu_bench_kit import extract_features, knn_accuracy
from seu_bench_kit.costing import task_macs
from seu_bench_mntdp.network import Choices, ModularResNet, Path

#: Channels of every module but the head (published code).
CHANNELS: Final = 64


class Mntdp(Method):
    """MNTDP: modules reused as the path of the most related task suggests (Veniat et al. 2021).

    Modules of earlier tasks never change, so nothing is forgotten. The first task trains a whole network. For each
    later one a prior names the related task. Each candidate "the first p modules of the related path, new ones behind
    them" is trained, from p = 0 to all, the head included where it has as many classes; the most accurate one on
    validation images is kept, of equals that which reuses more (MNTDP-D; the stochastic variant is not here).

    Where there are no validation images, the second half of the training images stands in their place from the second
    task on.
    """

    name = "mntdp"
    title = "MNTDP"
    citation = "seu_bench_kit:veniat2021efficient"
    scenarios = ("task",)

    class Options(SelectingOptions, TaskInferenceOptions):
        """Options of MNTDP; ``epochs`` is how long each candidate is trained."""

        removed: ClassVar[Mapping[str, Any]] = {"variant": "d", "new_module_cost": 0.01, "path_learning_rate": 0.05}

        k: PositiveInt = Field(15, description="neighbours that vote in the prior (published code; 5 on S_long)")
        prior_images: PositiveInt = Field(1000, description="training images, at most, that the neighbours are among")
        split_last: bool = Field(
            False, description="whether the last group is two modules (published on S_in and S_long)"
        )
        optimizer: OptimizerName = Field("sgd", description="of the modules; adam is published")
        patience: PositiveInt | None = Field(
            None,
            description="steps without a lower validation loss after which a candidate's training ends, with its epoch "
            "(published: 300); none: it has all epochs",
        )
        width: PositiveFloat | None = Field(None, description="factor of the modules' 64 channels")
        backbone: Literal["resnet18_even"] = Field(
            "resnet18_even",
            description="network that the modules are parts of; runs of it are what transfer is counted from",
        )

    options: Options
    model: ModularResNet

    @classmethod
    def make_model(cls, context: StrategyContext) -> ModularResNet:
        """A network without modules."""
        plan, channels = context.plan, max(1, round(width_factor(context) * CHANNELS))
        split_last, shares_heads = context.options.split_last, plan.scenario != "class"
        return ModularResNet(
            plan.channels, channels, plan.classes_per_task, split_last=split_last, shares_heads=shares_heads
        )

    def setup(self) -> None:
        """Begin with nothing; all of it belongs to the task that is being learned."""
        #: The related task, -1 before it is known, and accuracies of the candidates so far.
        self.related = -1
        self.accuracies: tuple[float, ...] = ()

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """One training for the first task; then the prior, and the candidates."""
        if task.index != self.model.task:
            raise out_of_turn(task.index, self.model.task)
        if task.index == 0:
            return [Phase(lambda: self._first_training(task), lambda _: self._keep(0.0, adopt=True))]
        data, last = with_validation(task), self.model.places
        return [
            Phase(lambda: PriorStage(self, data), lambda task: setattr(self, "related", task)),
            *(
                Phase(partial(self._candidate, data, reused), partial(self._keep, adopt=reused == last))
                for reused in range(last + 1)
            ),
        ]

    def describe(self) -> dict[str, Any]:
        """The module of each place that each task uses, and the task that each module was made for."""
        return {"paths": tuple(self.model.paths), "unit_tasks": tuple(map(tuple, self.model.unit_tasks))}

    # ------------------------------------------------------------------ stages and what follows from them

    def _first_training(self, task: TaskData) -> CandidateStage:
        self._try((None,) * self.model.places, "modules", task)
        return CandidateStage(self, task, "training")

    def _candidate(self, data: TaskData, reused: int) -> Stage[Any]:
        """The candidate that reuses so many modules of the related path."""
        name, path = f"prefix {reused}", self.model.paths[self.related]
        if reused < self.model.places:
            self._try((*path[:reused], *(None,) * (self.model.places - reused)), name, data)
            if isinstance(self.dataloader, BatchLoader) and len(self.dataloader.images) != len(data.train):
                # The other half is withheld.
                self.dataloader = BatchLoader(data.train, self.train_mb_size, shuffle=True)
            return CandidateStage(self, data, name)
        if self.model.can_reuse_head(self.model.unit_tasks[-1][path[-1]]):
            self.model.try_path(path, self.device)
        return ReusedStage(self, data, name)

    def _keep(self, accuracy: float | None, *, adopt: bool) -> None:
        """Keep the candidate that was tried if none was better so far; with ``adopt`` the task is over."""
        if accuracy is not None:
            if accuracy >= max(self.accuracies, default=0.0) and self.model.tried is not None:
                self.model.hold()
            self.accuracies = (*self.accuracies, accuracy)
        self.model.tried = None
        if adopt:
            self.model.adopt()
            self.setup()

    def _try(self, choices: Choices, purpose: str, data: TaskData) -> None:
        with self.drawing(f"modules of {purpose}", data):
            self.model.try_path(choices, self.device)

    # ------------------------------------------------------------------ cost

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """Image passes of candidates are exact; how many modules stay, and how many bodies the prior asks, are bounds.

        At most every task makes all of its modules; at least a head alone, or nothing where a head of as many classes
        is there.
        """
        plan, options = context.plan, context.options
        classes, tasks = plan.classes_per_task, range(len(plan.tasks))
        network = on_meta(lambda: cls.make_model(context))
        for _ in tasks:
            on_meta(network.add_new)
        macs = task_macs(network, plan)
        most = [network.task_module(task) for task in tasks]
        heads_fit = [network.shares_heads and width in classes[:task] for task, width in enumerate(classes)]
        least = [most[0], *(nn.ModuleList([] if heads_fit[task] else [network.head(task)]) for task in tasks[1:])]
        sizes = [
            tuple(accumulate(map(count, modules)))
            for count in (count_parameters, state_bytes)
            for modules in (most, least)
        ]
        schedule, stages = options.applied_to(context.protocol.training), list[StageCost]()
        for index, task in enumerate(plan.tasks):
            epochs = schedule.of_task(index).epochs
            train, valid = compared_images(task) if index else (task.num_train, task.num_valid)
            passes = epochs * train, valid * (epochs if options.restore == "best_valid" else 1)
            if index == 0:
                stages.append(StageCost("training", index, *passes))
                continue
            stages.append(StageCost("prior", index, 0, index * (min(options.prior_images, train) + valid)))
            stages += [StageCost(f"prefix {reused}", index, *passes) for reused in range(network.places)]
            stages.append(StageCost(f"prefix {network.places}", index, 0, valid * heads_fit[index]))
        return Cost(sizes[0], sizes[1], macs, macs, (*stages, *evaluation_passes(plan)), sizes[2], sizes[3])


def with_validation(task: TaskData) -> TaskData:
    """A task's images with some to compare candidates by: its validation images, or the second half of the others."""
    if task.valid is not None and len(task.valid):
        return task
    first, second = task.train.halves()
    # Of a single image there are no halves.
    return replace(task, train=first, valid=second) if len(first) else replace(task, valid=task.train)


def compared_images(task: TaskPlan) -> tuple[int, int]:
    """Numbers of images that :func:`with_validation` gives."""
    if task.num_valid:
        return task.num_train, task.num_valid
    return max(1, task.num_train // 2), max(1, task.num_train - task.num_train // 2)


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

    def __init__(self, method: Mntdp, data: TaskData) -> None:
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
        tasks, model, size = self.bodies[self.epoch], self.method.model, self.method.eval_mb_size
        model.eval()
        fitted, scored = (
            extract_features(lambda x: model.features(x, tasks[0]), images, size, self.count_images)
            for images in (self.fitted, self.scored)
        )
        with counted_as(lambda: 0):  # neighbours are no network
            accuracy = knn_accuracy(*fitted, *scored, k=self.method.options.k)
        self.scores = self.scores | {task: (accuracy, self._head_accuracy(task, *scored)) for task in tasks}
        return EpochReport(accuracy=accuracy)

    def result(self) -> int:
        """The related task."""
        return max(self.scores, key=lambda task: (self.scores[task], task))

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

    def __init__(self, method: Mntdp, data: TaskData, name: str) -> None:
        super().__init__(method, data, name)
        self.method = method
        #: Steps since the lowest validation loss, and the accuracy of the weights that would be kept.
        self.waited = 0
        self.accuracy = 0.0

    def run_epoch(self) -> EpochReport:
        """One epoch of training and one pass over the validation images, after which no patience may be left."""
        set_rate(self.method.optimizer, epoch_rate(self.schedule, self.epoch, self.method.lr_schedule))
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

    def __init__(self, method: Mntdp, data: TaskData, name: str) -> None:
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


def measure(stage: Stage[Any], method: Mntdp, data: TaskData) -> tuple[float, float]:
    """Accuracy in [0, 1] and loss of a task as it is computed now, on its validation images."""
    images = data.train if data.valid is None else data.valid
    method.model.eval()
    forward = partial(method.model.forward_single_task, task_label=data.index)
    return evaluate(forward, images, method.eval_mb_size, stage.count_images)
