"""Searchers and creators that are broken, each in its own way, and what is said of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.training.stage import EpochReport, Stage
from seu_bench_kit.components import CreationTask, SearchTask
from seu_bench_kit.genotypes import Genotype, uniform_genotype
from seu_bench_kit.units import Adapted, Unit

GOOD = uniform_genotype("skip_connect")


class Scripted(Stage[Any]):
    """A stage that does what a test says; where it says nothing, nothing is wrong with it."""

    def __init__(
        self,
        task: Any,
        *,
        epochs: Any = 2,
        epoch: Callable[[Any], Any] | None = None,
        found: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__("anything", task.task, epochs, task.seed, task.device)
        self.given = task
        self._do = epoch or (lambda stage: EpochReport(0.5, 0.5))
        self._found = found or good

    def run_epoch(self) -> EpochReport:
        """Eight images in two epochs, and what the test says."""
        self.count_images(4)
        report: EpochReport = self._do(self)
        return report

    def result(self) -> Any:
        """Message of the test."""
        return self._found(self)


class Unmade(Stage[Any]):
    """A stage that forgot to call its base's constructor, and names its epochs nevertheless."""

    epochs = 1

    def __init__(self) -> None:
        self.epoch = 0

    run_epoch = result = get_extra_state = set_extra_state = lambda *_: None  # type: ignore[assignment]


Make = Callable[[Any], Any]


def good(stage: Scripted) -> Any:
    """A genotype for a search, the newest units for a creation."""
    if isinstance(stage.given, SearchTask):
        return GOOD
    return tuple(count - 1 for count in stage.given.model.candidates)


def answers(value: Any) -> Make:
    """Finds ``value``."""
    return lambda task: Scripted(task, found=lambda stage: value)


def reports(loss: Any, accuracy: Any) -> Make:
    """Measures this."""
    return lambda task: Scripted(task, epoch=lambda stage: EpochReport(loss, accuracy))


def does(act: Callable[[Any], Any]) -> Make:
    """Does this in its epochs."""

    def epoch(stage: Any) -> EpochReport:
        act(stage)
        return EpochReport(0.5, 0.5)

    return lambda task: Scripted(task, epoch=epoch)


def fails(*_: object) -> Any:
    raise ZeroDivisionError("this is broken")


def interrupts(*_: object) -> Any:
    raise KeyboardInterrupt


def counts_for_ever(stage: Stage[Any]) -> None:
    while True:
        stage.count_images(1)


def longer(stage: Stage[Any]) -> None:
    stage.epochs += 1


#: What either kind can do wrong: by name, the stage and what is said of it.
EITHER: dict[str, tuple[Make, str]] = {
    "raises_when_made": (fails, "ZeroDivisionError: this is broken"),
    "raises_in_an_epoch": (does(fails), "ZeroDivisionError: this is broken"),
    "passes_for_ever": (does(counts_for_ever), "it passed 17 images forward, and had announced 16 at most"),
    "no_stage": (lambda task: object(), "it is no Stage but object"),
}

SEARCHERS: dict[str, tuple[Make, str]] = EITHER | {
    "fifth_edge": (
        answers(uniform_genotype("skip_connect", "all14")),
        ".*: node 3 has 3 edges in place of 2",
    ),
    "nothing": (answers(None), "its result cannot be used: it is no Genotype but NoneType"),
    "nan_loss": (reports(math.nan, 0.5), ".*loss became nan.*"),
    "nan_accuracy": (reports(0.5, math.nan), "it measured the accuracy nan"),
    "accuracy_two": (reports(0.5, 2), "it measured the accuracy 2, and accuracies are from 0 to 1"),
    "no_report": (lambda task: Scripted(task, epoch=lambda stage: None), "AttributeError: .*"),
    "always_longer": (does(longer), "it does not end: its 2 epochs became 3 while it ran"),
    "infinite_epochs": (lambda task: Scripted(task, epochs=math.inf), "its number of epochs is inf, and must .*"),
}


def writes(change: Callable[[Any], Any]) -> Make:
    """Does this to the model, then answers as if nothing were wrong."""
    return does(lambda stage: change(stage.given.model))


def old_in_training_mode(stage: Any) -> None:
    """BatchNorm of a frozen unit moves its statistics by a forward pass, without any gradient."""
    unit = stage.given.model.unit(2, 0)
    for module in unit.modules():
        module.training = True
    with torch.no_grad():
        stage.given.model.features(stage.given.images.gather(torch.arange(4))[0], [0] * 4)


CHANGED = "its result cannot be used: it changed {}, which earlier tasks are computed by"
FITS = r"its result cannot be used: path {} does not fit layers of \[2, 2, 2, 2\] units"
NO_PATH = "its result cannot be used: {} is no path: a path has a whole number, or an old unit that is .*"


class Scale(nn.Module):
    """A factor of the task's own."""

    def __init__(self, kind: str = "scale") -> None:
        super().__init__()
        self.kind, self.factor = kind, nn.Parameter(torch.ones(()))

    def forward(self, unit: Unit, *inputs: Tensor) -> Tensor:
        """The old unit's output, scaled."""
        output: Tensor = self.factor * unit(*inputs)
        return output


class Awake(Scale):
    """The same, which lets the old unit's BatchNorm move its statistics while it trains."""

    def forward(self, unit: Unit, *inputs: Tensor) -> Tensor:
        """Message of the test."""
        for module in unit.modules():
            module.training = self.training
        return super().forward(unit, *inputs)


def wrap(genotype: Any, unit: Unit, outputs: int) -> nn.Module:
    """Of most creators with adapted units here."""
    return Awake() if genotype == {"kind": "awake"} else Scale(**genotype)


class Behind(Unit):
    """A unit and something behind it."""

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        self.unit, self.frozen = unit, unit.frozen
        self.behind = nn.Conv2d(8, 8, 1)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Message of the test."""
        output: Tensor = self.behind(self.unit(*inputs))
        return output


def adapts(old: Any, genotype: Any, module: nn.Module, layer: int = 1) -> Make:
    """Answers the newest units, but an old one that is adapted."""

    def found(stage: Scripted) -> Any:
        path = [*good(stage)]
        path[layer] = Adapted(old, genotype, module)
        return tuple(path)

    return lambda task: Scripted(task, found=found)


def replaces(index: int, make: Callable[[Any], nn.Module]) -> Make:
    """Puts something in the place of a unit of layer 1: 0 is old, 1 new."""

    def change(model: Any) -> None:
        model.layers[1][index] = make(model)

    return writes(change)


def with_a_hook(model: Any) -> None:
    """Doubles what a new unit answers."""
    model.unit(1, 1).register_forward_hook(lambda module, inputs, output: 2 * output)


NOT_SAID = "its result cannot be used: {} of layer 1 is not what its genotype says: {}"

#: Units that are not what their genotypes say, and what is done to old ones.
STRUCTURES: dict[str, tuple[Make, str]] = {
    "sequential": (
        replaces(1, lambda model: nn.Sequential(model.unit(1, 1), nn.Conv2d(8, 8, 1))),
        "unit 1 of layer 1 is not what its genotype says: it is a Sequential, no Unit",
    ),
    "something_behind": (
        replaces(1, lambda model: Behind(model.unit(1, 1))),
        NOT_SAID.format("unit 1", r"it is Behind\(\), and must be ExtensionUnit\(\) .*"),
    ),
    "other_operations": (
        replaces(1, lambda model: model.space.unit(uniform_genotype("max_pool_3x3"), model.places[0])),
        NOT_SAID.format("unit 1", "edges is .*max_pool.*, and must be .*skip_connect.*"),
    ),
    "other_forward": (
        writes(lambda model: setattr(model.unit(1, 1), "forward", lambda older, newer: newer)),
        NOT_SAID.format("unit 1", "forward is <function .*>, and must be left out .*"),
    ),
    "hook": (writes(with_a_hook), NOT_SAID.format("unit 1", "hooks is there, and must be left out .*")),
    "old_in_place": (
        replaces(0, lambda model: Behind(model.unit(1, 0))),
        CHANGED.format(r"unit 0 of layer 1 \(its modules\)"),
    ),
    "other_head": (
        writes(lambda model: setattr(model.heads, "1", nn.Sequential(model.heads[1], nn.Tanh()))),
        r"its result cannot be used: a head is not what it was: 1 is Sequential\(\), and must be Linear\(.*\)",
    ),
    "stray": (
        writes(lambda model: setattr(model, "more", nn.Linear(1, 1))),
        "its result cannot be used: more.weight belongs to no unit, and cannot be made again",
    ),
    "other_module": (
        adapts(0, {"kind": "scale"}, nn.Linear(2, 2)),
        NOT_SAID.format("adapted unit 0", r"it is Linear\(.*\), and must be Scale\(\) .*"),
    ),
    "old_is_new": (adapts(1, {}, Scale()), ".*unit 1 of layer 1 cannot be adapted: it is new, or adapted itself"),
    "no_json": (
        adapts(0, {"kind": {1}}, Scale()),
        NOT_SAID.format("adapted unit 0", "it cannot be made of it: TypeError: .*JSON serializable .*"),
    ),
    "no_wrap": (
        adapts(0, {}, Scale()),
        NOT_SAID.format("adapted unit 0", "it cannot be made of it: ValueError: the creator's factory has no wrap.*"),
    ),
}

CREATORS: dict[str, tuple[Make, str]] = EITHER | {
    "unit_not_there": (answers((0, 0, 2, 0)), FITS.format(r"\(0, 0, 2, 0\)")),
    "nothing": (answers(None), NO_PATH.format("None")),
    "training_mode": (does(old_in_training_mode), CHANGED.format(r"unit 0 of layer 2 \(.*running_mean\)")),
    **STRUCTURES,
}

#: In the second task of another space.
ONE_TYPE = (
    answers(Genotype(GOOD.normal, uniform_genotype("max_pool_3x3").normal)),
    "its result cannot be used: its normal and its reduction form differ, and with cell_types=1 they are one",
)


class NoOptions(Options):
    """None."""


class Maker:
    """A factory of stages: good ones for the first task, what the test says from the second on."""

    options: type[Options] = NoOptions
    wrap: Any = None
    largest: ClassVar[dict[str, Any]] = {}

    def __init__(self, name: str, make: Make, announces: Any = (8, 8)) -> None:
        self.summary = name
        self.make = make
        self.announces = announces

    def build(self, options: Options, task: SearchTask | CreationTask) -> Any:
        """Broken from the second task on."""
        return self.make(task) if task.task > 0 else Scripted(task)

    def estimate_passes(self, options: Options, schedule: object, train_images: int) -> Any:
        """Images to train and to score; twice what a good stage passes."""
        return self.announces() if callable(self.announces) else self.announces


#: Those that have tests of their own.
OTHERS: dict[str, Maker] = {
    "wakes_later": Maker("wakes the old unit in training alone", adapts(0, {"kind": "awake"}, Awake())),
    "good": Maker("nothing is wrong", Scripted),
    "one_type": Maker("differing forms", ONE_TYPE[0]),
    "interrupted_when_made": Maker("interrupted", interrupts),
    "interrupted": Maker("interrupted", does(interrupts)),
    "interrupted_in_the_end": Maker("interrupted", lambda task: Scripted(task, found=interrupts)),
    "exits": Maker("exits", does(lambda stage: sys.exit(7))),
    "unmade": Maker("no base", lambda task: Unmade()),
    "cannot_announce": Maker("no passes", Scripted, fails),
}


class Stranger:
    """The plugin that offers all of them."""

    @hookimpl
    def register_searchers(self, register: Any) -> None:
        """Broken searchers."""
        for name, (make, _) in SEARCHERS.items():
            register(name, Maker(name, make))
        for name, maker in OTHERS.items():
            maker.wrap = wrap
            register(name, maker)

    @hookimpl
    def register_creators(self, register: Any) -> None:
        """Broken creators."""
        for name, (make, _) in CREATORS.items():
            maker = Maker(name, make)
            maker.wrap = None if name == "no_wrap" else wrap
            register(name, maker)
        for name, maker in OTHERS.items():
            maker.wrap = wrap
            register(name, maker)
