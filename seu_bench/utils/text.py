"""Text made harmless for terminals, Markdown and LaTeX; values as TOML; numbers with units read and written."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

#: Letters that Markdown might take for something else, the underscore aside.
_MARKUP: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {mark: f"\\{mark}" for mark in r"\`*|~$[]"})
#: What LaTeX would not print as it stands, and what it prints instead. Two hyphens would be joined to a dash, and a
#: bracket behind a line's end would be an argument of it.
_LATEX: Final[Mapping[str, str]] = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "`": "`{}", "'": "'{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "-": "-{}", "[": "{[}", "]": "{]}"},
    **{"±": r"$\pm$", "≈": r"$\approx$", "†": r"$\dagger$", "●": r"$\bullet$", "○": r"$\circ$", "\u00d7": r"$\times$"},
    **{"‡": r"$\ddagger$", "≥": r"$\geq$", "≤": r"$\leq$", "µ": r"$\mu$", "°": r"$^{\circ}$"},
    **{"\u2013": "--", "\u2014": "---", "…": r"\dots{}"},
    **{"ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "œ": r"\oe{}", "Œ": r"\OE{}"},
}
#: Accents that every font of LaTeX can set on a letter.
_ACCENTS: Final = frozenset("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327")
#: User name and password in an address; a password may hold anything but blanks and the next part's beginning.
_CREDENTIALS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#]+@")


def parse_bytes(text: str) -> int:
    """Parse a number of bytes, e.g. ``0``, ``500M`` or ``2G`` (powers of 1024).

    Raises:
        ValueError: it is none.
    """
    match = re.fullmatch(r"(\d{1,20}(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is no number of bytes; give one such as 0, 500M or 2G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def format_bytes(count: int) -> str:
    """Format a number of bytes: ``12.3 kB``, ``4.5 MB``, ``6.7 GB`` (powers of 1000)."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB")):
        if count >= factor / 2:
            return f"{count / factor:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"


def plain_name(text: str) -> str:
    """A text as the name of a benchmark, a data set or a file: lower-case letters, digits and ``_``."""
    letters = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "_", letters).strip("_")[:50].rstrip("_") or "data"


def some(names: Sequence[str], most: int = 20) -> str:
    """Names to be told, and of many how many there are more."""
    return ", ".join(names[:most]) + (f", and {len(names) - most:,} more" if names[most:] else "")


def format_seconds(seconds: float | None) -> str:
    """Format a duration: ``0.42 s``, ``1 min 05 s``, ``2 h 03 min``, or ``-`` if it is ``None`` or not finite."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    if (whole := round(seconds)) < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def printable(text: str) -> str:
    """Replace control characters, which could break a table or drive a terminal, and put the text on one line."""
    return " ".join(printable_lines(text).split())


def printable_lines(text: str) -> str:
    """Replace control characters as :func:`printable` does, but keep lines and blanks."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)


def spreadsheet_cell(value: object) -> object:
    """Put an apostrophe before a text that a spreadsheet would calculate, such as ``=A1``; all else stays."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def without_credentials(text: str) -> str:
    """Mask user names and passwords in addresses: ``https://***@host/api``."""
    return _CREDENTIALS.sub(r"\1***@", text)


def error_line(error: BaseException) -> str:
    """Describe an exception on one line of at most 300 characters, without control characters and credentials."""
    return without_credentials(printable(f"{type(error).__name__}: {error}"))[:300]


def escape_markdown(text: str) -> str:
    """Return Markdown that shows a text as it is, on one line, in a table or not."""
    # Within a word an underscore is one; elsewhere it would be emphasis.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", printable(text).translate(_MARKUP))


def escape_latex(text: str) -> str:
    """Return LaTeX that prints a text as it is, on one line; letters that its usual fonts lack by number in Unicode."""
    # Groups keep ligatures apart, which only two of a kind make.
    return re.sub(r"([-'])\{\}(?!\1)", r"\1", "".join(map(_latex_letter, printable(text))))


def _latex_letter(letter: str) -> str:
    if letter in _LATEX:
        return _LATEX[letter]
    first, *accents = list(unicodedata.normalize("NFD", letter))
    if first.isascii() and len(accents) <= 1 and _ACCENTS.issuperset(accents):
        return letter
    return f"(U+{ord(letter):04X})"


def html_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()) -> str:
    """Return a table for a notebook, text escaped, with ``notes`` below it; ``None`` is a dash."""

    def row(tag: str, cells: Sequence[object]) -> str:
        texts = ("-" if cell is None else printable(str(cell))[:300] for cell in cells)
        return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"

    lines = [f"<p><strong>{escape(printable(title))}</strong></p>"]
    if shown := [row("td", cells) for cells in rows]:
        lines += ["<table>", row("th", headings), *shown, "</table>"]
    return "\n".join([*lines, *(f"<p><small>{escape(printable(note))}</small></p>" for note in notes)])


def toml_key(key: str) -> str:
    """A key as TOML has it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)


def toml_value(value: Any) -> str:
    """A plain value as TOML has it, on one line without control characters."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    # A text of JSON is one of TOML, but for halves of surrogate pairs and the character 7F.
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
