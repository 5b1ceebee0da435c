"""HAT (J. Serra et al., "Overcoming catastrophic forgetting with hard attention to the task", ICML 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from seu_bench import Method
from seu_bench.config import BackboneOptions, Schedule, TaskInferenceOptions, TuningGrid
from seu_bench.errors import RequestError
from seu_bench.models import MultiHeadModel
from seu_bench.training import Cost, Phase, StrategyContext, TaskData, TrainingStage, build_backbone
from seu_bench_kit import chain_of
from seu_bench_kit.costing import fixed_size_cost
from seu_bench_methods.plateau import PlateauOptions, PlateauStage, at_least, follows_validation

#: Largest ``|s e|`` that the compensation computes a cosh of, and largest ``|e|`` after a step (published code; the
#: paper has the second).
LARGEST_EXPONENT: Final = 50.0
LARGEST_EMBEDDING: Final = 6.0


def scale_of(batch: int, batches: int, largest: float) -> float:
    """The factor ``s`` of a batch: it grows linearly within an epoch, from ``1 / largest`` to ``largest`` (2.4)."""
    smallest = 1 / largest
    return smallest + (largest - smallest) * batch / max(1, batches - 1)


def compensate_gradient(gradient: Tensor, embedding: Tensor, scale: float, largest: float) -> Tensor:
    """The gradient of an embedding as if the gate were ``sigmoid(e)``, times ``largest`` (section 2.5).

    A steep gate has hardly any gradient, and a flat one little: the slope of ``sigmoid(s e)`` is divided out.
    """
    steep = torch.cosh((scale * embedding).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)) + 1
    return gradient * (largest / scale) * steep / (torch.cosh(embedding) + 1)


def used_anew(gates: Sequence[Tensor], used: Sequence[Tensor]) -> Tensor:
    """The share of units that a task takes among those that no earlier task uses (section 2.6)."""
    free = [1 - each for each in used]
    taken = torch.stack([(gate * each).sum() for gate, each in zip(gates, free, strict=True)]).sum()
    total = torch.stack([each.sum() for each in free]).sum()
    return taken / total.clamp(min=torch.finfo(total.dtype).tiny)


def gradient_mask(used: Tensor, inputs: Tensor | None, shape: Sequence[int], spread: int = 1) -> Tensor:
    """What the gradient of a layer's weight is multiplied by, so that earlier tasks keep what they compute (2.3).

    Args:
        used: largest gates of earlier tasks on the layer's units, ``[units]``.
        inputs: the same of the units that it reads, ``[inputs]``; ``None``: it reads the image, which has no gates.
        shape: of the layer's weight, ``[units, inputs * spread]`` or ``[units, inputs, k, k]``.
        spread: numbers that each unit is read by.
    """
    after = used.view(-1, *(1 for _ in shape[1:]))
    if inputs is None:
        return 1 - after
    before = inputs.repeat_interleave(spread).view(1, -1, *(1 for _ in shape[2:]))
    return 1 - torch.minimum(after, before)


class GatedModel(MultiHeadModel):
    """A backbone that all tasks share, each through gates of its own, and a linear head for each.

    A gate is ``sigmoid(s e)`` of an embedding ``e``, a real number for each unit of a layer and task. Embeddings are
    drawn from N(0, 1), those of all tasks at the start, like the heads; where tasks may be added, task by task.

    Args:
        backbone: a chain of layers (:func:`~seu_bench_kit.chain_of`).
        features: width of its output.
        classes: outputs of each task's head.
        s_max: factor of the embeddings within the gates in evaluation.
        open_ended: whether tasks may be added.

    Attributes:
        layers: the backbone's layers, in order.
        scale: factor within the gates in training, set for every batch.
    """

    def __init__(
        self, backbone: nn.Module, features: int, classes: Sequence[int], s_max: float, *, open_ended: bool = False
    ) -> None:
        super().__init__(classes)
        self.layers = chain_of(backbone, "hat")
        self.backbone = backbone
        self.heads, self.embeddings = nn.ModuleList(), nn.ModuleList()
        for widths in [[width] for width in classes] if open_ended else [classes]:
            self.heads.extend(nn.Linear(features, width) for width in widths)
            self.embeddings.extend(nn.ParameterList(torch.randn(layer.units) for layer in self.layers) for _ in widths)
        self.scale = self.s_max = s_max

    def embeddings_of(self, task: int) -> list[nn.Parameter]:
        """The embeddings of a task, ``[units]`` for each layer."""
        return list(self.embeddings[task].parameters())

    def gates(self, task: int, scale: float | None = None) -> list[Tensor]:
        """The gates of a task.

        Returns:
            ``[units]`` from 0 to 1 for each layer.
        """
        if scale is None:
            scale = self.scale if self.training else self.s_max
        return [torch.sigmoid(scale * embedding) for embedding in self.embeddings_of(task)]

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]``; each layer's output is gated behind activation, dropout and pooling.

        Before pooling, where the paper has it, a gate gives the same: it is not negative.
        """
        for layer, gate in zip(self.layers, self.gates(task_label), strict=True):
            x = layer.after(layer.weighted(layer.before(x)))
            x = x * gate.view(-1, *(1 for _ in x.shape[2:]))
        logits: Tensor = self.heads[task_label](x)
        return logits

    def task_module(self, task: int) -> nn.Module:
        """The backbone, the task's embeddings and its head."""
        return nn.ModuleList([self.backbone, self.embeddings[task], self.heads[task]])


@dataclass(frozen=True)
class Protection:
    """What earlier tasks ask of the one that trains.

    Attributes:
        task: that trains.
        used: largest gates of earlier tasks, ``[units]`` for each layer.
        passing: by what the gradient of a parameter is multiplied; empty for the first task.
    """

    task: int
    used: Sequence[Tensor]
    passing: Sequence[tuple[Tensor, Tensor]]


class Hat(Method):
    """Hard attention to the task: a learned gate per task and unit (Serra et al. 2018).

    The loss of a batch, and the validation loss that selects weights, is cross-entropy + ``hat_lambda`` times the share
    of units not used before that the task takes: in training with the gates of the batch, in validation with those of
    evaluation.
    """

    name = "hat"
    title = "HAT"
    citation = "seu_bench_kit:serra2018overcoming"
    inputs = ("image", "features")
    needs_validation = staticmethod(follows_validation)
    scenarios = ("task",)
    # On streams of a few steps the published penalty closes units before they have learned anything.
    check_options = {"hat_lambda": 0.05, "learning_rate": 0.1}

    class Options(PlateauOptions, BackboneOptions, TaskInferenceOptions):
        """Options of hard attention to the task."""

        tuning_grid: ClassVar[TuningGrid] = {
            "hat_lambda": (0.05, 0.25, 0.75),
            "learning_rate": (0.025, 0.05, 0.1, 0.2),
        }

        hat_lambda: NonNegativeFloat = Field(
            0.75, description="weight of the penalty on units that no earlier task uses"
        )
        s_max: Annotated[float, Field(ge=1)] = Field(
            400.0, description="largest factor of the embeddings within the gates, and the one of evaluation"
        )
        learning_rate: PositiveFloat | None = Field(0.05, description="learning rate of the first epoch")
        weight_decay: NonNegativeFloat | None = Field(
            0.0, description="weight decay of SGD; only 0 leaves alone what earlier tasks use"
        )
        clip_norm: PositiveFloat | None = Field(10_000.0, description="largest norm of the gradient")
        min_learning_rate: NonNegativeFloat | None = Field(
            1e-4, description="where the cosine schedule ends; with lr_schedule=plateau training ends below it"
        )

    options: Options
    model: GatedModel

    @classmethod
    def make_model(cls, context: StrategyContext) -> GatedModel:
        """The backbone with gates; it refuses weight decay, which moves weights whose gradient is 0."""
        schedule: Schedule = context.options.applied_to(context.protocol.training)
        if schedule.weight_decay:
            raise RequestError(
                f"hat cannot be trained with a weight decay of {schedule.weight_decay:g}: it moves what earlier tasks "
                "use",
                remedy="leave weight_decay out, or set it to 0",
            )
        plan, s_max = context.plan, context.options.s_max
        return GatedModel(*build_backbone(context), plan.classes_per_task, s_max, open_ended=plan.open_ended)

    def setup(self) -> None:
        """Begin with nothing to protect."""
        self.learned_tasks: tuple[int, ...] = ()
        self._protection: Protection | None = None

    def before_task(self, task: TaskData) -> None:
        """Protect what the tasks learned so far use."""
        self._protection = self.protection_of(task.index)

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training alone, in which units of earlier tasks are protected."""
        return [Phase(lambda: self._begin_training(task), lambda _: self._finish_task(task.index))]

    def training_stage(self, task: TaskData) -> TrainingStage:
        """Follow the validation loss where that was chosen."""
        return PlateauStage(self, task) if self.lr_schedule == "plateau" else super().training_stage(task)

    def _finish_task(self, task: int) -> None:
        self._protection = None
        if task not in self.learned_tasks:
            self.learned_tasks = (*self.learned_tasks, task)

    def protection_of(self, task: int) -> Protection:
        """What the tasks learned so far ask of the training of ``task``."""
        layers, earlier = self.model.layers, [it for it in self.learned_tasks if it != task]
        used = [torch.zeros(layer.units, device=self.device) for layer in layers]
        with torch.no_grad():
            for each in earlier:
                used = [*map(torch.maximum, used, self.model.gates(each, self.model.s_max))]
        factors: list[tuple[Tensor, Tensor]] = []
        for layer, gates, inputs in zip(layers, used, (None, *used[:-1]), strict=True):
            weight, bias = layer.weighted.weight, layer.weighted.bias
            factors.append((weight, gradient_mask(gates, inputs, weight.shape, layer.spread)))
            if bias is not None:
                factors.append((bias, 1 - gates))
        return Protection(task, used, factors if earlier else ())

    def forward(self) -> Tensor:
        """Logits of the batch, in training with the gates that it has in its epoch."""
        if self.is_training:
            self.model.scale = scale_of(self.batch_number, self.batches_per_epoch, self.model.s_max)
        return super().forward()

    def penalty(self) -> Tensor | None:
        """``hat_lambda`` times the share of free units that the task in training takes."""
        if self._protection is None or self.options.hat_lambda == 0:
            return None
        return self.options.hat_lambda * used_anew(self.model.gates(self._protection.task), self._protection.used)

    def optimizer_step(self) -> None:
        """Hold what earlier tasks use, undo the slope of the gates, clip, step, and bound the embeddings."""
        if self._protection is None:
            return super().optimizer_step()
        for parameter, factor in self._protection.passing:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
        embeddings = self.model.embeddings_of(self._protection.task)
        for embedding in embeddings:
            if embedding.grad is not None:
                embedding.grad = compensate_gradient(
                    embedding.grad, embedding.detach(), self.model.scale, self.model.s_max
                )
        super().optimizer_step()
        with torch.no_grad():
            for embedding in embeddings:
                embedding.clamp_(-LARGEST_EMBEDDING, LARGEST_EMBEDDING)

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """That of naive fine-tuning, and an embedding for each task and unit; nothing is kept beside the model."""
        cost, options = fixed_size_cost(context, lambda: cls.make_model(context)), context.options
        follows = options.lr_schedule == "plateau"
        return at_least(cost, options.applied_to(context.protocol.training)) if follows else cost
