"""A run cannot be lost: killed anywhere and started again, it gives what an uninterrupted one gives."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from seu_bench.engine.checkpoint import CheckpointFolder
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_metrics import without_times

Answer: TypeAlias = dict[str, Any]

#: Three tasks of scikit-learn's digits, learned in about a second by each strategy.
BENCHMARK = """
name = "crash"
version = 1
default_protocol = "tiny"

[stream]
kind = "classes"
dataset = "digits"
groups = [[0, 1], [2, 3, 4], [5, 6]]
order = "fixed"
validation = 0.2
[stream.input]
pad = 2
mean = [0.5]
std = [0.25]

[protocols.tiny]
[protocols.tiny.training]
epochs = 3
batch_size = 16
[protocols.tiny.search]
epochs = 3
batch_size = 16
cells = 3
channels = 2
[protocols.tiny.creation]
epochs = 3
batch_size = 16
[protocols.tiny.model]
cells = 3
channels = 2
width = 0.05
[protocols.tiny.images]
train = 16
valid = 8
test = 16
"""

COLD = ("-o", "warm_start=false")
#: Everything of ours that learns: strategies, and SEU with every searcher and creator that was not in yet.
LEARNERS: dict[str, tuple[str, ...]] = {
    "naive": (),
    "seu": (),
    "hat": (),
    "mntdp": (),
    "packnet": (),
    "cpg": (),
    "wsn": (),
    "pathnet": (),
    "den": (),
    "rcl": ("-o", "trials=2"),
    "pnn": (),
    "ltg": (),
    "ewc": (),
    "independent": (),
    "darts": ("--searcher", "darts", "-o", "searcher.epochs=2"),
    "blockwise": ("--searcher", "blockwise", "--creator", "reuse_first"),
    "zero_cost": ("--searcher", "zero_cost", "--creator", "all_new", "-o", "searcher.candidates=3", *COLD),
    "fixed": ("-o", "genotype=darts_v1", "--creator", "frugal"),
    "random": ("--searcher", "random", "-o", "stem=shared"),
}
STRATEGIES = (
    *("naive", "seu", "hat", "mntdp", "packnet", "cpg", "wsn", "pathnet", "den", "rcl"),
    *("pnn", "ltg", "ewc", "independent"),
)
#: Strategies that are interrupted by make test-crash only: the longest, and those with stages like others'.
OFTEN = {"seu", "hat", "packnet", "den"}
#: What takes minutes: make test-crash.
MANY = pytest.mark.crash
#: What takes many seconds: make test-long.
LONG = pytest.mark.long


class Server:
    """The process that forks commands."""

    def __init__(self) -> None:
        script = Path(__file__).parents[1] / "support" / "crash_server.py"
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, arguments: list[str], kind: str = "count", at: int = 0) -> Answer:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"arguments": arguments, "kind": kind, "at": at}) + "\n")
        self.process.stdin.flush()
        answer: Answer = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One for all tests of this module."""
    made = Server()
    yield made
    made.process.communicate()


class Reference:
    """An uninterrupted run, made once for each learner."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.benchmark = folder / "crash.toml"
        self.benchmark.write_text(BENCHMARK)
        self.made: dict[str, tuple[Mapping[str, Any], dict[str, int]]] = {}

    def command(self, learner: str, results: Path, *more: str) -> list[str]:
        """``run``, with a checkpoint after every epoch."""
        strategy = learner if learner in STRATEGIES else "seu"
        asked = ["run", "--strategy", strategy, "--benchmark", str(self.benchmark), *LEARNERS[learner]]
        return [*asked, "--device", "cpu", "--results", str(results), "--checkpoint-every", "0", *more]

    def of(self, learner: str) -> tuple[Mapping[str, Any], dict[str, int]]:
        """Its record without times, and how many batches and renamed files it took."""
        if learner not in self.made:
            results = self.folder / learner
            answer = self.server(self.command(learner, results))
            assert answer["status"] == 0, answer["err"]
            self.made[learner] = (without_times(record_of(results)), answer["counts"])
        return self.made[learner]


@pytest.fixture(scope="module")
def reference(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Uninterrupted runs."""
    return Reference(server, tmp_path_factory.mktemp("reference"))


def run_folder(results: Path) -> Path:
    """The only run's folder."""
    (folder,) = (results / "runs").iterdir()
    return folder


def record_of(results: Path) -> Record:
    """The only run's record."""
    return read_record(run_folder(results))


def is_clean(results: Path) -> bool:
    """Whether nothing is left but what a finished run keeps."""
    return sorted(path.name for path in run_folder(results).iterdir()) == ["model.safetensors", "record.json"]


def killed_often(
    server: Server, reference: Reference, learner: str, results: Path, *, points: int, seed: str
) -> list[str]:
    """Kill a run, go on, and kill it again, until it was killed ``points`` times, and again from the beginning where
    it is finished before that. Returns by what each time."""
    expected, counts = reference.of(learner)
    record = record_of(reference.folder / learner)
    generator = random.Random(seed)
    struck: list[str] = []
    attempt = 0
    while len(struck) < points:
        here = results / str(attempt)
        while True:
            # Where it learns, and anywhere: loading, evaluating, writing.
            kind = generator.choice(["passes", "passes", "time"])
            most = counts["passes"] // 3 if kind == "passes" else 1000 * (record.seconds or 0)
            answer = server(reference.command(learner, here), kind, generator.randint(1, max(2, int(most))))
            if answer["status"] == 0:
                break
            assert answer["status"] == -9, answer["err"]
            struck.append(kind)
        assert without_times(record_of(here)) == expected
        assert is_clean(here)
        attempt += 1
    return struck


@LONG
@pytest.mark.parametrize("learner", ["naive", "seu", "ltg"])
def test_killed_at_random_points(server: Server, reference: Reference, tmp_path: Path, learner: str) -> None:
    """``kill -9`` at batches drawn over all stages, and at any time; then the same command again."""
    assert len(killed_often(server, reference, learner, tmp_path, points=3, seed=learner)) >= 3


@MANY
@pytest.mark.parametrize("learner", LEARNERS)
def test_killed_at_many_random_points(server: Server, reference: Reference, tmp_path: Path, learner: str) -> None:
    """The same, at least twenty times for each."""
    assert len(killed_often(server, reference, learner, tmp_path, points=20, seed=f"many {learner}")) >= 20


def killed_at_renames(server: Server, reference: Reference, learner: str, results: Path, step: int) -> None:
    expected, counts = reference.of(learner)
    for number in range(1, counts["renames"] + 1, step):
        for kind in ("before", "after"):
            here = results / f"{number}-{kind}"
            killed = server(reference.command(learner, here), kind, number)
            assert killed["status"] == -9, killed["err"]
            resumed = server(reference.command(learner, here))
            assert resumed["status"] == 0, resumed["err"]
            assert without_times(record_of(here)) == expected, (number, kind)
            assert is_clean(here)


@LONG
def test_killed_at_some_renames(server: Server, reference: Reference, tmp_path: Path) -> None:
    """Before and after a file takes its name; every tenth one."""
    killed_at_renames(server, reference, "naive", tmp_path, 10)


@MANY
@pytest.mark.parametrize("learner", ["naive", "seu", "pnn", "ltg"])
def test_killed_at_every_rename(server: Server, reference: Reference, tmp_path: Path, learner: str) -> None:
    """Before and after each."""
    killed_at_renames(server, reference, learner, tmp_path, 1)


@pytest.mark.parametrize(("kind", "status", "reason"), [("term", 143, "SIGTERM"), ("int", 130, "SIGINT")])
@pytest.mark.parametrize(
    "learner",
    [pytest.param(name, marks=MANY if name in OFTEN else LONG) for name in STRATEGIES],
)
def test_signals(
    server: Server, reference: Reference, tmp_path: Path, learner: str, kind: str, status: int, reason: str
) -> None:
    """The run stops at the end of the epoch with a checkpoint there, says so, and goes on from there."""
    expected, counts = reference.of(learner)
    at = random.Random(f"{kind} {learner}").randint(1, counts["passes"] - 1)
    # Without a signal no checkpoint would be written in so short a time.
    arguments = [*reference.command(learner, tmp_path), "--checkpoint-every", "1000"]
    answer = server(arguments, kind, at)
    assert answer["status"] == status, answer["err"]
    assert f"interrupted by {reason}; run the same command again to resume" in answer["err"]
    record = record_of(tmp_path)
    assert (record.status, record.error) == ("interrupted", f"interrupted by {reason}")
    assert len(CheckpointFolder(run_folder(tmp_path) / "checkpoints", "").newest_first()) == 1
    resumed = server(arguments)
    assert resumed["status"] == 0, resumed["err"]
    assert "resuming from task" in resumed["err"]
    assert without_times(record_of(tmp_path)) == expected
    assert is_clean(tmp_path)


@pytest.mark.parametrize("learner", [pytest.param(name, marks=MANY if name != "pnn" else LONG) for name in STRATEGIES])
def test_time_limit(server: Server, reference: Reference, tmp_path: Path, learner: str) -> None:
    """A limit too short for the run: it stops at a checkpoint each time, and is finished in the end."""
    expected, _ = reference.of(learner)
    limit = f"{(record_of(reference.folder / learner).seconds or 0) / 4:.2f}"
    arguments = [*reference.command(learner, tmp_path), "--max-seconds", limit, "--checkpoint-every", "1000"]
    stops = 0
    while (answer := server(arguments))["status"] != 0:
        assert answer["status"] == 75, answer["err"]
        assert f"stopped by its time limit of {float(limit):g} seconds" in answer["err"]
        assert record_of(tmp_path).status == "interrupted"
        stops += 1
        assert stops < 100
    assert stops >= 1
    assert without_times(record_of(tmp_path)) == expected
    assert is_clean(tmp_path)
