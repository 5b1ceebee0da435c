"""Answers without a task label, by strategies that need one: the path whose output is most certain answers.

What is learned is the same as with task labels. At test time every task learned so far computes the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from seu_bench.config.common_options import Certainty, TaskInferenceOptions
from seu_bench.config.streams import Scenario
from seu_bench.data.images import TaskImages
from seu_bench.errors import RequestError
from seu_bench.models.multihead import MultiHeadModel, not_learned
from seu_bench.training.interfaces import Cost, StrategyContext


@dataclass(frozen=True)
class TaskInference:
    """Chooses the task of an image by the certainty of each task's output.

    Args:
        certainty: ``entropy``: the lowest entropy of the softmax, divided by the logarithm of the number of classes;
            ``energy``: the largest log-sum-exp of the logits (Liu et al., "Energy-based Out-of-distribution Detection",
            NeurIPS 2020).
        classes: number of classes of each task, in the order in which they are learned.
        scenario: ``class``: answers are among the classes of all tasks; ``domain``: among those that tasks share.
    """

    certainty: Certainty
    classes: Sequence[int]
    scenario: Scenario

    def __call__(self, model: MultiHeadModel, images: Tensor, tasks: int) -> Tensor:
        """Return logits ``[N, outputs]`` of images whose task is not known, after so many ``tasks`` were learned: those
        of the task chosen for each image; of other tasks' classes the lowest finite number.
        """
        if not tasks:
            raise not_learned(0)
        logits = [model(images, task) for task in range(tasks)]
        chosen = torch.stack([self.score(part) for part in logits]).argmax(dim=0)
        if self.scenario == "domain":
            return torch.stack(logits)[chosen, torch.arange(images.shape[0], device=chosen.device)]
        lowest = torch.finfo(logits[0].dtype).min
        parts = [torch.where((chosen == task).unsqueeze(1), part, lowest) for task, part in enumerate(logits)]
        return torch.cat(parts, dim=1)

    def score(self, logits: Tensor) -> Tensor:
        """Certainty ``[N]`` of logits ``[N, classes]``; the larger the more certain."""
        if self.certainty == "energy":
            return logits.logsumexp(dim=1)
        log = logits.log_softmax(dim=1)
        entropy = -(log.exp() * log).sum(dim=1)
        return -entropy / math.log(max(2, logits.shape[1]))

    def with_label(self, images: TaskImages) -> TaskImages:
        """Images to learn from, as they are with task labels: their labels numbered within the task."""
        first = sum(self.classes[: images.task]) if self.scenario == "class" else 0
        return replace(images, labels=images.labels - first, hides_task=False)


def task_inference(context: StrategyContext) -> TaskInference | None:
    """How a run's strategy finds the task of a test image; ``None``: it is told, or needs no task."""
    plan, options = context.plan, context.options
    if plan.scenario == "task" or not isinstance(options, TaskInferenceOptions) or options.infer_task is None:
        return None
    if plan.repeats_classes:
        raise RequestError(
            "a class that comes back has one output, and paths of their own have one for each of its tasks",
            where="-o infer_task",
            remedy="choose a strategy of one head, such as naive or replay",
        )
    return TaskInference(options.infer_task, plan.classes_per_task, plan.scenario)


def all_paths_cost(cost: Cost) -> Cost:
    """Return the cost of a run that infers tasks, from that of one which is told them: evaluation passes an image once
    for each task learned, and it costs the sum of their operations."""
    stages = [
        replace(stage, evaluate=stage.evaluate * (stage.task + 1)) if stage.name == "evaluation" else stage
        for stage in cost.stages
    ]
    macs, macs_min = (tuple(accumulate(values)) for values in (cost.macs, cost.macs_min))
    return replace(cost, stages=tuple(stages), macs=macs, macs_min=macs_min)
