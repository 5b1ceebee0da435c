"""Texts of strangers that could do harm where they are shown: markup, and letters that steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

#: The beginning of a tag or comment of HTML, or of an address that a browser would run.
_MARKUP: Final = re.compile(r"<[A-Za-z/!?]|javascript:", re.IGNORECASE)
_LONGEST: Final = 80


def fault_of(text: str) -> str | None:
    """Say what is wrong with a text.

    Args:
        text: of any origin.

    Returns:
        What it holds; ``None``: it is harmless.

    Example:
        >>> fault_of("SEU <script>")
        "'SEU <script>' holds markup"
    """
    if _MARKUP.search(text):
        return f"{_shown(text)} holds markup"
    if not all(letter.isprintable() or letter == "\n" for letter in text):
        return f"{_shown(text)} holds control characters"
    return None


def faults_in(value: Any, place: str = "") -> Iterator[str]:
    """Look at every text of plain values, keys included.

    Yields:
        What is wrong, with its place, e.g. ``task_names[0]: ...``.
    """
    if isinstance(value, str):
        if (fault := fault_of(value)) is not None:
            yield f"{place}: {fault}" if place else fault
    elif isinstance(value, Mapping):
        for key, part in value.items():
            if (fault := fault_of(str(key))) is not None:
                yield f"{place}: the key {fault}" if place else f"the key {fault}"
            yield from faults_in(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, Sequence):
        for number, part in enumerate(value):
            yield from faults_in(part, f"{place}[{number}]")


def _shown(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 4]}...'"
