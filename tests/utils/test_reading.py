"""Files and folders of strangers: nothing is followed, waited for or passed over."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from support.plain_user import plain_user

from seu_bench.errors import ResultsError
from seu_bench.utils import reading
from seu_bench.utils.reading import list_folder, open_file, read_file


def test_reads_regular_files(tmp_path: Path) -> None:
    """All of it, or nothing where it is larger than it may be."""
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file") == read_file(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, and 4 are the most"):
        read_file(tmp_path / "file", 4)


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder", "socket"])
def test_refuses_all_else(tmp_path: Path, kind: str) -> None:
    """Without waiting for anybody."""
    path = tmp_path / "it"
    listener = socket.socket(socket.AF_UNIX)
    if kind == "link":
        (tmp_path / "file").write_text("somebody's")
        path.symlink_to(tmp_path / "file")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        listener.bind(str(path))
    with pytest.raises(OSError, match=f"this is a {kind}, .*not a regular file|this is a {kind}, not a regular file"):
        open_file(path)
    listener.close()


def test_more_than_there_is_memory_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before it is read: a process that runs out of memory may be killed without a word."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**25)
    monkeypatch.setattr(reading, "free_host_memory", lambda: 2**24)
    with pytest.raises(OSError, match="there is no memory for its 33554432 bytes"):
        read_file(tmp_path / "sparse")


def test_lists_folders(tmp_path: Path) -> None:
    """By name; what is not there is empty, and what cannot be read is an error."""
    for name in ("b", "a"):
        (tmp_path / "folder" / name).mkdir(parents=True)
    assert list_folder(tmp_path / "folder") == [tmp_path / "folder" / "a", tmp_path / "folder" / "b"]
    assert list_folder(tmp_path / "none") == []
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match="cannot be read: Not a directory"):
        list_folder(tmp_path / "file")
    (tmp_path / "folder").chmod(0)
    with plain_user(tmp_path), pytest.raises(ResultsError, match="cannot be read: Permission denied") as refused:
        list_folder(tmp_path / "folder")
    (tmp_path / "folder").chmod(0o755)
    assert refused.value.where == str(tmp_path / "folder")
