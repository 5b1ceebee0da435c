"""Disks that are full, read-only, gone or strange: one clear error, nothing half-written, what was there stays."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import TINY, Command, write_package
from support.locks import locked

from seu_bench.errors import ResultsError
from seu_bench.utils.files import remove_parts, write_atomic
from seu_bench.utils.locks import folder_lock

#: A small disk of its own for one process; needs the right to make name spaces.
SMALL_DISK = 'mount -t tmpfs -o size={size} none "$1" && cd "$1" && exec "$2" -c "$3" "$1"'


def on_small_disk(folder: Path, code: str, size: str = "64k") -> subprocess.CompletedProcess[str]:
    """Run Python code in ``folder``, which is a disk of ``size`` there; skip the test where that cannot be had."""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no disk can be mounted here")
    done = subprocess.run(
        [*command, SMALL_DISK.format(size=size), "sh", str(folder), sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount:" in done.stderr:
        pytest.skip("no disk can be mounted here")
    return done


class TestFull:
    def test_what_was_there_stays(self, tmp_path: Path) -> None:
        code = (
            "from pathlib import Path; from seu_bench.errors import ResultsError\n"
            "from seu_bench.utils.files import write_atomic\n"
            "path = Path('runs/a/record.json'); write_atomic(path, 'old')\n"
            "try: write_atomic(path, 'n' * 200_000)\n"
            "except ResultsError as error: print(error)\n"
            "print(path.read_text(), [found.name for found in path.parent.iterdir()])\n"
        )
        done = on_small_disk(tmp_path, code)
        assert done.returncode == 0, done.stderr
        assert "cannot write results: No space left on device" in done.stdout
        assert "make room there and give the same command again" in done.stdout
        assert done.stdout.endswith("old ['record.json']\n")

    @pytest.mark.long
    def test_run_is_refused_before_it_computes(self, tmp_path: Path) -> None:
        """No room for a single file: exit status 2, one error, no lock."""
        code = (
            "import os, sys; open('filler', 'wb').write(b'x' * 4096 * 8)\n"
            "open('more', 'wb').write(b'x' * 4096 * 7)\n"
            "from seu_bench.cli.main import main\n"
            "sys.argv = ['seu-bench', 'run', '--strategy', 'naive', '--limit', '4', '--results', 'results']\n"
            "try: main()\n"
            "except SystemExit as left: print(left.code, sorted(os.listdir('.')))\n"
        )
        done = on_small_disk(tmp_path, code)
        assert done.stdout == "2 ['filler', 'more']\n", done
        assert done.stderr.count("error: ") == 1 and "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr

    def test_file_that_may_not_grow(self, tmp_path: Path) -> None:
        """The same by a limit on the size of files, which works everywhere."""
        path = tmp_path / "a" / "b"
        write_atomic(path, "old")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
            with pytest.raises(ResultsError, match="cannot write results: File too large"):
                write_atomic(path, b"n" * 2000)
            write_atomic(path, b"n" * 1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert path.read_bytes() == b"n" * 1000
        assert [found.name for found in path.parent.iterdir()] == ["b"]


class TestForbidden:
    @pytest.mark.long  # starts a process that imports everything
    def test_read_only_disk(self, tmp_path: Path) -> None:
        """Leaderboards of a disk that cannot be written to: read, and then refused in one message."""
        code = (
            "import os, subprocess, sys; sys.path.insert(0, os.environ['TESTS'])\n"
            "from pathlib import Path; from support.records import a_record\n"
            "from seu_bench.results.record import write_record\n"
            "write_record(Path('results'), a_record(data_fingerprint='ab'))\n"
            "subprocess.run(['mount', '-o', 'remount,ro', os.getcwd()], check=True)\n"
            "from seu_bench.cli.main import main\n"
            "for words in (['leaderboard'], ['run', '--strategy', 'naive', '--limit', '4'], ['show', 'cifar10']):\n"
            "    sys.argv = ['seu-bench', *words, '--results', 'results']\n"
            "    try: main()\n"
            "    except SystemExit as left: print('left', left.code, sorted(os.listdir('results')))\n"
        )
        os.environ["TESTS"] = str(Path(__file__).parents[1])
        try:
            done = on_small_disk(tmp_path, code, size="1m")
        finally:
            del os.environ["TESTS"]
        said = [line for line in done.stdout.splitlines() if line.startswith("left")]
        assert said == ["left 2 ['runs']"] * 2 + ["left 0 ['runs']"], done
        assert done.stderr.count("error: cannot write results: Read-only file system") == 2
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("mode", [0o555, 0o000])
    def test_folder_of_somebody_else(self, tmp_path: Path, mode: int) -> None:
        """Files that are there are as they were, whoever asks; root becomes somebody else for it."""
        folder = tmp_path / "forbidden"
        write_atomic(folder / "record.json", "old")
        if os.getuid() == 0:
            for above in (tmp_path, *tmp_path.parents):
                if "pytest-" in str(above):
                    above.chmod(0o755)
        folder.chmod(mode)
        code = (
            "import os, sys; from pathlib import Path; from seu_bench.errors import ResultsError\n"
            "from seu_bench.utils.files import write_atomic\n"
            "from seu_bench.utils.locks import RunLock, folder_lock, holder_of\n"
            "from seu_bench.results.record import read_record\n"
            "from seu_bench.results.record_files import find_run, read_records\n"
            "os.getuid() or os.setuid(65534); folder = Path(sys.argv[1])\n"
            "def lock():\n"
            "    with folder_lock(folder): pass\n"
            "for call in (lambda: write_atomic(folder / 'record.json', 'new'), RunLock(folder).acquire, lock):\n"
            "    try: call()\n"
            "    except ResultsError as error: print(error.what)\n"
            "print(holder_of(folder))\n"
        )
        done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
        folder.chmod(0o755)
        assert done.stdout.splitlines() == ["cannot write results: Permission denied"] * 3 + ["None"], done
        assert [path.name for path in folder.iterdir()] == ["record.json"]
        assert (folder / "record.json").read_text() == "old"

    def test_file_is_readable_for_those_who_may(self, tmp_path: Path) -> None:
        """Results are shared: the user's mask decides, not the way in which files are written."""
        before = os.umask(0o027)
        try:
            write_atomic(tmp_path / "a", "x")
        finally:
            os.umask(before)
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


class TestGone:
    def test_folder_that_vanishes_under_a_lock(self, tmp_path: Path) -> None:
        """The next check says so; nothing is made anew by it, nor by giving the lock back."""
        folder = tmp_path / "results" / "runs" / "a-run"
        with locked(folder) as lock:
            (folder / "record.json").write_text("{}")
            shutil.rmtree(tmp_path / "results")
            with pytest.raises(ResultsError, match="the folder of run a-run is gone"):
                lock.check()
        assert list(tmp_path.iterdir()) == []

    def test_folder_that_vanishes_under_leaderboards(self, tmp_path: Path) -> None:
        with folder_lock(tmp_path / "boards"):
            shutil.rmtree(tmp_path / "boards")
        assert list(tmp_path.iterdir()) == []


class TestStrange:
    def test_disk_that_cannot_flush(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def flush(handle: int) -> None:
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr(os, "fsync", flush)
        write_atomic(tmp_path / "a", "x")
        assert (tmp_path / "a").read_text() == "x"

    def test_disk_that_fails_to_flush(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fault of the device is none of what a file system cannot do."""
        write_atomic(tmp_path / "a", "old")

        def flush(handle: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", flush)
        with pytest.raises(ResultsError, match="Input/output error"):
            write_atomic(tmp_path / "a", "new")
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]

    def test_name_that_is_none(self, tmp_path: Path) -> None:
        for name in ("a\0b", "x" * 300):
            with pytest.raises(ResultsError, match="cannot write results"):
                write_atomic(tmp_path / name, "x")
        assert list(tmp_path.iterdir()) == []

    def test_long_name_that_is_one(self, tmp_path: Path) -> None:
        write_atomic(tmp_path / ("x" * 255), "x")
        assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]

    def test_parts_are_removed_and_nothing_else(self, tmp_path: Path) -> None:
        for name in (".a.part", "b.part", ".c"):
            (tmp_path / name).touch()
        (tmp_path / ".d.part").mkdir()
        remove_parts(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [".c", ".d.part", "b.part"]

    def test_show_of_a_name_that_cannot_be_a_file(self, command: Command, tmp_path: Path) -> None:
        answer = command("show", "x" * 300, "--results", tmp_path)
        assert answer.status == 2
        assert "no run is called" in answer.err


#: A plugin that does something to the results folder when the first epoch is over.
SABOTAGE = """
import os, shutil
from pathlib import Path
from seu_bench import hookimpl

@hookimpl
def stage_progress(progress):
    results = Path(os.environ["SABOTAGED"])
    if progress.epoch and results.exists():
        if os.environ["HOW"] == "vanish":
            shutil.rmtree(results)
        elif not Path("filler").exists():
            with open("filler", "wb", buffering=0) as file:
                try:
                    while file.write(b"x" * 4096):
                        pass
                except OSError:
                    pass
"""

RUN = """
import os, sys
from seu_bench.cli.main import main
sys.argv = ["seu-bench", "run", "--strategy", "tiny", "--limit", "16", "-o", "epochs=2", "--device", "cpu"]
sys.argv += ["--results", "results"]
try:
    main()
except SystemExit as left:
    found = sorted(os.path.join(folder, name) for folder, _, names in os.walk("results") for name in names)
    print("left", left.code, [os.path.basename(name) for name in found])
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["vanish", "fill"])
def test_disk_fails_under_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """One error and exit status 2; no half-written file and no lock; the folder is not made anew."""
    (tmp_path / "disk").mkdir()
    modules = {"tiny_plugin": TINY, "sabotage": SABOTAGE}
    points = {"tiny": "tiny_plugin", "sabotage": "sabotage"}
    site = write_package(tmp_path / "site", "a-stranger", points, modules)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("SABOTAGED", "results")
    monkeypatch.setenv("HOW", how)
    done = on_small_disk(tmp_path / "disk", RUN, size="128k")
    last = done.stdout.splitlines()[-1]
    assert last.startswith("left 2 "), done
    assert done.stderr.count("error: ") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not any(ending in last for ending in (".part", "lock"))
    if how == "vanish":
        assert last == "left 2 []"
        assert "is gone" in done.stderr
    else:
        assert "No space left on device" in done.stderr
