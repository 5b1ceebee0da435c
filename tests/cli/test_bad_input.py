"""Bad input of any kind: exit status 2, one message that says what, where and what to do, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import Command, Install, write_package
from support.official_formats import random_split, write_mnist_like

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
    "benchmark": (["--benchmark", "split_digit"], ("'split_digit'", "did you mean 'split_digits'?", "mixture, pmnist")),
    "protocol": (["--protocol", "papr"], ("'papr'", "did you mean 'paper'?", "paper, half_day, quick, smoke")),
    "searcher": (["--searcher", "mld"], ("'mld'", "did you mean 'mdl'?", "seu-bench list searchers")),
    "creator": (["--creator", "xyz"], ("no creator is called 'xyz'", "the creators are: ")),
    "searcher of a strategy without": (
        ["--strategy", "naive", "--searcher", "mdl"],
        ("'naive' takes no searcher", "--searcher mdl", "leave the searcher out"),
    ),
    "searcher option of a strategy without": (
        ["--strategy", "naive", "-o", "searcher.alpha=1"],
        ("'naive' takes no searcher", "-o searcher.alpha"),
    ),
    "option": (["-o", "epohcs=3"], ("'epohcs' is not an option", "did you mean 'epochs'?", "strategy 'seu' are: ")),
    "option of a searcher": (["-o", "searcher.aplha=3"], ("did you mean 'alpha'?", "searcher 'mdl' are: ")),
    "number": (["-o", "epochs=many"], ("epochs: ", "valid integer", "given: 'many'", "strategy 'seu'")),
    "truth": (["-o", "epochs=true"], ("epochs: ", "true or false")),
    "infinite": (["-o", "learning_rate=inf"], ("learning_rate: ", "finite number")),
    "choice": (["-o", "edges=top3"], ("edges: ", "'top2' or 'all14'", "given: 'top3'")),
    "several options": (
        ["-o", "cells=1", "-o", "stem=no", "-o", "no=1"],
        ("cells: ", "stem: ", "'no' is not an option"),
    ),
    "genotype": (["-o", "genotype=darts_v3"], ("'darts_v3'", "did you mean 'darts_v", "the genotypes are: ")),
    "preset": (["-o", "preset=cod"], ("preset: ", "'default', 'paper_literal' or 'code'", "given: 'cod'")),
    "no assignment": (["-o", "epochs"], ("-o 'epochs'", "-o key=value")),
    "twice": (["-o", "epochs=1", "-o", "epochs=2"], ("'epochs' is given twice", "give it once")),
    "key of the benchmark": (["-o", "benchmark.steam.order=1"], ("benchmark.steam.order", "did you mean 'stream'?")),
    "value in the benchmark": (["-o", "benchmark.stream.validation=2"], ("validation", "less than 1", "given: 2")),
    "protocol in the benchmark": (
        ["-o", "benchmark.protocols.smoke.training.epochs=x"],
        ("protocols.smoke.training.epochs: ", "given: 'x'", "split_digits.toml"),
    ),
    "seed in words": (["--seed", "one"], ("seed", "'one'", "valid integer")),
    "seed below 0": (["--seed", "-1"], ("seed", "-1", "greater than or equal to 0")),
    "seed above": (["--seed", "4294967296"], ("seed", "4294967296", "less than or equal to 4294967295")),
    "limit": (["--limit", "3"], ("limit", "3", "greater than or equal to 4")),
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


FAULTY = """
name = "Own Benchmark"
version = 0
colour = "red"

[stream]
kind = "classes"
dataset = "digits"
classes_per_task = "two"
validation = 1.5

[protocols.quick.training]
epochs = -1
"""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, ("does not exist", "seu-bench list benchmarks")),
        (b"name = ]", ("is not TOML", "line 1", "https://toml.io")),
        (b"\xff\xfe", ("cannot be read", "UTF-8")),
        (b"", ("name: is missing", "stream: is missing")),
        (
            FAULTY.encode(),
            (
                "6 faults",
                "  - name: ",
                "  - version: ",
                "  - colour: ",
                "classes_per_task: ",
                "validation: ",
                "epochs: ",
            ),
        ),
        (b'name = "own"\n[stream]\nkind = "clases"\n', ("kind", "'clases'", "'classes'")),
        (OWN.partition("[datasets")[0].encode(), ("no data set is called 'mine'", "the datasets are: ")),
        (OWN.encode() + b'kind = "npz"\n', ("datasets.mine.path: is missing",)),
    ],
    ids=["missing", "malformed", "binary", "empty", "faulty", "kind", "data set", "definition"],
)
def test_benchmark_file(command: Command, tmp_path: Path, content: bytes | None, said: tuple[str, ...]) -> None:
    """A benchmark file is named with all of its faults at once."""
    path = tmp_path / "own.toml"
    if content is not None:
        path.write_bytes(content)
    where = () if content and b"kind" in content and b"datasets" not in content else (str(path),)
    if said[0].startswith("no data set"):
        where = ()
    refused(command, "run", "--benchmark", path, "--results", tmp_path / "results", said=(*said, *where))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["split_cifar10", "mixture"])
def test_absent_data(command: Command, tmp_path: Path, name: str) -> None:
    """The message has the folder that was looked in and the command that fetches the data set."""
    root = tmp_path / "root"
    said = ("is missing", f"where: {root}", "seu-bench data fetch ", f"--data-root {root}")
    results = tmp_path / "deep" / "results"
    refused(command, "run", "--benchmark", name, "--data-root", root, "--results", results, said=said)
    assert list(tmp_path.iterdir()) == []


def test_damaged_official_file(command: Command, tmp_path: Path) -> None:
    """A file of the right name with other bytes is not trained on."""
    root = tmp_path / "root"
    write_mnist_like(root, "MNIST", random_split(20, (1, 28, 28), 10), random_split(10, (1, 28, 28), 10))
    asked = ("--benchmark", "pmnist", "--data-root", root, "--results", tmp_path / "results")
    refused(command, "run", *asked, said=("'mnist'", "train-images-idx3-ubyte"))
    assert not (tmp_path / "results").exists()


def _truncated(path: Path) -> None:
    np.savez(path, images=np.zeros((40, 4, 4), dtype=np.uint8), labels=np.arange(40) % 4)
    path.write_bytes(path.read_bytes()[:-100])


def _no_array(path: Path) -> None:
    path.write_text("not an array")


def _other_arrays(path: Path) -> None:
    np.savez(path, pictures=np.zeros((40, 4, 4), dtype=np.uint8))


@pytest.mark.parametrize("spoil", [_truncated, _no_array, _other_arrays])
def test_damaged_own_file(command: Command, tmp_path: Path, spoil: Any) -> None:
    """The user's own file is named where it is not what it should be."""
    (tmp_path / "own.toml").write_text(OWN + 'kind = "npz"\npath = "mine.npz"\n')
    spoil(tmp_path / "mine.npz")
    asked = ("--benchmark", tmp_path / "own.toml", "--results", tmp_path / "results")
    refused(command, "run", *asked, said=("'mine'", str(tmp_path / "mine.npz")))
    assert not (tmp_path / "results").exists()


def test_damaged_image(command: Command, tmp_path: Path) -> None:
    """So is an image in a folder that is none."""
    (tmp_path / "own.toml").write_text(OWN + 'kind = "folder"\npath = "mine"\nsize = 4\n')
    for name in "abcd":
        (tmp_path / "mine" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "mine" / name / f"{number}.png").write_bytes(b"\x89PNG\r\n")
    asked = ("--benchmark", tmp_path / "own.toml", "--results", tmp_path / "results")
    refused(command, "run", *asked, said=("'mine'", str(tmp_path / "mine" / "a" / "0.png")))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("results", ["file", "file/below", "x" * 300, "a/" + "x" * 300])
def test_unwritable_results(command: Command, tmp_path: Path, results: str) -> None:
    """A results folder that cannot be made is found before data is read, and no part of it is left."""
    (tmp_path / "file").write_text("in the way")
    said = ("cannot write results", str(tmp_path / results), "choose a folder that can be written to with --results")
    refused(command, "run", "--results", tmp_path / results, said=said)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_forbidden_results(tmp_path: Path, mode: int) -> None:
    """A folder that only others may write to, or even look into, is refused like any other."""
    forbidden = tmp_path / "forbidden"
    forbidden.mkdir()
    if os.getuid() == 0:  # nothing is forbidden to root: the process below becomes somebody else, who must get here
        for folder in (tmp_path, *tmp_path.parents):
            if "pytest-" in str(folder):
                folder.chmod(0o755)
    forbidden.chmod(mode)
    code = (
        "import os, sys; from pathlib import Path; from seu_bench.errors import ResultsError;"
        "from seu_bench.utils.locks import RunLock; os.getuid() or os.setuid(65534)\n"
        "try: RunLock(Path(sys.argv[1]) / 'runs' / 'x').acquire()\nexcept ResultsError as error: print(error)"
    )
    folder = forbidden / "results" / "runs" / "a-run"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    forbidden.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cannot write results: Permission denied")
    assert list(forbidden.iterdir()) == []


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


def test_data_set_of_a_stranger_that_breaks(command: Command, install: Install, tmp_path: Path) -> None:
    """Exceptions of a plugin's data set name the data set."""
    source = (
        "from seu_bench import hookimpl\n"
        "from seu_bench.data.sources import DigitsSource\n"
        "class Broken(DigitsSource):\n"
        "    def load(self, root):\n"
        "        raise ZeroDivisionError('this data set is broken')\n"
        "@hookimpl\n"
        "def register_datasets(register):\n"
        "    register('mine', Broken())\n"
    )
    install("a-stranger", {"broken_data": "broken_data"}, {"broken_data": source})
    (tmp_path / "own.toml").write_text(OWN.partition("[datasets")[0])
    asked = ("--benchmark", tmp_path / "own.toml", "--results", tmp_path / "results")
    refused(command, "run", *asked, said=("'mine'", "a-stranger", "ZeroDivisionError: this data set is broken"))
    assert not (tmp_path / "results").exists()
