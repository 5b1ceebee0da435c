"""SLCA (G. Zhang et al., "SLCA: Slow Learner with Classifier Alignment for Continual Learning on a Pre-trained Model",
ICCV 2023): a pretrained network that is trained slowly, and a classifier aligned on Gaussians of the classes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from seu_bench import Method
from seu_bench.config import TrainingOptions
from seu_bench.config.protocol import Schedule
from seu_bench.config.streams import Scenario
from seu_bench.models import MultiHeadModel, freeze
from seu_bench.models.encoder import Encoder
from seu_bench.models.multihead import not_learned, out_of_turn
from seu_bench.training import Phase, StrategyContext, TaskData
from seu_bench.training.loops import epoch_rate, make_optimizer, set_rate
from seu_bench.utils.rehearsing import abridge
from seu_bench_adapt.units import AdaptedEncoder, spread

#: Epochs of alignment.
EPOCHS: Final = 5
#: What is added to a covariance, as a share of its mean diagonal: of few images it has no full rank.
RIDGE: Final = 1e-4


class SlowModel(MultiHeadModel):
    """A copy of a pretrained network, a linear head for each task, and a Gaussian of the features of each class.

    Args:
        encoder: the network, which is copied. Running statistics of the copy stay: batches are small.
        labels: of each task, those of its images.
        classes: number of new classes of each task.
        scenario: of the stream.

    Attributes:
        heads: of each task ``[classes, F + 1]``, weights and, last, offsets; frozen when it is learned.
        means, factors: of each task, ``[classes, F]`` and, packed, the lower triangles ``[classes, F (F + 1) / 2]`` of
            Cholesky factors of covariances; zeros of a class without images.
    """

    def __init__(
        self, encoder: Encoder, labels: Sequence[Sequence[int]], classes: Sequence[int], scenario: Scenario
    ) -> None:
        super().__init__(classes)
        self.backbone = copy.deepcopy(encoder).requires_grad_()
        self.width, self.labels, self.scenario = encoder.info.widths[-1], labels, scenario
        self.heads, self.means, self.factors = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()

    def train(self, mode: bool = True) -> Self:
        """Set the mode; layers with running statistics, such as BatchNorm, stay in evaluation mode."""
        super().train(mode)
        for module in self.backbone.modules():
            if getattr(module, "track_running_stats", False):
                module.eval()
        return self

    def expand(self, task: int, device: torch.device) -> None:
        """Add the task's head, of zeros."""
        if task != len(self.heads):
            raise out_of_turn(task, len(self.heads))
        self.heads.append(nn.Parameter(torch.zeros(self.classes_per_task[task], self.width + 1, device=device)))

    def seal(self) -> None:
        """Freeze the newest head, and make room for Gaussians of its classes."""
        freeze(self.heads)
        rows, device = len(self.heads[-1]), self.heads[-1].device
        for tables, size in ((self.means, self.width), (self.factors, self.width * (self.width + 1) // 2)):
            tables.append(nn.Parameter(torch.zeros(rows, size, device=device), requires_grad=False))

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits of the classes seen, of the task's where it is known; in training the lowest number for classes that
        the newest task has no images of.

        Raises:
            RunError: the task was not learned yet.
        """
        if not 0 <= task_label < len(self.heads):
            raise not_learned(task_label, "head")
        head = self.heads[task_label] if self.scenario == "task" else torch.cat([*self.heads])
        logits = linear(self.backbone(x), head[:, :-1], head[:, -1])
        if self.training and self.scenario == "class":
            labels = self.labels[len(self.heads) - 1]
            return spread(logits[:, labels], labels, logits.shape[1])
        return logits

    def task_module(self, task: int) -> nn.Module:
        """The network and the head of the task; all heads where it is not known."""
        return nn.ModuleList([self.backbone, self.heads[task : task + 1] if self.scenario == "task" else self.heads])

    def trainable_module(self, task: int) -> nn.Module:
        """The network and the newest head."""
        return nn.ModuleList([self.backbone, self.heads[-1:]])

    def architecture(self) -> dict[str, Any]:
        """The number of tasks whose heads are frozen."""
        return {"sealed": len(self.means)}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Add heads and Gaussians to a model without any; a ValueError: there are more than tasks."""
        if list(architecture) != ["sealed"] or not 0 <= architecture["sealed"] <= len(self.classes_per_task):
            raise ValueError("it is not the architecture of a slow learner")
        for task in range(architecture["sealed"]):
            self.expand(task, next(self.backbone.parameters()).device)
            self.seal()


def alignment_loss(logits: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of logits ``[N, C]`` that are divided by their length and the temperature (paper, section 3.3)."""
    return cross_entropy(logits / (temperature * (logits.norm(dim=1, keepdim=True) + 1e-7)), labels)


class Slca(Method):
    """A pretrained network that is trained slowly, and a classifier aligned on Gaussians of the classes (SLCA).

    The network's copy is trained on each task with a small share of the classifier's learning rate, by cross-entropy
    over the task's classes alone. Then a Gaussian of each class's features is kept, its covariance in full as
    published, as the packed triangle of its factor, and all heads are trained on features that are drawn from these.
    The copy is counted with the model and the pretrained network it began as is not; tasks add heads and Gaussians.
    """

    name = "slca"
    title = "SLCA"
    citation = "seu_bench_kit:zhang2023slca"
    scenarios = ("task", "class")
    inputs = ("image",)
    uses_encoder: ClassVar[bool] = True
    trains_encoder: ClassVar[bool] = True
    check_options: ClassVar[Mapping[str, object]] = {"epochs": 40, "learning_rate": 0.3, "slow": 1.0}
    after_task_stage = "alignment"
    model: SlowModel

    class Options(TrainingOptions):
        """Options of SLCA."""

        slow: PositiveFloat = Field(0.01, description="learning rate of the network, as a share of the classifier's")
        drawn: PositiveInt = Field(256, description="features drawn of each class in each epoch of alignment")
        temperature: PositiveFloat = Field(0.1, description="of logits of length 1, in alignment")

    @classmethod
    def make_model(cls, context: StrategyContext) -> SlowModel:
        """Return a copy of the pretrained network, without heads."""
        plan = context.plan
        labels = [task.labels or tuple(range(task.num_classes)) for task in plan.tasks]
        return SlowModel(AdaptedEncoder.of(context, 0).encoder, labels, plan.classes_per_task, plan.scenario)

    def before_task(self, task: TaskData) -> None:
        """Add the task's head."""
        self.model.expand(task.index, self.device)

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """Make a fresh optimiser, whose first group is the network."""
        super().begin_training(module, schedule)
        group = self.optimizer.param_groups[0]
        head = group["params"].pop()
        self.optimizer.add_param_group({**group, "params": [head]})

    def optimizer_step(self) -> None:
        """Step, the network at a small share of the rate, which is set anew each epoch."""
        slow = self.optimizer.param_groups[0]
        rate = slow["lr"]
        slow["lr"] = rate * self.options.slow
        super().optimizer_step()
        slow["lr"] = rate

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of network and head, which is frozen then, and alignment."""
        training, alignment = super().phases(task)
        return [replace(training, apply=lambda _: self.model.seal()), alignment]

    @torch.no_grad()
    def after_task(self, task: TaskData) -> None:
        """Keep Gaussians of the task's classes, and align all heads."""
        model = self.model
        first = sum(model.classes_per_task[: task.index]) if model.scenario == "task" else 0
        model.eval()
        parts = [(model.backbone(x).double(), y + first) for x, y in self.counted(task.train)]
        features, labels = (torch.cat(it) for it in zip(*parts, strict=True))
        places = [(at, row) for at, head in enumerate(model.heads) for row in range(len(head))]
        below = torch.tril_indices(model.width, model.width, device=self.device).unbind()
        for label in labels.unique().tolist():
            at, row = places[label]
            mean, factor = gaussian(features[labels == label])
            model.means[at][row], model.factors[at][row] = mean, factor[below]
        self.align(places, below)

    def align(self, places: Sequence[tuple[int, int]], below: tuple[Tensor, ...]) -> None:
        """Train all heads on features drawn of each class that has a Gaussian."""
        model, drawn = self.model, self.options.drawn
        schedule = self.schedule.of_epochs(EPOCHS)
        weight = nn.Parameter(torch.cat([*model.heads]))
        optimizer = make_optimizer([weight], schedule)
        known = [label for label, (at, row) in enumerate(places) if model.factors[at][row, 0] > 0]
        labels = torch.tensor(known, device=self.device).repeat_interleave(drawn)
        for epoch in abridge([1] * EPOCHS):
            set_rate(optimizer, epoch_rate(schedule, epoch))
            rows = []
            for at, row in (places[label] for label in known):
                factor = weight.new_zeros(model.width, model.width)
                factor[below] = model.factors[at][row]
                rows.append(model.means[at][row] + torch.randn(drawn, model.width).to(self.device) @ factor.T)
            features = torch.cat(rows)
            for batch in torch.randperm(len(labels)).to(self.device).split(self.train_mb_size):
                with torch.enable_grad():
                    logits = linear(features[batch], weight[:, :-1], weight[:, -1])
                    loss = alignment_loss(logits, labels[batch], self.options.temperature)
                    (weight.grad,) = torch.autograd.grad(loss, [weight])
                optimizer.step()
        for head, part in zip(model.heads, weight.split([len(it) for it in model.heads]), strict=True):
            head.copy_(part)


def gaussian(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean ``[F]`` of features ``[N, F]``, and the Cholesky factor ``[F, F]`` of their covariance and a small ridge."""
    mean = features.mean(dim=0)
    covariance = (features - mean).T @ (features - mean) / max(1, len(features) - 1)
    covariance.diagonal().add_(RIDGE * covariance.diagonal().mean() + 1e-12)  # of features that are all the same
    return mean, torch.linalg.cholesky(covariance)
