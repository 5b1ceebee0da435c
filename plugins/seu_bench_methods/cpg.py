"""CPG (C.-Y. Hung, C.-H. Tu, C.-E. Wu, C.-H. Chen, Y.-M. Chan, C.-S. Chen, "Compacting, Picking and Growing for
Unforgetting Continual Learning", NeurIPS 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Self, cast

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn
from torch.func import functional_call

from seu_bench.config import LEARNING_RATES, BackboneOptions, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.errors import RequestError
from seu_bench.models import MultiHeadModel, count_parameters, freeze, state_bytes
from seu_bench.models.multihead import not_learned, out_of_turn
from seu_bench.training import (
    BestWeights,
    Cost,
    EpochReport,
    Phase,
    StageCost,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    evaluate,
    evaluation_passes,
    on_meta,
    set_rate,
    width_factor,
)
from seu_bench_kit import pack_bits, packed_bytes, unpack_bits
from seu_bench_kit.costing import task_macs
from seu_bench_methods.masked import Held, MaskedMethod
from seu_bench_methods.packnet import largest

#: What a growth adds to the number of weights, of those of the first network.
GROWTH: Final = 0.5
#: Where the real numbers begin from which a picking mask is made, and above what they pick.
SCORE, THRESHOLD = 0.01, 0.005
#: Shares of a task's free weights that are pruned one after another, and the learning rate, as a multiple.
SPARSITIES, PRUNE_RATE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95), 0.1
#: One of so many epochs is that of a share; one of so many steps to it prunes, after each so many of these.
EPOCHS, RAMP, EVERY = 5, 5, 10

each = partial(zip, strict=True)


def pruned_share(first: float, last: float, step: int, steps: int) -> float:
    """Share that is pruned after a step of so many (M. Zhu, S. Gupta, "To prune, or not to prune", 2017, eq. 1)."""
    return last + (first - last) * (1 - step / steps) ** 3


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
        found = each(self.weights, self.taken, free)
        self.taken = [(taken & ~own) | largest(weight * taken, own, share) for weight, taken, own in found]
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


class MeasuredStage(TrainingStage):
    """A training that ends with the accuracy on validation images of the weights that stay; where a script gives none,
    on training images."""

    def result(self) -> Any:
        """The accuracy in [0, 1]."""
        super().result()
        return self.accuracy()

    def accuracy(self) -> float:
        """The accuracy at present."""
        strategy, images = self.strategy, self.data.valid or self.data.train
        forward = partial(strategy.model.forward_single_task, task_label=self.task)
        with strategy.measuring():
            found, _ = evaluate(forward, images, strategy.eval_mb_size, self.count_images)
        self.note_reward(found, images)
        return found


class PickingStage(MeasuredStage):
    """A training of free weights and of scores, these by Adam, whose rate follows that of the weights."""

    state_attributes = ("scores", "picker")

    def __init__(self, strategy: Any, task: TaskData, name: str) -> None:
        super().__init__(strategy, task, name)
        self.scores = strategy.model.scores
        self.picker = torch.optim.Adam([{"params": list(self.scores)}])
        self.best = BestWeights(nn.ModuleList([self.module, self.scores]))

    def after_step(self) -> None:
        """Move the scores."""
        share = self.strategy.optimizer.param_groups[0]["lr"] / self.schedule.learning_rate
        set_rate(self.picker, share * self.strategy.options.mask_rate)
        self.picker.step()
        self.picker.zero_grad()


class CompactingStage(MeasuredStage):
    """Gradual pruning: weights of the largest share after which the accuracy is not below ``goal`` stay.

    Args:
        free: what was free for the task.
    """

    def __init__(self, strategy: Any, task: TaskData, goal: float, free: Sequence[Tensor]) -> None:
        rate, self.each = PRUNE_RATE * strategy.schedule.learning_rate, _epochs_each(strategy.schedule.epochs)
        constant = {"learning_rate": rate, "min_learning_rate": rate, "milestones": (), "warmup_epochs": 0}
        values = {"epochs": (len(SPARSITIES) - 1) * self.each, **constant}
        schedule = strategy.schedule.model_copy(update=values)
        super().__init__(strategy, task, "compacting", schedule, restore="last")
        self.goal, self.free = goal, free
        self.best.keep()

    def run_epoch(self) -> EpochReport:
        """One epoch of training and pruning; at the end of a share the weights are kept, if they are good enough."""
        report = super().run_epoch()
        if (self.epoch + 1) % self.each == 0 and self.accuracy() >= self.goal:
            self.best.keep()
        return report

    def after_step(self) -> None:
        """Prune, if it is time."""
        (level, epoch), batches = divmod(self.epoch, self.each), self.strategy.batches_per_epoch
        step, steps = epoch * batches + self.strategy.batch_number + 1, max(1, self.each * batches // RAMP)
        if step <= steps and (step % EVERY == 0 or step == steps):
            self.strategy.model.prune(self.free, pruned_share(SPARSITIES[level], SPARSITIES[level + 1], step, steps))

    def result(self) -> Any:
        """Restore the weights that stay."""
        self.best.restore()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        super().set_extra_state(state)
        self.strategy.model.compact(self.task)


class Cpg(MaskedMethod):
    """Compacting, picking and growing: a task picks old weights, grows where it must, prunes (Hung et al. 2019).

    Weights of earlier tasks are used and never changed, so nothing is forgotten.
    """

    name = "cpg"
    needs_validation = True

    class Options(BackboneOptions, SelectingOptions, TaskInferenceOptions):
        """Options of CPG; the schedule is that of training."""

        tuning_grid: ClassVar[TuningGrid] = {"goal_margin": (0.0, 0.05, 0.1), "learning_rate": LEARNING_RATES}

        max_size: Annotated[float, Field(ge=1)] = Field(
            1.5,
            description="weights after all growth, as a multiple of the first network's, half of which a growth adds",
        )
        goal_margin: NonNegativeFloat = Field(
            0.0, description="what the accuracy on validation images may be below that of a network for the task alone"
        )
        mask_rate: PositiveFloat = Field(
            0.0005, description="first learning rate of the picking mask, by Adam (published code)"
        )

        @property
        def growths(self) -> int:
            """How often the network may grow."""
            return math.ceil((self.max_size - 1) / GROWTH)

    options: Options
    model: GrownModel

    @classmethod
    def make_model(cls, context: StrategyContext) -> GrownModel:
        """The backbone as that of ``naive``; it refuses one that cannot be widened."""
        build = partial(cls.grown_backbone, context)
        found = [on_meta(partial(build, growth))[0].state_dict() for growth in range(context.options.growths + 1)]
        for old, new in each(found[:-1], found[1:]):
            check_leading(old, new)
        return GrownModel(build, context.plan.classes_per_task)

    @staticmethod
    def grown_backbone(context: StrategyContext, growth: int) -> tuple[nn.Module, int]:
        """The backbone with so many more weights: its widths grow with the root of that."""
        if not growth:
            return build_backbone(context)
        width = width_factor(context) * math.sqrt(min(1 + GROWTH * growth, context.options.max_size))
        options = context.options.model_copy(update={"width": width, "weights": None})
        return build_backbone(replace(context, options=options))

    def setup(self) -> None:
        """Begin with nothing: all of it belongs to the task that is being learned."""
        super().setup()
        #: The accuracy to reach, and whether picking is over.
        self.goal, self.met = 1.0, False

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of a network for the task alone, picking at each width until the goal is met, compacting."""
        return [
            *([Phase(lambda: self._individual_stage(task), self._set_goal)] if task.index else ()),
            *(
                Phase(partial(self._picking_stage, task, name), partial(self._judge, task))
                for name in _trainings(self.options, task.index)
            ),
            Phase(lambda: self._compacting_stage(task), lambda _: self._finish()),
        ]

    def trained_module(self, task: TaskData) -> nn.Module:
        """The network for the task alone, or the weights and the task's part."""
        return self.model.individual or nn.ModuleList([self.model.weights, self.model.part(task.index)])

    def optimizer_step(self) -> None:
        """A step of the weights, then of what follows them."""
        super().optimizer_step()
        if isinstance(self._stage, PickingStage | CompactingStage):
            self._stage.after_step()

    def _individual_stage(self, task: TaskData) -> MeasuredStage:
        with self.drawing("individual", task):
            backbone, features = self.model.build(0)
            head = nn.Linear(features, self.model.classes_per_task[task.index])
        self.model.individual = nn.Sequential(backbone, head).to(self.device)
        self._held = Held()
        return MeasuredStage(self, task, "individual")

    def _set_goal(self, accuracy: float) -> None:
        self.goal, self.model.individual = accuracy, None

    def _picking_stage(self, task: TaskData, name: str) -> Any:
        if self.met:
            return self.step(name, task, lambda _: None).make()
        with self.drawing("begin", task):
            self.model.begin(task.index)
        self.model.pick(task.index)
        self._held = Held([*self.model.weights], self.model.taken)
        return PickingStage(self, task, name)

    def _judge(self, task: TaskData, accuracy: float | None) -> None:
        """Go on with what is picked where the goal is met, or cannot be; otherwise grow."""
        if accuracy is None:
            return
        grown = self.model.part(task.index).growth
        if not task.index or grown == self.options.growths or accuracy >= self.goal - self.options.goal_margin:
            self.goal, self.met = min(self.goal, accuracy), True
            self.model.choose()
        else:
            with self.drawing(f"grow_{grown}", task):
                self.model.grow(task.index)

    def _compacting_stage(self, task: TaskData) -> CompactingStage:
        free = self.model.free(task.index)
        self.model.compact(task.index)
        self._held = Held([*self.model.weights], free)
        return CompactingStage(self, task, self.goal - self.options.goal_margin, free)

    def _finish(self) -> None:
        self.model.finish()
        self.setup()

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """From a network that never grows to one that is widest from its second task on; operations are not told."""
        plan, options, stages = context.plan, context.options, list[StageCost]()

        def sizes(growths: int) -> tuple[tuple[int, ...], ...]:
            model, found = cls.make_model(context), []
            for task in range(len(plan.tasks)):
                model.begin(task)
                for _ in range(growths if task == 1 else 0):
                    model.grow(task)
                model.finish()
                found.append((count_parameters(model), state_bytes(model), model.mask_bits))
            return *zip(*found, strict=True), task_macs(model, plan)

        for index, task in enumerate(plan.tasks):
            epochs, valid = options.applied_to(context.protocol.training).of_task(index).epochs, task.num_valid
            measured = 1 + epochs * (options.restore == "best_valid")
            for name in (*(["individual"] if index else ()), *_trainings(options, index)):
                stages.append(StageCost(name, index, epochs * task.num_train, measured * valid))
            shares = len(SPARSITIES) - 1
            stages.append(
                StageCost("compacting", index, shares * _epochs_each(epochs) * task.num_train, shares * valid)
            )
        few, few_bytes, few_bits, few_macs = on_meta(partial(sizes, 0))
        many, many_bytes, many_bits, many_macs = on_meta(partial(sizes, options.growths))
        every = (*stages, *evaluation_passes(plan))
        return Cost(many, few, many_macs, few_macs, every, many_bytes, few_bytes, many_bits, few_bits)


def check_leading(narrow: Mapping[str, Tensor], wide: Mapping[str, Tensor]) -> None:
    """Refuse a backbone whose tensors are no leading blocks of a wider one's, by a RequestError."""
    pairs = [(tensor.shape, wide[name].shape) for name, tensor in narrow.items() if name in wide]
    grow = all(len(old) == len(new) and all(a <= b for a, b in each(old, new)) for old, new in pairs)
    if narrow.keys() != wide.keys() or not grow:
        raise RequestError(
            "cpg widens the backbone, and the weights of this one are no leading blocks of a wider one's",
            remedy="choose a network that never grows with -o max_size=1, or another backbone, e.g. -o backbone=mlp",
        )


def _trainings(options: Cpg.Options, task: int) -> list[str]:
    growths = options.growths if task else 0
    return ["picking", *(f"growing_{growth}" for growth in range(1, growths + 1))]


def _epochs_each(epochs: int) -> int:
    return max(1, epochs // EPOCHS)
