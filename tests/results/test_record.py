"""Records: written whole or not at all, and read as they were written."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from support.records import FULL, a_record

from seu_bench.errors import ResultsError
from seu_bench.results.record import Record, StageRecord, read_record, record_path, write_record
from seu_bench.results.record_metrics import without_times
from seu_bench.utils.files import write_atomic


class TestRoundTrip:
    @pytest.mark.parametrize("record", [FULL, a_record()], ids=["full", "least"])
    def test_reads_what_was_written(self, tmp_path: Path, record: Record) -> None:
        path = write_record(tmp_path, record)
        assert path == record_path(tmp_path, record.run_id)
        assert read_record(path) == read_record(path.parent) == record

    def test_numbers_keep_their_type(self, tmp_path: Path) -> None:
        metrics = read_record(write_record(tmp_path, FULL)).metrics
        assert isinstance(metrics["params_total"], int)
        assert isinstance(metrics["acc"], float)
        assert metrics["fwt"] is None

    def test_not_measured_is_null_in_the_file(self, tmp_path: Path) -> None:
        document = json.loads(write_record(tmp_path, FULL).read_text(encoding="utf-8"))
        assert document["accuracy_matrix"][0] == [0.9, None]

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

    def test_is_frozen(self) -> None:
        with pytest.raises(ValueError, match="frozen"):
            FULL.seed = 1  # type: ignore[misc]


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

    def test_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        # Below a regular file nothing can be made, by whichever user.
        (tmp_path / "file").write_text("", encoding="utf-8")
        with pytest.raises(ResultsError, match="cannot write results") as caught:
            write_record(tmp_path / "file", a_record())
        assert caught.value.remedy is not None

    def test_other_texts(self, tmp_path: Path) -> None:
        write_atomic(tmp_path / "a" / "b.md", "ä\n")
        assert (tmp_path / "a" / "b.md").read_text(encoding="utf-8") == "ä\n"


class TestRead:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "not a complete record"),
            ("{", "not a complete record"),
            ("[]", "not a complete record"),
            ('{"run_id": "a"}', "status: is missing"),
        ],
    )
    def test_damaged(self, tmp_path: Path, text: str, said: str) -> None:
        path = tmp_path / "record.json"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ResultsError, match=said) as caught:
            read_record(path)
        assert caught.value.where == str(path)

    def test_truncated(self, tmp_path: Path) -> None:
        path = write_record(tmp_path, FULL)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ResultsError):
            read_record(path)

    def test_not_utf8(self, tmp_path: Path) -> None:
        path = tmp_path / "record.json"
        path.write_bytes(b"\xff\xfe{}")
        with pytest.raises(ResultsError, match="not a complete record: Invalid JSON"):
            read_record(path)

    def test_absent(self, tmp_path: Path) -> None:
        with pytest.raises(ResultsError, match="cannot be read"):
            read_record(tmp_path)


class TestMeaning:
    @pytest.mark.parametrize(
        "fields",
        [{"status": "running"}, {"status": "failed"}, {"ranked": False}, {"synthetic": True}, {"limit": 5}],
    )
    def test_what_may_not_be_ranked(self, fields: dict[str, Any]) -> None:
        assert a_record().may_be_ranked
        assert not a_record(**fields).may_be_ranked

    def test_without_times_equal_runs_are_equal(self) -> None:
        metrics = {
            "acc": 0.5,
            "train_seconds": 1.0,
            "train_cpu_seconds": 2.0,
            "search_seconds": 0.5,
            "peak_memory_bytes": 10,
        }
        slower = {
            "acc": 0.5,
            "train_seconds": 9.0,
            "train_cpu_seconds": 8.0,
            "search_seconds": 9.5,
            "peak_memory_bytes": 11,
        }
        stages = [
            StageRecord(name="training", task=0, epochs=1, seconds=s, cpu_seconds=2 * s, image_passes=7)
            for s in (1.0, 9.0)
        ]
        one = a_record(started="a", seconds=1.0, metrics=metrics, stages=(stages[0],))
        other = a_record(started="b", seconds=9.0, metrics=slower, stages=(stages[1],))
        assert one != other
        assert without_times(one) == without_times(other)
        assert without_times(one) != without_times(a_record(seed=1))
