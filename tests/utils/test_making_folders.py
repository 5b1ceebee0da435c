"""Folders that are made while other processes remove empty ones."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from seu_bench.utils.files import make_folder


def test_folders_are_made_while_others_remove_them(tmp_path: Path) -> None:
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


def test_folder_removed_between_the_two_looks_of_mkdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``Path.mkdir`` finds the folder there, and a moment later, when it asks whether it is one, no more."""
    make, calls = os.mkdir, 0

    def mkdir(path: Path, mode: int = 0o777) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise FileExistsError(17, "File exists", str(path))
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    make_folder(tmp_path / "a")
    assert (tmp_path / "a").is_dir() and calls == 2


def test_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a")


def test_mode_is_that_of_the_folder_alone(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b", 0o700)
    (tmp_path / "usual").mkdir()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a/b", "a", "usual")]
    assert modes[0] == 0o700 and modes[1] == modes[2]
