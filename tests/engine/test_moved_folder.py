"""A results folder that is moved while a run writes: nothing appears where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from seu_bench.config.run import Request
from seu_bench.engine.checkpoint import CheckpointFolder, Position
from seu_bench.engine.launcher import launch
from seu_bench.engine.run_folder import RunFolder
from seu_bench.errors import ResultsError
from seu_bench.utils.files import HeldFolder
from seu_bench.utils.locks import RunLock


@pytest.mark.parametrize("turn", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("taken", [False, True], ids=["gone", "taken-by-another"])
@pytest.mark.long
def test_moved_after_the_lock_was_checked(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int, taken: bool
) -> None:
    """Right between the check and the write, also where somebody has made a folder of the same name at once."""
    results, moved = tmp_path / "results", tmp_path / "moved"
    checked = []
    really = RunLock.check

    def check(lock: RunLock) -> None:
        really(lock)
        checked.append(lock)
        if len(checked) == turn:
            results.rename(moved)
            if taken:
                lock.folder.mkdir(parents=True)

    monkeypatch.setattr(RunLock, "check", check)
    fields = {"strategy": "tiny", "protocol": "smoke", "limit": 8, "device": "cpu", "options": {"epochs": 3}}
    request = Request(**fields, results=results, checkpoint_every=0.0)
    with pytest.raises(ResultsError):
        launch(request)
    assert len(checked) == turn
    assert [path for path in results.rglob("*") if path.is_file()] == []
    if not taken:
        assert not results.exists()


def test_held_folder(tmp_path: Path) -> None:
    """What is written goes into the folder that was held, by whatever name it is known then."""
    (tmp_path / "a").mkdir()
    with HeldFolder(tmp_path / "a") as held:
        held.write("one", "1")
        (tmp_path / "a").rename(tmp_path / "b")
        (tmp_path / "a").mkdir()
        held.write("one", "2")
        with held.subfolder("inner") as inner:
            inner.write("two", b"3")
    assert (tmp_path / "b" / "one").read_text() == "2"
    assert (tmp_path / "b" / "inner" / "two").read_bytes() == b"3"
    assert list((tmp_path / "a").iterdir()) == []


def test_held_folder_follows_no_link(tmp_path: Path) -> None:
    """A link in the place of the checkpoints' folder is refused."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path)
    with HeldFolder(tmp_path / "run") as held:
        checkpoints = CheckpointFolder(tmp_path / "run" / "checkpoints", "run", held)
        with pytest.raises(ResultsError, match="cannot write results"):
            checkpoints.write(Position(task=0), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_folder_that_is_gone_cannot_be_held(tmp_path: Path) -> None:
    """The error names it."""
    folder = RunFolder(tmp_path, "a")
    with pytest.raises(ResultsError, match="No such file"), folder.hold():
        pass
