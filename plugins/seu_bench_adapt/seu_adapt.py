"""Searching for extension units on a pretrained network: which layers a task reads, and which units adapt them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, log_softmax, one_hot, pad

from seu_bench import Method
from seu_bench.config import TrainingOptions
from seu_bench.config.streams import Scenario
from seu_bench.data.images import TaskImages
from seu_bench.errors import RequestError
from seu_bench.models import MultiHeadModel, count_macs, count_parameters, freeze, state_bytes
from seu_bench.models.multihead import not_learned
from seu_bench.training import Cost, Phase, StageCost, StrategyContext, TaskData, evaluation_passes
from seu_bench_adapt.units import UNITS, AdaptedEncoder, CosineHead, spread

#: Images of a task that candidates are scored with.
SCORED: Final = 600
#: Strengths of ridges, beside the mean of the diagonal, of which the best one counts.
STRENGTHS: Final = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
#: Factors of ridge outputs as logits: the one with the least loss for the first task's withheld images is taken.
SCALES: Final = (2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(frozen=True)
class Path:
    """How a task's images are read.

    Attributes:
        layers: whose pooled outputs are joined, in order.
        units: number of the unit behind each layer that may be adapted; -1: none.
    """

    layers: tuple[int, ...]
    units: tuple[int, ...]


class RidgeHead(nn.Module):
    """A ridge classifier of features ``[N, D]``, made of sums over images that no gradient reaches.

    Args:
        width: D.
        keeps: whether sums are kept, so that further classes can be learned.

    Attributes:
        gram: upper triangle of ``[D, D]`` by rows, the sum of the products of features.
        sums: ``[rows, D]``, the sum of the features of each class.
        weight: ``[rows, D]``, which answers; it follows from the rest.
    """

    weight: Tensor

    def __init__(self, width: int, *, keeps: bool) -> None:
        super().__init__()
        self.width, self.keeps = width, keeps
        self.gram = nn.Parameter(torch.zeros(width * (width + 1) // 2 if keeps else 0), requires_grad=False)
        self.sums = nn.Parameter(torch.zeros(0, width), requires_grad=False)
        self.register_buffer("weight", torch.zeros(0, width))

    def grow(self, rows: int) -> None:
        """Make room for further classes."""
        self.weight = pad(self.weight, (0, 0, 0, rows))
        if self.keeps:
            self.sums = nn.Parameter(pad(self.sums, (0, 0, 0, rows)), requires_grad=False)

    def learn(self, gram: Tensor, sums: Tensor, withheld: Tensor, labels: Tensor) -> None:
        """Take in sums ``[D, D]`` and ``[rows, D]`` over images, and decide anew.

        The strength is the one with the least squared error for withheld features ``[N, D]`` of rows ``[N]``, if any.
        """
        if self.keeps:
            upper = torch.triu_indices(self.width, self.width, device=gram.device)
            self.gram.add_(gram[upper[0], upper[1]])
            self.sums.add_(sums)
            gram, sums = torch.zeros_like(gram), self.sums.double()
            gram[upper[0], upper[1]] = self.gram.double()
            gram = gram + gram.triu(1).T
        mean, found = gram.diagonal().mean().clamp(min=torch.finfo(torch.float32).tiny), list[Tensor]()
        for strength in STRENGTHS:
            eased = gram + strength * mean * torch.eye(self.width, dtype=gram.dtype, device=gram.device)
            found.append(torch.linalg.solve(eased, sums.T).T.float())
        wanted = one_hot(labels, len(sums))
        errors = [float((linear(withheld, weight) - wanted).square().sum()) for weight in found]
        self.weight.copy_(found[errors.index(min(errors))])


class PathModel(MultiHeadModel):
    """Paths of tasks through a pretrained network with frozen units in it, and a ridge classifier at the end of each.

    Args:
        network: the pretrained network, no part of this model's state.
        labels: of each task, those of its images.
        classes: number of classes of each task.
        scenario: ``task``: a classifier for each task. ``class``: one for each path, and that of the first path, which
            knows all classes, chooses among paths.

    Attributes:
        units: frozen; ``unit_places`` says behind which adapted layer and of which kind each is.
        paths, path_of: the paths, and which one each task takes.
        heads: ridge classifiers.
        mean: of the pooled outputs of all layers, over the images of the first task.
        std: by which they are divided, so that the outputs of each layer are as long as those of any other.
        scale: factor of ridge outputs as logits.
    """

    has_frozen_layers = True
    mean: Tensor
    std: Tensor
    scale: Tensor

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
        self.columns = [torch.arange(*it) for it in pairwise(ends)]
        for name, value in (("mean", torch.zeros(ends[-1])), ("std", torch.ones(ends[-1])), ("scale", torch.ones(()))):
            self.register_buffer(name, value)
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
        return [(it - self.mean[where]) / self.std[where] for it, where in zip(found, self.columns, strict=True)]

    def features(self, images: Tensor, path: Path) -> Tensor:
        """Features ``[N, D]`` of a path, and a constant."""
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
            return self._ridge(x, self.paths[self.path_of[task_label]], task_label)
        logits = self._ridge(x, self.paths[0], 0)
        if len(self.paths) == 1:
            return logits
        logits = log_softmax(self.scale * logits, dim=1)
        for number, path in enumerate(self.paths[1:], start=1):
            rows = self.rows(self.tasks_on(number), x.device)
            within = log_softmax(self.scale * self._ridge(x, path, number), dim=1)
            logits[:, rows] = logits[:, rows].logsumexp(dim=1, keepdim=True) + within
        return logits

    def _ridge(self, x: Tensor, path: Path, number: int) -> Tensor:
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
        self.candidates = nn.ModuleList(UNITS[kind](width) for width in self.network.widths).to(device)
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
                self.heads.append(RidgeHead(width, keeps=self.scenario == "class").to(device))
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
            self._add_unit(place, kind, UNITS[kind](self.network.widths[place]))
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


class SeuAdapt(Method):
    """Layers to read and units to adapt, searched for each task on a pretrained network that stays as it is.

    Ridge classifiers in closed form score layers that are joined one by one; all layers are read where fewer are not
    better by ``margin``, and what an earlier task reads and its units are taken where nothing else is. Then new units
    are trained behind the last layers, and each is kept with which withheld images are answered better by ``margin``.
    Units and paths never change again.
    """

    name = "seu_adapt"
    scenarios = ("task", "class")
    inputs = ("image",)
    uses_encoder: ClassVar[bool] = True
    after_task_stage = "head"
    model: PathModel

    class Options(TrainingOptions):
        """Options of the search on a pretrained network."""

        adapted: PositiveInt = Field(3, description="last layers of the encoder that a unit may follow")
        unit: Literal["none", "linear4", "linear16", "linear64", "depthwise16", "scale_shift"] = Field(
            "linear16", description="kind of new units"
        )
        margin: NonNegativeFloat = Field(0.03, description="accuracy by which anything new must be better to be taken")

        widest: PositiveInt | None = Field(None, description="layers of more channels are not read, to save memory")

    @classmethod
    def make_model(cls, context: StrategyContext) -> PathModel:
        """Return the pretrained network without units and paths."""
        plan, widest = context.plan, context.options.widest
        labels = [task.labels or tuple(range(task.num_classes)) for task in plan.tasks]
        network = AdaptedEncoder.of(context, context.options.adapted)
        if widest is not None and widest < (least := min(network.encoder.info.widths)):
            what = f"no layer of the encoder has {widest} channels or fewer"
            raise RequestError(what, where="widest", remedy=f"give widest={least} at least")
        return PathModel(network, labels, plan.classes_per_task, plan.scenario)

    def setup(self) -> None:
        """Nothing is found yet."""
        self.found: dict[str, list[int]] = {"layers": [], "units": []}

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Search, training of new units, their choice, and the classifier."""
        training, head = super().phases(task)
        trained = [] if self.options.unit == "none" else [training]
        return [self.step("search", task, self.search), *trained, self.step("creation", task, self.create), head]

    @property
    def path(self) -> Path:
        """The path that was found, without new units."""
        return Path(tuple(self.found["layers"]), tuple(self.found["units"]))

    # ------------------------------------------------------------------ searching

    @torch.no_grad()
    def read(self, images: TaskImages, units: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """Standardised outputs ``[N, C]`` of all layers in double precision, and labels ``[N]``."""
        self.model.eval()
        parts, labels = list[list[Tensor]](), list[Tensor]()
        for x, y in self.counted(images):
            parts.append([it.double() for it in self.model.outputs(x, units)])
            labels.append(y)
        return [torch.cat(it) for it in zip(*parts, strict=True)], torch.cat(labels)

    def search(self, task: TaskData) -> None:
        """Choose layers to read, and the units of an earlier path or none."""
        model = self.model
        if task.index == 0:
            outputs = torch.cat(self.read(task.train, model.no_units)[0], dim=1)
            model.mean.copy_(outputs.mean(dim=0))
            for where in model.columns:
                moving = (outputs[:, where] - outputs[:, where].mean(dim=0)).square().mean().sqrt()
                share = len(where) * len(model.columns) / outputs.shape[1]
                model.std[where] = float(moving) * share**0.5 or 1.0  # of images that are all the same
        scored = task.train.part(0, min(SCORED, len(task.train)))
        kernels, labels = self.kernels(scored, model.no_units)

        def score(layers: Sequence[int], kernels: Sequence[Tensor]) -> float:
            return best_accuracy(torch.stack([kernels[it] for it in layers]).sum(dim=0), labels)

        widest = self.options.widest or max(map(len, model.columns))
        every, layers = [it for it, where in enumerate(model.columns) if len(where) <= widest], list[int]()
        chosen, best = tuple(every), score(every, kernels)
        least = best + self.options.margin
        while rest := [it for it in every if it not in layers]:
            scores = [score((*layers, it), kernels) for it in rest]
            layers.append(rest[scores.index(max(scores))])
            if max(scores) > max(best, least):
                chosen, best = tuple(sorted(layers)), max(scores)
        path, least = Path(chosen, model.no_units), best - self.options.margin
        for old in model.paths:
            reached = score(old.layers, self.kernels(scored, old.units)[0])
            if reached >= least:
                path, least = old, reached
        self.found = {"layers": list(path.layers), "units": list(path.units)}

    def kernels(self, images: TaskImages, units: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """Products ``[N, N]`` of images by the features of each layer, and labels from 0."""
        outputs, labels = self.read(images, units)
        return [it @ it.T for it in outputs], labels.unique(return_inverse=True)[1]

    def before_task(self, task: TaskData) -> None:
        """Make new units."""
        kind, layers = self.options.unit, self.path.layers
        self.model.expand(kind, layers, len(self.model.labels[task.index]), self.device)

    def create(self, task: TaskData) -> None:
        """Keep the new units with which withheld images are answered better, and freeze them."""
        model, found, valid = self.model, self.path, task.valid
        units = found.units
        if model.candidates is not None and valid is not None and len(valid):
            scored, fresh = task.train.part(0, min(SCORED, len(task.train))), (-2,) * len(units)

            def accuracy(units: Sequence[int]) -> float:
                (rows, labels), (check, wanted) = self.read(scored, units), self.read(valid, units)
                x, z = (torch.cat([it[layer] for layer in found.layers], dim=1) for it in (rows, check))
                known = labels.unique()
                place = torch.searchsorted(known, labels)
                # A class without any training image has no place: none of its images is answered right.
                wanted = torch.where(torch.isin(wanted, known), torch.searchsorted(known, wanted), -1)
                return best_accuracy(x @ x.T, place, z @ x.T, wanted)

            best = accuracy(fresh)
            if best > accuracy(units) + self.options.margin:
                units = fresh
                for place in range(len(units)):
                    known = [it for it, (where, _) in enumerate(model.unit_places) if where == place]
                    for instead in (-1, *known):
                        tried = (*units[:place], instead, *units[place + 1 :])
                        if (score := accuracy(tried)) >= best:
                            best, units = score, tried
                            break
        model.seal(Path(found.layers, units), self.options.unit)

    # ------------------------------------------------------------------ answering

    def after_task(self, task: TaskData) -> None:
        """Take the task's images into the classifiers that answer for it."""
        model = self.model
        number = model.path_of[task.index]
        for at in [task.index] if model.scenario == "task" else sorted({0, number}):
            self._learn_head(task, at, model.paths[number if model.scenario == "task" else at])

    @torch.no_grad()
    def _learn_head(self, task: TaskData, number: int, path: Path) -> None:
        model = self.model
        head: Any = model.heads[number]
        # Rows of the classes that it answers for, among all; images of others are none of its business.
        rows = torch.arange(len(head.weight), device=self.device)
        if model.scenario == "class":
            rows = model.rows(model.tasks_on(number), self.device)
        places = torch.full((max(int(rows.max()) + 1, sum(model.classes_per_task)),), -1, device=self.device)
        places[rows] = torch.arange(len(rows), device=self.device)
        gram = torch.zeros(head.width, head.width, dtype=torch.float64, device=self.device)
        sums = torch.zeros(len(rows), head.width, dtype=torch.float64, device=self.device)
        model.eval()
        for x, y in self.counted(task.train):
            own = places[y] >= 0
            features = model.features(x, path).double()[own]
            gram += features.T @ features
            sums.index_add_(0, places[y][own], features)
        held = [(model.features(x, path), places[y]) for x, y in self.counted(task.valid)] if task.valid else []
        features = torch.cat([sums.float()[:0], *(it.float() for it, _ in held)])
        labels = torch.cat([places[:0], *(it for _, it in held)])
        features, labels = features[labels >= 0], labels[labels >= 0]
        head.learn(gram, sums, features, labels)
        if task.index == 0 and len(labels):
            logits = linear(features, head.weight)
            losses = [float(cross_entropy(scale * logits, labels)) for scale in SCALES]
            model.scale.fill_(SCALES[losses.index(min(losses))])

    # ------------------------------------------------------------------ cost

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """At most every task has a path of its own through all layers and new units; at least all read one layer."""
        plan, options, cpu = context.plan, context.options, replace(context, device="cpu")
        sizes = list[list[Any]]()
        for most in (True, False):
            model, found = cls.make_model(cpu), list[Any]()
            layers = tuple(range(len(model.columns)))
            read = layers if most else (min(layers, key=lambda it: len(model.columns[it])),)
            fresh = most and options.unit != "none"
            for task in range(len(plan.tasks)):
                if fresh:
                    model.expand(options.unit, read, 1, torch.device("cpu"))
                if most or task == 0:
                    model.paths.append(Path(read, model.no_units))
                if fresh:
                    model.paths.pop()
                    model.seal(Path(read, (-2,) * len(model.no_units)), options.unit)
                else:
                    model.take(len(model.paths) - 1)
                answer = partial(model.forward_single_task, task_label=task)
                model.eval()
                macs = count_macs(answer, plan.input.shape, torch.device("cpu"))
                found.append((count_parameters(model), macs, state_bytes(model)))
            sizes.append([*zip(*found, strict=True)])
        (params, macs, memory), (params_min, macs_min, memory_min) = sizes
        epochs, stages = options.applied_to(context.protocol.training).epochs, list[StageCost]()
        for index, it in enumerate(plan.tasks):
            scored, places = min(SCORED, it.num_train), options.adapted
            heads = 2 if index and plan.scenario == "class" else 1
            trials = 0 if options.unit == "none" else 2 + places * (1 + index)
            stages.append(StageCost("search", index, 0, (index == 0) * it.num_train + (1 + index) * scored))
            stages += [StageCost("training", index, epochs * it.num_train, 0)] if trials else []
            stages.append(StageCost("creation", index, 0, trials * (scored + it.num_valid)))
            stages.append(StageCost("head", index, 0, heads * (it.num_train + it.num_valid)))
        every = (*stages, *evaluation_passes(plan))
        return Cost(params, params_min, macs, macs_min, every, memory, memory_min)
