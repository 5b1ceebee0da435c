"""Records of a results folder: all of them, found by what a user would call them, and packed into one file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas
import pytest
from support.board_records import writer
from support.commands import Command
from support.records import a_record

import seu_bench
from seu_bench.errors import NewerRecordError, ResultsError
from seu_bench.results.building import make_leaderboards
from seu_bench.results.record import Record, read_record, record_path, write_record
from seu_bench.results.record_files import find_record, find_run, pack_records, read_records, unpack_records


class TestRead:
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

    def test_damaged_one_is_told_as_damaged(self, tmp_path: Path) -> None:
        path = write_record(tmp_path, a_record("run-1"))
        path.write_text("{", encoding="utf-8")
        with pytest.raises(ResultsError, match="not a complete record"):
            find_record(tmp_path, "run-1")


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

    def test_document_is_kept(self, tmp_path: Path) -> None:
        """Keys that this version does not know stay, and none is added."""
        path = write_record(tmp_path, a_record("a"))
        document = {"later": [1, None]} | json.loads(path.read_text(encoding="utf-8"))
        del document["choices"]
        path.write_text(json.dumps(document), encoding="utf-8")
        assert json.loads(pack_records(tmp_path).read_text(encoding="utf-8")) == document

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
