"""Base of methods that project gradients, so that a step raises no loss of remembered images."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from seu_bench import Method, Ring
from seu_bench.config import BackboneOptions, BudgetOptions
from seu_bench.errors import RequestError


class EpisodicOptions(BackboneOptions, BudgetOptions):
    """Options of a memory with a fixed share for each task."""

    memory_share: ClassVar[str] = "patterns_per_experience"

    memory: PositiveInt | None = Field(
        200, description="images kept of all tasks together, as many of each, rounded down"
    )
    patterns_per_experience: PositiveInt | None = Field(None, description="images kept of each task, replaces memory")


class Episodic(Method):
    """Changes the gradient of each batch by gradients of remembered images, before the optimiser steps."""

    options: Any

    def setup(self) -> None:
        """Begin with an empty memory that has room for as many images of each task.

        Raises:
            RequestError: that is less than one.
        """
        total, tasks = self.options.memory, len(self.plan.tasks)
        each = self.options.patterns_per_experience or total // tasks
        if not each:
            raise RequestError(
                f"{tasks} tasks have no image each in a memory of {total}",
                where=f"-o memory={total}",
                remedy=f"give {tasks} at least",
            )
        self.memory = Ring(each=each, by="task")

    def needs_whole_stream(self) -> str | None:
        """Say that a memory of a number in all is divided by the number of tasks."""
        if self.options.patterns_per_experience is None:
            return (
                f"its memory of {self.options.memory} images is divided among all tasks from the beginning "
                f"(-o patterns_per_experience={self.memory.each} keeps so many of each)"
            )
        return super().needs_whole_stream()

    def after_task(self, task: Any) -> None:
        """Keep images of the task."""
        self.memory.add_images(task.train)

    @abstractmethod
    def project(self, gradient: Tensor) -> Tensor | None:
        """Return what the optimiser steps along instead.

        Args:
            gradient: of the batch's loss, ``[P]``: all parameters that train, one after another.

        Returns:
            Its projection ``[P]``; ``None``: the gradient itself.
        """

    def gradient_at(self, positions: Tensor) -> Tensor:
        """Return the gradient ``[P]`` of the mean loss of remembered images.

        Args:
            positions: ``[N]``, in the memory.
        """
        old, weights = self.memory.at(positions), self.trained_weights
        loss = torch.nn.functional.cross_entropy(self.replay(old.x, old.task), old.y)
        # Heads of other tasks have no part in it.
        return torch.cat([it.flatten() for it in torch.autograd.grad(loss, weights, materialize_grads=True)])

    @property
    def trained_weights(self) -> list[torch.nn.Parameter]:
        """The parameters that train, but those of tasks to come: a product of longer vectors is rounded otherwise."""
        later = self.network.later_weights()
        return [weight for weight in self.model.parameters() if weight.requires_grad and weight not in later]

    def optimizer_step(self) -> None:
        """Project the gradient, where something is remembered; then clip and step."""
        if len(self.memory):
            weights = self.trained_weights
            own = [torch.zeros_like(it) if it.grad is None else it.grad for it in weights]
            projected = self.project(torch.cat([it.flatten() for it in own]))
            if projected is not None:
                for weight, part in zip(weights, projected.split([it.numel() for it in weights]), strict=True):
                    # As in Avalanche: heads that the batch does not reach stay as they are.
                    if weight.grad is not None:
                        weight.grad.copy_(part.view_as(weight))
        super().optimizer_step()
