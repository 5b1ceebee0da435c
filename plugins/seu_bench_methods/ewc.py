"""EWC (J. Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from seu_bench.config import LEARNING_RATES, SelectingOptions, TuningGrid
from seu_bench.errors import RunError
from seu_bench.training import TaskData
from seu_bench_methods.anchored import Anchored, PenaltyOptions

#: Numbers in the gradients of single images that are held at once (half a gigabyte); always those of one image.
GRADIENT_NUMBERS: Final = 2**27


class Ewc(Anchored):
    """Elastic weight consolidation: weights that mattered are held where they were (Kirkpatrick et al. 2017).

    The loss of a batch is ``cross-entropy + ewc_lambda/2 * sum_i F_i (theta_i - theta*_i)^2`` with one anchor
    ``theta*``, the weights after the previous task, and ``F`` the mean of the Fisher informations of all tasks so far
    (equation 3; published code of SEU's paper). Weights are selected by the validation loss with the same penalty.
    """

    name = "ewc"
    title = "EWC"
    citation = "seu_bench_kit:kirkpatrick2017overcoming"
    after_task_stage = "fisher"

    class Options(PenaltyOptions, SelectingOptions):
        """Options of elastic weight consolidation."""

        strength = "ewc_lambda"
        tuning_grid: ClassVar[TuningGrid] = {
            "ewc_lambda": (30, 150, 750, 4_000),
            "restore": ("best_valid", "last"),
            "learning_rate": LEARNING_RATES,
        }

        ewc_lambda: NonNegativeFloat = Field(20_000, description="strength of the penalty; 0 is naive fine-tuning")
        fisher: Literal["batch", "per_sample"] = Field(
            "batch",
            description="Fisher information from squared gradients of batches times the batch size (published code), "
            "or of single images",
        )

    options: Options

    def setup(self) -> None:
        """Begin with nothing that matters."""
        self.fisher: dict[str, Tensor] = {}
        self.anchor: dict[str, Tensor] = {}

    @property
    def strength(self) -> float:
        """Half of ``ewc_lambda``."""
        return self.options.ewc_lambda / 2

    @property
    def importances(self) -> Mapping[str, Tensor]:
        """The Fisher information."""
        return self.fisher

    def trained_module(self, task: TaskData) -> nn.Module:
        """The task's path: other heads stay where the penalty would hold them."""
        return self.model.trainable_module(task.index)

    def after_task(self, task: TaskData) -> None:
        """Merge the task's Fisher information, ``F <- (F_new + t F) / (t + 1)`` after ``t`` others; anchor weights."""
        done, weights = task.index, {name: it for name, it in self.model.named_parameters() if it.requires_grad}
        estimate = self.by_batch if self.options.fisher == "batch" else self.by_image
        new = estimate(task, weights)
        self.fisher = {n: (new[n] + done * self.fisher[n]) / (done + 1) for n in new} if self.fisher else new
        self.anchor = {name: weight.detach().clone() for name, weight in weights.items()}

    def by_batch(self, task: TaskData, weights: dict[str, nn.Parameter]) -> dict[str, Tensor]:
        """``B * mean over batches of (gradient of the batch's mean cross-entropy)^2``, published code; with dropout."""
        squares, size = {name: torch.zeros_like(weight) for name, weight in weights.items()}, self.schedule.batch_size
        # Shuffled beforehand: a single image left over is a batch of its own, as in the published code.
        images, batches = task.train.subset(torch.randperm(len(task.train)).to(task.train.device)), 0
        with self.measuring(training=True):
            for x, y in self.counted(images, size):
                loss = cross_entropy(self.model.forward_single_task(x, task.index), y)
                # Other tasks' heads have no part in the loss: their gradient is zero.
                gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
                for square, gradient in zip(squares.values(), gradients, strict=True):
                    square.addcmul_(gradient, gradient)
                batches += 1
        return {name: square * (size / batches) for name, square in squares.items()}

    def by_image(self, task: TaskData, weights: dict[str, nn.Parameter]) -> dict[str, Tensor]:
        """The mean over images of the squared gradient of the image's cross-entropy, without dropout."""
        fixed = {name: weight.detach() for name, weight in weights.items()}
        squares = {name: torch.zeros_like(weight) for name, weight in fixed.items()}

        def loss_of(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            logits: Tensor = functional_call(self.model, weights, (x.unsqueeze(0), task.index))
            return cross_entropy(logits, y.unsqueeze(0))

        gradients_of = vmap(grad(loss_of), in_dims=(None, 0, 0))
        chunk = GRADIENT_NUMBERS // sum(weight.numel() for weight in fixed.values())
        with self.measuring(training=False):
            for x, y in self.counted(task.train, max(1, min(self.schedule.batch_size, chunk))):
                try:
                    gradients = gradients_of(fixed, x, y)
                except torch.OutOfMemoryError:
                    raise
                except RuntimeError as error:
                    raise RunError(
                        f"the gradients of single images cannot be computed for this network: {error}",
                        where=f"stage 'fisher' of task {task.index}; torch.func.vmap supports not all of its layers",
                        remedy="choose -o fisher=batch, or another backbone",
                    ) from error
                for name, gradient in gradients.items():
                    squares[name] += gradient.square().sum(dim=0)
        return {name: square / len(task.train) for name, square in squares.items()}
