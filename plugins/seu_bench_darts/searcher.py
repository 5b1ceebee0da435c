"""The DARTS searcher: one step of the architecture on the second half, one of the weights on the first, in turn."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.data import batch_bounds
from seu_bench.models import RepeatedBatches
from seu_bench.training import EpochReport, Stage, clip_gradients, epoch_rate, evaluate, make_optimizer, set_rate
from seu_bench_darts import DartsOptions
from seu_bench_kit import SearchTask, proxy_network, recalibrate

#: Standard deviation of the architecture's first values.
NOISE = 1e-3

#: Of the architecture's Adam (DARTS, section 3.1).
BETAS = (0.5, 0.999)


class DartsSearch(Stage[Any]):
    """The search of one task: fresh proxy network, fresh architecture.

    The architecture is tables of logits, a row for each of the space's choices, whose softmax weighs the options. Only
    Adam moves it, and only SGD the weights.
    """

    state_attributes = ("network", "architecture", "optimizer", "arch_optimizer", "best", "best_loss")

    def __init__(self, options: DartsOptions, task: SearchTask) -> None:
        self.schedule = options.applied_to(task.schedule)
        super().__init__("search", task.task, self.schedule.epochs, task.seed, task.device)
        self.options = options
        self.space = task.space
        self.train_images, self.valid_images = task.images.halves()
        with self.randomness.active():
            self.network = proxy_network(task, self.schedule)
            # Choices of as many options, one after another, are one table.
            shapes = [(len(list(rows)), options) for options, rows in groupby(task.space.choices)]
            tables = [(NOISE * torch.randn(shape)).to(task.device) for shape in shapes]
        self.architecture = nn.ParameterList(tables)
        self.weights = list(self.network.parameters())
        self.optimizer = make_optimizer(self.weights, self.schedule)
        self.arch_optimizer = torch.optim.Adam(
            self.architecture.parameters(),
            lr=options.arch_learning_rate,
            betas=BETAS,
            weight_decay=options.arch_weight_decay,
        )
        self.best_loss = float("inf")
        self.best = [table.detach().clone() for table in self.architecture]

    def run_epoch(self) -> EpochReport:
        """Both steps for every batch of the first half, then statistics anew and the loss on the second."""
        set_rate(self.optimizer, epoch_rate(self.schedule, self.epoch))
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
                self._step_architecture(*self.valid_images.gather(drawn))
                total += self._step_weights(*train) * (stop - start)
                repeated.end(1)
        self.network.eval()
        limit, batch_size = self.options.recalibration_images, self.schedule.batch_size
        recalibrate(self.network, self._forward, self.train_images, limit, batch_size, self.count_images)
        accuracy, loss = evaluate(self._forward, self.valid_images, batch_size, self.count_images)
        if not math.isfinite(loss):
            return EpochReport(loss, accuracy)  # it diverged, and the stage ends here
        self.note_reward(accuracy, self.valid_images)
        if self.options.restore == "last" or loss < self.best_loss:
            self.best_loss = loss
            self.best = [table.detach().clone() for table in self.architecture]
        return EpochReport(float(total) / count, accuracy)

    def result(self) -> Any:
        """The genotype of the softmax of the architecture chosen."""
        return self.space.derive([row for table in self.best for row in table.softmax(dim=1).double().cpu().numpy()])

    def _step_architecture(self, images: Tensor, labels: Tensor) -> None:
        """A step by the gradient at the present weights, as if they did not depend on the architecture (DARTS, section
        2.3, xi = 0). BatchNorm's running statistics see nothing of it."""
        # Layers with gradients of their own would compute the weights' as well.
        state = {name: weight.detach() for name, weight in self.network.named_parameters()}
        state |= {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        logits: Tensor = torch.func.functional_call(self.network, state, (images, self._weights_of_operations))
        self.count_images(len(labels))
        loss = nn.functional.cross_entropy(logits, labels)
        for table, gradient in zip(self.architecture, torch.autograd.grad(loss, [*self.architecture]), strict=True):
            table.grad = gradient
        self.arch_optimizer.step()
        for table in self.architecture:
            table.grad = None

    def _step_weights(self, images: Tensor, labels: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self._forward(images), labels)
        # The architecture takes no part in the weights' step.
        loss.backward(inputs=self.weights)
        clip_gradients(self.weights, self.schedule.clip_norm)
        self.optimizer.step()
        self.count_images(len(labels))
        return loss.detach()

    @property
    def _weights_of_operations(self) -> list[Tensor]:
        return [row for table in self.architecture for row in table.softmax(dim=1)]

    def _forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images, self._weights_of_operations)
        return logits
