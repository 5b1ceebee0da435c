"""Paths through a pretrained network with frozen units in it, and the linear classifiers at their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, log_softmax, one_hot, pad

from seu_bench.config.streams import Scenario
from seu_bench.models import MultiHeadModel, freeze
from seu_bench.models.multihead import not_learned
from seu_bench_adapt.units import UNITS, AdaptedEncoder, Bottleneck, CosineHead, spread

#: What is added to the diagonal of a kernel, or of a covariance, in units of its mean; the best one counts.
STRENGTHS: Final = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Path:
    """How a task's images are read.

    Attributes:
        layers: whose pooled outputs are joined, in order.
        units: number of the unit behind each layer that may be adapted; -1: none.
    """

    layers: tuple[int, ...]
    units: tuple[int, ...]


class DiscriminantHead(nn.Module):
    """Linear discriminants of features ``[N, D]``, the last of them 1, made of sums over images without gradients.

    Args:
        width: D.
        keeps: whether sums are kept, so that further classes can be learned.

    Attributes:
        gram: upper triangle of ``[D, D]`` by rows, the sum of the products of features.
        sums: ``[rows, D]``, the sum of the features of each class, and so last the number of its images.
        right: of each of :data:`STRENGTHS`, how many withheld images it answered right when their task was learned.
        weight: ``[rows, D]``, which answers, offsets last; it follows from the rest.
    """

    right: Tensor
    weight: Tensor

    def __init__(self, width: int, *, keeps: bool) -> None:
        super().__init__()
        self.width, self.keeps = width, keeps
        self.gram = nn.Parameter(torch.zeros(width * (width + 1) // 2 if keeps else 0), requires_grad=False)
        self.sums = nn.Parameter(torch.zeros(0, width), requires_grad=False)
        self.register_buffer("right", torch.zeros(len(STRENGTHS)))
        self.register_buffer("weight", torch.zeros(0, width))

    def grow(self, rows: int) -> None:
        """Make room for further classes."""
        self.weight = pad(self.weight, (0, 0, 0, rows))
        if self.keeps:
            self.sums = nn.Parameter(pad(self.sums, (0, 0, 0, rows)), requires_grad=False)

    def learn(self, gram: Tensor, sums: Tensor, withheld: Tensor, labels: Tensor) -> None:
        """Take in sums ``[D, D]`` and ``[rows, D]`` over images, and decide anew.

        :data:`STRENGTHS` are factors of the mean variance within classes, which is added to the covariance's diagonal.
        The one counts with which most withheld features ``[N, D]`` of rows ``[N]`` were answered right, those of
        earlier tasks when these were learned; of equal ones the strongest.
        """
        if self.keeps:
            upper = torch.triu_indices(self.width, self.width, device=gram.device)
            self.gram.add_(gram[upper[0], upper[1]])
            self.sums.add_(sums)
            gram, sums = torch.zeros_like(gram), self.sums.double()
            gram[upper[0], upper[1]] = self.gram.double()
            gram = gram + gram.triu(1).T
        counts = sums[:, -1]
        means = sums[:, :-1] / counts.clamp(min=1)[:, None]
        within = (gram[:-1, :-1] - sums[:, :-1].T @ means) / (counts.sum() - len(counts)).clamp(min=1)
        # Of images that are all the same it is rounding alone.
        least = 1e-6 * means.square().mean() + torch.finfo(torch.float32).tiny
        variance, found = within.diagonal().mean().maximum(least), list[Tensor]()
        for place, strength in enumerate(STRENGTHS):
            weight = torch.linalg.solve(within + (strength * variance).expand(len(within)).diag(), means.T).T
            offsets = torch.where(counts > 0, -(weight * means).sum(dim=1) / 2, -1e9)  # without images, no answer
            found.append(torch.cat([weight, offsets[:, None]], dim=1).float())
            self.right[place] += (linear(withheld, found[-1]).argmax(dim=1) == labels).sum()
        self.weight.copy_(found[max(range(len(found)), key=lambda it: (float(self.right[it]), it))])


class PathModel(MultiHeadModel):
    """Paths of tasks through a pretrained network with frozen units in it, and a classifier at the end of each.

    Args:
        network: the pretrained network, no part of this model's state.
        labels: of each task, those of its images.
        classes: number of classes of each task.
        scenario: ``task``: a classifier for each task. ``class``: one for each path, and that of the first path, which
            knows all classes, chooses among paths.

    Attributes:
        units: frozen; ``unit_places`` says behind which adapted layer and of which kind each is.
        paths, path_of: the paths, and which one each task takes.
        heads: linear discriminants.
        mean: of the pooled outputs of all layers, over the images of the first task.
        std: by which they are divided, so that the outputs of each layer are as long as those of any other.
    """

    has_frozen_layers = True
    mean: Tensor
    std: Tensor

    def __init__(
        self, network: AdaptedEncoder, labels: Sequence[Sequence[int]], classes: Sequence[int], scenario: Scenario
    ) -> None:
        super().__init__(classes)
        self.network, self.labels, self.scenario = network, labels, scenario
        self.units, self.heads = nn.ModuleList(), nn.ModuleList()
        self.unit_places: list[tuple[int, str]] = []
        self.paths: list[Path] = []
        self.path_of: list[int] = []
        widths = network.encoder.info.widths
        ends = np.cumsum([0, *widths]).tolist()
        self.columns = [range(*it) for it in pairwise(ends)]
        self.register_buffer("mean", torch.zeros(ends[-1]))
        self.register_buffer("std", torch.ones(ends[-1]))
        #: New units, the layers that they are read by, and the head that trains them.
        self.candidates: nn.ModuleList | None = None
        self.read: tuple[int, ...] = ()
        self.head: CosineHead | None = None

    # ------------------------------------------------------------------ features

    @property
    def no_units(self) -> tuple[int, ...]:
        """Places of units, without any."""
        return (-1,) * len(self.network.widths)

    def modules_of(self, units: Sequence[int]) -> list[nn.Module]:
        """The units of these numbers; -2 is the candidate of its place."""
        fresh = self.candidates or nn.ModuleList()
        return [nn.Identity() if it == -1 else fresh[at] if it == -2 else self.units[it] for at, it in enumerate(units)]

    def outputs(self, images: Tensor, units: Sequence[int]) -> list[Tensor]:
        """Standardised pooled outputs ``[N, C]`` of all layers, with units."""
        maps, *pooled = self.cached_features(images, "prefix", self.network.prefix)
        found = [*pooled, *self.network.outputs(maps, self.modules_of(units))]
        places = [slice(columns.start, columns.stop) for columns in self.columns]
        return [(it - self.mean[here]) / self.std[here] for it, here in zip(found, places, strict=True)]

    def features(self, images: Tensor, path: Path) -> Tensor:
        """Features ``[N, D]`` of a path, the last of them 1."""
        outputs = self.outputs(images, path.units)
        return pad(torch.cat([outputs[layer] for layer in path.layers], dim=1), (0, 1), value=1.0)

    # ------------------------------------------------------------------ answers

    def rows(self, tasks: Sequence[int], device: torch.device) -> Tensor:
        """Places of the classes of tasks among all."""
        ends = np.cumsum([0, *self.classes_per_task]).tolist()
        return torch.cat([torch.arange(ends[task], ends[task + 1], device=device) for task in tasks])

    def tasks_on(self, path: int) -> list[int]:
        """The tasks that a path's classifier answers for: of the first path, all of them."""
        return [task for task, it in enumerate(self.path_of) if path in (it, 0)]

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits of the classes seen, of the task's where it is known; while units train, those of their head.

        Raises:
            RunError: the task was not learned yet.
        """
        if self.training and self.head is not None:
            task = len(self.path_of)
            outputs = (
                sum(self.classes_per_task[: task + 1]) if self.scenario == "class" else self.classes_per_task[task]
            )
            found = self.outputs(x, [-2] * len(self.no_units))
            return spread(self.head(torch.cat([found[it] for it in self.read], dim=1)), self.labels[task], outputs)
        if not 0 <= task_label < len(self.path_of):
            raise not_learned(task_label)
        if self.scenario == "task":
            return self._answer(x, self.paths[self.path_of[task_label]], task_label)
        logits = self._answer(x, self.paths[0], 0)
        if len(self.paths) == 1:
            return logits
        logits = log_softmax(logits, dim=1)
        for number, path in enumerate(self.paths[1:], start=1):
            rows = self.rows(self.tasks_on(number), x.device)
            within = log_softmax(self._answer(x, path, number), dim=1)
            logits[:, rows] = logits[:, rows].logsumexp(dim=1, keepdim=True) + within
        return logits

    def _answer(self, x: Tensor, path: Path, number: int) -> Tensor:
        head: Any = self.heads[number]
        return linear(self.features(x, path), head.weight)

    def task_module(self, task: int) -> nn.Module:
        """Units and classifiers that answer: the task's own where it is known, otherwise all."""
        if self.scenario != "task":
            return nn.ModuleList([self.units, self.heads])
        used = [self.units[it] for it in self.paths[self.path_of[task]].units if it >= 0]
        return nn.ModuleList([*used, self.heads[task]])

    def trainable_module(self, task: int) -> nn.Module:
        """The candidates and their head."""
        return nn.ModuleList([it for it in (self.candidates, self.head) if it is not None])

    # ------------------------------------------------------------------ growth

    def expand(self, kind: str, read: Sequence[int], classes: int, device: torch.device) -> None:
        """Make a new unit for every place, drawn from the global generator, and a head on the layers that are read."""
        self.candidates = nn.ModuleList(Bottleneck(width, UNITS[kind]) for width in self.network.widths).to(device)
        self.read = tuple(read)
        self.head = CosineHead(sum(len(self.columns[it]) for it in read), classes).to(device)

    def seal(self, path: Path, kind: str) -> None:
        """Let the next task take a path, of which candidates (-2) become units, and drop the others."""
        numbers = list(path.units)
        for place, number in enumerate(numbers):
            if number == -2 and self.candidates is not None:
                numbers[place] = len(self.units)
                self._add_unit(place, kind, self.candidates[place])
        self.candidates = self.head = None
        path = Path(path.layers, tuple(numbers))
        if path not in self.paths:
            self.paths.append(path)
        self.take(self.paths.index(path))

    def _add_unit(self, place: int, kind: str, unit: nn.Module) -> None:
        freeze(unit)
        self.units.append(unit)
        self.unit_places.append((place, kind))

    def take(self, number: int) -> None:
        """Let the next task take a path that is there, and make room for its classes."""
        task, path, device = len(self.path_of), self.paths[number], self.mean.device
        self.path_of.append(number)
        for it in [task] if self.scenario == "task" else sorted({0, number}):
            if it == len(self.heads):
                width = 1 + sum(len(self.columns[layer]) for layer in path.layers)
                self.heads.append(DiscriminantHead(width, keeps=self.scenario == "class").to(device))
            head: Any = self.heads[it]
            head.grow(self.classes_per_task[task])

    def architecture(self) -> dict[str, Any]:
        """Kinds and places of units, and the path of each task."""
        paths = [{"layers": list(it.layers), "units": list(it.units)} for it in self.paths]
        return {"units": [list(it) for it in self.unit_places], "paths": paths, "path_of": list(self.path_of)}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Add units, paths and classifiers to a model without any.

        Raises:
            ValueError: it is the architecture of another model.
        """
        if sorted(architecture) != ["path_of", "paths", "units"]:
            raise ValueError("it is not the architecture of paths through a pretrained network")
        for place, kind in architecture["units"]:
            self._add_unit(place, kind, Bottleneck(self.network.widths[place], UNITS[kind]))
        self.paths = [Path(tuple(it["layers"]), tuple(it["units"])) for it in architecture["paths"]]
        for number in architecture["path_of"]:
            self.take(number)


def best_accuracy(kernel: Tensor, labels: Tensor, cross: Tensor | None = None, withheld: Tensor | None = None) -> float:
    """Accuracy of ridge by the best of :data:`STRENGTHS`, in [0, 1].

    Args:
        kernel: ``[N, N]`` products of the features of images.
        labels: ``[N]`` of them, from 0.
        cross: ``[M, N]`` products of withheld images with them; ``None``: each image is answered by the others
            (leaving one out, in closed form).
        withheld: ``[M]`` labels of withheld images.
    """
    targets, eye = one_hot(labels).to(kernel), torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
    mean, right = kernel.diagonal().mean().clamp(min=torch.finfo(torch.float32).tiny), []
    for strength in STRENGTHS:
        inverse = torch.linalg.inv(kernel + strength * mean * eye)
        solved = inverse @ targets
        answers = targets - solved / inverse.diagonal()[:, None] if cross is None else cross @ solved
        right.append(float((answers.argmax(dim=1) == (labels if withheld is None else withheld)).double().mean()))
    return max(right)
