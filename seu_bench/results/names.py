"""Display names and BibTeX entries of what records name, as its plugins state them; plain names where they do not.

What is installed is given as ``Registry().kinds`` has it: entries by plural kind and name. Nothing here is escaped.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from seu_bench.results.labels import adjective
from seu_bench.utils.text import escape_latex, printable

if TYPE_CHECKING:
    from seu_bench.results.record import Record


class Named(Protocol):
    """What is registered under a name: its display name, and BibTeX entries."""

    @property
    def title(self) -> str: ...

    @property
    def citation(self) -> str: ...


#: Entries by plural kind, such as ``strategies``, and name.
Installed: TypeAlias = Mapping[str, Mapping[str, Named]]
#: File of a package with the entries that its plugins name as ``package:key``.
_FILE: Final = "references.bib"
_REFERENCE: Final = re.compile(r"([A-Za-z_][\w.]*):([\w.+-]+)")
#: BibTeX counts escaped braces, too.
_NO_BRACES: Final = str.maketrans("{}", "()")
_ENTRY: Final = re.compile(r"@[A-Za-z]+\{([\w.:+-]+),.*\}", re.DOTALL)


def display_name(kind: str, name: str, installed: Installed) -> str:
    """Return the display name of one of the plural ``kind``; the name itself where it is not installed.

    Example:
        >>> display_name("strategies", "er_ace", Registry().kinds)
        'ER-ACE'
    """
    found = installed.get(kind, {}).get(name)
    return printable(name) if found is None else found.title


def display_label(label: str, installed: Installed) -> str:
    """Return a label of a learner with the display names of its strategy, searcher and creator.

    Args:
        label: such as ``seu + random + all_new``, ``seu-random-all_new`` or ``er_ace (memory=500)``.
        installed: what is.

    Example:
        >>> display_label("seu + random + all_new (epochs=2)", Registry().kinds)
        'SEU, random, all_new (epochs=2)'
    """
    learner = re.split(r" \(| by ", label, maxsplit=1)[0]
    parts = learner.split(" + ")
    if len(parts) == 1 and learner not in installed.get("strategies", {}):
        parts = learner.split("-")
    if parts[0] not in installed.get("strategies", {}):
        return printable(label)
    kinds = ("strategies", "searchers", "creators")
    names = [display_name(kind, name, installed) for kind, name in zip(kinds, parts, strict=False)]
    return printable(", ".join([*names, *parts[len(kinds) :]]) + label.removeprefix(learner))


def display_benchmark(record: Record, installed: Installed) -> str:
    """Return the display name of a record's benchmark, with the scenario where that is not ``task``; a number of tasks
    in it is the record's. A file of one's own is called by its name alone, whatever is installed under it."""
    name = display_name("benchmarks", record.benchmark, {} if record.benchmark_file else installed)
    if record.task_names:
        name = re.sub(r"\b\d+ tasks\b", f"{len(record.task_names)} tasks", name)
    is_told = record.scenario == "task" or adjective(record.scenario) in name
    return name if is_told else f"{name}, {adjective(record.scenario)}"


def bibtex_entries(text: str) -> dict[str, str]:
    """Return the entries of a text in BibTeX by key, but for those whose braces do not match."""
    parts = [part.strip() for part in re.split(r"^(?=@)", text, flags=re.MULTILINE)]
    found = ((_ENTRY.fullmatch(part), part) for part in parts if part.count("{") == part.count("}"))
    return {match[1]: part for match, part in found if match is not None}


def resolve_citation(stated: str, name: str, title: str) -> str:
    """Return what a plugin states as its citation as BibTeX; empty: nothing.

    Args:
        stated: entries; or ``package:key``, several divided by blanks, of entries in ``references.bib`` of an installed
            package; or a text, which becomes the note of an entry.
        name, title: key and title of the entry of a text.
    """
    if not stated or bibtex_entries(stated):
        return stated
    references = [_REFERENCE.fullmatch(part) for part in stated.split()]
    if all(references):
        return "\n\n".join(_read_entries(it[1]).get(it[2], "") for it in references if it)
    shown = [escape_latex(text.translate(_NO_BRACES)) for text in (title, stated)]
    return "@misc{{{0},\n  key   = {{{0}}},\n  title = {{{{{1}}}}},\n  note  = {{{2}}}\n}}".format(name, *shown)


def _read_entries(package: str) -> dict[str, str]:
    """The entries of a package, which is not imported."""
    try:
        spec = importlib.util.find_spec(package)
        path = Path(spec.origin or "").parent / _FILE if spec else None
        return bibtex_entries(path.read_text(encoding="utf-8")) if path else {}
    except (ImportError, OSError, ValueError):
        return {}
