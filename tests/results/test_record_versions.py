"""Records of other versions: published ones are read, what is written later is left out and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.board_records import leaderboards, writer
from support.commands import Command

from seu_bench.engine.run_folder import list_runs
from seu_bench.errors import NewerRecordError, ResultsError
from seu_bench.results.building import load_records
from seu_bench.results.formats import to_markdown
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_files import find_record, read_records
from seu_bench.results.record_metrics import METRICS, check_metrics, compute_metrics


def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def changed(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(document(path) | fields), encoding="utf-8")


PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published" / "evidence"


@pytest.mark.parametrize("name", ["half_day", "quick", "scenarios", "transfer"])
def test_published_records_are_read(name: str) -> None:
    """Without the keys that came since; what has another name or is computed by now is as it would be written now."""
    lines = (PUBLISHED / name / "records.jsonl").read_text(encoding="utf-8").splitlines()
    found = [record for record in read_records(PUBLISHED / name) if isinstance(record, Record)]
    assert len(found) == len(lines) > 0
    for record, line in zip(found, lines, strict=True):
        written = json.loads(line)
        made = compute_metrics(record)
        assert not check_metrics(record, METRICS, with_absent=False)[0]
        assert record.metrics["image_acc"] == made["image_acc"] or not record.task_images
        assert record.model_dump(mode="json", include={"stages"})["stages"][0]["name"] == written["stages"][0]["name"]
        assert record.options.get("memory") == written["options"].get("mem_size", record.options.get("memory"))
        assert "mem_size" not in record.options


class TestLater:
    @pytest.fixture
    def results(self, tmp_path: Path) -> Path:
        """A record of today, and one of version 2, in which a key has another type."""
        put = writer(tmp_path)
        put(0)
        put(1)
        changed(tmp_path / "runs" / "run-002" / "record.json", schema_version=2)
        put(2)
        changed(tmp_path / "runs" / "run-003" / "record.json", schema_version=2, metrics=[1], seed="many")
        return tmp_path

    def test_left_out_with_the_reason(self, command: Command, results: Path) -> None:
        (board,) = leaderboards(results)
        assert board.records == 1
        line = "2 records not read: a later version of seu-bench wrote the record (run-002, run-003)"
        assert board.excluded == (line,)
        assert f"- {line}\n" in to_markdown(board)
        assert line in " ".join(command("leaderboard", "--results", results).out.split())
        frame = load_records(results)
        assert (frame["run_id"].tolist(), frame.attrs["unreadable"]) == (["run-001"], ["run-002", "run-003"])

    @pytest.mark.parametrize("name", ["run-002", "run-003"])
    def test_shown_and_listed_as_what_it_is(self, command: Command, results: Path, name: str) -> None:
        with pytest.raises(NewerRecordError, match="schema version is 2, and those up to 1 are known"):
            find_record(results, name)
        answer = command("show", name, "--results", results)
        assert answer.status == 2 and "hint: update seu-bench" in answer.err
        (run,) = [run for run in list_runs(results) if run.run_id == name]
        assert run.state == "unreadable" and "later version" in (run.detail or "")

    @pytest.mark.parametrize("more", [(), ("--restart",)])
    def test_never_written_over(self, command: Command, tiny: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
        """A run that a later version made is not made again in its place."""
        asked = ("run", "--strategy", "tiny", "--protocol", "smoke", "--results", tmp_path)
        assert command(*asked).status == 0
        (path,) = tmp_path.glob("runs/*/record.json")
        changed(path, schema_version=2)
        before = path.read_bytes()
        answer = command(*asked, *more)
        assert answer.status == 2 and "update seu-bench" in answer.err
        assert path.read_bytes() == before
        assert [file.name for file in path.parent.glob("previous")] == []

    @pytest.mark.parametrize("version", [0, -1, "2", "one", 1.5, None, [], 10**400])
    def test_what_never_was_a_version(self, results: Path, version: Any) -> None:
        path = results / "runs" / "run-001" / "record.json"
        changed(path, schema_version=version)
        with pytest.raises(ResultsError, match="not a complete record: schema_version"):
            read_record(path)
