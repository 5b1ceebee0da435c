"""EASE (Zhou et al., CVPR 2024): adapters for each task, and prototypes of all classes in the features of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import normalize

from seu_bench import Method
from seu_bench.config import TrainingOptions
from seu_bench.config.streams import Scenario
from seu_bench.models import MultiHeadModel, freeze
from seu_bench.models.multihead import not_learned, out_of_turn
from seu_bench.training import Phase, StrategyContext, TaskData
from seu_bench_adapt.units import AdaptedEncoder, Bottleneck, CosineHead, spread


class SubspaceEnsemble(MultiHeadModel):
    """Adapters of each task on a pretrained network, and prototypes in the features of each (its subspace).

    Args:
        network: the pretrained network, no part of this model's state.
        width: channels within an adapter.
        labels: of each task, those of its images.
        classes: number of classes of each task.
        scenario: of the stream.
        others: weight of the subspaces of other tasks than a class's own.

    Attributes:
        units: adapters of each task, frozen when it is learned.
        prototypes: in each subspace ``[rows, F]``, a row per class seen, per task and class where tasks share classes;
            where the task is known, a row per class of its own task.
    """

    has_frozen_layers = True

    def __init__(
        self,
        network: AdaptedEncoder,
        width: int,
        labels: Sequence[Sequence[int]],
        classes: Sequence[int],
        scenario: Scenario,
        others: float,
    ) -> None:
        super().__init__(classes)
        self.network, self.width, self.labels = network, width, labels
        self.scenario, self.others = scenario, others
        self.units, self.prototypes = nn.ModuleList(), nn.ParameterList()
        self.head: CosineHead | None = None

    @property
    def owners(self) -> Tensor:
        """The task ``[rows]`` of each row of all prototypes."""
        return torch.arange(len(self.units)).repeat_interleave(torch.tensor(self.classes_per_task[: len(self.units)]))

    def expand(self, task: int, device: torch.device) -> None:
        """Add the task's adapters and the head that trains them, drawn from the global generator."""
        if task != len(self.units):
            raise out_of_turn(task, len(self.units))
        self._add_units(device)
        self.head = CosineHead(self.network.widths[-1], len(self.labels[task])).to(device)

    def _add_units(self, device: torch.device | None = None) -> None:
        self.units.append(nn.ModuleList(Bottleneck(it, self.width) for it in self.network.widths).to(device))

    def seal(self) -> None:
        """Freeze the newest adapters, drop their head, and make room for prototypes."""
        freeze(self.units)
        self.head = None
        tasks = len(self.units)
        for task in range(tasks - 1 if self.scenario == "task" else 0, tasks):
            rows = self.classes_per_task[task] if self.scenario == "task" else sum(self.classes_per_task[:tasks])
            table = torch.zeros(rows, self.network.widths[-1], device=next(self.units.parameters()).device)
            if task < len(self.prototypes):
                table[: len(self.prototypes[task])] = self.prototypes[task]
                self.prototypes[task] = nn.Parameter(table, requires_grad=False)
            else:
                self.prototypes.append(nn.Parameter(table, requires_grad=False))

    def features(self, images: Tensor, tasks: Sequence[int]) -> list[Tensor]:
        """Features ``[N, F]`` of images in the subspaces of tasks."""
        maps = self.cached_features(images, "prefix", lambda x: self.network.prefix(x)[:1])[0]
        return [self.network.outputs(maps, [*cast(nn.ModuleList, self.units[task])])[-1] for task in tasks]

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits of the classes seen, of the task's where it is known; while a task trains, those of its head.

        Raises:
            RunError: the task was not learned yet.
        """
        last = len(self.units) - 1
        if self.training and self.head is not None:
            classes = self.classes_per_task
            outputs = sum(classes[: last + 1]) if self.scenario == "class" else classes[last]
            return spread(self.head(self.features(x, [last])[0]), self.labels[last], outputs)
        if not 0 <= task_label < len(self.prototypes):
            raise not_learned(task_label, "adapters")
        tasks = [task_label] if self.scenario == "task" else [*range(len(self.prototypes))]
        cosines = [
            normalize(features) @ normalize(self.prototypes[task]).T
            for task, features in zip(tasks, self.features(x, tasks), strict=True)
        ]
        if self.scenario == "task":
            return cosines[0]
        owners = self.owners.to(x.device, non_blocking=True)
        weights = [torch.where(owners == task, 1.0, self.others) for task in tasks]
        logits = torch.stack([it * weight for it, weight in zip(cosines, weights, strict=True)]).sum(dim=0)
        # Where tasks share classes, the nearest of a class's prototypes answers for it.
        return logits if self.scenario == "class" else logits.unflatten(1, (len(tasks), -1)).amax(dim=1)

    def task_module(self, task: int) -> nn.Module:
        """Adapters and prototypes that answer: the task's own where it is known, otherwise all."""
        own = [self.units[task], self.prototypes[task : task + 1]]
        return nn.ModuleList(own if self.scenario == "task" else [self.units, self.prototypes])

    def trainable_module(self, task: int) -> nn.Module:
        """The newest adapters and their head."""
        return nn.ModuleList([self.units[-1], *([] if self.head is None else [self.head])])

    def architecture(self) -> dict[str, Any]:
        """The number of tasks whose adapters are frozen."""
        return {"subspaces": len(self.prototypes)}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Add adapters and prototypes to a model without any.

        Raises:
            ValueError: there are more than tasks.
        """
        if list(architecture) != ["subspaces"] or not 0 <= architecture["subspaces"] <= len(self.classes_per_task):
            raise ValueError("it is not the architecture of adapters for each task")
        for _ in range(architecture["subspaces"]):
            self._add_units()
            self.seal()


class Ease(Method):
    """Adapters for each task on a pretrained network, and prototypes in the features of each (Zhou et al. 2024).

    The adapters of a task are trained with a head of cosines, and frozen. All classes have prototypes in the features
    of all tasks: those of old classes in new features, whose images are gone, are means of the new classes' prototypes,
    weighted by their likeness in the old class's own features. Cosines answer, above all those in a class's own.
    """

    name = "ease"
    title = "EASE"
    citation = "seu_bench_kit:zhou2024expandable"
    inputs = ("image",)
    uses_encoder: ClassVar[bool] = True
    after_task_stage = "prototypes"
    model: SubspaceEnsemble

    class Options(TrainingOptions):
        """Options of EASE."""

        adapted: PositiveInt = Field(3, description="last layers of the encoder that an adapter follows")
        bottleneck: PositiveInt = Field(16, description="channels within an adapter")
        others: NonNegativeFloat = Field(0.1, description="weight of the features of other tasks than a class's own")

    @classmethod
    def make_model(cls, context: StrategyContext) -> SubspaceEnsemble:
        """Return the pretrained network without adapters."""
        options, plan = context.options, context.plan
        labels = [task.labels or tuple(range(task.num_classes)) for task in plan.tasks]
        network = AdaptedEncoder.of(context, options.adapted)
        return SubspaceEnsemble(
            network, options.bottleneck, labels, plan.classes_per_task, plan.scenario, options.others
        )

    def before_task(self, task: TaskData) -> None:
        """Add the task's adapters."""
        self.model.expand(task.index, self.device)

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of new adapters, which are frozen then, and prototypes."""
        training, prototypes = super().phases(task)
        return [replace(training, apply=lambda _: self.model.seal()), prototypes]

    def after_task(self, task: TaskData) -> None:
        """Compute prototypes of the task's classes in all features, and infer those of old classes in the new ones."""
        model, last = self.model, task.index
        tasks = [last] if model.scenario == "task" else [*range(last + 1)]
        tables = [model.prototypes[it] for it in tasks]
        first = len(tables[-1]) - model.classes_per_task[last] if model.scenario == "domain" else 0
        sums, counts = [torch.zeros_like(it) for it in tables], torch.zeros(len(tables[-1]), device=self.device)
        model.eval()
        for x, y in self.counted(task.train):
            with torch.no_grad():
                for total, features in zip(sums, model.features(x, tasks), strict=True):
                    total.index_add_(0, y + first, features.float())
            counts += torch.bincount(y + first, minlength=len(counts))
        seen, owners = counts > 0, model.owners.to(self.device)
        means = [total[seen] / counts[seen, None] for total in sums]
        for it, (table, mean) in enumerate(zip(tables, means, strict=True)):
            table[seen & (owners == last) if it < last and model.scenario != "task" else seen] = mean
        if model.scenario == "task":
            return
        for row in (~seen & (owners < last)).nonzero().flatten().tolist():
            # Alike in the features of the class's own task, in which both have true prototypes.
            own = int(owners[row])
            alike = normalize(means[own]) @ normalize(tables[own][row], dim=0)
            tables[-1][row] = alike.softmax(dim=0) @ means[-1]
