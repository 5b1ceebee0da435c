"""Bad input of any kind: exit status 2, one message that says what, where and what to do, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Command, write_package

SEU_BENCH = [sys.executable, "-m", "seu_bench.cli.main"]

OWN = """
name = "own"
default_protocol = "smoke"

[stream]
kind = "classes"
dataset = "mine"
classes_per_task = 2

[datasets.mine]
"""


def refused(command: Command, *arguments: object, said: tuple[str, ...]) -> str:
    """Check that a command is refused as every wrong one must be; what it said."""
    answer = command(*arguments)
    assert answer.status == 2, answer
    assert answer.out == ""
    assert "Traceback" not in answer.err
    for text in said:
        assert text in answer.err, answer.err
    if not answer.err.startswith("Usage:"):
        assert answer.err.startswith("error: ")
        assert answer.err.count("error: ") == 1
        assert answer.err.count("\n  hint: ") == 1
    return answer.err


REQUESTS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "strategy": (["--strategy", "naiv"], ("'naiv'", "did you mean 'naive'?", "seu-bench list strategies")),
    "searcher": (["--searcher", "mld"], ("'mld'", "did you mean 'mdl'?", "seu-bench list searchers")),
    "searcher of a strategy without": (
        ["--strategy", "naive", "--searcher", "mdl"],
        ("'naive' takes no searcher", "--searcher mdl", "leave the searcher out"),
    ),
    "option": (["-o", "epohcs=3"], ("'epohcs' is not an option", "did you mean 'epochs'?", "strategy 'seu' are: ")),
    "number": (["-o", "epochs=many"], ("epochs: ", "given: 'many'", "strategy 'seu'")),
    "several options": (
        ["-o", "cells=1", "-o", "stem=no", "-o", "no=1"],
        ("cells: ", "stem: ", "'no' is not an option"),
    ),
    "no assignment": (["-o", "epochs"], ("-o 'epochs'", "-o key=value")),
    "key of the benchmark": (["-o", "benchmark.steam.order=1"], ("benchmark.steam.order", "did you mean 'stream'?")),
    "protocol in the benchmark": (
        ["-o", "benchmark.protocols.smoke.training.epochs=x"],
        ("protocols.smoke.training.epochs: ", "given: 'x'", "split_digits.toml"),
    ),
    "seed in words": (["--seed", "one"], ("where: seed", "'one'")),
    "limit": (["--limit", "3"], ("where: limit", "given: 3")),
    "misspelt option of the command": (["--benchmrk", "x"], ("--benchmrk", "Did you mean", "--benchmark")),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(command: Command, tmp_path: Path, name: str) -> None:
    """A request that cannot be met is refused by ``run``, and by ``cost``, which resolves it in the same way."""
    arguments, said = REQUESTS[name]
    refused(command, "run", *arguments, "--results", tmp_path / "results", said=said)
    if name in ("option", "seed in words"):
        refused(command, "cost", *arguments, said=said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["cuda:99", "gpu", ""])
def test_device(command: Command, tmp_path: Path, device: str) -> None:
    """A device that is not there is refused before data is read."""
    said = (f"device {device!r} cannot be used", "--device", "use --device cpu")
    refused(command, "run", "--device", device, "--results", tmp_path / "results", said=said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, ("does not exist", "seu-bench list benchmarks")),
        (b"name = ]", ("is not TOML", "line 1", "https://toml.io")),
        (b"\xff\xfe", ("cannot be read", "UTF-8")),
        (
            b'name = "Own"\nversion = 0\n[stream]\nkind = "classes"\n',
            ("  - name: ", "  - version: ", "dataset: is missing"),
        ),
    ],
    ids=["missing", "malformed", "binary", "faulty"],
)
def test_benchmark_file(command: Command, tmp_path: Path, content: bytes | None, said: tuple[str, ...]) -> None:
    """A benchmark file is named with all of its faults at once."""
    path = tmp_path / "own.toml"
    if content is not None:
        path.write_bytes(content)
    refused(command, "run", "--benchmark", path, "--results", tmp_path / "results", said=(*said, str(path)))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["split_cifar10", "mixture"])
def test_absent_data(command: Command, tmp_path: Path, name: str) -> None:
    """The message has the folder that was looked in and the command that fetches the data set."""
    root = tmp_path / "root"
    said = ("is missing", f"where: {root}", "seu-bench data fetch ", f"--data-root {root}")
    results = tmp_path / "deep" / "results"
    refused(command, "run", "--benchmark", name, "--data-root", root, "--results", results, said=said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("results", ["file", "file/below", "x" * 300, "a/" + "x" * 300])
def test_unwritable_results(command: Command, tmp_path: Path, results: str) -> None:
    """A results folder that cannot be made is found before data is read, and no part of it is left."""
    (tmp_path / "file").write_text("in the way")
    said = ("cannot write results", str(tmp_path / results), "choose a folder that can be written to with --results")
    refused(command, "run", "--results", tmp_path / results, said=said)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "in the way"


def test_results_to_read(command: Command, tmp_path: Path) -> None:
    """``show`` and ``leaderboard`` say where they looked and what can be done, and write nothing."""
    results = tmp_path / "results"
    refused(command, "leaderboard", "--results", results, said=("there are no records yet", str(results), "--results"))
    refused(command, "show", "abc", "--results", results, said=("no run is called 'abc'", str(results), "--results"))
    assert list(tmp_path.iterdir()) == []


def test_unknown_words(command: Command) -> None:
    """Unknown kinds, data sets and commands are named."""
    refused(command, "list", "strategy", said=("'strategy'", "did you mean 'strategies'?", "the kinds are: strategies"))
    refused(command, "data", "fetch", "mnits", said=("'mnits'", "did you mean 'mnist'?", "seu-bench list datasets"))
    refused(command, "rnu", said=("No such command 'rnu'", "Try 'seu-bench"))


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large"])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "--benchmark", "it.toml"),
        ("run", "--strategy", "naive", "--tuned", "it.toml"),
        ("run", "--strategy", "naive", "-o", "backbone=resnet18", "-o", "weights=it.safetensors"),
        ("sweep", "it.toml"),
        ("tune", "it.toml"),
    ],
    ids=lambda words: words[-1],
)
def test_named_file_is_none(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, words: tuple[str, ...]
) -> None:
    """A pipe that nobody writes to, a device without an end, 3 GiB behind a header: nothing waits or reads on."""
    monkeypatch.chdir(tmp_path)
    path = Path(words[-1].removeprefix("weights="))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        header = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        os.truncate(path, 3 * 2**30)
    refused(command, *words, said=(path.name,))
    assert not (tmp_path / "results").exists()


def test_plugin_that_fails_to_import(tmp_path: Path) -> None:
    """Plugin and package are named, in a process of its own as a user would see it; nothing else is stopped."""
    broken = {"broken_plugin": "import a_module_that_is_not_installed"}
    folder = write_package(tmp_path / "site", "a-broken-package", {"broken": "broken_plugin"}, broken)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    for arguments, status in (["list", "strategies"], 0), (["run", "--strategy", "broken"], 2):
        done = subprocess.run([*SEU_BENCH, *arguments], capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == status and "Traceback" not in done.stderr
        for text in ("'broken'", "a-broken-package", "a_module_that_is_not_installed"):
            assert text in done.stdout + done.stderr
