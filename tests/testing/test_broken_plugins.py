"""A run with a searcher or a creator that is broken: it ends, says who was at fault and where, and harms nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import broken_components
from support.broken_components import CREATORS, GOOD, ONE_TYPE, SEARCHERS, Stranger
from support.tiny import all_threads, one_thread

import seu_bench_seu.strategy
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import Outcome, execute
from seu_bench.errors import RunError
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.testing.streams import TinyStreams
from seu_bench_kit.genotypes import Genotype

pytestmark = pytest.mark.long

setup_module, teardown_module = one_thread, all_threads

STAGE = {"searcher": "search", "creator": "creation"}


@pytest.fixture(scope="module")
def registry() -> Registry:
    """Registry of the installed plugins and the stranger's."""
    manager = load_plugins()
    manager.register(Stranger(), name="stranger")
    manager.register(TinyStreams(), name="streams")
    return Registry(manager)


@pytest.fixture(scope="module", autouse=True)
def _sizes_once() -> Iterator[None]:
    """The sizes that a cost estimate needs are computed once: they are the same for all these runs, and take longer
    than the runs themselves."""
    known: dict[Genotype, Any] = {}
    usual = seu_bench_seu.strategy._first_task

    def once(context: Any, unit: Genotype) -> Any:
        if unit not in known:
            known[unit] = usual(context, unit)
        return known[unit]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seu_bench_seu.strategy, "_first_task", once)
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
    """Record after the first task: its row, its sizes, its stages, and the search that went well before a creation."""
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
    """For every defect: kind, name, plugin, package, stage and task are named, and what was learned is kept."""
    failing(registry, results, "searcher", name, SEARCHERS[name][1])


def test_forms_that_differ(registry: Registry, results: Path, finished: Path) -> None:
    """With one cell type, a genotype of two forms is refused."""
    failing(registry, results, "searcher", "one_type", ONE_TYPE[1], cell_types=1)


@pytest.mark.parametrize("name", CREATORS)
def test_broken_creator(registry: Registry, results: Path, finished: Path, name: str) -> None:
    """For every defect: kind, name, plugin, package, stage and task are named, and what was learned is kept."""
    failing(registry, results, "creator", name, CREATORS[name][1])


def test_old_units_are_watched_in_training(registry: Registry, tmp_path: Path) -> None:
    """What a creator wraps may run for the first time there."""
    with pytest.raises(RunError, match=r"creator 'wakes_later' .*: it changed unit 0 of layer 1 \(.*running_mean\)"):
        make(registry, tmp_path, creator="wakes_later")


def test_the_cause_is_in_the_file(registry: Registry, tmp_path: Path) -> None:
    """The traceback beside the record leads into the plugin's own code."""
    with pytest.raises(RunError) as caught:
        make(registry, tmp_path, searcher="raises_in_an_epoch")
    text = Path(caught.value.where or "").read_text()
    assert f'File "{broken_components.__file__}"' in text and "in fails" in text
    assert 'raise ZeroDivisionError("this is broken")' in text
    assert isinstance(caught.value.__cause__, RunError)
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("kind", ["searcher", "creator"])
def test_factory_that_cannot_announce(registry: Registry, tmp_path: Path, kind: str) -> None:
    """Exceptions of ``estimate_passes`` are reported with the component's name, and not as the strategy's."""
    with pytest.raises(RunError, match=rf"^{kind} 'cannot_announce' \(plugin 'stranger' of package stranger\)"):
        make(registry, tmp_path, **{kind: "cannot_announce"})


@pytest.mark.parametrize("name", ["unmade", "exits"])
def test_stage_without_its_base_or_that_exits(registry: Registry, tmp_path: Path, name: str) -> None:
    """A plugin does not end the process: that is its failure like any other."""
    failing(registry, tmp_path, "searcher", name, ".*")


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
