"""RWalk (A. Chaudhry et al., "Riemannian Walk for Incremental Learning", ECCV 2018), without its replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench.config import LEARNING_RATES, TuningGrid
from seu_bench.data import batch_bounds
from seu_bench.training import TaskData
from seu_bench_methods.anchored import Anchored, PenaltyOptions


class Rwalk(Anchored):
    """Riemannian walk's penalty, without its replay (Chaudhry et al. 2018).

    The loss of a batch is ``cross-entropy + ewc_lambda * sum_i (F_i + s_i) (theta_i - theta*_i)^2``, both divided by
    their largest. ``F``, the Fisher information, moves with every batch: ``F <- ewc_alpha g^2 + (1 - ewc_alpha) F``
    (equation 6). The score ``s`` adds up, every ``delta_t`` batches, how much a weight's steps lowered the loss by how
    far that took it, ``F/2`` times its squared way (equations 7 and 8), and is halved with each task. Gradients are
    those of the cross-entropy without dropout, for which each batch passes once more.
    """

    name = "rwalk"
    title = "RWalk"
    citation = "seu_bench_kit:chaudhry2018riemannian"

    class Options(PenaltyOptions):
        """Options of Riemannian walk."""

        strength = "ewc_lambda"
        tuning_grid: ClassVar[TuningGrid] = {"ewc_lambda": (0.1, 1.0, 10.0), "learning_rate": LEARNING_RATES}

        ewc_lambda: NonNegativeFloat = Field(0.1, description="weight of the penalty")
        ewc_alpha: Annotated[float, Field(ge=0, le=1)] = Field(
            0.9, description="share of the newest batch in the Fisher"
        )
        delta_t: PositiveInt = Field(10, description="batches between two updates of the scores")

    options: Options

    def setup(self) -> None:
        """Begin with nothing that matters."""
        self.anchor: dict[str, Tensor] = {}
        self.fisher: dict[str, Tensor] = {}
        self.scores: dict[str, Tensor] = {}
        self.penalties: dict[str, Tensor] = {}
        # Within a task: its scores; since the last update of those the gain of each weight, and where it was.
        self.walk: dict[str, dict[str, Tensor]] = {}

    @property
    def strength(self) -> float:
        """``ewc_lambda``."""
        return self.options.ewc_lambda

    @property
    def importances(self) -> Mapping[str, Tensor]:
        """Fisher information and scores, of the weights that the last task had a gradient for."""
        return self.penalties

    def before_task(self, task: TaskData) -> None:
        """Begin a walk at the present weights."""
        # No task goes without an update: scores are divided by the largest of them.
        known = [self.plan.tasks[task.index]] if self.plan.open_ended else self.plan.tasks
        shortest = min(it.num_train for it in known)
        batches = self.schedule.epochs * len(batch_bounds(shortest, self.schedule.batch_size, join=True))
        self._interval = min(self.options.delta_t, batches)
        self.walk = {"scores": self.zeros(), "gain": self.zeros(), "start": self.copy_weights()}

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Cross-entropy; its gradient without dropout moves the Fisher information."""
        weights, share = self.weights(), self.options.ewc_alpha
        with self.measuring():
            measured = cross_entropy(self.replay(x, task), y)
            found = torch.autograd.grad(measured, list(weights.values()), allow_unused=True)
        # Other tasks' heads have none, and are forgotten.
        self._gradients = {name: it for name, it in zip(weights, found, strict=True) if it is not None}
        squares, old = {name: it.square() for name, it in self._gradients.items()}, self.fisher
        self.fisher = {n: share * new + (1 - share) * old[n] if n in old else new for n, new in squares.items()}
        return cross_entropy(logits, y)

    def optimizer_step(self) -> None:
        """Note what the step gained; every ``delta_t`` batches add to the scores."""
        before = self.copy_weights()
        super().optimizer_step()
        weights, (scores, gain, start) = self.copy_weights(), self.walk.values()
        for name, gradient in self._gradients.items():
            gain[name] -= gradient * (weights[name] - before[name])
        if (self.clock.train_iterations + 1) % self._interval == 0:
            for name, fisher in self.fisher.items():
                distance = 0.5 * fisher * (weights[name] - start[name]).square()
                scores[name] += gain[name] / (distance + torch.finfo(distance.dtype).eps)
            self.walk = {"scores": scores, "gain": self.zeros(), "start": weights}

    def lengthen(self, name: str, state: Any, added: Sequence[str]) -> Any:
        """Leave the Fisher information as it is: it has no weights but those that had a gradient."""
        return state if name in ("fisher", "penalties") else super().lengthen(name, state, added)

    def after_task(self, task: TaskData) -> None:
        """Average the scores with those of earlier tasks; weigh and anchor the weights."""
        new, old = self.walk["scores"], self.scores
        self.scores = {name: 0.5 * (old[name] + new[name]) for name in new} if old else new
        most, best = (max(float(it.max()) for it in each.values()) for each in (self.fisher, self.scores))
        self.penalties = {n: it / most + self.scores[n].relu() / best for n, it in self.fisher.items()}
        self.anchor, self.walk = self.copy_weights(), {}
