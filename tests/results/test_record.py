"""Records: written whole or not at all, read as they were written, found by name, packed, and of other versions."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pandas
import pytest
from pydantic import ValidationError
from support.board_records import leaderboards, writer
from support.commands import Command
from support.records import FULL, a_record

import seu_bench
from scripts.pack_records import pack_records, unpack_records
from seu_bench.engine.run_folder import list_runs
from seu_bench.errors import NewerRecordError, ResultsError
from seu_bench.results.building import load_records, make_leaderboards
from seu_bench.results.formats import to_markdown
from seu_bench.results.record import Record, StageRecord, read_record, record_path, write_record
from seu_bench.results.record_files import find_record, find_run, read_records
from seu_bench.results.record_metrics import METRICS, check_metrics, compute_metrics, without_times


class TestRoundTrip:
    @pytest.mark.parametrize("record", [FULL, a_record()], ids=["full", "least"])
    def test_reads_what_was_written(self, tmp_path: Path, record: Record) -> None:
        path = write_record(tmp_path, record)
        assert path == record_path(tmp_path, record.run_id)
        assert read_record(path) == read_record(path.parent) == record

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_refuses_what_json_has_no_number_for(self, tmp_path: Path, value: float) -> None:
        with pytest.raises(ValueError, match="JSON"):
            write_record(tmp_path, a_record(metrics={"acc": value}))
        with pytest.raises(ValueError, match="JSON"):
            write_record(tmp_path, a_record(accuracy_matrix=((value,),)))
        assert list(tmp_path.rglob("*")) == []

    def test_keys_of_a_later_version_are_ignored(self, tmp_path: Path) -> None:
        path = write_record(tmp_path, FULL)
        document = json.loads(path.read_text(encoding="utf-8"))
        document["later"] = {"a": 1}
        document["stages"][0]["later"] = 2
        document["environment"]["later"] = 3
        path.write_text(json.dumps(document), encoding="utf-8")
        assert read_record(path) == FULL


class TestWhole:
    def test_replaces_what_was_there(self, tmp_path: Path) -> None:
        write_record(tmp_path, a_record(seconds=1.0))
        path = write_record(tmp_path, a_record(seconds=2.0))
        assert read_record(path).seconds == 2.0
        assert [found.name for found in path.parent.iterdir()] == ["record.json"]

    @pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_failing_rename_leaves_the_old_record_and_no_part(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
    ) -> None:
        path = write_record(tmp_path, a_record(seconds=1.0))

        def fail(*_: object, **__: object) -> None:
            raise failure

        monkeypatch.setattr(os, "replace", fail)
        expected = ResultsError if isinstance(failure, OSError) else KeyboardInterrupt
        with pytest.raises(expected) as caught:
            write_record(tmp_path, a_record(seconds=2.0))
        monkeypatch.undo()
        if isinstance(caught.value, ResultsError):
            assert "No space left on device" in str(caught.value)
            assert caught.value.where == str(path)
        assert read_record(path).seconds == 1.0
        assert [found.name for found in path.parent.iterdir()] == ["record.json"]


class TestRead:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (b"", "not a complete record"),
            (FULL.model_dump_json().encode()[:500], "not a complete record"),
            (b"[]", "not a complete record"),
            (b"\xff\xfe{}", "not a complete record: Invalid JSON"),
            (b'{"run_id": "a"}', "status: is missing"),
        ],
    )
    def test_damaged(self, tmp_path: Path, text: bytes, said: str) -> None:
        path = tmp_path / "record.json"
        path.write_bytes(text)
        with pytest.raises(ResultsError, match=said) as caught:
            read_record(path)
        assert caught.value.where == str(path)

    def test_absent(self, tmp_path: Path) -> None:
        with pytest.raises(ResultsError, match="cannot be read"):
            read_record(tmp_path)


class TestMeaning:
    def test_without_times_equal_runs_are_equal(self) -> None:
        def slow(times: float) -> Record:
            seconds = {"train_seconds": 1.0 * times, "train_cpu_seconds": 2.0 * times, "peak_memory_bytes": times}
            stage = StageRecord(name="training", task=0, epochs=1, seconds=times, cpu_seconds=times, image_passes=7)
            return a_record(started=str(times), seconds=times, metrics={"acc": 0.5, **seconds}, stages=(stage,))

        assert slow(1) != slow(9) and without_times(slow(1)) == without_times(slow(9))
        assert without_times(slow(1)) != without_times(a_record(seed=1))

    @pytest.mark.parametrize("value", ["NaN", "Infinity", '"text"', "[1]"])
    def test_a_stage_refuses_what_is_no_measurement(self, value: str) -> None:
        stage = StageRecord(name="training", task=0, epochs=1, seconds=1, image_passes=1)
        with pytest.raises(ValidationError):
            StageRecord.model_validate_json(stage.model_dump_json().replace('"losses":[]', f'"losses":[{value}]'))


class TestFolder:
    def test_all_of_a_folder(self, tmp_path: Path) -> None:
        write_record(tmp_path, a_record("b"))
        write_record(tmp_path, a_record("a"))
        (tmp_path / "runs" / "aa").mkdir()
        (tmp_path / "runs" / "aa" / "record.json").write_text("{", encoding="utf-8")
        (tmp_path / "runs" / "no-record-yet").mkdir()
        (tmp_path / "runs" / "a-file").write_text("", encoding="utf-8")
        found = list(read_records(tmp_path))
        assert [item.run_id if isinstance(item, Record) else type(item) for item in found] == ["a", ResultsError, "b"]
        assert list(read_records(tmp_path / "nowhere")) == []


class TestFind:
    def test_by_id_prefix_and_folder(self, tmp_path: Path) -> None:
        path = write_record(tmp_path, a_record("cifar10-a"))
        write_record(tmp_path, a_record("cifar10-bb"))
        for name in ("cifar10-a", str(path), str(path.parent)):
            assert find_record(tmp_path, name).run_id == "cifar10-a"
        assert find_record(tmp_path, "cifar10-b").run_id == "cifar10-bb"
        write_record(tmp_path, a_record("cifar10-b"))
        assert find_record(tmp_path, "cifar10-b").run_id == "cifar10-b"
        with pytest.raises(ResultsError, match="beginning of 3 runs: cifar10-a, cifar10-b, cifar10-bb"):
            find_record(tmp_path, "cifar")
        for folder in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(ResultsError, match="no run is called 'other'"):
                find_record(folder, "other")


class TestPacked:
    @staticmethod
    def packed(results: Path) -> Path:
        """The folder with its records in one file, and without runs' folders."""
        pack_records(results)
        shutil.rmtree(results / "runs")
        return results

    def test_same_records(self, tmp_path: Path) -> None:
        """One compact line for each, by run id; values keep their types to the last bit."""
        given = [a_record("b", error="line\nü"), a_record("a", seed=1), a_record("c", status="failed")]
        for record in given:
            write_record(tmp_path, record)
        expected = list(read_records(tmp_path))
        lines = (self.packed(tmp_path) / "records.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["run_id"] for line in lines] == ["a", "b", "c"]
        assert all(line == json.dumps(json.loads(line), ensure_ascii=False, separators=(",", ":")) for line in lines)
        assert list(read_records(tmp_path)) == expected == sorted(given, key=lambda record: record.run_id)

    def test_everything_reads_them(self, command: Command, tmp_path: Path) -> None:
        """Tables, leaderboards and commands are the same as from runs' folders."""
        put = writer(tmp_path)
        for seed in range(2):
            put(seed, 0.5, accuracy_matrix=((0.5,),))
            put(seed, 0.7, strategy="seu", accuracy_matrix=((0.7,),))
        words = (
            ("leaderboard", "--format", "md"),
            ("show", "run-001"),
            ("compare", "run-001", "run-002", "--format", "json"),
        )
        results = ("--results", tmp_path)
        table = seu_bench.load_records(tmp_path)
        answers = [command(*each, *results) for each in words]
        files = {path.name: path.read_bytes() for path in make_leaderboards(tmp_path).paths}
        self.packed(tmp_path)
        pandas.testing.assert_frame_equal(seu_bench.load_records(tmp_path), table)
        assert [command(*each, *results) for each in words] == answers
        assert answers[0].status == 0 and "seu" in answers[0].out
        assert {path.name: path.read_bytes() for path in make_leaderboards(tmp_path).paths} == files

    def test_folder_of_a_run_wins(self, tmp_path: Path) -> None:
        """Whether or not its record can be read; packing takes the folder's record as well."""
        write_record(tmp_path, a_record("a", seconds=1.0))
        write_record(tmp_path, a_record("b"))
        self.packed(tmp_path)
        path = write_record(tmp_path, a_record("a", seconds=2.0))
        assert [item.seconds for item in read_records(tmp_path) if isinstance(item, Record)] == [2.0, None]
        assert find_record(tmp_path, "a").seconds == 2.0
        pack_records(tmp_path)
        path.write_text("{", encoding="utf-8")
        found = list(read_records(tmp_path))
        assert isinstance(found[0], ResultsError) and found[0].where == str(path)
        assert [item.run_id for item in found if isinstance(item, Record)] == ["b"]
        shutil.rmtree(tmp_path / "runs")
        assert find_record(tmp_path, "a").seconds == 2.0

    def test_lines_that_cannot_be_read(self, command: Command, tmp_path: Path) -> None:
        """Each is told with its line number, and the others are read."""
        put = writer(tmp_path)
        for seed in range(3):
            put(seed)
        path = self.packed(tmp_path) / "records.jsonl"
        first, second, third = path.read_bytes().splitlines()
        newer = json.dumps(json.loads(third) | {"run_id": "newer", "schema_version": 2}).encode()
        path.write_bytes(b"\n".join([first, b"{", b"", b"\xff\xfe", second, first, newer]))
        found = list(read_records(tmp_path))
        faults = {item.where: item for item in found if isinstance(item, ResultsError)}
        assert list(faults) == [f"{path}, line {number}" for number in (2, 4, 6, 7)]
        whats = [fault.what for fault in faults.values()]
        assert "not a complete record" in whats[0] and "Invalid JSON" in whats[1]
        assert "run-001 stands on an earlier line" in whats[2] and "line 1" in str(faults[f"{path}, line 6"].remedy)
        assert isinstance(faults[f"{path}, line 7"], NewerRecordError)
        assert [item.run_id for item in found if isinstance(item, Record)] == ["run-001", "run-002"]
        (board,) = make_leaderboards(tmp_path).paths[:1]
        assert "2 records" in board.read_text(encoding="utf-8")
        unreadable = seu_bench.load_records(tmp_path).attrs["unreadable"]
        assert unreadable == [f"records.jsonl, line {number}" for number in (2, 4, 6, 7)]
        assert command("show", "run-002", "--results", tmp_path).status == 0

    @pytest.mark.parametrize("line", ["{", "[]"])
    def test_nothing_is_packed_where_one_cannot_be_read(self, tmp_path: Path, line: str) -> None:
        write_record(tmp_path, a_record("a"))
        before = self.packed(tmp_path).joinpath("records.jsonl").read_bytes()
        record_path(tmp_path, "b").parent.mkdir(parents=True)
        record_path(tmp_path, "b").write_text(line, encoding="utf-8")
        with pytest.raises(ResultsError, match="not a complete record"):
            pack_records(tmp_path)
        assert (tmp_path / "records.jsonl").read_bytes() == before

    def test_link_is_not_followed(self, tmp_path: Path) -> None:
        elsewhere, results = tmp_path / "elsewhere", tmp_path / "results"
        write_record(elsewhere, a_record("secret"))
        pack_records(elsewhere)
        results.mkdir()
        (results / "records.jsonl").symlink_to(elsewhere / "records.jsonl")
        (found,) = read_records(results)
        assert isinstance(found, ResultsError) and "is a link" in found.what
        with pytest.raises(ResultsError, match="is a link"):
            pack_records(results)
        with pytest.raises(ResultsError, match="no run is called"):
            find_record(results, "secret")
        assert list(seu_bench.load_records(results)["run_id"]) == []

    def test_unpacked(self, tmp_path: Path) -> None:
        """Runs have their folders again, with the keys they had, but for those that were run again meanwhile."""
        for run_id in ("a", "b"):
            path = write_record(tmp_path, a_record(run_id, seconds=1.0))
        older = json.loads(path.with_name("record.json").read_text())
        del older["record_sha256"]
        record_path(tmp_path, "a").write_text(json.dumps(older | {"run_id": "a"}))
        self.packed(tmp_path)
        write_record(tmp_path, a_record("b", seconds=2.0))
        with pytest.raises(ResultsError, match="no run is called 'a'"):
            find_run(tmp_path, "a")
        unpack_records(tmp_path)
        assert json.loads(record_path(tmp_path, "a").read_text()) == older | {"run_id": "a"}
        assert [read_record(record_path(tmp_path, run_id)).seconds for run_id in ("a", "b")] == [1.0, 2.0]
        assert not (tmp_path / "records.jsonl").exists()
        unpack_records(tmp_path)


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
        with pytest.raises(NewerRecordError, match="schema is 2, known is up to 1"):
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
