"""Records of a results folder: read, found by name, and packed into one file.

A results folder holds records in ``runs/<run id>/record.json``, in ``records.jsonl``, or in both. The latter has one
compact record per line and is made by :func:`pack_records`, for publishing records without their runs' folders.
Where both have a run, its folder wins: it was run again below published records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from seu_bench.errors import ResultsError
from seu_bench.results.record import (
    LARGEST,
    RECORD_NAME,
    Record,
    parse_record,
    read_record,
    record_path,
    runs_folder,
    unreadable,
)
from seu_bench.utils.files import refuse_link, write_atomic
from seu_bench.utils.reading import cannot_read, list_folder, open_file, read_file

#: Entry points that read the records of a folder that a plugin knows by a file or folder of the point's name in it.
READERS: Final = "seu_bench.readers"
PACKED_NAME: Final = "records.jsonl"
#: File with the weights of a run's model, in the run's folder.
MODEL_NAME: Final = "model.safetensors"
#: Fields that no table shows, most of a record's memory, and the values in place of which they are left out.
DETAILS: Final[dict[str, Any]] = {
    **dict.fromkeys(("stages", "task_images", "task_class_counts", "task_inputs", "earlier_environments"), ()),
    **dict.fromkeys(("genotypes", "paths", "choices", "unit_tasks")),
}


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

    Raises:
        ResultsError: the folder of runs itself cannot be read.
    """
    left_out = {} if details else DETAILS
    for reader in entry_points(group=READERS):
        if os.path.lexists(results / reader.name):
            yield from (_without(left_out, item) for item in reader.load()(results))
            return
    seen = set()
    for folder in list_folder(runs_folder(results)):
        item = record_in(folder)
        if item is not None:
            seen.add(item.run_id if isinstance(item, Record) else folder.name)
            yield _without(left_out, item)
    for item in packed_records(results):
        if not isinstance(item, Record) or item.run_id not in seen:
            yield _without(left_out, item)


def _without(left_out: dict[str, Any], item: Record | ResultsError) -> Record | ResultsError:
    return item.model_copy(update=left_out) if isinstance(item, Record) and left_out else item


def record_in(folder: Path) -> Record | ResultsError | None:
    """Read the record of a run's folder; the error says why it cannot be read, ``None`` that there is none."""
    file = folder / RECORD_NAME
    try:
        file.lstat()
        return read_record(_checked(folder) / RECORD_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return unreadable(file, error)
    except ResultsError as error:
        return error if os.path.lexists(file) else None  # removed meanwhile


def packed_records(results: Path) -> Iterator[Record | ResultsError]:
    """Read the records of ``records.jsonl``; each line that cannot be read is an error."""
    path, places = results / PACKED_NAME, dict[str, str]()
    try:
        if not path.is_file():
            return
        refuse_link(path, "put the file itself there, or name the folder that it lies in")
        with open_file(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _on_line(line, f"{path}, line {number}", places)
    except OSError as error:
        yield unreadable(path, error)
    except ResultsError as error:
        yield error


def _on_line(line: bytes, where: str, places: dict[str, str]) -> Record | ResultsError:
    """The record on a line, or its error; the line is added to the ``places`` of runs."""
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


def pack_records(results: Path) -> Path:
    """Write all records of a results folder to its ``records.jsonl``, in the order of run ids.

    Runs' folders stay as they are: what else they hold is not packed. Records that the file has already stay in it.

    Returns:
        The file.

    Raises:
        ResultsError: a record cannot be read, or the file cannot be written. Nothing was changed.
    """
    _require_readable(read_records(results))
    path = results / PACKED_NAME
    # Documents stay what they are: a record of an older version is not rewritten as one of this version.
    documents = _packed_documents(path)
    for name in _run_names(results):
        document = json.loads(read_file(record_path(results, name)))
        documents[document["run_id"]] = document
    lines = [json.dumps(documents[run_id], ensure_ascii=False, separators=(",", ":")) for run_id in sorted(documents)]
    write_atomic(path, "".join(f"{line}\n" for line in lines))
    return path


def unpack_records(results: Path) -> None:
    """Write each record of ``records.jsonl`` to a run's folder, and remove the file.

    Runs that are complete are then skipped by ``seu-bench run`` and ``seu-bench sweep``. A run that has a folder keeps
    the record there.

    Raises:
        ResultsError: a line cannot be read, or a folder cannot be written. The file stays.
    """
    _require_readable(packed_records(results))
    path = results / PACKED_NAME
    for run_id, document in _packed_documents(path).items():
        if not (place := record_path(results, run_id)).exists():
            write_atomic(place, _text(document))
    path.unlink(missing_ok=True)


def find_record(results: Path, name: str) -> Record:
    """Find a record by a run id, a unique beginning of one, or a run's folder.

    Raises:
        ResultsError: none or several fit.
    """
    return _found(results, name)[0]


def record_document(results: Path, name: str) -> str:
    """Return the JSON of a record as its file has it, with keys that this version does not know.

    A packed record has the form in which :func:`unpack_records` would write it. Arguments and errors are those of
    :func:`find_record`.
    """
    record, folder = _found(results, name)
    if folder is None:
        return _text(_packed_documents(results / PACKED_NAME)[record.run_id])
    return read_file(folder / RECORD_NAME, LARGEST).decode("utf-8")


def find_run(results: Path, name: str) -> Path:
    """Find the folder of the run that ``name`` means: a run id, a unique beginning of one, or a run's folder."""
    return _own_folder(name) or _checked(runs_folder(results) / _match(results, name, set(_run_names(results))))


def _found(results: Path, name: str) -> tuple[Record, Path | None]:
    """The record that ``name`` means, and its run's folder; ``None``: it is packed."""
    if own := _own_folder(name):
        return read_record(own), own
    packed = {item.run_id: item for item in packed_records(results) if isinstance(item, Record)}
    folders = _run_names(results)
    run_id = _match(results, name, {*folders, *packed})
    if run_id not in folders:
        return packed[run_id], None
    folder = _checked(runs_folder(results) / run_id)
    return read_record(folder), folder


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


def _run_names(results: Path) -> list[str]:
    """Names of the runs' folders that have a record."""
    return [folder.name for folder in list_folder(runs_folder(results)) if os.path.lexists(folder / RECORD_NAME)]


def _checked(folder: Path) -> Path:
    """The folder of a run, if neither it nor its record is a link: a stranger's could point elsewhere."""
    for path in (folder, folder / RECORD_NAME):
        refuse_link(path, "put the run's folder itself there, or name the folder that it leads to")
    return folder


def _require_readable(items: Iterator[Record | ResultsError]) -> None:
    for item in items:
        if isinstance(item, ResultsError):
            raise item


def _packed_documents(path: Path) -> dict[str, dict[str, Any]]:
    """The documents of a ``records.jsonl`` by run id; none where there is no file. Lines of no record are left out."""
    lines = [line for line in read_file(path).split(b"\n") if line.strip()] if path.exists() else []
    found = {}
    for line in lines:
        try:
            document = json.loads(line)
            found[document["run_id"]] = document
        except (ValueError, TypeError, LookupError):
            continue
    return found


def _text(document: dict[str, Any]) -> str:
    # The document as it is: its digest would not be that of a record of this version.
    return json.dumps(document, indent=1, allow_nan=False) + "\n"
