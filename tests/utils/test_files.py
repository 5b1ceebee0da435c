"""Files and folders of strangers: nothing is followed, waited for, half-written or passed over."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.plain_user import plain_user

from seu_bench.errors import ResultsError
from seu_bench.utils import reading
from seu_bench.utils.files import check_output, make_folder, write_atomic
from seu_bench.utils.reading import list_folder, open_file, read_file


@pytest.fixture(params=["link", "pipe", "device", "folder", "socket"])
def irregular(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Something that is no regular file; the name of its kind is in its parent's."""
    path = tmp_path / request.param / "it"
    path.parent.mkdir()
    if request.param == "link":
        (tmp_path / "file").write_text("somebody's")
        path.symlink_to(tmp_path / "file")
    elif request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path = Path("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    else:
        socket.socket(socket.AF_UNIX).bind(str(path))
    return path


def test_reads_regular_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file") == read_file(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, and 4 are the most"):
        read_file(tmp_path / "file", 4)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_refuses_all_else(irregular: Path) -> None:
    """Neither read, without waiting for anybody, nor a place for what a user asks for."""
    with pytest.raises(OSError, match="not a regular file"):
        open_file(irregular)
    with pytest.raises(ResultsError, match="not a regular file"):
        check_output(irregular)


def test_more_than_there_is_memory_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before it is read: a process that runs out of memory may be killed without a word."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**25)
    monkeypatch.setattr(reading, "free_host_memory", lambda: 2**24)
    with pytest.raises(OSError, match="there is no memory for its 33554432 bytes"):
        read_file(tmp_path / "sparse")


def test_writes_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there stays where it cannot be written, and no part is left; links are replaced, not followed."""
    path = tmp_path / "made" / "file"
    write_atomic(path, "one")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ResultsError, match=r"No space left(.|\n)*make room"):
            write_atomic(path, "two")
    assert [entry.name for entry in path.parent.iterdir()] == ["file"] and path.read_text() == "one"
    (tmp_path / "link").symlink_to(path)
    write_atomic(tmp_path / "link", b"three")
    assert path.read_text() == "one" and not (tmp_path / "link").is_symlink()


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
    with plain_user(tmp_path), pytest.raises(ResultsError, match="cannot be read: Permission denied"):
        list_folder(tmp_path / "folder")
    (tmp_path / "folder").chmod(0o755)


def test_makes_folders_while_others_remove_them(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "while os.path.exists(sys.argv[1] + '/go'):\n"
        "    for name in ('/a/b/c', '/a/b', '/a'):\n"
        "        try: os.rmdir(sys.argv[1] + name)\n"
        "        except OSError: pass\n"
    )
    (tmp_path / "go").touch()
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as process:
        try:
            for _ in range(300):
                make_folder(tmp_path / "a" / "b" / "c")
        finally:
            (tmp_path / "go").unlink()
            process.wait()


def test_makes_one_folder_private(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b", 0o700)
    (tmp_path / "usual").mkdir()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a/b", "a", "usual")]
    assert modes[0] == 0o700 and modes[1] == modes[2]
