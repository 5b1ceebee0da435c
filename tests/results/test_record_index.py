"""The index of a results folder: never wrong, never needed, renewed when it is stale."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.board_records import Put, leaderboards, writer
from support.plain_user import plain_user
from support.records import FULL

from seu_bench.engine.run_folder import list_runs
from seu_bench.errors import ResultsError
from seu_bench.results import record_index
from seu_bench.results.building import load_records
from seu_bench.results.record import Record, read_record, record_path, write_record
from seu_bench.results.record_index import DETAILS, INDEX_NAME, Summary, read_summaries, summarized


@pytest.fixture(autouse=True)
def small_folders_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index from the first record on."""
    monkeypatch.setattr(record_index, "WORTH", 1)


@pytest.fixture
def put(tmp_path: Path) -> Put:
    return writer(tmp_path)


def indexed(results: Path) -> list[str]:
    """Names in the file."""
    lines = (results / INDEX_NAME).read_text(encoding="utf-8").splitlines()[1:]
    return [entry["name"] for entry in map(json.loads, lines) if "name" in entry]


def all_of(results: Path) -> list[Summary]:
    return list(read_summaries(results))


def test_the_same_with_and_without(tmp_path: Path, put: Put) -> None:
    """Every field of every kind of record comes back as it was read, types included."""
    for seed in range(3):
        put(seed=seed)
    full = FULL
    write_record(tmp_path, full)
    first = all_of(tmp_path)
    assert sorted(indexed(tmp_path)) == sorted(summary.name for summary in first)
    again = all_of(tmp_path)
    assert again == first
    (mine,) = (summary for summary in again if summary.name == full.run_id)
    assert mine == summarized(full.run_id, full)
    assert isinstance(mine.record, Record)
    for name in Record.model_fields:
        expected = DETAILS[name] if name in DETAILS else getattr(full, name)
        found = getattr(mine.record, name)
        assert (type(found), found) == (type(expected), expected), name


def test_it_is_read(tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no record is."""
    put(seed=1)
    first = all_of(tmp_path)
    monkeypatch.setattr(record_index, "record_in", lambda folder: pytest.fail("it was read"))
    assert all_of(tmp_path) == first


def test_changes_are_seen(tmp_path: Path, put: Put) -> None:
    """A record that is written again, removed, added, or replaced by something else."""
    records = [put(seed=seed) for seed in range(4)]
    all_of(tmp_path)
    write_record(tmp_path, records[0].model_copy(update={"seed": 77}))
    shutil.rmtree(record_path(tmp_path, records[1].run_id).parent)
    record_path(tmp_path, records[2].run_id).write_text("{}")
    put(seed=88)
    for _ in range(2):
        found = [summary.record for summary in all_of(tmp_path)]
        assert [record.seed for record in found if isinstance(record, Record)] == [77, 3, 88]
        assert [type(record) for record in found if not isinstance(record, Record)] == [ResultsError]
    assert sorted(indexed(tmp_path)) == sorted(each.run_id for each in found if isinstance(each, Record))


@pytest.mark.parametrize(
    "content", ["", "no json", "[]\n", '{"format": "another"}\n{"name": 1}\n', '{"format": "seu-bench record index"}']
)
def test_what_is_no_index_is_made_again(tmp_path: Path, put: Put, content: str) -> None:
    """Nothing in it is believed."""
    put(seed=5)
    expected = all_of(tmp_path)
    header = (tmp_path / INDEX_NAME).read_text().splitlines()[0]
    for text in (content, f"{header}\nno json\n", f'{header}\n{{"name": "x"}}\n', f"{header}\n[]\n"):
        (tmp_path / INDEX_NAME).write_text(text)
        assert all_of(tmp_path) == expected
        assert all_of(tmp_path) == expected


def test_folder_that_cannot_be_written_to(tmp_path: Path, put: Put) -> None:
    """Tables are made without."""
    put(seed=5)
    expected = all_of(tmp_path)
    (tmp_path / INDEX_NAME).unlink()
    with plain_user(tmp_path):
        tmp_path.chmod(0o555)
        assert all_of(tmp_path) == expected
        tmp_path.chmod(0o755)
    assert not (tmp_path / INDEX_NAME).exists()


def test_tables_are_the_same(tmp_path: Path, put: Put) -> None:
    """Leaderboards, lists of runs and frames, the second time from the index."""
    for seed in range(3):
        put(seed=seed, acc=0.5 + seed / 10)
        put(seed=seed, acc=0.4 + seed / 10, strategy="ewc", options={"ewc_lambda": 3})

    def tables() -> tuple[object, ...]:
        frame = load_records(tmp_path)
        runs = [run.document() for run in list_runs(tmp_path)]
        return [board.document() for board in leaderboards(tmp_path)], runs, frame.to_json(orient="split")

    first = tables()
    (tmp_path / INDEX_NAME).unlink()
    assert tables() == tables() == first


def test_details_are_in_a_frame_that_asks(tmp_path: Path) -> None:
    """Stages, genotypes and the like; by default they are no columns."""
    record = FULL
    write_record(tmp_path, record)
    short, full = load_records(tmp_path), load_records(tmp_path, details=True)
    added = set(full) - set(short)
    assert {"stages", "genotypes", "paths", "task_images", "earlier_environments"} <= added
    assert len(full["stages"][0]) == len(record.stages)
    assert added <= set(DETAILS)
    assert short["environment.device"][0] == FULL.environment.device
    assert read_record(record_path(tmp_path, record.run_id)) == record


def test_small_folders_have_none(tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file more would only be in the way."""
    monkeypatch.setattr(record_index, "WORTH", 2)
    put(seed=1)
    all_of(tmp_path)
    assert not (tmp_path / INDEX_NAME).exists()
    put(seed=2)
    all_of(tmp_path)
    assert (tmp_path / INDEX_NAME).exists()
