"""An index of a results folder, so that thousands of records are read at once: what tables show of each record.

``<results>/.record_index.jsonl`` holds for each run what leaderboards, ``seu-bench runs`` and tables need, and by which
state of its record that was read. A record that changed is read again; the index is renewed whenever it is stale, and
can be removed at any time. Small folders, and those that cannot be written to, have none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seu_bench._version import __version__
from seu_bench.config.matched import Matched
from seu_bench.errors import ResultsError
from seu_bench.results.record import RECORD_NAME, Record, runs_folder
from seu_bench.results.record_files import packed_records, record_in
from seu_bench.results.record_parts import CodeRecord, Environment, TuningRecord
from seu_bench.utils.files import PART
from seu_bench.utils.reading import list_folder, open_file

INDEX_NAME: Final = ".record_index.jsonl"
#: Runs from which on an index is worth its file.
WORTH: Final = 500
#: Most of a record's text and memory; no table shows it. With their values in its place.
DETAILS: Final[dict[str, Any]] = {
    "stages": (),
    "genotypes": None,
    "paths": None,
    "choices": None,
    "unit_tasks": None,
    "task_images": (),
    "task_class_counts": (),
    "task_inputs": (),
    "earlier_environments": (),
}
#: Fields that are the same in many records, and are held once.
_SHARED: Final = (
    "code",
    "environment",
    "memory_by_kind",
    "protocol_settings",
    "reference",
    "task_class_names",
    "task_classes",
    "task_labels",
    "task_names",
    "task_order",
)
#: In place of a state.
_LINK, _UNREADABLE = "link", "unreadable"
#: Fields that are models of their own, and those that are several of one.
_MODELS: Final[dict[str, Any]] = {"tuned": TuningRecord, "matched": Matched}
_MODELS_OF_LISTS: Final[dict[str, Any]] = {
    "code": CodeRecord,
    "earlier_code": CodeRecord,
}


#: What records are copies of whose fields are known to be valid; validating thousands again takes seconds.
BLANK: Final = Record(
    run_id="x", status="finished", strategy="", benchmark="x", benchmark_version=0, protocol="x", seed=0
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What tables show of a run.

    Attributes:
        name: of the run's folder; of the run where it was packed.
        record: without :data:`DETAILS`; or why it cannot be read.
        evaluated: tasks that were learned and evaluated.
    """

    name: str
    record: Record | ResultsError
    evaluated: int


def read_summaries(results: Path, *, renew: bool = True) -> Iterator[Summary]:
    """Read what tables need of every record, from the index where that is fresh, and renew the index.

    Args:
        results: the folder that holds the runs.
        renew: whether the index may be written.

    Yields:
        Summaries: runs' folders by name, then the lines of ``records.jsonl`` that have no folder.

    Raises:
        ResultsError: the folder of runs cannot be read.
    """
    folders = {folder.name: folder for folder in list_folder(runs_folder(results))}
    stamps = {name: stamp for name, folder in folders.items() if (stamp := _stamp(folder)) is not None}
    index = _Index(results, stamps if len(stamps) >= WORTH else {})
    seen = set()
    for name, stamp in stamps.items():
        summary = index.known.pop(name, None) or index.add(name, folders[name], stamp)
        if summary is None:
            continue
        seen.add(summary.record.run_id if isinstance(summary.record, Record) else name)
        yield summary
    if renew:
        index.renew()
    for item in packed_records(results):
        if not isinstance(item, Record):
            yield Summary(Path(item.where or "?").name, item, 0)
        elif item.run_id not in seen:
            yield summarized(item.run_id, item)


def summarized(name: str, record: Record) -> Summary:
    """The summary of a record that was read."""
    return Summary(name, record.model_copy(update=DETAILS), count_evaluated(record))


def count_evaluated(record: Record) -> int:
    """Tasks of a run that were learned and evaluated."""
    return sum(stage.name == "evaluation" for stage in record.stages)


class _Index:
    """The file: its fresh entries, and what is to be added to it."""

    def __init__(self, results: Path, stamps: dict[str, str]) -> None:
        self._path = results / INDEX_NAME
        # Without links and what may not be looked at, which have no state that would tell when they change.
        self._stamps = {name: stamp for name, stamp in stamps.items() if stamp not in (_LINK, _UNREADABLE)}
        self._added: list[tuple[str, str, Record, int]] = []
        self._shared: dict[str, Any] = {}
        self._stale = 0
        self.known: dict[str, Summary] = {}
        if stamps:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                self._read()

    def _read(self) -> None:
        """Read the entries whose records are as they were."""
        with open_file(self._path) as file:
            if json.loads(file.readline()) != _header():
                self._stale = 1
                return
            for line in file:
                entry = json.loads(line)
                if "shared" in entry:
                    is_environment = entry["field"] == "environment"
                    make = Environment.model_validate if is_environment else _as_tuple
                    self._shared[entry["shared"]] = make(entry["value"])
                elif self._stamps.get(entry["name"]) == entry["stamp"]:
                    record = _rebuilt(entry["record"], self._shared)
                    self.known[entry["name"]] = Summary(entry["name"], record, entry["evaluated"])
                else:
                    self._stale += 1

    def add(self, name: str, folder: Path, stamp: str) -> Summary | None:
        """Read a record that the index has not."""
        found = record_in(folder)
        if found is None:
            return None
        if isinstance(found, ResultsError):
            return Summary(name, found, 0)
        summary = summarized(name, found)
        if name in self._stamps and isinstance(summary.record, Record):
            self._added.append((name, stamp, summary.record, summary.evaluated))
        return summary

    def renew(self) -> None:
        """Write what was added, if anything was, and leave out what is stale. A folder may be read-only."""
        if not self._stamps or not (self._added or self._stale):
            return
        new = self._path.with_name(f"{INDEX_NAME}.{secrets.token_hex(6)}{PART}")
        try:
            with new.open("x", encoding="utf-8") as file:
                file.write(json.dumps(_header()) + "\n")
                written: set[str] = set()
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                    for line in self._fresh_lines():
                        file.write(line)
                for name, stamp, record, evaluated in self._added:
                    for line in _lines(name, stamp, record, evaluated, written):
                        file.write(line)
            new.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()

    def _fresh_lines(self) -> Iterator[str]:
        with open_file(self._path) as file:
            if json.loads(file.readline()) != _header():
                return
            for line in file:
                entry = json.loads(line)
                if "shared" in entry or self._stamps.get(entry["name"]) == entry["stamp"]:
                    yield line.decode()


def _header() -> dict[str, Any]:
    """What an index was written by: one of another version is made again."""
    fields = hashlib.sha256(" ".join(Record.model_fields).encode()).hexdigest()[:16]
    return {"format": "seu-bench record index 2", "seu_bench": __version__, "fields": fields}


def _stamp(folder: Path) -> str | None:
    """The state of a run's record, which changes when it is written; ``None``: there is none."""
    try:
        if folder.is_symlink():
            return _LINK
        state = os.lstat(folder / RECORD_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _UNREADABLE
    return f"{state.st_mtime_ns}-{state.st_ino}-{state.st_size}-{state.st_mode}"


def _lines(name: str, stamp: str, record: Record, evaluated: int, written: set[str]) -> Iterator[str]:
    """The line of a record, after those of shared values that were not ``written`` yet."""
    document = record.model_dump(mode="json", exclude=set(DETAILS), exclude_defaults=True)
    for field in _SHARED:
        if field in document:
            text = json.dumps([field, document[field]], sort_keys=True)
            key = hashlib.sha256(text.encode()).hexdigest()[:20]
            if key not in written:
                written.add(key)
                yield json.dumps({"shared": key, "field": field, "value": document[field]}) + "\n"
            document[field] = key
    yield json.dumps({"name": name, "stamp": stamp, "evaluated": evaluated, "record": document}) + "\n"


def _rebuilt(document: dict[str, Any], shared: dict[str, Any]) -> Record:
    """A record from its line. It was validated when it was read from its own file, which has not changed since."""
    for field in _SHARED:
        if field in document:
            document[field] = shared[document[field]]
    for field, model in _MODELS.items():
        if document.get(field) is not None:
            document[field] = model.model_validate(document[field])
    for field, model in _MODELS_OF_LISTS.items():
        if field in document:
            document[field] = tuple(map(model.model_validate, document[field]))
    if "metrics" in document:
        document["metrics"] = {sys.intern(name): value for name, value in document["metrics"].items()}
    for key, value in document.items():
        if isinstance(value, list):
            document[key] = _as_tuple(value)
    record = BLANK.model_copy(update=document)
    # The names of fields that were set, which nobody asks for: a set for each record is half of its memory.
    object.__setattr__(record, "__pydantic_fields_set__", BLANK.model_fields_set)
    return record


def _as_tuple(value: Any) -> Any:
    """Lists as records hold them; what is in one list is of one kind."""
    if not isinstance(value, list):
        return value
    return tuple(map(_as_tuple, value)) if value and isinstance(value[0], list) else tuple(value)
