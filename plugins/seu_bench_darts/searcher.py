"""The DARTS searcher: one step of the architecture on the second half, one of the weights on the first, in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from seu_bench.data import batch_bounds
from seu_bench.models import RepeatedBatches
from seu_bench.training import EpochReport, Stage, clip_gradients, cosine_rate, evaluate, make_sgd, set_rate
from seu_bench_darts import DartsOptions
from seu_bench_kit import EDGES, OPERATIONS, Genotype, Mixture, ProxyNetwork, SearchTask, proxy_network, recalibrate

Tensors: TypeAlias = Sequence[Tensor]

#: Loss as a function of weights and architecture.
Loss: TypeAlias = Callable[[Tensors, Tensors], Tensor]


#: Length of the step of the finite difference (DARTS, section 2.3: epsilon = 0.01 / norm of the gradient).
STEP = 0.01


def first_order(valid_loss: Loss, weights: Tensors, architecture: Tensors) -> list[Tensor]:
    """The gradient at the present weights, as if they did not depend on the architecture (DARTS, section 2.3,
    xi = 0)."""
    # Layers with gradients of their own would compute the weights' as well.
    fixed = [weight.detach() for weight in weights]
    return list(torch.autograd.grad(valid_loss(fixed, architecture), list(architecture)))


def second_order(
    train_loss: Loss,
    valid_loss: Loss,
    weights: Tensors,
    architecture: Tensors,
    *,
    rate: float,
    momentum: Tensors,
    weight_decay: float,
) -> list[Tensor]:
    """The gradient through one step of the weights (DARTS, equations 6 to 8).

    ``w' = w - rate * (dL_train/dw + weight_decay * w + momentum)``; the gradient of ``L_valid(w', a)`` is
    ``dL_valid/da - rate * d2L_train/(da dw) dL_valid/dw'``, whose last product is a central difference of
    ``dL_train/da`` in the direction ``v = dL_valid/dw'``: ``(at w + eps v  minus  at w - eps v) / (2 eps)``.
    """
    # A weight that the loss does not use has no gradient and takes part by its decay alone.
    descent = _gradients(train_loss(weights, architecture), weights)
    with torch.no_grad():
        stepped = [
            (w - rate * (g + weight_decay * w + m)).requires_grad_()
            for w, g, m in zip(weights, descent, momentum, strict=True)
        ]
    both = _gradients(valid_loss(stepped, architecture), [*stepped, *architecture])
    direction, direct = both[: len(stepped)], both[len(stepped) :]
    norm = torch.sqrt(torch.stack([(v * v).sum() for v in direction]).sum())
    if float(norm) == 0.0:
        return direct  # the validation loss does not depend on the weights: nothing to see through
    step = STEP / norm
    ahead, behind = (
        _gradients(train_loss(_moved(weights, direction, sign * step), architecture), architecture) for sign in (1, -1)
    )
    return [d - rate * (plus - minus) / (2 * step) for d, plus, minus in zip(direct, ahead, behind, strict=True)]


def _moved(weights: Tensors, direction: Tensors, step: Tensor) -> list[Tensor]:
    return [(w + step * v).detach() for w, v in zip(weights, direction, strict=True)]


def _gradients(loss: Tensor, inputs: Tensors) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(inputs), allow_unused=True, materialize_grads=True))


#: Standard deviation of the architecture's first values.
NOISE = 1e-3

#: Of the architecture's Adam (DARTS, section 3.1).
BETAS = (0.5, 0.999)


class DartsSearch(Stage[Genotype]):
    """The search of one task: fresh proxy network, fresh architecture.

    The architecture is a table ``[14, 8]`` per cell type, whose softmax weighs the operations of an edge. Only Adam
    moves it, and only SGD the weights.
    """

    def __init__(self, options: DartsOptions, task: SearchTask) -> None:
        self.schedule = options.applied_to(task.schedule)
        super().__init__("search", task.task, self.schedule.epochs, task.seed, task.device)
        self.options = options
        self.space = task.space
        self.train_images, self.valid_images = task.images.halves()
        with self.randomness.active():
            self.network = proxy_network(task, self.schedule)
            self.architecture = [
                nn.Parameter((NOISE * torch.randn(len(EDGES), len(OPERATIONS))).to(task.device))
                for _ in range(task.space.cell_types)
            ]
        self.mixing = _Mixing(self.network)
        self.names = [name for name, _ in self.mixing.named_parameters()]
        self.weights = list(self.network.parameters())
        self.optimizer = make_sgd(self.weights, self.schedule)
        self.arch_optimizer = torch.optim.Adam(
            self.architecture,
            lr=options.arch_learning_rate,
            betas=BETAS,
            weight_decay=options.arch_weight_decay,
        )
        self.best_loss = float("inf")
        self.best = [table.detach().clone() for table in self.architecture]

    def run_epoch(self) -> EpochReport:
        """Both steps for every batch of the first half, then statistics anew and the loss on the second."""
        set_rate(self.optimizer, cosine_rate(self.schedule, self.epoch))
        self.network.train()
        total = torch.zeros((), device=self.device)
        count = len(self.train_images)
        order = torch.randperm(count)
        with RepeatedBatches() as repeated:
            for start, stop in batch_bounds(count, self.schedule.batch_size, join=True):
                train = self.train_images.gather(order[start:stop])
                # As many images as the batch has, drawn anew each time; all of them where there are fewer.
                drawn = torch.randperm(len(self.valid_images))[: stop - start]
                repeated.begin((stop - start, len(drawn)))
                self._step_architecture(train, self.valid_images.gather(drawn))
                total += self._step_weights(*train) * (stop - start)
                repeated.end(1)
        self.network.eval()
        limit, batch_size = self.options.recalibration_images, self.schedule.batch_size
        recalibrate(self.network, self._forward, self.train_images, limit, batch_size, self.count_images)
        accuracy, loss = evaluate(self._forward, self.valid_images, batch_size, self.count_images)
        if not math.isfinite(loss):
            return EpochReport(loss, accuracy)  # it diverged, and the stage ends here
        self.rewarded(accuracy, self.valid_images)
        if self.options.restore == "last" or loss < self.best_loss:
            self.best_loss = loss
            self.best = [table.detach().clone() for table in self.architecture]
        return EpochReport(float(total) / count, accuracy)

    def result(self) -> Genotype:
        """The genotype of the softmax of the architecture chosen."""
        tables = [table.softmax(dim=1).double().cpu().numpy() for table in self.best]
        return self.space.derive([np.asarray(table) for table in tables])

    def get_extra_state(self) -> dict[str, Any]:
        """Weights, architecture, both optimisers, and the best architecture."""
        return {
            "weights": self.network.state_dict(),
            "architecture": [table.detach() for table in self.architecture],
            "optimizer": self.optimizer.state_dict(),
            "arch_optimizer": self.arch_optimizer.state_dict(),
            "best": self.best,
            "best_loss": self.best_loss,
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.network.load_state_dict(state["weights"])
        with torch.no_grad():
            for table, value in zip(self.architecture, state["architecture"], strict=True):
                table.copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])
        self.arch_optimizer.load_state_dict(state["arch_optimizer"])
        self.best = [table.clone() for table in state["best"]]
        self.best_loss = state["best_loss"]

    def _step_architecture(self, train: tuple[Tensor, Tensor], valid: tuple[Tensor, Tensor]) -> None:
        if self.options.order == 1:
            gradients = first_order(self._loss(*valid), self.weights, self.architecture)
        else:
            gradients = second_order(
                self._loss(*train),
                self._loss(*valid),
                self.weights,
                self.architecture,
                rate=self.optimizer.param_groups[0]["lr"],
                momentum=self._momentum(),
                weight_decay=self.schedule.weight_decay,
            )
        for table, gradient in zip(self.architecture, gradients, strict=True):
            table.grad = gradient
        self.arch_optimizer.step()
        for table in self.architecture:
            table.grad = None

    def _step_weights(self, images: Tensor, labels: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self._forward(images), labels)
        # The architecture takes no part in the weights' step.
        loss.backward(inputs=self.weights)
        if self.schedule.clip_norm is not None:
            clip_gradients(self.weights, self.schedule.clip_norm)
        self.optimizer.step()
        self.count_images(len(labels))
        return loss.detach()

    def _mixture(self, architecture: Sequence[Tensor]) -> Mixture:
        # With one cell type the same table serves both kinds of cell.
        return architecture[0].softmax(dim=1), architecture[-1].softmax(dim=1)

    def _forward(self, images: Tensor) -> Tensor:
        return self.network.mixture(images, self._mixture(self.architecture))

    def _loss(self, images: Tensor, labels: Tensor) -> Loss:
        """The loss of a batch for any weights; BatchNorm's running statistics see none of it."""

        def loss(weights: Sequence[Tensor], architecture: Sequence[Tensor]) -> Tensor:
            state = dict(zip(self.names, weights, strict=True))
            state |= {f"network.{name}": buffer.clone() for name, buffer in self.network.named_buffers()}
            logits: Tensor = torch.func.functional_call(self.mixing, state, (images, self._mixture(architecture)))
            self.count_images(len(labels))
            return nn.functional.cross_entropy(logits, labels)

        return loss

    def _momentum(self) -> list[Tensor]:
        kept = [self.optimizer.state.get(weight, {}).get("momentum_buffer") for weight in self.weights]
        return [
            torch.zeros_like(weight) if buffer is None else self.schedule.momentum * buffer
            for weight, buffer in zip(self.weights, kept, strict=True)
        ]


class _Mixing(nn.Module):
    """A proxy network whose forward is its mixture: what ``functional_call`` can call."""

    def __init__(self, network: ProxyNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, weights: Mixture) -> Tensor:
        return self.network.mixture(images, weights)
