"""A network that tasks share by weights: each has a binary mask over them, and computes with those up to its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from seu_bench.errors import RequestError, RunError
from seu_bench.models import MultiHeadModel, freeze, pack_bits, packed_bytes, unpack_bits
from seu_bench.models.multihead import not_learned

#: Layers whose weights are given to tasks.
_WEIGHTED = (nn.Conv2d, nn.Linear)


class PackedModel(MultiHeadModel):
    """A backbone whose weights are given to tasks one by one, and a linear head for each task.

    *Weights* are those of the backbone's convolutions and linear layers. Everything else in it, biases and
    normalisation, is the first task's. A weight that no task keeps is 0 between two tasks.

    Args:
        backbone: images ``[N, C, H, W]`` -> features ``[N, features]``.
        features: width of its output.
        classes: outputs of each task's head.

    Attributes:
        names: of the layers' weights, as parameters of the backbone.
        count: number of weights.
        masks: packed, ``[tasks learned, bytes]``: which weights each task keeps, all layers one after another.
        learning: the task that is being learned, which computes with all weights as they are; ``None``: none is.
        shared_frozen: whether what is no weight belongs to the first task for good.

    Raises:
        RequestError: the backbone has no weights.
    """

    masks: Tensor

    def __init__(self, backbone: nn.Module, features: int, classes: Sequence[int]) -> None:
        super().__init__(classes)
        self.backbone = backbone
        self.heads = nn.ModuleList(nn.Linear(features, width) for width in classes)
        layers = {f"{name}.weight" for name, module in backbone.named_modules() if isinstance(module, _WEIGHTED)}
        # In the order of the parameters, and each that layers share once.
        self.names = tuple(name for name, _ in backbone.named_parameters() if name in layers)
        if not self.names:
            raise RequestError(
                "packnet gives weights of the backbone to tasks, and this one has no convolution and no linear layer",
                remedy="choose another one, e.g. -o backbone=mlp",
            )
        self.learning: int | None = None
        self.shared_frozen = False
        self.count = sum(weight.numel() for weight in self.weights())
        self.register_buffer("masks", torch.zeros((0, packed_bytes(self.count)), dtype=torch.uint8))

    def weights(self) -> list[nn.Parameter]:
        """The weights, by layer."""
        parameters = dict(self.backbone.named_parameters())
        return [parameters[name] for name in self.names]

    def kept(self, first: int, last: int) -> list[Tensor]:
        """The weights that some tasks keep, together.

        Args:
            first: task that is the first of them.
            last: and the last; before ``first``: there are none.

        Returns:
            Bool, of each layer's shape.
        """
        packed = reduce(torch.bitwise_or, self.masks[first : last + 1], self.masks.new_zeros(self.masks.shape[1]))
        shapes = [weight.shape for weight in self.weights()]
        parts = unpack_bits(packed, (self.count,)).split([shape.numel() for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def free(self) -> list[Tensor]:
        """The weights that no task keeps; bool, of each layer's shape."""
        return [~taken for taken in self.kept(0, len(self.masks) - 1)]

    def begin(self, task: int) -> None:
        """Compute ``task`` with all weights as they are, until :meth:`finish`.

        Raises:
            RunError: it is neither the next task nor the last one that was packed.
        """
        if task not in (len(self.masks) - 1, len(self.masks)):
            raise RunError(
                f"task {task} cannot be learned after {len(self.masks)} tasks: each is learned once, in the stream's "
                "order",
                remedy="train on benchmark.train_stream from its beginning, with a strategy made for it",
            )
        self.learning = task

    def pack(self, kept: Sequence[Tensor]) -> None:
        """Give weights to the task that is being learned, and set those that are still free to 0.

        Args:
            kept: bool, of each layer's shape; free ones only.
        """
        packed = pack_bits(torch.cat([mask.flatten() for mask in kept]))
        self._set_masks(torch.cat([self.masks, packed[None]]))
        with torch.no_grad():
            for weight, free in zip(self.weights(), self.free(), strict=True):
                weight.masked_fill_(free, 0)

    def finish(self) -> None:
        """The task is learned: from now on it computes with its mask. What is no weight never changes again."""
        self.learning = None
        self._freeze_shared()

    def train(self, mode: bool = True) -> Self:
        """Switch modes; what has running statistics stays in evaluation mode after the first task."""
        super().train(mode)
        if self.shared_frozen:
            for module in self.backbone.modules():
                if getattr(module, "track_running_stats", False):
                    module.eval()
        return self

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]``, by the weights that tasks up to this one keep.

        Raises:
            RunError: the task was not learned yet.
        """
        if task_label == self.learning:
            features = self.backbone(x)
        elif 0 <= task_label < len(self.masks):
            features = functional_call(self.backbone, self.masked(task_label), (x,))
        else:
            raise not_learned(task_label, "weights")
        logits: Tensor = self.heads[task_label](features)
        return logits

    def masked(self, task: int) -> dict[str, Tensor]:
        """The weights that a learned task computes with, by name: others are 0."""
        chosen = zip(self.names, self.weights(), self.kept(0, task), strict=True)
        return {name: torch.where(kept, weight, 0.0) for name, weight, kept in chosen}

    def task_module(self, task: int) -> nn.Module:
        """The backbone, whatever the masks take of it, and the task's head."""
        return nn.ModuleList([self.backbone, self.heads[task]])

    def alone(self, task: int) -> PackedModel:
        """A copy whose other weights are 0, which computes the task without masks."""
        copied = deepcopy(self)
        with torch.no_grad():
            for weight, masked in zip(copied.weights(), self.masked(task).values(), strict=True):
                weight.copy_(masked)
        copied.learning = task
        return copied

    def architecture(self) -> dict[str, Any]:
        """The number of masks, and whether what is no weight is frozen."""
        return {"masks": len(self.masks), "shared_frozen": self.shared_frozen}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give a model without masks room for those of ``architecture``.

        Raises:
            ValueError: there are more masks than tasks, or this model has some.
        """
        masks = int(architecture["masks"])
        if not 0 <= masks <= len(self.classes_per_task) or len(self.masks):
            raise ValueError(f"{masks} masks do not fit {len(self.classes_per_task)} tasks")
        self._set_masks(self.masks.new_zeros((masks, self.masks.shape[1])))
        if architecture["shared_frozen"]:
            self._freeze_shared()

    def _freeze_shared(self) -> None:
        self.shared_frozen = True
        named = self.backbone.named_parameters()
        freeze(*(parameter for name, parameter in named if name not in self.names))
        self.train(self.training)

    def packed_masks(self) -> Sequence[Tensor]:
        """A bit for each weight and task."""
        return (self.masks,)

    def _set_masks(self, masks: Tensor) -> None:
        self.masks = masks
        self.mask_bits = len(masks) * self.count
