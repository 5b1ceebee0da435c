"""Backbones that all tasks share, under the heads of the three scenarios: one per task, one that grows, one for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from seu_bench.config.streams import Scenario
from seu_bench.models.modes import freeze, is_frozen
from seu_bench.models.multihead import MultiHeadModel, by_task
from seu_bench.utils.seeding import RandomState, derive_seed


class BegunTasks:
    """How many tasks of a head have begun; ``_ends`` are the numbers of classes up to each."""

    tasks = 0
    _ends: list[int]

    @property
    def seen(self) -> int:
        """Number of classes seen."""
        return self._ends[self.tasks - 1] if self.tasks else 0

    def begin(self, task: int) -> None:
        """Answer with the classes of ``task`` and of those before it."""
        if task >= len(self._ends):
            raise ValueError(f"there is no task {task} among {len(self._ends)}")
        self.tasks = task + 1


class GrowingHead(BegunTasks, nn.Linear):
    """A linear head that gives logits of the classes seen so far, and of no other.

    Its rows are drawn at the start, as all heads of a task-incremental model are, and counted from then on. Those of
    classes not seen yet have no part in what is computed, so that they get no gradient.
    """

    def __init__(self, features: int, classes: Sequence[int]) -> None:
        super().__init__(features, sum(classes))
        self._ends = list(accumulate(classes))

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``[N, seen]`` of features ``[N, F]``."""
        return linear(features, self.weight[: self.seen], self.bias[: self.seen])


class PartedHead(BegunTasks, nn.Module):
    """The same of a stream to which tasks may be added: a linear head for each task, whose outputs are joined, so that
    no weight or sum hangs on how many there are."""

    def __init__(self, features: int, classes: Sequence[int]) -> None:
        super().__init__()
        self._ends = list(accumulate(classes))
        # A task may add no class.
        self.parts = nn.ModuleDict({str(task): nn.Linear(features, it) for task, it in enumerate(classes) if it})

    @property
    def begun(self) -> list[nn.Linear]:
        """The parts of the tasks that have begun."""
        return [cast(nn.Linear, part) for task, part in self.parts.items() if int(task) < self.tasks]

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``[N, seen]`` of features ``[N, F]``."""
        return torch.cat([part(features) for part in self.begun], dim=1)


class BackboneModel(MultiHeadModel):
    """A backbone that all tasks share, and linear heads.

    Args:
        backbone: images ``[N, C, H, W]`` -> features ``[N, features]``.
        features: width of its output.
        classes: number of classes of each task, in the order in which they are learned.
        scenario: ``task``: a head for each task. ``class``: one head that grows, whose outputs are the classes of all
            tasks seen so far, numbered through. ``domain``: one head for all tasks. Where there is one head, the task
            that an image is said to be of makes no difference.
        frozen: whether the backbone stays as it is, in evaluation mode. Its features are computed once per image and
            cached while a task is learned.
        seed: from which the weights of a task's outputs are drawn when it begins, so that they do not hang on how many
            tasks there are; ``None``: all are drawn at the start.

    Attributes:
        predictor: answers in evaluation mode in place of the heads: images and a task -> logits; ``None``: none does.
    """

    predictor: Callable[[Tensor, int], Tensor] | None = None

    def __init__(
        self,
        backbone: nn.Module,
        features: int,
        classes: Sequence[int],
        scenario: Scenario = "task",
        *,
        frozen: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(classes)
        self.scenario: Scenario = scenario
        self.features, self.seed, self._begun = features, seed, 0
        self.backbone = backbone
        self.has_frozen_layers = frozen
        if frozen:
            freeze(backbone)
            backbone.eval()
        heads: Sequence[nn.Module]
        if scenario == "class":
            heads = [GrowingHead(features, classes) if seed is None else PartedHead(features, classes)]
        else:
            heads = [nn.Linear(features, width) for width in (classes if scenario == "task" else classes[:1])]
        self.heads = nn.ModuleList(heads)

    def head(self, task: int) -> nn.Module:
        """The head that answers for ``task``."""
        return self.heads[task if self.scenario == "task" else 0]

    def begin_task(self, task: int) -> None:
        """Let a head that grows answer with the classes of ``task``, too; draw the weights of new outputs."""
        is_new, self._begun = task >= self._begun, max(self._begun, task + 1)
        if self.scenario == "class":
            self._growing.begin(task)
        if self.seed is None or not is_new or self.scenario == "domain":
            return
        # Some methods change the weights of other tasks' outputs as well, if only by weight decay.
        head = self.head(task)
        part = head.parts[str(task)] if isinstance(head, PartedHead) and str(task) in head.parts else head
        if isinstance(part, nn.Linear):
            with RandomState(derive_seed(self.seed, "head", task)).active():
                part.reset_parameters()

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a frozen backbone stays in evaluation mode."""
        super().train(mode)
        if self.has_frozen_layers:
            self.backbone.eval()
        return self

    @property
    def paths_stay(self) -> bool:  # type: ignore[override]
        """Whether only heads train, one for each task, and answer."""
        answers = type(self) is BackboneModel and self.scenario == "task" and self.predictor is None
        return answers and is_frozen(self.backbone)

    def backbone_features(self, images: Tensor) -> Tensor:
        """Features ``[N, F]`` of images."""
        if self.has_frozen_layers:
            return self.cached_features(images, "backbone", lambda x: (self.backbone(x),))[0]
        features: Tensor = self.backbone(images)
        return features

    def logits(self, x: Tensor, task: int) -> Tensor:
        """Logits ``[N, outputs]`` of the head that answers for a task."""
        logits: Tensor = self.head(task)(self.backbone_features(x))
        return logits

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """The same; in evaluation mode what a method answers in their place, if it has an answer of its own."""
        if self.predictor is not None and not self.training:
            return self.predictor(x, task_label)
        return self.logits(x, task_label)

    def forward_mixed(self, images: Tensor, task_labels: Tensor) -> Tensor:
        """Logits ``[N, widest head present]``; the backbone is computed once for all tasks."""
        if self.predictor is not None and not self.training and self.scenario == "task":
            return super().forward_mixed(images, task_labels)
        if self.scenario != "task":
            return self.forward_single_task(images, 0)
        features = self.backbone_features(images)
        return by_task(features, task_labels, self.classes_per_task, lambda x, task: self.heads[task](x))

    def forward_all_tasks(self, x: Tensor) -> dict[int, Tensor]:
        """Logits of every task that was learned; the backbone is computed once. One head has the task label 0."""
        known = sorted(self.known_train_tasks_labels) if self.scenario == "task" else [0]
        if self.predictor is not None and not self.training:
            return {task: self.predictor(x, task) for task in known}
        features = self.backbone_features(x)
        return {task: self.head(task)(features) for task in known}

    def task_module(self, task: int) -> nn.Module:
        """The backbone and the head that answers for the task."""
        return nn.ModuleList([self.backbone, self.head(task)])

    def trainable_module(self, task: int) -> nn.Module:
        """The same, without a frozen backbone."""
        return self.head(task) if self.has_frozen_layers else self.task_module(task)

    def architecture(self) -> dict[str, Any]:
        """The number of tasks begun where outputs grow; empty where they do not."""
        if self.scenario == "class":
            return {"tasks_seen": self._growing.tasks}
        return {} if self.seed is None else {"tasks_seen": self._begun}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Let a head that grows answer with the classes of as many tasks."""
        if self.seed is None and self.scenario != "class":
            return super().load_architecture(architecture)
        most = len(self.classes_per_task)
        if list(architecture) != ["tasks_seen"] or not 0 <= int(architecture["tasks_seen"]) <= most:
            raise ValueError("it is not the architecture of heads that grow")
        self._begun = int(architecture["tasks_seen"])
        if self.scenario == "class" and self._begun:
            self._growing.begin(self._begun - 1)

    def later_weights(self) -> set[nn.Parameter]:
        """The weights of outputs of tasks that have not begun, in a stream to which tasks may be added."""
        if self.seed is None or self.scenario == "domain":
            return set()
        head = self.heads[0]
        begun = head.begun if isinstance(head, PartedHead) else self.heads[: self._begun]
        return {*self.heads.parameters()} - {weight for part in begun for weight in part.parameters()}

    @property
    def classes_seen(self) -> int:
        """Number of classes that a head that grows answers with."""
        return self._growing.seen

    @property
    def _growing(self) -> GrowingHead | PartedHead:
        head = self.heads[0]
        if not isinstance(head, GrowingHead | PartedHead):
            raise TypeError("the head does not grow")
        return head
