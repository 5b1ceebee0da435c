"""Files by which a worker on another machine knows that its results folder is the driver's."""

from __future__ import annotations

import contextlib
from pathlib import Path
from uuid import uuid4

from seu_bench.utils.files import make_folder, write_atomic


class Marks:
    """Marker file in each results folder while a sweep runs."""

    def __init__(self) -> None:
        self._name = f".sweep-{uuid4().hex}"
        self._placed: dict[Path, Path] = {}

    def place_in(self, results: Path) -> str:
        """Return the mark of a folder, which is created with it.

        Raises:
            ResultsError: it cannot be written there.
        """
        if results not in self._placed:
            make_folder(results)
            self._placed[results] = results / self._name
            write_atomic(self._placed[results], "")
        return str(self._placed[results])

    def remove(self) -> None:
        """Remove them all, and folders that hold nothing else."""
        for results, mark in self._placed.items():
            with contextlib.suppress(OSError):
                mark.unlink(missing_ok=True)
                results.rmdir()
        self._placed.clear()
