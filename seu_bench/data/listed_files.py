"""Images of the user's own by a list: a ``.csv`` with a row for each file, its label, and perhaps task and split."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seu_bench.config.options import did_you_mean
from seu_bench.data.dataset import DatasetInfo, hold_out
from seu_bench.data.own_files import FolderSource, Split
from seu_bench.errors import DataError, DataMissingError
from seu_bench.utils.reading import open_file
from seu_bench.utils.text import some


class Row(NamedTuple):
    """A file as the list names it; empty: the list has no such column."""

    path: str
    label: str
    task: str = ""
    split: str = ""


class FilesSource(FolderSource):
    """A ``.csv`` of image files, ``path,label[,task][,split]``, whose paths start from its folder.

    Classes are the sorted labels of the rows of its task, or of all rows. Without splits ``test_fraction`` of each
    class is held out.
    """

    def rows(self) -> list[Row]:
        """Rows of its task in the order of the list, each of a file that exists; a DataError names the faults."""
        self.check_exists()
        now, task = self.path.stat(), self.definition.task
        rows = _read_list(self.path, (now.st_size, now.st_mtime_ns))
        tasks = dict.fromkeys(row.task for row in rows)
        if task is not None and task not in tasks:
            listed = f"its tasks are {', '.join(tasks)}" if any(tasks) else "it has no column task"
            raise self.fault(f"has no task {task!r}{did_you_mean(task, tasks)}", listed)
        own = [row for row in rows if task in (None, row.task)]
        missing = [row.path for row in own if not os.path.isfile(self.path.parent / row.path)]  # noqa: PTH113
        if missing:
            remedy = f"correct the paths, which start from {self.path.parent}, or remove the rows"
            raise self.fault(f"lists files that are missing: {some(missing)}", remedy, DataMissingError)
        return own

    def checksum(self) -> str:
        """SHA-256 of the rows of its task and the sizes of their files; nothing is decoded."""
        digest = hashlib.sha256()
        for row in sorted(self.rows()):
            size = (self.path.parent / row.path).stat().st_size
            digest.update(f"{row.path}\0{row.label}\0{row.split}\0{size}\n".encode())
        return digest.hexdigest()

    def splits(self) -> tuple[DatasetInfo, Split, Split]:
        """Shape and sizes, and the files and labels that train and that test; files are counted, not opened."""
        rows = sorted(self.rows())  # so that their order in the list makes no difference
        names = sorted({row.label for row in rows})
        numbers = {name: label for label, name in enumerate(names)}
        labels = np.array([numbers[row.label] for row in rows], dtype=np.int64)
        if rows[0].split:
            tests = np.array([row.split == "test" for row in rows])
            held = np.flatnonzero(~tests), np.flatnonzero(tests)
            if uneven := [names[label] for label in np.setxor1d(labels[~tests], labels[tests])]:
                raise self.fault(
                    f"has classes in one split only: {some(uneven)}", "give each class rows of train and of test"
                )
        else:
            held = hold_out(labels, self.definition.test_fraction, self.name, str(self.path), names)
        files = [self.path.parent / row.path for row in rows]
        train, test = (([files[place] for place in places], labels[places]) for places in held)
        return self._describe(names, train[1], test[1]), train, test

    def _place(self) -> str:
        return f"{super()._place()} {self.definition.task}"

    def _left_out(self) -> list[str]:
        return []


@lru_cache(maxsize=4)  # each task of a list reads it
def _read_list(path: Path, _size_and_time: tuple[int, int]) -> tuple[Row, ...]:
    try:
        with open_file(path.resolve()) as file:
            rows = tuple(_parse(path, file.read().decode("utf-8-sig")))
    except (OSError, ValueError, csv.Error) as error:
        raise _fault(path, f"cannot be read: {error}", "save it as CSV, in UTF-8, with commas") from error
    if not rows:
        raise _fault(path, "names no files", "add a row for each image")
    counts = Counter(os.path.normpath(path.parent / row.path) for row in rows)
    if twice := [file for file, count in counts.items() if count > 1]:
        what = f"names files in several rows: {some(twice)}"
        raise _fault(path, what, "name each file once; else one could be trained and tested on")
    return rows


def _parse(path: Path, text: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    names = [name.strip() for name in next(reader, [])]
    known, due = Row._fields, "its first line must be path,label or path,label,task,split, in any order"
    if other := [f"{name!r}{did_you_mean(name, known)}" for name in names if name not in known]:
        raise _fault(path, f"has columns that are not known: {some(other)}", due)
    if len(set(names)) < len(names) or not {"path", "label"} <= set(names):
        raise _fault(path, f"has the columns {','.join(names) or 'of no name'}", due)
    faults = []
    for cells in reader:
        values = [cell.strip() for cell in cells]
        row = dict(zip(names, values, strict=False))
        if len(values) == len(names) and all(values) and row.get("split", "test") in ("train", "test"):
            yield Row(**row)
        elif any(values):
            faults.append(f"line {reader.line_num} ({','.join(cells)})")
    if faults:
        due = f"a row needs {','.join(names)}, none empty" + "; a split is train or test" * ("split" in names)
        raise _fault(path, f"has rows that do not fit: {some(faults)}", due)


def _fault(path: Path, what: str, remedy: str) -> DataError:
    return DataError(f"the list of files {what}", where=str(path), remedy=remedy)
