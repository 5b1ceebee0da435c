"""Types of a run's fields: how a value may be given, and the form of a field on the command line."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from seu_bench.config.options import flattened
from seu_bench.utils.reading import absolute
from seu_bench.utils.text import parse_bytes


@dataclass(frozen=True)
class CommandLine:
    """Command-line form of a field, where it does not follow from the field's name and type.

    Attributes:
        flags: names of the option, e.g. ``("-o", "--option")``; empty: ``--field-name``.
        metavar: placeholder of the value in help texts.
        is_internal: whether it is no option at all: seu-bench itself sets the field.
    """

    flags: tuple[str, ...] = ()
    metavar: str | None = None
    is_internal: bool = False


def _whole(value: Any) -> Any:
    """Convert NumPy's integers to Python's; ``True`` is passed on, to be refused."""
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


def _names(value: Any) -> Any:
    """Unique names of a list or of comma-separated text."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(part, str) for part in given):
        return value
    names = (name.strip() for part in given for name in part.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


WholeNumber: TypeAlias = Annotated[int, Field(strict=True), BeforeValidator(_whole)]
Bytes: TypeAlias = Annotated[
    WholeNumber, BeforeValidator(lambda value: parse_bytes(value) if isinstance(value, str) else value)
]
Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_names)]
Paths: TypeAlias = Annotated[
    tuple[Annotated[Path, AfterValidator(absolute)], ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str | Path) else value),
]
OptionValues: TypeAlias = Annotated[
    dict[str, Any], BeforeValidator(lambda value: dict(flattened(value)) if isinstance(value, Mapping) else value)
]
