"""Checkpoints: whole or refused, the one before a damaged one is used, written no more often than was allowed."""

from __future__ import annotations

import io
import json
import random
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from seu_bench.checkpoint import CheckpointFolder, Position, read_checkpoint, read_header, write_checkpoint
from seu_bench.errors import CheckpointError, Interruption, ResultsError, RunError, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.keeping import SHARE, CheckpointKeeper
from seu_bench.packing import pack
from seu_bench.record import read_record
from seu_bench.registry import Registry
from seu_bench.resolve import Request, resolve
from seu_bench.runner import Execution, Outcome, execute
from seu_bench.stages import StageProgress
from seu_bench.stopping import OUT_OF_TIME, StopRequest

HERE = Position(task=1, stage="training", epoch=2, epochs=5)
STATE: Mapping[str, Any] = {"weights": {"w": torch.arange(6.0).reshape(2, 3)}, "epoch": 3, "loss": float("inf")}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A checkpoint of the run ``a-run``."""
    path = tmp_path / "000001.ckpt"
    write_checkpoint(path, "a-run", HERE, pack(STATE))
    return path


# --- the file -----------------------------------------------------------------------------------------------------


def test_round_trip(written: Path) -> None:
    """Tensors to the bit, plain values as they are, and a header that tells where it stands without them."""
    state = read_checkpoint(written, "a-run")
    assert torch.equal(state["weights"]["w"], STATE["weights"]["w"])
    assert (state["epoch"], state["loss"]) == (3, float("inf"))
    header = read_header(written)
    assert (header.run_id, header.position, header.schema_version) == ("a-run", HERE, 1)
    assert str(header.position) == "task 2, training, epoch 2 of 5"


def test_tensors_are_stored_once(tmp_path: Path) -> None:
    """Weights are in the model's state and in the stage's; the file holds them once."""
    tensor = torch.randn(1000)
    sizes = [
        write_checkpoint(tmp_path / f"{len(state)}.ckpt", "a-run", HERE, pack(state))
        for state in ({"one": tensor}, {"one": tensor, "two": tensor})
    ]
    assert sizes[1] - sizes[0] < 500


def test_cut_anywhere(written: Path) -> None:
    """A file that ends too early is refused, wherever it ends."""
    content = written.read_bytes()
    for length in [*range(0, len(content), 97), len(content) - 1]:
        written.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="a checkpoint cannot be used"):
            read_checkpoint(written, "a-run")


def test_any_flipped_bit(written: Path) -> None:
    """A change of one bit is seen, in the header's line as in what follows."""
    content = written.read_bytes()
    end = content.index(b"\n")
    refused = 0
    for place in [*range(0, end, 11), *range(end, len(content), 53)]:
        changed = bytearray(content)
        changed[place] ^= 4
        written.write_bytes(changed)
        try:
            state = read_checkpoint(written, "a-run")
        except CheckpointError:
            refused += 1
        else:  # the header's texts about where it stands decide nothing
            assert place < end and torch.equal(state["weights"]["w"], STATE["weights"]["w"])
    assert refused > len(content) // 60


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"run_id": "b-run"}, "it belongs to the run 'b-run'"),
        ({"schema_version": 99, "seu_bench": "9.9"}, "it was written by seu-bench 9.9"),
        ({"bytes": 1}, "bytes long, and was 1"),
        ({"sha256": "0" * 64}, "the checksum does not fit"),
        ({"format": "another checkpoint"}, "it is no checkpoint of seu-bench"),
    ],
)
def test_foreign_header(written: Path, change: dict[str, Any], said: str) -> None:
    """Another run's, another version's, another program's."""
    line, _, content = written.read_bytes().partition(b"\n")
    written.write_bytes(json.dumps(json.loads(line) | change).encode() + b"\n" + content)
    with pytest.raises(CheckpointError, match=said):
        read_checkpoint(written, "a-run")


class Trap:
    """What unpickling would execute."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return (Path.touch, (Path("sprung"),))  # type: ignore[return-value]


def test_code_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose checksum is right and which holds an object is refused, and nothing of it runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "000001.ckpt"
    write_checkpoint(path, "a-run", HERE, pack({"trap": Trap()}))
    with pytest.raises(CheckpointError, match="it holds no state"):
        read_checkpoint(path, "a-run")
    assert not (tmp_path / "sprung").exists()
    torch.load(io.BytesIO(path.read_bytes().partition(b"\n")[2]), weights_only=False)
    assert (tmp_path / "sprung").exists()  # the trap would have worked


# --- the folder ---------------------------------------------------------------------------------------------------


def test_last_two_are_kept(tmp_path: Path) -> None:
    """In the order in which they were written, by number and not by name or time."""
    folder = CheckpointFolder(tmp_path / "checkpoints", "a-run")
    assert folder.newest_first() == [] and folder.position() is None
    for epoch in range(12):
        folder.write(HERE.model_copy(update={"epoch": epoch}), pack({"epoch": epoch}))
    assert [path.name for path in folder.newest_first()] == ["000012.ckpt", "000011.ckpt"]
    assert [read_checkpoint(path, "a-run")["epoch"] for path in folder.newest_first()] == [11, 10]
    folder.set_aside(folder.newest_first()[0])
    position = folder.position()
    assert position is not None and position.epoch == 10
    folder.clear()
    assert list(tmp_path.iterdir()) == []


# --- when they are written ----------------------------------------------------------------------------------------


class Clock:
    """``time.monotonic``, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def keeper(folder: Path, clock: Clock, takes: float, **more: Any) -> tuple[CheckpointKeeper, list[str]]:
    """A keeper whose checkpoints take so many seconds of the clock."""

    def state() -> Mapping[str, Any]:
        clock.now += takes
        return STATE

    told: list[str] = []
    arguments: dict[str, Any] = {"state": state, "size": lambda: 1000, "every": None, "notice": told.append, **more}
    return CheckpointKeeper(CheckpointFolder(folder, "a-run"), **{"stop": StopRequest(), **arguments}), told


@pytest.mark.parametrize("takes", [0.001, 0.1, 3.0])
def test_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: float) -> None:
    """By default checkpoints never take more than their share, and come nearly as often as it allows."""
    clock = Clock(monkeypatch)
    kept, _ = keeper(tmp_path, clock, takes)
    began = clock.now
    for _ in range(2000):
        clock.now += 1.0
        kept.pause(HERE)
        # A first checkpoint's time is not known before; it is made good for before the second.
        assert kept.seconds <= SHARE * (clock.now - began) or kept.written == 1
    assert kept.written >= min(2000, SHARE * 2000 / takes) * 0.9


def test_a_model_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was added since the last checkpoint takes time as well; it is waited for as much longer."""
    clock = Clock(monkeypatch)
    size = 0

    def state() -> Mapping[str, Any]:
        clock.now += 0.02 + size / 1e8
        return STATE

    kept, _ = keeper(tmp_path, clock, 0.0, state=state, size=lambda: size)
    began, written = clock.now, 0
    for second in range(1000):
        size = 10**8 * (second // 100)
        clock.now += 1.0
        kept.pause(HERE)
        assert kept.seconds <= SHARE * (clock.now - began) + 1e-6
        written = max(written, kept.written)
    assert written > 10
    # 0.02 s at the beginning, and nine seconds at the end.
    assert kept.seconds > SHARE * (clock.now - began) - 9.1


def test_every(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as was asked for, whatever it takes; 0 is after every epoch."""
    for every, expected in ((0.0, 100), (10.0, 10)):
        clock = Clock(monkeypatch)
        kept, _ = keeper(tmp_path / str(every), clock, 0.25, every=every)
        for _ in range(100):
            clock.now += 1.0
            kept.pause(HERE)
        assert kept.written == expected


def test_time_limit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops before the epoch that would not end in time, with a checkpoint."""
    clock = Clock(monkeypatch)
    kept, _ = keeper(tmp_path, clock, 0.0, stop=StopRequest(max_seconds=10.5), every=1000.0)
    for _ in range(5):
        clock.now += 1.5
        kept.pause(HERE)
    clock.now += 1.5
    with pytest.raises(Interruption, match=r"time limit of 10\.5 seconds") as stopped:
        kept.pause(HERE)
    assert (stopped.value.status, kept.written) == (OUT_OF_TIME, 1)


def test_where_it_cannot_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written between epochs of a strategy that goes on between tasks only; it still stops if asked to."""
    clock = Clock(monkeypatch)
    stop = StopRequest()
    kept, _ = keeper(tmp_path, clock, 0.0, stop=stop, every=0.0)
    kept.pause(HERE, resumable=False)
    stop.ask(Interruption("told to", 143))
    with pytest.raises(Interruption, match="told to"):
        kept.pause(HERE, resumable=False)
    assert kept.written == 0


def test_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has NaN in it is not kept, once told, and those before it stay."""
    clock = Clock(monkeypatch)
    states = iter([STATE, {"strategy": {"w": [torch.tensor([1.0, float("nan")])]}}, {"x": torch.tensor(float("inf"))}])
    kept, told = keeper(tmp_path, clock, 0.0, every=0.0, state=lambda: next(states))
    for _ in range(3):
        kept.pause(HERE)
    assert kept.written == 1 and len(kept.folder.newest_first()) == 1
    assert told == ["no checkpoint is written at task 2, training, epoch 2 of 5: strategy.w[0] is not finite"]


def test_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on; it is told once."""
    clock = Clock(monkeypatch)
    (tmp_path / "file").touch()
    kept, told = keeper(tmp_path / "file", clock, 0.0, every=0.0)
    for _ in range(3):
        kept.pause(HERE)
    assert kept.written == 0
    assert len(told) == 1 and told[0].startswith("no checkpoint could be written, the run goes on without: ")


# --- in a run -----------------------------------------------------------------------------------------------------


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
    registry = Registry()
    registry.manager.register(watcher, name="watcher")
    options = more.pop("options", {}) | {"epochs": 5}
    run = resolve(registry, Request("tiny", protocol="smoke", limit=8, options=options))
    execution = Execution(results, device="cpu", **({"checkpoint_every": 0.0} | more))
    return execute(registry, run, execution, stop=watcher.stop)


def interrupted(results: Path, **more: Any) -> Path:
    """A run that was stopped in its third task; its folder."""
    stop = StopRequest()
    with pytest.raises(Interruption, match="stopped by the test"):
        make(results, Stopper(stop, after=13), **more)
    (folder,) = (results / "runs").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "record.json"]
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
    write_checkpoint(path, "another-run", read_header(path).position, pack(state))


def spoil_content(path: Path) -> None:
    """A right checksum over what is no state of this strategy."""
    write_checkpoint(
        path, path.parents[1].name, read_header(path).position, pack({"strategy": {"task": 1}, "record": 7})
    )


SPOILED = {
    spoil_cut: "bytes long, and was",
    spoil_bit: "the checksum does not fit",
    spoil_foreign: "it belongs to the run 'another-run'",
    spoil_content: "the state does not fit the strategy",
}


@pytest.mark.parametrize("spoil", SPOILED)
def test_the_one_before_is_used(tiny: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """A damaged checkpoint is named and put aside, and the run goes on from the one before to the same result."""
    expected = make(tmp_path / "whole", Stopper()).record.without_times()
    folder = interrupted(tmp_path / "parts")
    newest, before = sorted((folder / "checkpoints").glob("*.ckpt"), reverse=True)
    position = read_header(before).position
    spoil(newest)
    watcher = Stopper()
    outcome = make(tmp_path / "parts", watcher)
    assert [SPOILED[spoil] in watcher.notices[0], str(newest) in watcher.notices[0]] == [True, True]
    assert watcher.notices[1] == f"the run goes on from {position}"
    assert outcome.record.without_times() == expected
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "record.json"]


def test_all_are_damaged(tiny: Path, tmp_path: Path) -> None:
    """Then the run begins anew, and says so."""
    expected = make(tmp_path / "whole", Stopper()).record.without_times()
    folder = interrupted(tmp_path / "parts")
    for path in (folder / "checkpoints").glob("*.ckpt"):
        spoil_cut(path)
    watcher = Stopper()
    assert make(tmp_path / "parts", watcher).record.without_times() == expected
    assert watcher.notices[-1] == "no checkpoint can be used: the run begins anew"


JUNK: tuple[Any, ...] = (None, -1, 7, "text", [], {}, 1e300, torch.zeros(2, 2), torch.tensor(3), [{"a": None}])


def leaves(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a state there is something that holds nothing else, and whatever holds it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(leaf for key, part in inner for leaf in leaves(part, (*place, key)))]


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
        write_checkpoint(path, folder.name, read_header(path).position, pack(state))
        watcher = Stopper()
        try:
            make(results, watcher)
        except SeuBenchError as error:
            ends.add(type(error).__name__)
        else:
            ends.add(watcher.notices[0].partition(":")[0].partition(" from ")[0])
        assert read_record(results / "runs" / folder.name).run_id == folder.name
        shutil.rmtree(results)
    assert {"a checkpoint cannot be used", "the run goes on", "RunError"} <= ends, ends


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
    assert again.without_times() == finished.without_times()
    assert not (folder / "previous").exists()


def test_time_and_place_of_what_goes_on(tiny: Path, tmp_path: Path) -> None:
    """The record has the first start, the seconds of both parts, and no other place where there was none."""
    folder = interrupted(tmp_path)
    before = read_record(folder)
    assert (before.status, before.error) == ("interrupted", "stopped by the test")
    after = make(tmp_path, Stopper()).record
    assert (after.started, after.earlier_environments) == (before.started, ())
    assert (after.seconds or 0) > (before.seconds or 0)
    assert after.error is None


def test_another_place(tiny: Path, tmp_path: Path) -> None:
    """A run that goes on by other versions says so in its record."""
    folder = interrupted(tmp_path)
    for path in (folder / "checkpoints").glob("*.ckpt"):
        state = read_checkpoint(path, folder.name)
        state["record"]["environment"]["versions"]["torch"] = "0.4.1"
        write_checkpoint(path, folder.name, read_header(path).position, pack(state))
    watcher = Stopper()
    record = make(tmp_path, watcher).record
    assert [place.versions["torch"] for place in record.earlier_environments] == ["0.4.1"]
    assert record.environment.versions["torch"] != "0.4.1"
    assert "made elsewhere or by other versions" in watcher.notices[-1]


def test_other_data(tiny: Path, tmp_path: Path) -> None:
    """A run does not go on on data that are not those it began with; nothing is lost."""
    folder = interrupted(tmp_path)
    for path in (folder / "checkpoints").glob("*.ckpt"):
        state = read_checkpoint(path, folder.name)
        state["record"]["data_fingerprint"] = "0" * 64
        write_checkpoint(path, folder.name, read_header(path).position, pack(state))
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


def test_no_weights(tiny: Path, tmp_path: Path) -> None:
    """Nothing but the record is left where no model is wanted."""
    record = make(tmp_path, Stopper(), keep_weights=False).record
    (folder,) = (tmp_path / "runs").iterdir()
    assert [path.name for path in folder.iterdir()] == ["record.json"]
    assert record.weights_sha256 is None
