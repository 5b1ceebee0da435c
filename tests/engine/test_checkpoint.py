"""Checkpoints: whole or refused, and written no more often than was allowed."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from seu_bench.engine.checkpoint import (
    SHARE,
    CheckpointFolder,
    CheckpointManager,
    Position,
    read_checkpoint,
    read_header,
    write_checkpoint,
)
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import CheckpointError, ExitStatus, Interruption

HERE = Position(task=1, stage="training", epoch=2, epochs=5)
STATE: Mapping[str, Any] = {"weights": {"w": torch.arange(6.0).reshape(2, 3)}, "epoch": 3, "loss": float("inf")}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A checkpoint of the run ``a-run``."""
    path = tmp_path / "000001.ckpt"
    write_checkpoint(path, "a-run", HERE, STATE)
    return path


# --- the file -----------------------------------------------------------------------------------------------------


IMAGES = torch.arange(48.0).reshape(2, 3, 4, 2)
ODD: dict[str, Any] = {
    "row by row": IMAGES,
    "channels last": IMAGES.contiguous(memory_format=torch.channels_last),
    "turned": IMAGES.permute(3, 1, 0, 2),
    "with gaps": IMAGES[:, :, ::2],
    "expanded": torch.arange(3.0).expand(5, 3),
    "scalar": torch.tensor(7),
    "empty": torch.zeros(0, 4),
    "one": torch.ones(1, 1, 3).transpose(0, 2),
    "flags": torch.tensor([True, False]),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "half": torch.tensor([0.1, -0.0, float("inf")], dtype=torch.float16),
    "double": torch.tensor([float("nan")], dtype=torch.float64),
    "plain": [1, 2.5, None, "text", True, (3, [torch.tensor([4])])],
    7: {"nested": {}},
}


def equal(one: Any, other: Any) -> bool:
    """Equal bit by bit."""
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return same and torch.equal(*(tensor.reshape(-1).clone().view(torch.uint8) for tensor in (one, other)))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(equal(*pair) for pair in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def test_everything_comes_back(tmp_path: Path) -> None:
    """Types, shapes and numbers; layouts too, where a tensor fills its memory; and a header that tells where it is."""
    path = tmp_path / "000001.ckpt"
    write_checkpoint(path, "a-run", HERE, ODD)
    back = read_checkpoint(path, "a-run")
    assert equal(ODD, back)
    for name in ("row by row", "channels last", "turned"):
        assert back[name].stride() == ODD[name].stride()
    header = read_header(path)
    assert (header.run_id, header.position, header.schema_version) == ("a-run", HERE, 3)
    assert str(header.position) == "task 2, training, epoch 2 of 5"


def test_cut_anywhere(written: Path) -> None:
    """A file that ends too early is refused, wherever it ends."""
    content = written.read_bytes()
    lengths = [*range(0, len(content), 97), len(content) - 1]
    assert len(lengths) >= 20
    for length in lengths:
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
    assert refused > len(content) // 60 and refused >= 40


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"run_id": "b-run"}, "it belongs to the run 'b-run'"),
        ({"schema_version": 99, "seu_bench": "9.9"}, "it was written by seu-bench 9.9"),
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
    """Called by unpickling."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return (Path.touch, (Path("sprung"),))  # type: ignore[return-value]


def test_code_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose checksum is right and which holds an object is refused, and nothing of it runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "000001.ckpt"
    write_checkpoint(path, "a-run", HERE, {"trap": Trap()})
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
        folder.write(HERE.model_copy(update={"epoch": epoch}), {"epoch": epoch})
    assert [path.name for path in folder.newest_first()] == ["000012.ckpt", "000011.ckpt"]
    assert [read_checkpoint(path, "a-run")["epoch"] for path in folder.newest_first()] == [11, 10]
    folder.newest_first()[0].write_bytes(b"")
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


def checkpoint_manager(folder: Path, clock: Clock, takes: float, **more: Any) -> tuple[CheckpointManager, list[str]]:
    """A checkpoint_manager whose checkpoints take so many seconds of the clock."""

    def state() -> Mapping[str, Any]:
        clock.now += takes
        return STATE

    told: list[str] = []
    arguments: dict[str, Any] = {"state": state, "every": None, "notice": told.append, **more}
    return CheckpointManager(CheckpointFolder(folder, "a-run"), **{"stop": StopRequest(), **arguments}), told


@pytest.mark.parametrize(("takes", "seconds"), [(0.001, 200), (0.1, 400), (3.0, 2000)])
def test_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: float, seconds: int) -> None:
    """By default checkpoints never take more than their share, and come nearly as often as it allows."""
    clock = Clock(monkeypatch)
    kept, _ = checkpoint_manager(tmp_path, clock, takes)
    began = clock.now
    for _ in range(seconds):
        clock.now += 1.0
        kept.maybe_save(HERE)
        # A first checkpoint's time is not known before; it is made good for before the second.
        assert kept.seconds <= SHARE * (clock.now - began) or kept.written == 1
    assert kept.written >= min(seconds, SHARE * seconds / takes) * 0.9


def test_every(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as was asked for, whatever it takes; 0 is after every epoch."""
    for every, expected in ((0.0, 100), (10.0, 10)):
        clock = Clock(monkeypatch)
        kept, _ = checkpoint_manager(tmp_path / str(every), clock, 0.25, every=every)
        for _ in range(100):
            clock.now += 1.0
            kept.maybe_save(HERE)
        assert kept.written == expected


def test_time_limit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops before the epoch that would not end in time, with a checkpoint."""
    clock = Clock(monkeypatch)
    kept, _ = checkpoint_manager(tmp_path, clock, 0.0, stop=StopRequest(max_seconds=10.5), every=1000.0)
    for _ in range(5):
        clock.now += 1.5
        kept.maybe_save(HERE)
    clock.now += 1.5
    with pytest.raises(Interruption, match=r"time limit of 10\.5 seconds") as stopped:
        kept.maybe_save(HERE)
    assert (stopped.value.exit_code, kept.written) == (ExitStatus.OUT_OF_TIME, 1)


def test_where_it_cannot_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written between epochs of a strategy that goes on between tasks only; it still stops if asked to."""
    clock = Clock(monkeypatch)
    stop = StopRequest()
    kept, _ = checkpoint_manager(tmp_path, clock, 0.0, stop=stop, every=0.0)
    kept.maybe_save(HERE, resumable=False)
    stop.ask(Interruption("told to", 143))
    with pytest.raises(Interruption, match="told to"):
        kept.maybe_save(HERE, resumable=False)
    assert kept.written == 0


def test_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint with NaN is not kept, which is said once, and those before it stay."""
    clock = Clock(monkeypatch)
    states = iter([STATE, {"strategy": {"w": [torch.tensor([1.0, float("nan")])]}}, {"x": torch.tensor(float("inf"))}])
    kept, told = checkpoint_manager(tmp_path, clock, 0.0, every=0.0, state=lambda: next(states))
    for _ in range(3):
        kept.maybe_save(HERE)
    assert kept.written == 1 and len(kept.folder.newest_first()) == 1
    assert told == ["no checkpoint is written at task 2, training, epoch 2 of 5: strategy.w[0] is not finite"]


def test_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on; it is told once."""
    clock = Clock(monkeypatch)
    (tmp_path / "file").touch()
    kept, told = checkpoint_manager(tmp_path / "file", clock, 0.0, every=0.0)
    for _ in range(3):
        kept.maybe_save(HERE)
    assert kept.written == 0
    assert len(told) == 1 and told[0].startswith("no checkpoint could be written, the run continues without: ")
