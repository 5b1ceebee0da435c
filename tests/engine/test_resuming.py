"""A run that goes on: the checkpoint before a damaged one is used, and the record says what is true of the whole."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.remembering import Rehearsing, repaired

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.run import Request
from seu_bench.engine.checkpoint import CheckpointFolder, read_checkpoint, read_header, write_checkpoint
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import Outcome, execute
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption, ResultsError, RunError, SeuBenchError
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import read_record
from seu_bench.results.record_metrics import without_times
from seu_bench.training.backbones import backbone_model
from seu_bench.training.interfaces import StrategyContext, StrategyFactory
from seu_bench.training.stage import StageProgress
from seu_bench.training.strategy import StagedStrategy


class Stopper:
    """A watcher that stops a run when so many epochs of training are done, and writes down what it is told."""

    def __init__(self, stop: StopRequest | None = None, after: int = 0) -> None:
        self.stop = stop
        self.after = after
        self.notices: list[str] = []

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Count."""
        if progress.stage == "training" and progress.epoch:
            self.after -= 1
            if self.stop is not None and self.after == 0:
                self.stop.ask(Interruption("stopped by the test", 143))

    @hookimpl
    def run_notice(self, message: str) -> None:
        """Keep."""
        self.notices.append(message)


def make(results: Path, watcher: Stopper, **more: Any) -> Outcome:
    """Five epochs of ``tiny`` on each task of eight images, with a checkpoint after each epoch."""
    manager = load_plugins()
    manager.register(watcher, name="watcher")
    registry = Registry(manager)
    options = {"epochs": 5} | more.pop("options", {})
    fields = {
        "strategy": "tiny",
        "protocol": "smoke",
        "limit": 8,
        "results": results,
        "device": "cpu",
        "checkpoint_every": 0.0,
    } | more
    run = resolve(registry, Request(options=options, **fields))
    return execute(registry, run, stop=watcher.stop)


def interrupted(results: Path, **more: Any) -> Path:
    """A run that was stopped in its third task; its folder."""
    stop = StopRequest()
    with pytest.raises(Interruption, match="stopped by the test"):
        make(results, Stopper(stop, after=13), **more)
    (folder,) = (results / "runs").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "progress.json", "record.json"]
    return folder


def spoil_cut(path: Path) -> None:
    """Half of it."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil_bit(path: Path) -> None:
    """One bit of the weights."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def spoil_foreign(path: Path) -> None:
    """Another run's."""
    state = read_checkpoint(path, path.parents[1].name)
    write_checkpoint(path, "another-run", read_header(path).position, state)


def spoil_content(path: Path) -> None:
    """A right checksum over what is no state of this strategy."""
    state = read_checkpoint(path, path.parents[1].name)
    write_checkpoint(path, path.parents[1].name, read_header(path).position, state | {"strategy": {"task": 1}})


SPOILED = {
    spoil_cut: "it was cut or changed",
    spoil_bit: "the checksum does not fit",
    spoil_foreign: "it belongs to the run 'another-run'",
    spoil_content: "the state does not fit the strategy",
}


@pytest.mark.parametrize("spoil", SPOILED)
@pytest.mark.long
def test_the_one_before_is_used(tiny: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """A damaged checkpoint is named and put aside, and the run is resumed from the one before to the same result."""
    expected = without_times(make(tmp_path / "whole", Stopper()).record)
    folder = interrupted(tmp_path / "parts")
    newest, before = sorted((folder / "checkpoints").glob("*.ckpt"), reverse=True)
    position = read_header(before).position
    spoil(newest)
    watcher = Stopper()
    outcome = make(tmp_path / "parts", watcher)
    assert [SPOILED[spoil] in watcher.notices[0], str(newest) in watcher.notices[0]] == [True, True]
    assert watcher.notices[1] == f"resuming from {position}"
    assert without_times(outcome.record) == expected
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "record.json"]


JUNK: tuple[Any, ...] = (None, -1, 7, "text", [], {}, 1e300, torch.zeros(2, 2), torch.tensor(3), [{"a": None}])


def leaves(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a state there is something that holds nothing else, and whatever holds it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(leaf for key, part in inner for leaf in leaves(part, (*place, key)))]


@pytest.mark.long
def test_states_of_strangers(tiny: Path, tmp_path: Path) -> None:
    """Any value of a state may be replaced and the checksum made to fit: a run then goes on from it, from the one
    before, or anew, or ends with an error of ours; nothing else is raised, and its record is whole."""
    folder = interrupted(tmp_path / "first")
    newest = max((folder / "checkpoints").glob("*.ckpt"))
    generator = random.Random("strangers")
    ends: set[str] = set()
    for number in range(60):
        results = tmp_path / str(number)
        shutil.copytree(tmp_path / "first", results)
        path = results / newest.relative_to(tmp_path / "first")
        state = read_checkpoint(path, folder.name)
        (*place, last) = generator.choice([leaf for leaf in leaves(state) if leaf])
        holder = state
        for key in place:
            holder = holder[key]
        holder[last] = generator.choice(JUNK)
        write_checkpoint(path, folder.name, read_header(path).position, state)
        watcher = Stopper()
        try:
            make(results, watcher)
        except SeuBenchError as error:
            ends.add(type(error).__name__)
        else:
            ends.add(watcher.notices[0].partition(":")[0].partition(" from ")[0])
        assert read_record(results / "runs" / folder.name).run_id == folder.name
        shutil.rmtree(results)
    assert {"a checkpoint cannot be used", "resuming", "RunError"} <= ends, ends


def test_restart(tiny: Path, tmp_path: Path) -> None:
    """``restart`` leaves no checkpoint; a finished run is kept until the new one is finished."""
    folder = interrupted(tmp_path)
    watcher = Stopper()
    finished = make(tmp_path, watcher, restart=True).record
    assert watcher.notices == []
    stop = StopRequest()
    with pytest.raises(Interruption):
        make(tmp_path, Stopper(stop, after=3), restart=True)
    assert read_record(folder / "previous") == finished
    assert (folder / "previous" / "model.safetensors").is_file() and read_record(folder).status == "interrupted"
    again = make(tmp_path, Stopper()).record
    assert without_times(again) == without_times(finished)
    assert not (folder / "previous").exists()


def changed_checkpoints(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the record in each checkpoint of a run."""
    for path in (folder / "checkpoints").glob("*.ckpt"):
        state = read_checkpoint(path, folder.name)
        change(state["record"])
        write_checkpoint(path, folder.name, read_header(path).position, state)


def test_another_place(tiny: Path, tmp_path: Path) -> None:
    """A run that goes on by other versions says so in its record, which has the first start and the time of both."""
    folder = interrupted(tmp_path)
    before = read_record(folder)
    assert (before.status, before.error) == ("interrupted", "stopped by the test")
    changed_checkpoints(folder, lambda record: record["environment"]["versions"].update(torch="0.4.1"))
    watcher = Stopper()
    record = make(tmp_path, watcher).record
    assert (record.started, record.error) == (before.started, None)
    assert (record.seconds or 0) > (before.seconds or 0)
    assert [place.versions["torch"] for place in record.earlier_environments] == ["0.4.1"]
    assert record.environment.versions["torch"] != "0.4.1"
    assert "made elsewhere or by other versions" in watcher.notices[-1]


def test_other_data(tiny: Path, tmp_path: Path) -> None:
    """A run does not go on on data that are not those it began with; nothing is lost."""
    folder = interrupted(tmp_path)
    changed_checkpoints(folder, lambda record: record.update(data_fingerprint="0" * 64))
    with pytest.raises(ResultsError, match="the data sets are not those that the run began with"):
        make(tmp_path, Stopper())
    assert len(list((folder / "checkpoints").glob("*.ckpt"))) == 2


def test_divergence(tiny: Path, tmp_path: Path) -> None:
    """A loss that is NaN: failed, with stage and epoch; the last finite checkpoint stays, and can be loaded."""
    with pytest.raises(RunError, match="the loss became nan in stage 'training' of task 1, epoch 1"):
        make(tmp_path, Stopper(), options={"fault": "diverge"})
    (folder,) = (tmp_path / "runs").iterdir()
    record = read_record(folder)
    assert record.status == "failed" and "training" in (record.error or "") and "epoch 1" in (record.error or "")
    newest = CheckpointFolder(folder / "checkpoints", folder.name).newest_first()[0]
    assert str(read_header(newest).position) == "task 2"
    for tensor in read_checkpoint(newest, folder.name)["strategy"]["weights"].values():
        assert bool(tensor.isfinite().all())


class Replay(Stopper):
    """A plugin as the tutorial shows it, whose reservoir changes with every batch; it watches its own runs."""

    @hookimpl
    def register_strategies(self, register: Register[StrategyFactory]) -> None:
        """Offer ``rehearsing``."""
        register("rehearsing", LazyFactory("replays", options=BackboneOptions, build=self.build))

    @staticmethod
    def build(context: StrategyContext) -> StagedStrategy:
        """It names ``reservoir`` and ``seen`` in ``state_attributes``."""
        return repaired(Rehearsing).of(context, model=backbone_model(context))


@pytest.mark.long
def test_a_reservoir_over_many_stops(tmp_path: Path) -> None:
    """Stopped twelve times and more, within tasks and between them, a run on real images ends with the same bits."""
    more = {
        "options": {"backbone": "mlp", "batch_size": 8, "epochs": 8},
        "strategy": "rehearsing",
        "benchmark": "split_digits",
        "limit": 32,
    }
    whole = make(tmp_path / "whole", Replay(), **more).record
    stops = 0
    while True:
        try:
            stopped = make(tmp_path / "parts", Replay(StopRequest(), after=3), **more).record
            break
        except Interruption:
            stops += 1
    assert stops >= 12
    assert without_times(stopped) == without_times(whole)  # weights_sha256 among them
