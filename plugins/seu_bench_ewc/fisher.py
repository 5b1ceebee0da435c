"""The diagonal of a task's empirical Fisher information, estimated in one pass over its training images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy

from seu_bench.errors import RunError
from seu_bench.models import RepeatedBatches, modes_kept
from seu_bench.training import EpochMeter, EpochReport, Stage, StagedStrategy, TaskData
from seu_bench_ewc import Estimator

#: Numbers in the gradients of single images that are held at once (half a gigabyte); always those of one image.
GRADIENT_NUMBERS = 2**27


class FisherStage(Stage[dict[str, Tensor]]):
    """One pass over the training images of a task; the result has a tensor of its shape for each trainable parameter.

    ``batch`` is what the published code computes, ``B * mean over batches of (gradient of the batch's mean
    cross-entropy)^2`` with the schedule's batch size ``B``, which a last batch of fewer images is multiplied by as
    well; dropout is active. ``per_sample`` is the textbook's, the mean over images of the squared gradient of the
    image's cross-entropy; without dropout. Both take the true labels.

    In neither does a layer that keeps running statistics, such as BatchNorm, leave evaluation mode: the statistics
    belong to the weights that training restored, and a pass that only measures must not move them.

    Args:
        strategy: whose model is measured as it is, without changing it.
    """

    def __init__(self, strategy: StagedStrategy, task: TaskData, estimator: Estimator) -> None:
        super().__init__("fisher", task.index, 1, strategy.seed_for("fisher", task.index), strategy.device)
        self.model = strategy.model
        self.images = task.train
        self.batch_size = strategy.schedule.batch_size
        self.estimator = estimator
        self.estimate: dict[str, Tensor] = {}

    def run_epoch(self) -> EpochReport:
        """The pass; its report is the loss and accuracy of what was differentiated."""
        meter = EpochMeter(self.device)
        by_batch = self.estimator == "batch"
        with measuring(self.model, training=by_batch):
            self.estimate = self._by_batch(meter) if by_batch else self._by_image(meter)
        return meter.report

    def result(self) -> dict[str, Tensor]:
        """The estimate by parameter name."""
        return self.estimate

    def get_extra_state(self) -> dict[str, Any]:
        """The estimate; empty before the pass."""
        return {"estimate": dict(self.estimate)}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.estimate = {name: tensor.to(self.device) for name, tensor in state["estimate"].items()}

    def _by_batch(self, meter: EpochMeter) -> dict[str, Tensor]:
        parameters = trainable(self.model)
        squares = {name: torch.zeros_like(weight) for name, weight in parameters.items()}
        order = torch.randperm(len(self.images)).to(self.images.device)
        batches = 0
        # Shuffled beforehand: where batches() shuffles, a single image left over joins the batch before it, and the
        # published code has a batch of that image.
        with RepeatedBatches() as repeated:
            for x, y in self.images.subset(order).batches(self.batch_size, shuffle=False):
                repeated.begin()
                logits = self.model.forward_single_task(x, self.task)
                loss = cross_entropy(logits, y)
                # Other tasks' heads have no part in the loss: their gradient is zero.
                gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
                repeated.end(len(y))
                for square, gradient in zip(squares.values(), gradients, strict=True):
                    square.addcmul_(gradient, gradient)
                batches += 1
                meter.add(loss, logits, y)
                self.passed(len(y))
        return {name: square * (self.batch_size / batches) for name, square in squares.items()}

    def _by_image(self, meter: EpochMeter) -> dict[str, Tensor]:
        parameters = {name: weight.detach() for name, weight in trainable(self.model).items()}
        squares = {name: torch.zeros_like(weight) for name, weight in parameters.items()}

        def loss_of(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            logits: Tensor = functional_call(self.model, weights, (x.unsqueeze(0), self.task))
            return cross_entropy(logits, y.unsqueeze(0)), logits.squeeze(0)

        gradients_of = vmap(grad_and_value(loss_of, has_aux=True), in_dims=(None, 0, 0))
        numbers = sum(weight.numel() for weight in parameters.values())
        chunk = max(1, min(self.batch_size, GRADIENT_NUMBERS // numbers))
        for x, y in self.images.batches(chunk, shuffle=False):
            try:
                gradients, (losses, logits) = gradients_of(parameters, x, y)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise RunError(
                    f"the gradients of single images cannot be computed for this network: {error}",
                    where=f"stage 'fisher' of task {self.task}; torch.func.vmap does not support one of its layers",
                    remedy="choose -o fisher=batch, or another backbone",
                ) from error
            for name, gradient in gradients.items():
                squares[name] += gradient.square().sum(dim=0)
            meter.add(losses.mean(), logits, y)
            self.passed(len(y))
        return {name: square / len(self.images) for name, square in squares.items()}


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that can move, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


@contextmanager
def measuring(model: nn.Module, *, training: bool) -> Iterator[None]:
    """``model`` in this mode, but layers with running statistics in evaluation mode; every mode is put back."""
    with modes_kept(model):
        model.train(training)
        for module in model.modules():
            if getattr(module, "track_running_stats", False):
                module.eval()
        yield
