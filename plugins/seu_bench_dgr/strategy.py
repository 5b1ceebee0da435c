"""Deep generative replay as an Avalanche strategy: solver first, on the old generator's images; then the generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench.training import Phase, StagedStrategy, StrategyContext, TaskData, TrainingStage, checked_options
from seu_bench_dgr import DgrOptions
from seu_bench_dgr.model import Scholar, make_scholar
from seu_bench_dgr.replay import OldScholar, share_of_task
from seu_bench_dgr.stages import GeneratorStage, SolverStage


class Dgr(StagedStrategy):
    """Deep generative replay (Shin et al. 2017, section 3).

    In the task that is the t-th to be learned, 1-based, the loss of a batch is ``r L + (1 - r) L'`` with ``r = 1 / t``:
    ``L`` is the cross-entropy of the task's images, ``L'`` that of images made by the generator, labelled by the
    solver, both as the task found them. The generator then learns from both kinds of images with the same weights.

    Args:
        dgr: the strategy's options.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`; the model is a
            :class:`~seu_bench_dgr.model.Scholar`.
    """

    model: Scholar

    def __init__(self, *, dgr: DgrOptions, **options: Any) -> None:
        super().__init__(**options)
        self.dgr = dgr
        #: What replays in the training that runs; ``None`` in the first task.
        self.old: OldScholar | None = None

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """The solver, while the generator is still the old one; then the generator."""
        return [
            Phase(lambda: self.training_stage(task), lambda _: self._forget_the_old()),
            Phase(lambda: GeneratorStage(self, task, self.model.generator, self.dgr)),
        ]

    def training_stage(self, task: TaskData) -> TrainingStage:
        """The usual training, beside which the old scholar replays."""
        self.old = OldScholar(self.model, task.index, self.dgr.targets) if task.index else None
        return SolverStage(self, task, self.old)

    def criterion(self) -> Tensor:
        """The batch's loss; in training, from the second task on, weighted with that of as many replayed images."""
        loss = super().criterion()
        if not self.is_training or self.old is None:
            return loss
        share = share_of_task(self.old.task)
        return share * loss + (1 - share) * self.replayed_loss(self.old, self.dgr.replayed_beside(len(self.mb_y)))

    def replayed_loss(self, old: OldScholar, count: int) -> Tensor:
        """Mean cross-entropy of ``count`` images of the old scholar."""
        images, targets = old.replay(count)
        # Each is made by the generator, labelled by the old solver, and trained on.
        self.passed(3 * count)
        logits = self.model.forward_single_task(images, old.task)
        return cross_entropy(logits, old.widened(targets, logits.shape[1]))

    def _forget_the_old(self) -> None:
        self.old = None


def build_dgr(context: StrategyContext) -> Dgr:
    """The strategy of a run.

    Raises:
        RequestError: the backbone does not fit the stream's images.
    """
    return Dgr.of(context, model=make_scholar(context), dgr=checked_options(context, DgrOptions))
