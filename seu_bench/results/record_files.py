"""Records of a results folder: read, found by name, and packed into one file.

A results folder holds records in ``runs/<run id>/record.json``, in ``records.jsonl``, or in both. The latter has one
compact record per line, for publishing records without their runs' folders. Where both have a run, its folder wins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeAlias

from seu_bench.errors import ResultsError
from seu_bench.results.record import LARGEST, RECORD_NAME, Record, parse_record, read_record, runs_folder, unreadable
from seu_bench.utils.files import refuse_link
from seu_bench.utils.reading import cannot_read, list_folder, open_file, read_file

#: Entry points that read the records of a folder that a plugin knows by a file or folder of the point's name in it.
READERS: Final = "seu_bench.readers"
PACKED_NAME: Final = "records.jsonl"
#: File with the weights of a run's model, in the run's folder.
MODEL_NAME: Final = "model.safetensors"
#: File with all else that a method keeps, from which it can learn further tasks.
LEARNER_NAME: Final = "learner.safetensors"
#: Fields that no table shows, most of a record's memory, and the values in place of which they are left out.
DETAILS: Final[dict[str, Any]] = {
    **dict.fromkeys(("stages", "task_images", "task_class_counts", "task_inputs", "earlier_environments"), ()),
    **dict.fromkeys(("genotypes", "paths", "choices", "unit_tasks")),
}
#: A record, or why it cannot be read.
_Item: TypeAlias = Record | ResultsError


def require_records(results: Path) -> None:
    """Refuse a results folder without records, or one that cannot be read."""
    try:
        if runs_folder(results).is_dir() or (results / PACKED_NAME).is_file():
            return
    except (OSError, ValueError) as error:
        raise cannot_read(results, error) from error
    raise ResultsError(
        "there are no records yet", where=str(results), remedy="make some with seu-bench run, or give --results"
    )


def read_records(results: Path, *, details: bool = True) -> Iterator[Record | ResultsError]:
    """Read every record of a results folder, also while other processes add and remove runs.

    Args:
        results: the folder that holds the runs.
        details: whether records are to have the fields of :data:`DETAILS`.

    Yields:
        Record, or the error of one that cannot be read: runs' folders by name, then the lines of ``records.jsonl``.
    """
    for item in _items(results):
        yield item if details or not isinstance(item, Record) else item.model_copy(update=DETAILS)


def _items(results: Path) -> Iterator[_Item]:
    for reader in entry_points(group=READERS):
        if os.path.lexists(results / reader.name):
            yield from reader.load()(results)
            return
    seen = set()
    for folder in list_folder(runs_folder(results)):
        item = record_in(folder)
        if item is not None:
            seen.add(item.run_id if isinstance(item, Record) else folder.name)
            yield item
    yield from (item for _, item in packed_records(results) if not isinstance(item, Record) or item.run_id not in seen)


def record_in(folder: Path) -> Record | ResultsError | None:
    """Read the record of a run's folder; the error says why it cannot be read, ``None`` that there is none."""
    file = folder / RECORD_NAME
    try:
        file.lstat()
        return read_record(_refuse_links(folder) / RECORD_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return unreadable(file, error)
    except ResultsError as error:
        return error if os.path.lexists(file) else None  # removed meanwhile


def packed_records(results: Path) -> Iterator[tuple[bytes, _Item]]:
    """Read the lines of ``records.jsonl`` and their records; each that cannot be read is an error."""
    path, places = results / PACKED_NAME, dict[str, str]()
    try:
        if not path.is_file():
            return
        refuse_link(path, "put the file itself there, or name the folder that it lies in")
        with open_file(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield line, _on_line(line, f"{path}, line {number}", places)
    except OSError as error:
        yield b"", unreadable(path, error)
    except ResultsError as error:
        yield b"", error


def _on_line(line: bytes, where: str, places: dict[str, str]) -> _Item:
    """The record on a line, which is added to the ``places`` of runs."""
    try:
        record = parse_record(line, where)
    except ResultsError as error:
        return error
    first = places.setdefault(record.run_id, where)
    if first == where:
        return record
    return ResultsError(
        f"the record of run {record.run_id} stands on an earlier line too",
        where=where,
        remedy=f"remove this line or the other one: {first}",
    )


def find_record(results: Path, name: str) -> Record:
    """Find a record by a run id, a unique beginning of one, or a run's folder.

    Raises:
        ResultsError: none or several fit.
    """
    found = _find(results, name)
    return read_record(found) if isinstance(found, Path) else parse_record(found, str(results / PACKED_NAME))


def record_document(results: Path, name: str) -> str:
    """Return the JSON of a record as its file has it, with keys that this version does not know.

    Arguments and errors are those of :func:`find_record`.
    """
    found = _find(results, name)
    if isinstance(found, Path):
        return read_file(found / RECORD_NAME, LARGEST).decode()
    return json.dumps(json.loads(found), indent=1) + "\n"


def find_run(results: Path, name: str) -> Path:
    """Find the folder of the run that ``name`` means: a run id, a unique beginning of one, or a run's folder."""
    return _own_folder(name) or _refuse_links(runs_folder(results) / _match(results, name, _run_names(results)))


def _find(results: Path, name: str) -> Path | bytes:
    """The folder of the run that ``name`` means, or the line on which it is packed."""
    if own := _own_folder(name):
        return own
    packed = {item.run_id: line for line, item in packed_records(results) if isinstance(item, Record)}
    folders = _run_names(results)
    run_id = _match(results, name, folders | packed.keys())
    return _refuse_links(runs_folder(results) / run_id) if run_id in folders else packed[run_id]


def _match(results: Path, name: str, known: set[str]) -> str:
    """Run id that ``name`` is, or is a unique beginning of."""
    fitting = [name] if name in known else sorted(run_id for run_id in known if run_id.startswith(name))
    if len(fitting) == 1:
        return fitting[0]
    what, remedy = f"no run is called {name!r}", "see which there are there, or give another folder with --results"
    if fitting:
        what = f"{name!r} is the beginning of {len(fitting)} runs: {', '.join(fitting[:5])}"
        remedy = "give more of the run id"
    raise ResultsError(what, where=str(runs_folder(results)), remedy=remedy)


def _own_folder(name: str) -> Path | None:
    """The run's folder that ``name`` is the path of, or of whose record it is; ``None``: it is no such path."""
    path = Path(name)
    try:
        if (path / RECORD_NAME).is_file():
            return path
        return path.parent if path.name == RECORD_NAME and path.is_file() else None
    except (OSError, ValueError):  # it may not be asked, or cannot be a path
        return None


def _run_names(results: Path) -> set[str]:
    """Names of the runs' folders that have a record."""
    return {folder.name for folder in list_folder(runs_folder(results)) if os.path.lexists(folder / RECORD_NAME)}


def _refuse_links(folder: Path) -> Path:
    """The folder of a run, if neither it nor its record is a link: a stranger's could point elsewhere."""
    for path in (folder, folder / RECORD_NAME):
        refuse_link(path, "put the run's folder itself there, or name the folder that it leads to")
    return folder
