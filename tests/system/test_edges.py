"""Thousands of hostile files and command lines: none ends in a traceback, hangs, or writes where it may not."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from support import edge_server
from support.edge_cases import CASES, TESTS, TRIES, Case, make_images, resumed

Ask: TypeAlias = Callable[[Case, Path], dict[str, Any]]

#: What a command may end with: done, differences found or nobody reading, refused, out of time.
STATUSES = {0, 1, 2, 3, 75}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one folder that commands can write to."""
    return tmp_path_factory.mktemp("edges")


@pytest.fixture(scope="module")
def ask(work: Path) -> Iterator[Ask]:
    """Runs a command in a folder."""
    server = edge_server.start(work)
    assert server.stdin is not None and server.stdout is not None

    def answer(arguments: Case, folder: Path) -> dict[str, Any]:
        server.stdin.write(json.dumps({"arguments": arguments, "folder": str(folder)}) + "\n")  # type: ignore[union-attr]
        server.stdin.flush()  # type: ignore[union-attr]
        found: dict[str, Any] = json.loads(server.stdout.readline())  # type: ignore[union-attr]
        return found

    yield answer
    server.stdin.close()
    server.wait()
    server.stdout.close()


@pytest.fixture(scope="module")
def base(work: Path, ask: Ask) -> Path:
    """Images, and results with a finished run and one that was interrupted."""
    folder = work / "base"
    make_images(folder / "images")
    results = ["--results", str(folder / "results")]
    assert ask([*resumed(), "--seed", "1", *results], folder)["status"] == 0
    assert ask([*resumed(), "--checkpoint-every", "0", "--max-seconds", "0.01", *results], folder)["status"] == 75
    assert len(list((folder / "results").rglob("*.ckpt"))) >= 1
    return folder


def check(kind: str, seed: int, ask: Ask, work: Path, base: Path) -> None:
    """One try."""
    folder = work / "try"
    folder.mkdir()
    try:
        arguments = CASES[kind](random.Random(f"{kind} {seed}"), folder, base)
        answer = ask(arguments, folder)
    finally:
        shutil.rmtree(folder)
    told = f"{kind} {seed}: {arguments!r}\n{answer['said']}"
    assert answer["status"] != -signal.SIGALRM, f"it hung: {told}"
    assert answer["status"] in STATUSES, f"exit status {answer['status']}: {told}"
    assert "Traceback (most recent call last)" not in answer["said"], told
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", answer["said"].replace("\r\n", "\n")), repr(told)


@pytest.mark.crash
@pytest.mark.parametrize("batch", range(TESTS))
@pytest.mark.parametrize("kind", CASES)
def test_hostile(kind: str, batch: int, ask: Ask, work: Path, base: Path) -> None:
    """Each try has a command, an exit status of ours, and a message."""
    before = sorted((path, path.stat().st_mtime_ns) for path in base.rglob("*"))
    for seed in range(batch * TRIES, (batch + 1) * TRIES):
        check(kind, seed, ask, work, base)
    assert sorted((path, path.stat().st_mtime_ns) for path in base.rglob("*")) == before


@pytest.mark.long
@pytest.mark.parametrize("kind", CASES)
def test_a_few(kind: str, ask: Ask, work: Path, base: Path) -> None:
    """A few of each kind."""
    for seed in range(10):
        check(kind, 100_000 + seed, ask, work, base)


@pytest.mark.crash
def test_nothing_else_can_be_written(ask: Ask, work: Path, tmp_path: Path) -> None:
    """Where the server is isolated, the tries above show that nothing outside was changed."""
    if not edge_server.can_isolate():
        pytest.skip("no root of one's own here")
    assert ask(["runs", "--results", str(work / "none")], work)["status"] == 0
    outside = tmp_path / "results"
    answer = ask(["run", "--strategy", "naive", "--protocol", "smoke", "--limit", "4", "--results", str(outside)], work)
    assert answer["status"] == 2 and "Read-only file system" in answer["said"]
    assert not outside.exists()
    assert subprocess.run(["test", "-c", "/dev/null"], check=False).returncode == 0
