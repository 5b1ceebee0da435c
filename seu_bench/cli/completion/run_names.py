"""Ids of the runs of a results folder, the newest first, without reading a record."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

from seu_bench.results.record import runs_folder
from seu_bench.results.record_files import PACKED_NAME

#: The id of a packed record, which stands at the beginning of its line.
_PACKED_ID: Final = re.compile(rb'"run_id": ?"([^"\\]+)"')
_BEGINNING: Final = 400


def run_names(results: Path, beginning: str = "") -> list[str]:
    """List runs' ids.

    Args:
        results: the results folder; one that is missing or cannot be read has none.
        beginning: of the ids.

    Returns:
        Those of folders by the time of their last change, the newest first, then packed ones by name.
    """
    found: list[tuple[float, str]] = []
    with contextlib.suppress(OSError, ValueError), os.scandir(runs_folder(results)) as entries:
        for entry in entries:
            if entry.name.startswith(beginning) and not entry.name.startswith("."):
                with contextlib.suppress(OSError):
                    found.append((-entry.stat().st_mtime, entry.name))
    names = dict.fromkeys(name for _, name in sorted(found))
    return [*names, *sorted(_packed_names(results, beginning) - names.keys())]


def _packed_names(results: Path, beginning: str) -> set[str]:
    names: set[str] = set()
    with contextlib.suppress(OSError, ValueError), (results / PACKED_NAME).open("rb") as file:
        for line in file:
            if found := _PACKED_ID.search(line[:_BEGINNING]):
                names.add(found[1].decode("utf-8", errors="replace"))
    return {name for name in names if name.startswith(beginning)}
