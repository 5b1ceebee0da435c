"""What CPG computes with: weights that grow, a mask over them and a part of its own for each task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from seu_bench.errors import RequestError
from seu_bench.models import MultiHeadModel, freeze
from seu_bench.models.multihead import not_learned, out_of_turn
from seu_bench_kit import pack_bits, packed_bytes, unpack_bits
from seu_bench_methods.packnet import largest

#: Where the real numbers begin from which a picking mask is made, and above what they pick.
SCORE, THRESHOLD = 0.01, 0.005


def picked(scores: Tensor) -> Tensor:
    """1 where a weight is picked, otherwise 0, as floats whose gradient goes to the scores as it is."""
    return (scores > THRESHOLD).to(scores.dtype).detach() + (scores - scores.detach())


def strip(network: nn.Module) -> tuple[list[nn.Parameter], list[list[str]]]:
    """Take its weights, parameters of two dimensions or more, out of a network, with the names of each."""
    found: dict[nn.Parameter, list[str]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        if parameter.dim() > 1:
            found.setdefault(parameter, []).append(name)
    put_weights(network, [None] * len(found), [*found.values()])
    return [*found], [*found.values()]


def put_weights(network: nn.Module, weights: Sequence[nn.Parameter | None], names: Sequence[Sequence[str]]) -> None:
    """Undo :func:`strip`."""
    for weight, each in zip(weights, names, strict=True):
        for owner, _, own in (name.rpartition(".") for name in each):
            setattr(network.get_submodule(owner), own, weight)


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
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def take(self, kept: Sequence[Tensor]) -> None:
        """Let the task compute with these weights."""
        self.mask.copy_(pack_bits(torch.cat([mask.flatten() for mask in kept])))


class GrownModel(MultiHeadModel):
    """Weights of all tasks, at the width that the network has grown to, and a :class:`Part` for each task.

    A task computes at the width that it was learned at, with the leading blocks of the weights: with its own and with
    those that it picked among earlier tasks' weights, which its mask both has. A weight belongs to the first task whose
    mask has it, and is 0 while there is none.

    Args:
        build: makes the backbone that has grown so often, and says the width of its features.
        classes: outputs of each task's head.

    Attributes:
        learned: number of tasks that are.
        learning: the task that is being learned, and which weights it computes with, bool.
        scores: real numbers, for each weight, from which the picking mask is made; none where nothing can be picked.
        individual: a network for the task that is learned alone, which computes while it is there.

    Raises:
        RequestError: the backbone has no weights.
    """

    def __init__(self, build: Callable[[int], tuple[nn.Module, int]], classes: Sequence[int]) -> None:
        super().__init__(classes)
        self.build = build
        self.learned, self.learning = 0, -1
        self.taken: list[Tensor] = []
        self.weights, self.scores = nn.ParameterList(), nn.ParameterList()
        self.individual: nn.Module | None = None
        self.parts = nn.ModuleList()
        self.parts.append(self._grown(0, 0))
        if not len(self.weights):
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
            head = nn.Linear(last.head.in_features, self.classes_per_task[task])
            made = Part(deepcopy(last.backbone).requires_grad_(True), last.shapes, head, last.growth)
            self.parts.append(made.to(last.head.weight.device))

    def pick(self, task: int) -> None:
        """Compute ``task`` with all free weights, and with those of earlier ones that scores pick."""
        self.learning, self.taken = task, self.free(task)
        earlier = self.weights if task else ()
        self.scores = nn.ParameterList(torch.full_like(weight, SCORE) for weight in earlier)

    def choose(self) -> None:
        """Let the task compute with what the scores pick, without them."""
        if len(self.scores):
            pairs = zip(self.taken, self.scores, strict=True)
            self.taken = [free | (scores > THRESHOLD) for free, scores in pairs]
        self.part(self.learning).take(self.taken)
        self.scores = nn.ParameterList()

    def compact(self, task: int) -> None:
        """Compute ``task`` with the weights of its mask."""
        self.learning, self.taken = task, self.part(task).taken()

    def prune(self, free: Sequence[Tensor], fraction: float) -> None:
        """Keep the largest of the task's own weights, but for a fraction of those that were free for it."""
        triples = zip(self.weights, self.taken, free, strict=True)
        self.taken = [
            (taken & ~own) | largest(torch.where(taken, weight, 0.0), own, fraction) for weight, taken, own in triples
        ]
        self.part(self.learning).take(self.taken)

    @torch.no_grad()
    def finish(self) -> None:
        """The task is learned: what it does not compute with is free, and its part never changes again."""
        self.learned, self.learning, self.taken = self.learned + 1, -1, []
        for weight, free in zip(self.weights, self.free(self.learned), strict=True):
            weight.masked_fill_(free, 0)
        self._freeze()

    @torch.no_grad()
    def grow(self, task: int) -> None:
        """Widen the network for ``task``, which begins anew: weights of earlier tasks stay, free ones are 0, and those
        that are added are drawn from the global generator, with biases and normalisation of added units."""
        old, free, last = self.weights, self.free(task), self.part(task - 1)
        device = last.head.weight.device
        made = self._grown(task, self.part(task).growth + 1)
        for wide, weight, none, shape in zip(self.weights, old, free, last.shapes, strict=True):
            wide[block(shape)] = torch.where(none, 0.0, weight)[block(shape)].to(wide.device)
        wider = made.backbone.state_dict()
        for name, tensor in last.backbone.state_dict().items():
            wider[name][block(tensor.shape)] = tensor.to(wider[name].device)
        self.parts[task] = made
        self.to(device)

    def free(self, task: int) -> list[Tensor]:
        """The weights that no task before this one computes with; bool, at the present width."""
        found = [torch.ones_like(weight, dtype=torch.bool) for weight in self.weights]
        for part in map(self.part, range(task)):
            for free, taken in zip(found, part.taken(), strict=True):
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
            alone: Tensor = self.individual(x)
            return alone
        if task_label != self.learning and not 0 <= task_label < self.learned:
            raise not_learned(task_label, "weights")
        part = self.part(task_label)
        pairs = zip(self.names, self.task_weights(task_label), strict=True)
        tensors = {name: weight for names, weight in pairs for name in names}
        logits: Tensor = part.head(functional_call(part.backbone, tensors, (x,)))
        return logits

    def task_weights(self, task: int) -> list[Tensor]:
        """The weights that a task computes with, others are 0, at its width."""
        if task == self.learning and len(self.scores):
            triples = zip(self.weights, self.taken, self.scores, strict=True)
            return [torch.where(free, weight, weight * picked(scores)) for weight, free, scores in triples]
        taken = self.taken if task == self.learning else self.part(task).taken()
        pairs = zip(self.weights, taken, strict=True)
        return [torch.where(mask, weight[block(mask.shape)], 0.0) for weight, mask in pairs]

    def task_module(self, task: int) -> nn.Module:
        """The weights at the task's width, whatever its mask takes of them, and the task's part."""
        part, weights = self.part(task), self.weights
        if part.growth != self.part(-1).growth:
            pairs = zip(weights, part.shapes, strict=True)
            weights = nn.ParameterList(nn.Parameter(weight.detach()[block(shape)]) for weight, shape in pairs)
        return nn.ModuleList([weights, part])

    def alone(self, task: int) -> GrownModel:
        """A copy that computes the task with a plain network, and has no others."""
        copied = deepcopy(self)
        part = copied.part(task)
        put_weights(part.backbone, [nn.Parameter(weight.detach()) for weight in copied.task_weights(task)], self.names)
        copied.individual = nn.Sequential(part.backbone, part.head)
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
        growths, learned = [int(each) for each in architecture["growths"]], int(architecture["learned"])
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
        weights, self.names = strip(backbone)
        self.weights = nn.ParameterList(weights)
        shapes = [weight.shape for weight in weights]
        return Part(backbone, shapes, nn.Linear(features, self.classes_per_task[task]), growth)

    def _freeze(self) -> None:
        freeze(self.parts[: self.learned])
        self.train(self.training)
        self.mask_bits = sum(part.count for part in map(self.part, range(self.learned)))


def check_leading(narrow: nn.Module, wide: nn.Module) -> None:
    """Refuse a backbone whose tensors are no leading blocks of a wider one's, by a RequestError."""
    old, new = ({name: it.shape for name, it in module.state_dict().items()} for module in (narrow, wide))
    if old.keys() != new.keys() or not all(
        len(shape) == len(new[name]) and all(few <= many for few, many in zip(shape, new[name], strict=True))
        for name, shape in old.items()
    ):
        raise RequestError(
            "cpg widens the backbone, and the weights of this one are no leading blocks of a wider one's",
            remedy="choose a network that never grows with -o max_size=1, or another backbone, e.g. -o backbone=mlp",
        )
