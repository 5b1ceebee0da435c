"""Helpers without knowledge of runs.

- ``files``, ``reading``: atomic writes; regular files and folders read, nothing passed over
- ``locks``: one process at a time for a run or a folder
- ``text``: text made safe for terminals, Markdown and LaTeX
- ``progress``: progress bars of long work
- ``seeding``: seeds derived by purpose, random states
- ``hardware``: cores and memory that are available, threads to compute with
- ``rehearsing``: loops that a rehearsal abridges
- ``lazy``, ``startup``: imports on first access
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .files import refuse_link, write_atomic
    from .hardware import usable_cores
    from .progress import bar, track
    from .seeding import RandomState, derive_seed
    from .text import escape_markdown, format_seconds, parse_bytes, printable

__all__ = [
    "RandomState", "attach", "bar", "derive_seed", "escape_markdown", "format_seconds", "parse_bytes", "printable",
    "refuse_link", "track", "usable_cores", "write_atomic",
]  # fmt: skip

__getattr__, __dir__ = attach(__name__)
