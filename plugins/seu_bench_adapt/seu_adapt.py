"""Searching for extension units on a pretrained network: which layers a task reads, and which units adapt them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from seu_bench import Method
from seu_bench.config import TrainingOptions
from seu_bench.data.images import TaskImages
from seu_bench.errors import RequestError
from seu_bench.models import count_macs, count_parameters, state_bytes
from seu_bench.training import Cost, Phase, StageCost, StrategyContext, TaskData, evaluation_passes
from seu_bench_adapt.paths import Path, PathModel, best_accuracy
from seu_bench_adapt.units import AdaptedEncoder

#: Images of a task that candidates are scored with.
SCORED: Final = 600


def readable(widths: Sequence[int], width: int) -> tuple[int, ...]:
    """Layers from the last one back of which each still fits into ``width`` numbers, in order."""
    found = list[int]()
    for layer in reversed(range(len(widths))):
        if widths[layer] <= width:
            found.append(layer)
            width -= widths[layer]
    return tuple(reversed(found))


class SeuAdapt(Method):
    """Layers to read and units to adapt, searched for each task on a pretrained network that stays as it is.

    Ridge classifiers in closed form score layers that are joined one by one; those that fit into ``width`` numbers are
    read where fewer are not better by ``margin``, and what an earlier task reads and its units are taken where nothing
    else is. Then new units of a kind, if any, are trained behind the last layers, and each is kept with which withheld
    images are answered better by ``margin``. Units and paths never change again.
    """

    name = "seu_adapt"
    title = "SEU-Adapt"
    scenarios = ("task", "class")
    inputs = ("image",)
    needs_validation = True
    uses_encoder: ClassVar[bool] = True
    after_task_stage = "head"
    check_options: ClassVar[dict[str, object]] = {"unit": "linear16", "margin": 0.03}
    model: PathModel

    class Options(TrainingOptions):
        """Options of the search on a pretrained network."""

        adapted: PositiveInt = Field(3, description="last layers of the encoder that a unit may follow")
        unit: Literal["none", "linear4", "linear16", "linear64"] = Field("none", description="kind of new units")
        margin: NonNegativeFloat = Field(0.1, description="accuracy by which anything new must be better to be taken")
        width: PositiveInt = Field(1024, description="numbers that are read at most: the last layers that fit in")

    @classmethod
    def make_model(cls, context: StrategyContext) -> PathModel:
        """Return the pretrained network without units and paths."""
        plan = context.plan
        labels = [task.labels or tuple(range(task.num_classes)) for task in plan.tasks]
        network = AdaptedEncoder.of(context, context.options.adapted)
        if not readable(widths := network.encoder.info.widths, context.options.width):
            what = f"no layer of the encoder has {context.options.width} channels or fewer"
            raise RequestError(what, where="width", remedy=f"give width={min(widths)} at least")
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
            for columns in model.columns:
                here = slice(columns.start, columns.stop)
                moving = (outputs[:, here] - outputs[:, here].mean(dim=0)).square().mean().sqrt()
                share = len(columns) * len(model.columns) / outputs.shape[1]
                model.std[here] = float(moving) * share**0.5 or 1.0  # of images that are all the same
        scored = task.train.part(0, min(SCORED, len(task.train)))
        kernels, labels = self.kernels(scored, model.no_units)

        def score(layers: Sequence[int], kernels: Sequence[Tensor]) -> float:
            return best_accuracy(torch.stack([kernels[it] for it in layers]).sum(dim=0), labels)

        every, layers = readable(model.network.encoder.info.widths, self.options.width), list[int]()
        chosen, best = every, score(every, kernels)
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

    # ------------------------------------------------------------------ cost

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """At most every task has a path of its own through all layers and new units; at least all read one layer."""
        plan, options, cpu = context.plan, context.options, replace(context, device="cpu")
        sizes = list[list[Any]]()
        for most in (True, False):
            model, found = cls.make_model(cpu), list[Any]()
            layers = readable(model.network.encoder.info.widths, options.width)
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
        schedule, stages = options.applied_to(context.protocol.training), list[StageCost]()
        for index, it in enumerate(plan.tasks):
            epochs = schedule.of_task(index).epochs
            scored, places = min(SCORED, it.num_train), options.adapted
            heads = 2 if index and plan.scenario == "class" else 1
            trials = 0 if options.unit == "none" else 2 + places * (1 + index)
            stages.append(StageCost("search", index, 0, (index == 0) * it.num_train + (1 + index) * scored))
            stages += [StageCost("training", index, epochs * it.num_train, 0)] if trials else []
            stages.append(StageCost("creation", index, 0, trials * (scored + it.num_valid)))
            stages.append(StageCost("head", index, 0, heads * (it.num_train + it.num_valid)))
        every = (*stages, *evaluation_passes(plan))
        return Cost(params, params_min, macs, macs_min, every, memory, memory_min)
