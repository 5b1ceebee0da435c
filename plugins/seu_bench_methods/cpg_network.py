"""The network of CPG: weights of all tasks, at the width that it has grown to, and of each task what is its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from seu_bench.errors import RequestError
from seu_bench.models import MultiHeadModel, freeze
from seu_bench.models.answers import path_checksum
from seu_bench.models.multihead import not_learned, out_of_turn
from seu_bench_kit import pack_bits, packed_bytes, unpack_bits
from seu_bench_methods.packnet import largest

#: Where the real numbers begin from which a picking mask is made, and above what they pick.
SCORE, THRESHOLD = 0.01, 0.005

each = partial(zip, strict=True)


def picked(scores: Tensor) -> Tensor:
    """1 where a weight is picked, otherwise 0, as floats whose gradient goes to the scores as it is."""
    return (scores > THRESHOLD).to(scores.dtype) + (scores - scores.detach())


def block(shape: Sequence[int]) -> tuple[slice, ...]:
    """The leading block of a wider tensor."""
    return tuple(map(slice, shape))


class Part(nn.Module):
    """What is a task's own: biases and normalisation of a backbone without weights, the head, and a bit for each weight
    of its width, whether the task computes with it.

    Args:
        backbone: images ``[N, C, H, W]`` -> ``[N, features]``, without weights.
        shapes: of the weights.
        head: of the task.
        growth: how often the network had grown.
    """

    mask: Tensor

    def __init__(self, backbone: nn.Module, shapes: Sequence[torch.Size], head: nn.Linear, growth: int) -> None:
        super().__init__()
        self.backbone, self.shapes, self.head, self.growth = backbone, tuple(shapes), head, growth
        self.count = sum(shape.numel() for shape in shapes)
        self.register_buffer("mask", torch.zeros(packed_bytes(self.count), dtype=torch.uint8))

    def taken(self) -> list[Tensor]:
        """The weights that the task computes with: bool, of each one's shape."""
        parts = unpack_bits(self.mask, (self.count,)).split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in each(parts, self.shapes)]


class GrownModel(MultiHeadModel):
    """Weights of all tasks, at the width that the network has grown to, and a :class:`Part` for each task.

    *Weights* are parameters of two dimensions or more. A task computes at the width that it was learned at, with the
    leading blocks of the weights: with its own, and those of earlier tasks that it picked. Its mask has both. A weight
    belongs to the first task whose mask has it, and is 0 while there is none.

    Args:
        build: makes the backbone that has grown so often, and says the width of its features.
        classes: outputs of each task's head.

    Attributes:
        learned, learning: number of tasks that are, and the task that is being learned.
        taken: the weights that this one computes with, bool.
        scores: real numbers, for each weight, from which the picking mask is made; none where nothing can be picked.
        individual: a network for one task alone, which computes while it is there.

    Raises:
        RequestError: the backbone has no weights.
    """

    paths_stay = True

    def __init__(self, build: Callable[[int], tuple[nn.Module, int]], classes: Sequence[int]) -> None:
        super().__init__(classes)
        self.build, self.learned, self.learning, self.taken = build, 0, -1, list[Tensor]()
        self.individual: nn.Module | None = None
        self.scores = nn.ParameterList()
        self.parts = nn.ModuleList([self._grown(0, 0)])
        if not self.names:
            raise RequestError(
                "cpg gives weights of the backbone to tasks, and this one has none of two dimensions",
                remedy="choose another one, e.g. -o backbone=mlp",
            )

    def part(self, task: int) -> Part:
        """A task's part."""
        return cast(Part, self.parts[task])

    def begin(self, task: int) -> None:
        """Add the part of ``task``, its biases and normalisation from the part before, its head drawn anew.

        Raises:
            RunError: it is not the next task.
        """
        if task != self.learned:
            raise out_of_turn(task, self.learned)
        if task == len(self.parts):
            last = self.part(task - 1)
            head = nn.Linear(last.head.in_features, self.classes_per_task[task]).to(last.mask.device)
            backbone = deepcopy(last.backbone).requires_grad_(True)
            self.parts.append(Part(backbone, last.shapes, head, last.growth).to(last.mask.device))

    def pick(self, task: int) -> None:
        """Compute ``task`` with all free weights, and with those of earlier ones that scores pick."""
        self.learning, self.taken = task, self.free(task)
        self.scores = nn.ParameterList(torch.full_like(it, SCORE) for it in (self.weights if task else ()))

    def choose(self) -> None:
        """Let the task compute with what the scores pick, without them."""
        if self.learning:
            self.taken = [free | (scores > THRESHOLD) for free, scores in each(self.taken, self.scores)]
        self.scores = nn.ParameterList()
        self._keep()

    def compact(self, task: int) -> None:
        """Compute ``task`` with the weights of its mask."""
        self.learning, self.taken = task, self.part(task).taken()

    def prune(self, free: Sequence[Tensor], share: float) -> None:
        """Keep the largest of the task's own weights, but for a share of those that were ``free`` for it."""
        found = list(each(self.weights, self.taken, free))
        kept = largest([weight * taken for weight, taken, _ in found], [own for *_, own in found], share)
        self.taken = [(taken & ~own) | stays for (_, taken, own), stays in zip(found, kept, strict=True)]
        self._keep()

    @torch.no_grad()
    def finish(self) -> None:
        """The task is learned: what it does not compute with is free, and its part never changes again."""
        self.learned, self.learning, self.taken = self.learned + 1, -1, []
        for weight, free in each(self.weights, self.free(self.learned)):
            weight.masked_fill_(free, 0)
        self._freeze()

    @torch.no_grad()
    def grow(self, task: int) -> None:
        """Widen the network for ``task``, which begins anew: weights of earlier tasks stay, free ones are 0, and those
        that are added are drawn from the global generator, with biases and normalisation of added units."""
        old, free, last = self.weights, self.free(task), self.part(task - 1)
        made = self.parts[task] = self._grown(task, self.part(task).growth + 1).to(last.mask.device)
        self.weights.to(last.mask.device)
        for wide, weight, none, shape in each(self.weights, old, free, last.shapes):
            wide[block(shape)] = weight.masked_fill(none, 0)[block(shape)]
        wider = made.backbone.state_dict()
        for name, tensor in last.backbone.state_dict().items():
            wider[name][block(tensor.shape)] = tensor

    def free(self, task: int) -> list[Tensor]:
        """The weights that no task before this one computes with; bool, at the present width."""
        found = [torch.ones_like(weight, dtype=torch.bool) for weight in self.weights]
        for part in map(self.part, range(task)):
            for free, taken in each(found, part.taken()):
                free[block(taken.shape)] &= ~taken
        return found

    def train(self, mode: bool = True) -> Self:
        """Switch modes; the parts of learned tasks stay in evaluation mode."""
        super().train(mode)
        self.parts[: self.learned].eval()
        return self

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]``.

        Raises:
            RunError: the task was not learned yet.
        """
        if self.individual is not None:
            return cast(Tensor, self.individual(x))
        if task_label != self.learning and not 0 <= task_label < self.learned:
            raise not_learned(task_label, "weights")
        part = self.part(task_label)
        return cast(Tensor, part.head(functional_call(part.backbone, self.task_weights(task_label), (x,))))

    def task_weights(self, task: int) -> dict[str, Tensor]:
        """The weights that a task computes with, by name; others are 0, at its width."""
        taken = self.taken if task == self.learning else self.part(task).taken()
        if task == self.learning and len(self.scores):
            found = each(self.weights, taken, self.scores)
            values = [torch.where(free, weight, weight * picked(scores)) for weight, free, scores in found]
        else:
            values = [torch.where(it, weight[block(it.shape)], 0.0) for weight, it in each(self.weights, taken)]
        return dict(each(self.names, values))

    def task_module(self, task: int) -> nn.Module:
        """The weights at the task's width, whatever its mask takes of them, and the task's part."""
        part, weights = self.part(task), self.weights
        if part.growth != self.part(-1).growth:
            blocks = (weight.detach()[block(shape)] for weight, shape in each(weights, part.shapes))
            weights = nn.ParameterList(map(nn.Parameter, blocks))
        return nn.ModuleList([weights, part])

    def path_checksum(self, task: int) -> int:
        """That of the task's part and of the weights that it computes with, or of the network for one task alone."""
        path = self.part(task) if self.individual is None else self.individual
        return path_checksum(path, {id(it): it for it in self.task_weights(task).values()})

    def alone(self, task: int) -> GrownModel:
        """A copy that computes the task with a plain network, and has no others."""
        copied = deepcopy(self)
        part, (network, _) = copied.part(task), self.build(self.part(task).growth)
        network.load_state_dict({**part.backbone.state_dict(), **self.task_weights(task)})
        copied.individual = nn.Sequential(network, part.head).to(part.mask.device).train(self.training)
        copied.parts, copied.weights = nn.ModuleList(), nn.ParameterList()
        return copied

    def architecture(self) -> dict[str, Any]:
        """How often the network had grown for each task, and how many are learned."""
        return {"growths": [self.part(task).growth for task in range(len(self.parts))], "learned": self.learned}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give a new model the width and the parts of ``architecture``.

        Raises:
            ValueError: they do not fit its tasks, or this model has learned some.
        """
        growths, learned = [int(it) for it in architecture["growths"]], int(architecture["learned"])
        if not 0 <= learned <= len(growths) <= len(self.classes_per_task) or self.learned or len(self.parts) > 1:
            raise ValueError(f"{len(growths)} parts, {learned} of them learned, do not fit {self.classes_per_task}")
        self.parts = nn.ModuleList(self._grown(task, growth) for task, growth in enumerate(growths))
        self.learned = learned
        self._freeze()

    def packed_masks(self) -> Sequence[Tensor]:
        """A bit for each task and weight of its width."""
        return [part.mask for part in map(self.part, range(len(self.parts)))]

    def _grown(self, task: int, growth: int) -> Part:
        """Make weights of this width the model's, and a task's part of it."""
        backbone, features = self.build(growth)
        found = {name: weight for name, weight in backbone.named_parameters() if weight.dim() > 1}
        for owner, _, own in (name.rpartition(".") for name in found):
            setattr(backbone.get_submodule(owner), own, None)
        self.names, self.weights = tuple(found), nn.ParameterList(found.values())
        head = nn.Linear(features, self.classes_per_task[task])
        return Part(backbone, [weight.shape for weight in found.values()], head, growth)

    def _keep(self) -> None:
        self.part(self.learning).mask.copy_(pack_bits(torch.cat([mask.flatten() for mask in self.taken])))

    def _freeze(self) -> None:
        freeze(self.parts[: self.learned])
        self.train(self.training)
        self.mask_bits = sum(self.part(task).count for task in range(self.learned))


def check_leading(narrow: Mapping[str, Tensor], wide: Mapping[str, Tensor]) -> None:
    """Refuse a backbone whose tensors are no leading blocks of a wider one's, by a RequestError."""
    pairs = [(tensor.shape, wide[name].shape) for name, tensor in narrow.items() if name in wide]
    grow = all(len(old) == len(new) and all(a <= b for a, b in each(old, new)) for old, new in pairs)
    if narrow.keys() != wide.keys() or not grow:
        raise RequestError(
            "cpg widens the backbone, and the weights of this one are no leading blocks of a wider one's",
            remedy="choose a network that never grows with -o max_size=1, or another backbone, e.g. -o backbone=mlp",
        )
