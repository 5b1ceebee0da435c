"""Records: written whole or not at all, and read as they were written."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.records import FULL, a_record

from seu_bench.errors import ResultsError
from seu_bench.results.record import Record, StageRecord, read_record, record_path, write_record
from seu_bench.results.record_metrics import without_times


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
