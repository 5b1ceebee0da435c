"""iCaRL as an Avalanche strategy: training with exemplars and a teacher, then a stage that chooses exemplars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from seu_bench.data import BatchLoader, StreamPlan, TaskImages
from seu_bench.training import (
    EpochReport,
    KeptImages,
    Phase,
    StagedStrategy,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    checked_options,
    set_rate,
)
from seu_bench.utils import RandomState, derive_seed
from seu_bench_icarl import IcarlOptions
from seu_bench_icarl.exemplars import ExemplarStage
from seu_bench_icarl.model import ExemplarModel

#: Shares of a task's epochs after which the learning rate is divided (49 and 63 of 70), and by what.
MILESTONES, DIVISOR = (0.7, 0.9), 5


def distillation_loss(logits: Tensor, labels: Tensor, old: Tensor | None) -> Tensor:
    """Binary cross-entropy of each class seen, summed over classes, mean over images (paper, algorithm 3).

    Args:
        logits: ``[N, classes seen]``.
        labels: ``[N]``.
        old: logits ``[N, classes before]`` of the network as it was before the task, whose sigmoids are the targets of
            earlier classes, for images of all classes; ``None``: there are none.

    Returns:
        A scalar.
    """
    targets = one_hot(labels, logits.shape[1]).to(logits.dtype)
    if old is not None:
        targets[:, : old.shape[1]] = old.sigmoid()
    return binary_cross_entropy_with_logits(logits, targets, reduction="sum") / len(labels)


class Icarl(StagedStrategy):
    """Incremental classifier and representation learning (Rebuffi et al., CVPR 2017).

    Args:
        options: memory, mirror images, steps of the learning rate.
        plan: of the stream.
        more: arguments of :class:`~seu_bench.training.strategy.StagedStrategy`.

    Attributes:
        exemplars: images ``[m, C, H, W]`` of each class seen, as the network gets them, the most important first.
    """

    model: ExemplarModel

    def __init__(self, *, options: IcarlOptions, plan: StreamPlan, **more: Any) -> None:
        super().__init__(**more)
        self.options = options
        self.plan = plan
        self.exemplars: list[Tensor] = []
        self.teacher: ExemplarModel | None = None

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training, then the choice of exemplars."""
        return [Phase(lambda: self.training_stage(task)), Phase(lambda: self._choosing(task), self._remember)]

    def training_stage(self, task: TaskData) -> TrainingStage:
        """Training on the task's images and the exemplars."""
        return RehearsingStage(self, task)

    def criterion(self) -> Tensor:
        """In training the distillation loss; in evaluation cross-entropy."""
        if not self.is_training:
            return super().criterion()
        old: Tensor | None = None
        if self.teacher is not None:
            self.passed(len(self.mb_x))
            with torch.no_grad():
                old = self.teacher.network_logits(self.mb_x)
        return distillation_loss(self.mb_output, self.mb_y, old)

    def get_extra_state(self) -> dict[str, Any]:
        """The exemplars."""
        return {"exemplars": list(self.exemplars)}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.exemplars = [images.to(self.device) for images in state["exemplars"]]

    def kept(self) -> Mapping[str, Any]:
        """The model and the exemplars. The next task's teacher is the model."""
        sizes = iter([len(images) for images in self.exemplars])
        counts = [sum(next(sizes, 0) for _ in range(classes)) for classes in self.plan.classes_per_task]
        return {
            "parameters": list(self.model.parameters()),
            "buffers": self.model,
            "exemplars": [KeptImages(count, self.plan.stored_shape(task)) for task, count in enumerate(counts)],
        }

    def _choosing(self, task: TaskData) -> ExemplarStage:
        return ExemplarStage(
            self.model,
            task.train,
            self.exemplars,
            classes=sum(self.plan.classes_per_task[: task.index + 1]),
            memory=self.options.memory,
            mirror=self.options.mirror,
            batch_size=self.eval_mb_size,
            seed=self.seed_for("exemplars", task.index),
            device=self.device,
        )

    def _remember(self, result: tuple[list[Tensor], Tensor]) -> None:
        self.exemplars, means = result
        self.model.answer_by(means)


class RehearsingStage(TrainingStage):
    """Training on new images and exemplars alike, towards what the network as it was says of earlier classes."""

    strategy: Icarl

    def __init__(self, strategy: Icarl, task: TaskData) -> None:
        super().__init__(strategy, task)
        strategy.teacher = None
        if strategy.exemplars:
            strategy.teacher = deepcopy(strategy.model).eval()
            strategy.teacher.begin_task(task.index - 1)
        together = with_exemplars(task.train, strategy.exemplars)
        strategy.dataloader = BatchLoader(together, strategy.train_mb_size, shuffle=True)

    def run_epoch(self) -> EpochReport:
        """One epoch, at the rate of its step. The last weights are kept: nothing is validated."""
        if not self.strategy.options.rate_steps:
            return super().run_epoch()
        steps = sum(self.epoch >= share * self.epochs for share in MILESTONES)
        set_rate(self.strategy.optimizer, self.schedule.learning_rate / DIVISOR**steps)
        self.strategy.training_mode()
        return self.train_epoch()

    def get_extra_state(self) -> dict[str, Any]:
        """What the base holds, and the teacher, whose weights the model has left."""
        teacher = self.strategy.teacher
        return {**super().get_extra_state(), "teacher": None if teacher is None else teacher.state_dict()}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        super().set_extra_state(state)
        if self.strategy.teacher is not None:
            self.strategy.teacher.load_state_dict(state["teacher"])

    def result(self) -> None:
        """Let go of the teacher."""
        super().result()
        self.strategy.teacher = None


def with_exemplars(images: TaskImages, exemplars: Sequence[Tensor]) -> TaskImages:
    """The images of a task and exemplars of each earlier class, as one split."""
    if not exemplars:
        return images
    store, labels = images.gather(torch.arange(len(images)))
    earlier = torch.repeat_interleave(torch.tensor([len(part) for part in exemplars]))
    together = torch.cat([store, *exemplars])
    rows = torch.arange(len(together), device=store.device)
    all_labels = torch.cat([labels, earlier.to(labels)])
    return TaskImages(together, rows, all_labels, images.task, together.shape[1], hides_task=images.hides_task)


def exemplar_model(context: StrategyContext) -> ExemplarModel:
    """The network of a run, its weights drawn from the run's seed."""
    with RandomState(derive_seed(context.seed, "model")).active():
        return ExemplarModel(*build_backbone(context), context.plan.classes_per_task)


def build_icarl(context: StrategyContext) -> Icarl:
    """The strategy of a run."""
    options = checked_options(context, IcarlOptions)
    return Icarl.of(context, model=exemplar_model(context), options=options, plan=context.plan)
