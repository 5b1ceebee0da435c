"""Files from strangers, mutated in every way: whatever they hold, only errors of our own come out."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.board_records import excluded, leaderboards
from support.records import FULL

from seu_bench.cli.compare import comparison_tables
from seu_bench.cli.tables import accuracy_summary, leaderboard_table, record_summary
from seu_bench.config.benchmark import BenchmarkFile
from seu_bench.config.run import Request
from seu_bench.engine.checkpoint import Position, read_checkpoint, read_header, write_checkpoint
from seu_bench.engine.resolve import resolve
from seu_bench.errors import SeuBenchError
from seu_bench.plugin.registry import Registry
from seu_bench.results.building import load_records, make_leaderboards
from seu_bench.results.comparison import compare
from seu_bench.results.leaderboard import pareto_front, within_budget
from seu_bench.results.record import read_record, write_record
from seu_bench.results.record_files import find_record, read_records

WHOLE = FULL.model_dump(mode="json") | {
    "status": "finished", "ranked": True, "synthetic": False, "limit": None,
    "metrics": {"acc": 0.55, "mixed_score": 0.4, "params_total": 3_750_123, "fwt": None},
}  # fmt: skip

#: Values that readers stumble over.
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**200), 10**400, 1e308, -0.0, float("nan"), float("inf"),
    "", "x", "../x", "/etc/passwd", "a\x00b", "\ud800", "\x1b[2J", "x" * 5000, "1" * 5000,
    [], [None], [[]], [[[1]]], {}, {"a": {"b": []}}, {"": 0}, [1, "a", None], {"x" * 300: float("nan")},
)  # fmt: skip

#: Pieces that are put into the middle of a file.
PIECES = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"9" * 5000,
    b"1e999",
    b"NaN",
    b'"',
    b"\\ud800",
    b"\n",
)

examples = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck), max_examples=130
)


def json_of(document: object) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


def places(value: object, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in nested dictionaries and lists there is something."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield (*above, key)
        yield from places(below, (*above, key))


def swapped(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of ``document`` with another value at ``place``."""
    if not place:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[place[0]] = swapped(copy[place[0]], place[1:], value)
    return copy


@st.composite
def mutated_bytes(draw: st.DrawFn, whole: bytes) -> bytes:
    """Some bytes flipped, something cut out, something put in."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] ^= draw(st.integers(1, 255))
    if draw(st.booleans()):
        begin, end = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        data[begin:end] = draw(st.sampled_from(PIECES))
    return bytes(data)


@st.composite
def mutated_document(draw: st.DrawFn, whole: dict[str, Any], render: Callable[[Any], bytes]) -> bytes:
    """Values swapped for odd ones, whole parts left out or added."""
    document: Any = whole
    for _ in range(draw(st.integers(1, 3))):
        if not isinstance(document, dict) or not document:
            break
        place = draw(st.sampled_from(list(places(document))))
        document = swapped(document, place, draw(st.sampled_from(ODD)))
    if draw(st.integers(0, 4)) == 0 and isinstance(document, dict) and document:
        document = {key: value for key, value in document.items() if key != draw(st.sampled_from(list(document)))}
    return render(document)


def only_ours(*calls: Callable[[], object]) -> None:
    """Make calls; errors of our own are what they may end with, and a warning is no crash."""
    for call in calls:
        with contextlib.suppress(SeuBenchError), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            call()


def shown(renderable: Any) -> None:
    from rich.console import Console

    Console(file=io.StringIO(), width=160).print(renderable)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one record that is whole."""
    results = tmp_path_factory.mktemp("results")
    write_record(
        results, FULL.model_copy(update={"run_id": "whole", "ranked": True, "synthetic": False, "limit": None})
    )
    return results


def read_in_every_way(results: Path, content: bytes) -> None:
    run = results / "runs" / "strange"
    run.mkdir(exist_ok=True)
    (run / "record.json").write_bytes(content)
    only_ours(
        lambda: read_record(run),
        lambda: shown(record_summary(find_record(results, "strange"))),
        lambda: shown(accuracy_summary(find_record(results, "strange"))),
        lambda: shown(comparison_tables(compare(find_record(results, "strange"), find_record(results, "strange")))),
        lambda: shown(comparison_tables(compare(find_record(results, "whole"), find_record(results, "strange")))),
        lambda: list(read_records(results)),
        lambda: load_records(results),
        lambda: excluded(results),
        lambda: make_leaderboards(results).paths,
        lambda: [
            (
                shown(leaderboard_table(board)),
                pareto_front(within_budget(board, {"macs": 1.0})),
                json.dumps(board.document()),
            )
            for board in leaderboards(results)
        ],
    )
    assert {path.name for path in results.iterdir()} <= {"runs", "leaderboards"}
    assert read_record(results / "runs" / "whole").run_id == "whole"


@examples
@given(content=mutated_bytes(json_of(WHOLE)))
def test_records_with_other_bytes(folder: Path, content: bytes) -> None:
    read_in_every_way(folder, content)


@pytest.mark.long
@examples
@given(content=mutated_document(WHOLE, json_of))
def test_records_with_other_values(folder: Path, content: bytes) -> None:
    read_in_every_way(folder, content)


BENCHMARK = """
name = "strange"
summary = "a benchmark"
version = 2
default_protocol = "instant"

[stream]
kind = "classes"
dataset = "digits"
classes_per_task = 5
order = "random"
validation = 0.2

[datasets.mine]
kind = "npz"
path = "mine.npz"

[protocols.instant]
images = { train = 16, valid = 8, test = 16 }
training = { epochs = 1, batch_size = 16 }
options.naive = { epochs = 2 }
"""


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


def load_in_every_way(registry: Registry, folder: Path, content: bytes) -> None:
    path = folder / "strange.toml"
    path.write_bytes(content)
    only_ours(
        lambda: BenchmarkFile(path).summary,
        lambda: BenchmarkFile(path).load(),
        lambda: resolve(registry, Request(strategy="naive", benchmark=str(path))),
    )


@settings(examples, max_examples=60)
@given(content=mutated_bytes(BENCHMARK.encode()))
def test_benchmark_files_with_other_bytes(registry: Registry, folder: Path, content: bytes) -> None:
    load_in_every_way(registry, folder.parent, content)


def toml_of(document: object) -> bytes:
    """TOML in one table per line; what TOML cannot say becomes text."""

    def value(item: object) -> str:
        if isinstance(item, dict):
            return "{" + ", ".join(f"{json.dumps(key)} = {value(below)}" for key, below in item.items()) + "}"
        if isinstance(item, list):
            return "[" + ", ".join(map(value, item)) + "]"
        if item is None:
            return '""'
        if isinstance(item, float):
            return repr(item)
        return json.dumps(item)

    table = document if isinstance(document, dict) else {"document": document}
    return "\n".join(f"{json.dumps(key)} = {value(item)}" for key, item in table.items()).encode("utf-8", "replace")


def _benchmark() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(BENCHMARK)


@settings(examples, max_examples=60)
@given(content=mutated_document(_benchmark(), toml_of))
def test_benchmark_files_with_other_values(registry: Registry, folder: Path, content: bytes) -> None:
    load_in_every_way(registry, folder.parent, content)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole checkpoint of a few tensors and plain values."""
    import torch

    path = tmp_path_factory.mktemp("checkpoints") / "000001.ckpt"
    payload = {"strategy": {"weight": torch.arange(6.0).view(2, 3), "seen": [1, 2]}, "record": {"run": "a", "n": 1.5}}
    write_checkpoint(path, "a-run", Position(task=1, stage="training", epoch=1, epochs=2), payload)
    return path.read_bytes()


@settings(examples, max_examples=120)
@given(data=st.data(), believed=st.booleans())
def test_checkpoints(checkpoint: bytes, folder: Path, data: st.DataObject, believed: bool) -> None:
    """Also where the checksum was made to fit what was changed, as a stranger can."""
    content = data.draw(mutated_bytes(checkpoint))
    if believed:
        line, _, payload = checkpoint.partition(b"\n")
        payload = data.draw(mutated_bytes(payload))
        fitting = {"sha256": hashlib.sha256(payload).hexdigest(), "bytes": len(payload)}
        content = json_of(json.loads(line) | fitting) + b"\n" + payload
    path = folder / "runs" / "000001.ckpt"
    path.write_bytes(content)
    only_ours(lambda: read_header(path), lambda: read_checkpoint(path, "a-run"))
    if content == checkpoint:
        assert read_checkpoint(path, "a-run")["strategy"]["seen"] == [1, 2]
    path.unlink()
