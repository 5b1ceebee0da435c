"""Hostile cases for test_edges: what a stranger, a broken disk or a slip of the hand can leave behind, by a seed."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from PIL import Image

#: A case: arguments of the command that meets it.
Case: TypeAlias = list[str]

#: Tries of each kind of case in one test, and tests of each kind in ``make test-crash``.
TRIES, TESTS = 125, 8
#: Values that readers stumble over.
ODD: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**200), 10**400, 1e308, float("nan"), float("inf"), "", "x", "../x",
    "/etc/passwd", "a\x00b", "\ud800", "\x1b[2J", "=1+1", "x" * 5000, "1" * 5000, [], [None], [[]], [[[1]]], {},
    {"a": {"b": []}}, {"": 0}, [1, "a", None],
)  # fmt: skip
WORDS: Final = (
    "-", "--", ".", "..", "/", "/dev/null", "/dev/zero", "/dev/full", "/dev/stdout", "/proc/self/mem", "/proc/1/root",
    "0", "-1", "1e999", "nan", "inf", "1..2", "0x10", "1_0", "true", "null", "{", "[1", "a=b", "=", "a=", "=b",
    "a.b.c=1", "*", "~", "$HOME", "", "x" * 300, "x" * 5000, "a/" * 300, "\u202e", "é", "\udcff", "9" * 23, "\n", "\t",
)  # fmt: skip
COMMANDS: Final = (
    "runs", "show", "leaderboard", "report", "compare", "verify", "export", "log", "run", "sweep", "tune", "cost",
    "data", "list", "completion",
)  # fmt: skip
OPTIONS: Final = (
    "--results", "--benchmark", "--protocol", "--strategy", "--searcher", "--creator", "--seed", "--seeds", "--limit",
    "-o", "--output", "--format", "--budget", "--pareto", "--columns", "--unranked", "-q", "-v", "--sort", "--ranks",
    "--rows", "--state", "--task", "--to", "--device", "--precision", "--evaluation", "--first-tasks", "--tuned",
    "--match", "--method", "-g", "--trials", "--sampler", "--max-seconds", "--checkpoint-every", "--log",
    "--log-option", "--data-root", "--executor", "--jobs", "--top",
)  # fmt: skip
BENCHMARK: Final = """
name = "edge"
summary = "a benchmark"
version = 2
default_protocol = "instant"

[stream]
kind = "classes"
dataset = "mine"
classes_per_task = 2
order = "fixed"
validation = 0.2

[datasets.mine]
kind = "folder"
path = "images"
size = 8
test_fraction = 0.2

[protocols.instant]
images = { train = 16, valid = 8, test = 16 }
training = { epochs = 1, batch_size = 8 }
"""


def command_line(chance: random.Random, folder: Path, base: Path) -> Case:
    """Known commands and options with unknown values, in any order."""
    arguments = [chance.choice(COMMANDS)]
    for _ in range(chance.randint(0, 5)):
        kind = chance.random()
        if kind < 0.6:
            arguments.append(chance.choice(OPTIONS))
        if kind > 0.2:
            arguments.append(chance.choice(WORDS))
    # Whatever else is asked for, nothing of it may take long.
    extra = {"run": ["--limit", "4", "--protocol", "smoke"], "sweep": ["--dry-run"], "tune": ["--dry-run"]}
    return [*arguments, *extra.get(arguments[0], [])]


def benchmark_file(chance: random.Random, folder: Path, base: Path) -> Case:
    """A benchmark file with other bytes or other values."""
    shutil.copytree(base / "images", folder / "images")
    file = folder / "edge.toml"
    text = BENCHMARK
    for _ in range(chance.randint(1, 3)):
        lines = text.splitlines()
        place = chance.randrange(len(lines))
        key, equals, _ = lines[place].partition("=")
        if equals and chance.random() < 0.8:
            lines[place] = f"{key}= {toml_value(chance)}"
        else:
            lines[place] = chance.choice(["", "[", "[stream]", "x = 1", lines[place][::-1], lines[place] * 2])
        text = "\n".join(lines)
    content = text.encode("utf-8", "surrogatepass")
    file.write_bytes(flipped(chance, content) if chance.random() < 0.3 else content)
    return chance.choice(
        [
            ["cost", "--strategy", "naive", "--benchmark", "edge.toml"],
            ["run", "--strategy", "naive", "--benchmark", "edge.toml", "-o", "width=0.05"],
            ["data", "--benchmark", "edge.toml"],
        ]
    )


def run_folder(chance: random.Random, folder: Path, base: Path) -> Case:
    """A results folder in which one thing is not what it was."""
    shutil.copytree(base / "results", folder / "results", symlinks=True)
    paths = [path for path in sorted((folder / "results").rglob("*")) if path.exists()]
    broken(chance, chance.choice(paths))
    name = sorted((base / "results" / "runs").iterdir())[chance.randrange(2)].name
    run = str(folder / "results" / "runs" / name)
    asked = (
        *(["runs"], ["runs", "--format", "json"], ["leaderboard"], ["leaderboard", "--format", "csv"]),
        *(["show", name], ["show", run], ["verify", name], ["verify", run], ["compare", name, run]),
        *(["report", "--top", "0"], resumed()),
    )
    return [*chance.choice(asked), "--results", str(folder / "results")]


def checkpoint(chance: random.Random, folder: Path, base: Path) -> Case:
    """A checkpoint with other bytes, another header, or something else in its place."""
    shutil.copytree(base / "results", folder / "results", symlinks=True)
    file = chance.choice(sorted((folder / "results").rglob("*.ckpt")))
    header, _, content = file.read_bytes().partition(b"\n")
    kind = chance.randrange(4)
    if kind == 0:
        file.write_bytes(flipped(chance, file.read_bytes()))
    elif kind == 1:
        document = json.loads(header)
        where = document["position"] if chance.random() < 0.5 else document
        where[chance.choice(list(where))] = chance.choice(ODD)
        file.write_bytes(json.dumps(document).encode("utf-8", "surrogatepass") + b"\n" + content)
    elif kind == 2:
        file.write_bytes(file.read_bytes()[: chance.randrange(file.stat().st_size)])
    else:
        broken(chance, file)
    return [*chance.choice([resumed(), ["runs"]]), "--results", str(folder / "results")]


def images(chance: random.Random, folder: Path, base: Path) -> Case:
    """A folder of images in which some files are none."""
    shutil.copytree(base / "images", folder / "images")
    (folder / "edge.toml").write_text(BENCHMARK)
    files = sorted(path for path in (folder / "images").rglob("*") if path.is_file())
    for _ in range(chance.randint(1, 3)):
        file = chance.choice(files)
        if not file.is_file() or file.is_symlink():
            continue
        kind = chance.randrange(5)
        if kind == 0:
            file.write_bytes(flipped(chance, beginning(file)))
        elif kind == 1:
            file.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
        elif kind == 2:
            width = chance.choice([1, 2**16, 2**31 - 1])  # a header that promises more than there is
            content = bytearray(beginning(file))
            content[16:24] = width.to_bytes(4, "big") * 2
            file.write_bytes(content)
        else:
            broken(chance, file)
    return chance.choice(
        [
            ["run", "--strategy", "naive", "--benchmark", "edge.toml", "-o", "width=0.05"],
            ["cost", "--strategy", "naive", "--benchmark", "edge.toml"],
        ]
    )


CASES: Final[dict[str, Callable[[random.Random, Path, Path], Case]]] = {
    "command-line": command_line,
    "benchmark-file": benchmark_file,
    "run-folder": run_folder,
    "checkpoint": checkpoint,
    "images": images,
}


def resumed() -> Case:
    """The command of the interrupted run in the base."""
    return ["run", "--strategy", "naive", "--protocol", "smoke", "--limit", "4", "-o", "epochs=2", "--device", "cpu"]


def make_images(folder: Path) -> None:
    """Four classes of eight images."""
    for label in range(4):
        for number in range(8):
            path = folder / f"class {label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((9, 9, 3), 40 * label + number, dtype=np.uint8)).save(path)


def broken(chance: random.Random, path: Path) -> None:
    """Put something else in the place of a file or folder."""
    kind = chance.choice(
        ["bytes", "cut", "empty", "fifo", "link", "zero", "loop", "folder", "socket", "sparse", "value"]
    )
    if path.is_dir() and kind in ("bytes", "cut", "value"):
        kind = "empty"
    content = beginning(path) if path.is_file() else b""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    if kind == "bytes":
        path.write_bytes(flipped(chance, content or b"x"))
    elif kind == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "empty":
        path.touch()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.open(path.parent, os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{here}/{path.name}")  # a path may be longer than an address
            os.close(here)
    elif kind == "sparse":
        with path.open("wb") as file:
            file.write(content[:100])
            file.truncate(2**40)
    elif kind == "folder":
        path.mkdir()
    elif kind == "value" and path.suffix == ".json":
        document = json.loads(content)
        swap_value(chance, document)
        path.write_bytes(json.dumps(document).encode("utf-8", "surrogatepass"))
    else:
        path.symlink_to({"zero": "/dev/zero", "loop": path.name}.get(kind, "/etc/passwd"))


def swap_value(chance: random.Random, place: Any) -> None:
    """Put an odd value somewhere into a document, also within its lists and tables."""
    key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
    if place[key] and isinstance(place[key], dict | list) and chance.random() < 0.7:
        swap_value(chance, place[key])
    else:
        place[key] = chance.choice(ODD)


def beginning(path: Path) -> bytes:
    """The first MiB of a file: one that was broken before may promise a TiB."""
    with path.open("rb") as file:
        return file.read(2**20)


def flipped(chance: random.Random, content: bytes) -> bytes:
    """Other bytes in some places, and sometimes some that are missing or too many."""
    data = bytearray(content or b"x")
    for _ in range(chance.randint(1, 5)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    if chance.random() < 0.3:
        begin = chance.randrange(len(data))
        data[begin : begin + chance.randrange(50)] = chance.choice(
            [b"", b"\x00" * 9, b"[" * 3000, b"9" * 5000, b"\xff"]
        )
    return bytes(data)


def toml_value(chance: random.Random) -> str:
    """A value as TOML, or nearly."""
    value = chance.choice((*ODD, "linear", "digits", 3, 0.5, ["a", "b"], [[0, 1], [2, 3]]))
    if isinstance(value, dict):
        return "{ a = { b = [] } }"
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    return {"null": "nan", "NaN": "nan", "Infinity": "inf"}.get(text, text)
