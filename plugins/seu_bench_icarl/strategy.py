"""iCaRL as an Avalanche strategy: what was known is asked first, then training with exemplars, then their choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from seu_bench.data import BatchLoader, StreamPlan
from seu_bench.errors import RequestError
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
from seu_bench_icarl.teaching import TaughtLoader, TeachingStage, distillation_loss, with_exemplars

#: Shares of a task's epochs after which the learning rate is divided (49 and 63 of 70), and by what.
MILESTONES, DIVISOR = (0.7, 0.9), 5


class Icarl(StagedStrategy):
    """Incremental classifier and representation learning (Rebuffi et al., CVPR 2017).

    Args:
        options: memory, mirror images, steps of the learning rate.
        plan: of the stream.
        more: arguments of :class:`~seu_bench.training.strategy.StagedStrategy`.

    Attributes:
        exemplars: images ``[m, C, H, W]`` of each class seen, as the network gets them, the most important first.
        taught: while a task is learned the targets ``[N, classes before]`` of its images and of the exemplars behind
            them; ``None`` in the first task and between two tasks.
    """

    model: ExemplarModel

    def __init__(self, *, options: IcarlOptions, plan: StreamPlan, **more: Any) -> None:
        super().__init__(**more)
        self.options = options
        self.plan = plan
        self.exemplars: list[Tensor] = []
        self.taught: Tensor | None = None

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """What the network says of earlier classes, training, and the choice of exemplars."""
        teaching = [Phase(lambda: self._teaching(task), self._be_taught)] if self.exemplars else []
        return [
            *teaching,
            Phase(lambda: self.training_stage(task)),
            Phase(lambda: self._choosing(task), self._remember),
        ]

    def training_stage(self, task: TaskData) -> TrainingStage:
        """Training on the task's images and the exemplars."""
        return RehearsingStage(self, task)

    def criterion(self) -> Tensor:
        """In training the distillation loss; in evaluation cross-entropy."""
        if not self.is_training:
            return super().criterion()
        taught = None if self.taught is None else self.mbatch[2]
        return distillation_loss(self.mb_output.float(), self.mb_y, taught)

    def get_extra_state(self) -> dict[str, Any]:
        """The exemplars, and what is taught."""
        return {"exemplars": list(self.exemplars), "taught": self.taught}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.exemplars = [images.to(self.device) for images in state["exemplars"]]
        self.taught = None if state["taught"] is None else state["taught"].to(self.device)

    def kept(self) -> Mapping[str, Any]:
        """The model and the exemplars."""
        sizes = iter([len(images) for images in self.exemplars])
        counts = [sum(next(sizes, 0) for _ in range(classes)) for classes in self.plan.classes_per_task]
        return {
            "parameters": list(self.model.parameters()),
            "buffers": self.model,
            "exemplars": [KeptImages(count, self.plan.stored_shape(task)) for task, count in enumerate(counts)],
        }

    def _teaching(self, task: TaskData) -> TeachingStage:
        return TeachingStage(
            self.model,
            with_exemplars(task.train, self.exemplars),
            classes=len(self.exemplars),
            task_classes=task.train.labels.unique(),
            batch_size=self.eval_mb_size,
            seed=self.seed_for("teaching", task.index),
            device=self.device,
        )

    def _be_taught(self, targets: Tensor) -> None:
        self.taught = targets

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
        self.taught = None
        self.model.answer_by(means)


class RehearsingStage(TrainingStage):
    """Training on new images and exemplars alike; the last weights are kept, and nothing is validated."""

    strategy: Icarl

    def __init__(self, strategy: Icarl, task: TaskData) -> None:
        super().__init__(strategy, task)
        images, batch = with_exemplars(task.train, strategy.exemplars), strategy.train_mb_size
        if strategy.taught is None:
            strategy.dataloader = BatchLoader(images, batch, shuffle=True)
        else:
            strategy.dataloader = TaughtLoader(images, batch, strategy.taught)

    def run_epoch(self) -> EpochReport:
        """One epoch, at the rate of its step."""
        if not self.strategy.options.rate_steps:
            return super().run_epoch()
        # With room for the rounding of products.
        steps = sum(self.epoch >= share * self.epochs - 1e-6 for share in MILESTONES)
        set_rate(self.strategy.optimizer, self.schedule.learning_rate / DIVISOR**steps)
        self.strategy.training_mode()
        return self.train_epoch()


def exemplar_model(context: StrategyContext) -> ExemplarModel:
    """The network of a run, its weights drawn from the run's seed.

    Raises:
        RequestError: there are more classes than exemplars, or the backbone does not fit the stream's images.
    """
    memory, classes = checked_options(context, IcarlOptions).memory, sum(context.plan.classes_per_task)
    if memory < classes:
        raise RequestError(
            f"{classes} classes have no exemplar each in a memory of {memory}",
            where=f"-o memory={memory}",
            remedy=f"give {classes} at least; a class without exemplars is never the answer",
        )
    with RandomState(derive_seed(context.seed, "model")).active():
        return ExemplarModel(*build_backbone(context), context.plan.classes_per_task)


def build_icarl(context: StrategyContext) -> Icarl:
    """The strategy of a run."""
    options = checked_options(context, IcarlOptions)
    return Icarl.of(context, model=exemplar_model(context), options=options, plan=context.plan)
