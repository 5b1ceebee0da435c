"""A run with a searcher or a creator that is broken: it ends, says who was at fault and where, and harms nothing."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.commands import Command, Install
from support.tiny import all_threads, one_thread

import seu_bench_seu.costing
from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import Outcome, execute
from seu_bench.errors import PluginError, RunError
from seu_bench.plugin.manager import load_plugins
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.search_space import Edge, Genotype, uniform_genotype
from seu_bench.testing.streams import TinyStreams
from seu_bench.training.interfaces import CreationTask, SearchTask
from seu_bench.training.stage import EpochReport, Stage, StageProgress

setup_module, teardown_module = one_thread, all_threads

GOOD = uniform_genotype("skip_connect")
STAGE = {"searcher": "search", "creator": "creation"}


# --- stages that are broken -----------------------------------------------------------------------------------------


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
        self.passed(4)
        report: EpochReport = self._do(self)
        return report

    def result(self) -> Any:
        """What the test says."""
        return self._found(self)

    def get_extra_state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Nothing."""


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
        stage.passed(1)


def longer(stage: Stage[Any]) -> None:
    stage.epochs += 1


def rewinds(stage: Stage[Any]) -> None:
    stage.epoch = -1


def trained_in_making(task: Any) -> Any:
    stage = Scripted(task)
    stage.passed(1000)
    return stage


def finds_by_training(stage: Scripted) -> Any:
    stage.passed(1000)
    return good(stage)


def with_none() -> Genotype:
    first = GOOD.normal[0]
    return Genotype((Edge(first.node, first.source, "none"), *GOOD.normal[1:]), GOOD.reduction)


def one_edge_less() -> Genotype:
    return Genotype(GOOD.normal, GOOD.reduction[1:])


def nan_tables(stage: Scripted) -> Any:
    return stage.given.space.derive([np.full((14, 8), math.nan)] * 2)


def huge(stage: Stage[Any]) -> None:
    stage.passed(1000)


#: What either kind can do wrong: by name, the stage and what is said of it.
EITHER: dict[str, tuple[Make, str]] = {
    "raises_when_made": (fails, "ZeroDivisionError: this is broken"),
    "raises_in_an_epoch": (does(fails), "ZeroDivisionError: this is broken"),
    "raises_in_the_end": (lambda task: Scripted(task, found=fails), "ZeroDivisionError: this is broken"),
    "passes_for_ever": (does(counts_for_ever), "it passed 17 images forward, and had announced 16 at most"),
    "no_stage": (lambda task: object(), "it is no Stage but object"),
}

SEARCHERS: dict[str, tuple[Make, str]] = EITHER | {
    "fifth_edge": (
        answers(uniform_genotype("skip_connect", "all14")),
        ".*: node 3 has 3 edges in place of 2",
    ),
    "edge_less": (answers(one_edge_less()), "its result cannot be used: node 2 has 1 edges in place of 2"),
    "none_on_an_edge": (answers(with_none()), "its result cannot be used: 'none' is on an edge, and edges=top2 .*"),
    "dict": (answers(GOOD.to_dict()), "its result cannot be used: it is no Genotype but dict"),
    "nothing": (answers(None), "its result cannot be used: it is no Genotype but NoneType"),
    "nan_loss": (reports(math.nan, 0.5), ".*loss became nan.*"),
    "infinite_loss": (reports(math.inf, 0.5), ".*loss became inf.*"),
    "nan_accuracy": (reports(0.5, math.nan), "it measured the accuracy nan"),
    "accuracy_two": (reports(0.5, 2), "it measured the accuracy 2, and accuracies are from 0 to 1"),
    "accuracy_below": (reports(0.5, -0.25), "it measured the accuracy -0.25, and accuracies are from 0 to 1"),
    "no_report": (lambda task: Scripted(task, epoch=lambda stage: None), "AttributeError: .*"),
    "nan_tables": (lambda task: Scripted(task, found=nan_tables), "ValueError: a table of operations holds NaN"),
    "always_longer": (does(longer), "it does not end: its 2 epochs became 3 while it ran"),
    "always_at_the_start": (does(rewinds), "it does not end: it stands at epoch 0 after 1 epochs"),
    "passes_for_ever_in_the_end": (
        lambda task: Scripted(task, found=counts_for_ever),
        "it passed 17 images forward, and had announced 16 at most",
    ),
    "passes_too_many": (does(huge), r"it passed 1004 images forward, and had announced 16 at most"),
    "passes_when_made": (trained_in_making, r"it passed 1004 images forward, and had announced 16 at most"),
    "passes_in_the_end": (lambda task: Scripted(task, found=finds_by_training), "it passed 1008 images .*"),
    "infinite_epochs": (lambda task: Scripted(task, epochs=math.inf), "its number of epochs is inf, and must .*"),
    "negative_epochs": (lambda task: Scripted(task, epochs=-1), "its number of epochs is -1, and must be a whole one"),
    "half_an_epoch": (lambda task: Scripted(task, epochs=1.5), "its number of epochs is 1.5, and must .*"),
    "no_epochs": (lambda task: Scripted(task, epochs=None), "its number of epochs is None, and must .*"),
    "class_of_stages": (lambda task: Scripted, "it is no Stage but ABCMeta"),
}


def writes(change: Callable[[Any], Any]) -> Make:
    """Does this to the model, then answers as if nothing were wrong."""
    return does(lambda stage: change(stage.given.model))


def trains_the_old(stage: Any) -> None:
    """What somebody does who takes all parameters for those to train."""
    model = stage.given.model
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = stage.given.images.gather(torch.arange(4))
    model.set_path(stage.task, [0] * 4)
    torch.nn.functional.cross_entropy(model.forward_single_task(x, stage.task), y).backward()
    optimizer.step()


def old_in_training_mode(stage: Any) -> None:
    """BatchNorm of a frozen unit moves its statistics by a forward pass, without any gradient."""
    unit = stage.given.model.unit(2, 0)
    for module in unit.modules():
        module.training = True
    with torch.no_grad():
        stage.given.model.features(stage.given.images.gather(torch.arange(4))[0], [0] * 4)


def melts(model: Any) -> None:
    model.unit(1, 0).frozen = False


def forgets(model: Any) -> None:
    model.paths.pop(0, None)


CHANGED = "its result cannot be used: it changed {}, which earlier tasks are computed by"
FITS = r"its result cannot be used: path {} does not fit layers of \[2, 2, 2, 2\] units"
NO_PATH = "its result cannot be used: {} is no path: a path has a whole number for each layer"

CREATORS: dict[str, tuple[Make, str]] = EITHER | {
    "short_path": (answers((0, 1, 0)), FITS.format(r"\(0, 1, 0\)")),
    "long_path": (answers([0] * 5), FITS.format(r"\(0, 0, 0, 0, 0\)")),
    "unit_not_there": (answers((0, 0, 2, 0)), FITS.format(r"\(0, 0, 2, 0\)")),
    "unit_below": (answers((0, -1, 0, 0)), FITS.format(r"\(0, -1, 0, 0\)")),
    "words": (answers(("new", 0, 0, 0)), NO_PATH.format(r"\('new', 0, 0, 0\)")),
    "text": (answers("0000"), NO_PATH.format("'0000'")),
    "halves": (answers((0.5, 0, 0, 0)), NO_PATH.format(r"\(0.5, 0, 0, 0\)")),
    "nan": (answers((math.nan, 0, 0, 0)), NO_PATH.format(r"\(nan, 0, 0, 0\)")),
    "nothing": (answers(None), NO_PATH.format("None")),
    "table": (answers({0: 0, 1: 0, 2: 0, 3: 0}), NO_PATH.format(r"\{.*\}")),
    "hole": (answers((0, None, 0, 0)), NO_PATH.format(r"\(0, None, 0, 0\)")),
    "frozen_weight": (
        writes(lambda model: model.unit(0, 0).conv.weight.data.view(-1)[3:4].mul_(1 + 2**-20)),
        CHANGED.format(r"unit 0 of layer 0 \(conv.weight\)"),
    ),
    "weight_becomes_nan": (
        writes(lambda model: model.unit(0, 0).norm.bias.data.fill_(math.nan)),
        CHANGED.format(r"unit 0 of layer 0 \(norm.bias\)"),
    ),
    "old_units_train": (does(trains_the_old), CHANGED.format(r"unit 0 of layer 0 \(.*\)")),
    "statistic": (
        writes(lambda model: model.unit(0, 0).norm.running_mean.add_(2**-10)),
        CHANGED.format(r"unit 0 of layer 0 \(norm.running_mean\)"),
    ),
    "training_mode": (does(old_in_training_mode), CHANGED.format(r"unit 0 of layer 2 \(.*running_mean\)")),
    "earlier_head": (
        writes(lambda model: model.heads[0].bias.data.add_(1)),
        CHANGED.format(r"the head of task 0 \(bias\)"),
    ),
    "earlier_path": (
        writes(lambda model: model.set_path(0, [0, 0, 0, 1])),
        CHANGED.format("the path of task 0"),
    ),
    "path_forgotten": (writes(forgets), CHANGED.format(r"the head of task 0 \(weight\)")),
    "unit_melted": (writes(melts), CHANGED.format(r"unit 0 of layer 1 \(.*\)")),
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
            register(name, maker)

    @hookimpl
    def register_creators(self, register: Any) -> None:
        """Broken creators."""
        for name, (make, _) in CREATORS.items():
            register(name, Maker(name, make))
        for name, maker in OTHERS.items():
            register(name, maker)


class Watching:
    """A plugin of another package, which watches and may fail at it."""

    def __init__(self) -> None:
        self.watch: Callable[[StageProgress], None] | None = None
        self.seen: list[StageProgress] = []

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Do what the test says."""
        if self.watch is not None:
            self.seen.append(progress)
            self.watch(progress)


# --- runs -----------------------------------------------------------------------------------------------------------


WATCHING = Watching()


@pytest.fixture(scope="module")
def registry() -> Registry:
    """What is installed, and the stranger's."""
    manager = load_plugins()
    manager.register(Stranger(), name="stranger")
    manager.register(TinyStreams(), name="streams")
    manager.register(WATCHING, name="watching")
    return Registry(manager)


@pytest.fixture(scope="module", autouse=True)
def _sizes_once() -> Iterator[None]:
    """The sizes that a cost estimate needs are computed once: they are the same for all these runs, and take longer
    than the runs themselves."""
    known: dict[Genotype, Any] = {}
    usual = seu_bench_seu.costing._first_task

    def once(context: Any, unit: Genotype) -> Any:
        if unit not in known:
            known[unit] = usual(context, unit)
        return known[unit]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seu_bench_seu.costing, "_first_task", once)
        yield


def make(registry: Registry, results: Path, searcher: str = "good", creator: str = "good", **options: Any) -> Outcome:
    """A run of two tasks of ten images per class."""
    asked = Request(
        benchmark="tiny_two",
        searcher=searcher,
        creator=creator,
        options={"epochs": 1, "channels": 2, **options},
        results=results,
        device="cpu",
    )
    return execute(registry, resolve(registry, asked))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and when it was written."""
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def results(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with a finished run in it."""
    folder = tmp_path_factory.mktemp("results")
    outcome = make(registry, folder)
    assert outcome.record.status == "finished"
    assert outcome.record.paths == ((0, 0, 0, 0), (1, 1, 1, 1))
    return folder


@pytest.fixture
def finished(registry: Registry, results: Path) -> Iterator[Path]:
    """The folder of the finished run, of which nothing may change."""
    folder = make(registry, results).path.parent
    before = contents(folder)
    assert sorted(path.rpartition("/")[2] for path in before) == ["model.safetensors", "record.json"]
    yield folder
    assert contents(folder) == before
    assert make(registry, results).reused


def what_is_kept(record: Record, kind: str) -> None:
    """What the first task left: its row, its sizes, its stages, and the search that went well before a creation."""
    (first, second) = record.accuracy_matrix
    assert first[0] is not None and first[1] is None
    assert second == (None, None)
    assert len(record.params_total) == 1
    done = [(stage.name, stage.task) for stage in record.stages]
    before = [("search", 0), ("training", 0), ("evaluation", 0)]
    assert done == before + ([("search", 1)] if kind == "creator" else [])
    assert record.paths is not None and record.paths[0] == (0, 0, 0, 0)
    assert record.genotypes is not None and record.genotypes[0] == GOOD.to_dict()
    assert len(record.paths) == len(record.genotypes)
    assert record.metrics["acc"] is None and not record.may_be_ranked


def failing(registry: Registry, results: Path, kind: str, name: str, said: str, **options: Any) -> RunError:
    """Run with a broken component; see that all is told, where it should be, and that nothing is lost."""
    with pytest.raises(RunError) as caught:
        make(registry, results, **{kind: name}, **options)
    error = caught.value
    expected = (
        rf"{kind} '{name}' \(plugin 'stranger' of package stranger\) failed in stage '{STAGE[kind]}' of task 1: {said}"
    )
    assert re.fullmatch(expected, error.what), error.what
    assert error.remedy
    (folder,) = (path.parent for path in results.glob("runs/*/error.txt") if str(path) == error.where)
    text = (folder / "error.txt").read_text()
    assert text.startswith("Traceback") or "\nTraceback" in text
    assert error.what in text
    record = read_record(folder)
    assert (record.status, record.error) == ("failed", error.what)
    assert getattr(record, kind) == name
    what_is_kept(record, kind)
    return error


@pytest.mark.parametrize("name", SEARCHERS)
def test_broken_searcher(registry: Registry, results: Path, finished: Path, name: str) -> None:
    """Whatever it does wrong: kind, name, plugin, package, stage and task are told, and what was learned is kept."""
    failing(registry, results, "searcher", name, SEARCHERS[name][1])


def test_forms_that_differ(registry: Registry, results: Path, finished: Path) -> None:
    """With one cell type, a genotype of two forms is refused."""
    failing(registry, results, "searcher", "one_type", ONE_TYPE[1], cell_types=1)


@pytest.mark.parametrize("name", CREATORS)
def test_broken_creator(registry: Registry, results: Path, finished: Path, name: str) -> None:
    """Whatever it does wrong: kind, name, plugin, package, stage and task are told, and what was learned is kept."""
    failing(registry, results, "creator", name, CREATORS[name][1])


def test_the_cause_is_in_the_file(registry: Registry, tmp_path: Path) -> None:
    """The traceback beside the record leads into the plugin's own code."""
    with pytest.raises(RunError) as caught:
        make(registry, tmp_path, searcher="raises_in_an_epoch")
    text = Path(caught.value.where or "").read_text()
    assert f'File "{__file__}"' in text and "in fails" in text
    assert 'raise ZeroDivisionError("this is broken")' in text
    assert isinstance(caught.value.__cause__, RunError)
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)


def test_stage_without_its_base(registry: Registry, tmp_path: Path) -> None:
    """A stage whose constructor does not call that of its base is the plugin's fault too."""
    failing(registry, tmp_path, "searcher", "unmade", ".*")


@pytest.mark.parametrize("kind", ["searcher", "creator"])
def test_factory_that_cannot_announce(registry: Registry, tmp_path: Path, kind: str) -> None:
    """What ``passes`` raises is told with the component's name, and not as the strategy's."""
    with pytest.raises(RunError, match=rf"^{kind} 'cannot_announce' \(plugin 'stranger' of package stranger\)"):
        make(registry, tmp_path, **{kind: "cannot_announce"})


def test_plugin_that_exits(registry: Registry, tmp_path: Path) -> None:
    """A plugin does not end the process: that is its failure like any other."""
    failing(registry, tmp_path, "searcher", "exits", ".*")


# --- who is not at fault --------------------------------------------------------------------------------------------


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    """A watcher that is told of every batch: by default stages tell twice a second, which is longer than these last."""
    monkeypatch.setattr("seu_bench.training.stage.REPORT_EVERY", 0.0)
    WATCHING.seen.clear()
    yield WATCHING
    WATCHING.watch = None


@pytest.mark.parametrize("stage", ["search", "creation"])
@pytest.mark.parametrize("within", [True, False], ids=["within-an-epoch", "between-epochs"])
def test_watcher_that_fails(registry: Registry, tmp_path: Path, watching: Watching, stage: str, within: bool) -> None:
    """Neither searcher nor creator is blamed for it: the watcher's plugin and hook are named."""

    def fail(progress: StageProgress) -> None:
        begun = progress.image_passes % 8 == 4 and progress.epoch == 0
        if (progress.stage, progress.task) == (stage, 1) and begun == within:
            raise LookupError("this watcher is broken")

    watching.watch = fail
    with pytest.raises(RunError) as caught:
        make(registry, tmp_path)
    assert isinstance(caught.value.__cause__, PluginError)
    said = "plugin 'watching' of package watching failed in stage_progress: LookupError: this watcher is broken"
    assert caught.value.what == said
    (folder,) = (tmp_path / "runs").iterdir()
    assert (read_record(folder).status, read_record(folder).error) == ("failed", said)
    assert watching.seen[-1].image_passes == (4 if within else 0)


def test_watchers_are_told_the_strategys_words(registry: Registry, tmp_path: Path, watching: Watching) -> None:
    """Within epochs too, stage and task are what the strategy calls them, whatever the plugin's stage calls itself."""
    watching.watch = lambda progress: None
    make(registry, tmp_path)
    told = {(progress.stage, progress.task, progress.epochs) for progress in watching.seen}
    assert {(stage, task, epochs) for stage, task, epochs in told if stage in ("search", "creation")} == {
        ("search", 0, 2),
        ("search", 1, 2),
        ("creation", 1, 2),
    }
    assert not any(stage == "anything" for stage, _, _ in told)
    images = [progress.image_passes for progress in watching.seen if (progress.stage, progress.task) == ("search", 1)]
    assert images == sorted(images) and {0, 4, 8} == set(images)


@pytest.mark.parametrize("name", ["interrupted_when_made", "interrupted", "interrupted_in_the_end"])
@pytest.mark.parametrize("kind", ["searcher", "creator"])
def test_interruption(registry: Registry, results: Path, finished: Path, kind: str, name: str) -> None:
    """Ctrl-C while a plugin computes is an interruption, and no failure of the plugin."""
    with pytest.raises(KeyboardInterrupt):
        make(registry, results, **{kind: name})
    (record,) = (
        record for path in results.glob("runs/*/record.json") if getattr(record := read_record(path), kind) == name
    )
    assert (record.status, record.error) == ("interrupted", "interrupted by the user")
    what_is_kept(record, kind)
    assert not record_path(results, record.run_id).with_name("error.txt").exists()


def test_nothing_is_wrong_with_ours(registry: Registry, tmp_path: Path) -> None:
    """The same guard lets those pass that are as they should be, and the run is finished."""
    record = make(registry, tmp_path, searcher="random", creator="frugal").record
    assert (record.status, record.error) == ("finished", None)
    assert len(record.genotypes or ()) == len(record.paths or ()) == 2


# --- the command line -----------------------------------------------------------------------------------------------


INSTALLED = """
from seu_bench import hookimpl
from seu_bench.config.options import Options


class NoOptions(Options):
    pass


class Factory:
    summary = "broken"
    options = NoOptions

    def build(self, options, task):
        from seu_bench.search_space import uniform_genotype
        from seu_bench.training.stage import EpochReport, Stage

        class Broken(Stage):
            def run_epoch(self):
                self.passed(1)
                return EpochReport(0.5, 0.5)

            def result(self):
                return uniform_genotype("skip_connect") if self.task == 0 else {"normal": "nothing"}

            def get_extra_state(self):
                return {}

            def set_extra_state(self, state):
                pass

        return Broken("search", task.task, 1, task.seed, task.device)

    def estimate_passes(self, options, schedule, train_images):
        return 1, 0


@hookimpl
def register_searchers(register):
    register("misleading", Factory())
"""


def test_command_line(command: Command, install: Install, tmp_path: Path) -> None:
    """Exit status 2, one message and no traceback; plugin and package are those that are installed."""
    install("a-stranger", {"misled": "misleading_plugin"}, {"misleading_plugin": INSTALLED})
    options = [word for value in ("epochs=1", "cells=3", "channels=2") for word in ("-o", value)]
    asked = ("--benchmark", "split_digits", "--protocol", "smoke", "--limit", 8, "--results", tmp_path, *options)
    answer = command("run", "--strategy", "seu", "--searcher", "misleading", "--creator", "all_new", *asked)
    said = (
        "searcher 'misleading' (plugin 'misled' of package a-stranger) failed in stage 'search' of task 1: "
        "its result cannot be used: it is no Genotype but dict"
    )
    assert (answer.status, answer.out) == (2, "")
    assert "Traceback" not in answer.err
    assert answer.err.count(f"error: {said}\n  where: ") == 1
    assert "  to do: choose another searcher, or report it to the author of a-stranger" in answer.err
    (folder,) = (tmp_path / "runs").iterdir()
    assert str(folder / "error.txt") in answer.err
    assert "Traceback" in (folder / "error.txt").read_text()
    record = read_record(folder)
    assert (record.status, record.error) == ("failed", said)
    assert record.accuracy_matrix[0][0] is not None and set(record.accuracy_matrix[1]) == {None}
