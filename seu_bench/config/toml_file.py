"""TOML files that users write: read, and refused with all of their faults at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from seu_bench.config.options import fault_lines
from seu_bench.errors import SpecError

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_toml(file: Path, kind: str, guide: str, if_missing: str = "check the path") -> dict[str, Any]:
    """Read a ``kind`` of file, such as ``"benchmark"``, that the page ``guide`` describes, or raise a SpecError."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"the {kind} file does not exist", where=str(file), remedy=if_missing) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"the {kind} file cannot be read: {error}",
            where=str(file),
            remedy=f"give a TOML file in UTF-8 that you may read; {guide} describes it",
        ) from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits and deep nesting, too
        raise SpecError(
            f"the {kind} file is not TOML: {error}", where=str(file), remedy=f"see https://toml.io, and {guide}"
        ) from error


def validated(
    model: type[ModelT],
    document: Mapping[str, Any],
    what: str,
    guide: str,
    file: Path | None = None,
    faults: Iterable[str] = (),
) -> ModelT:
    """Validate what a ``file`` defines, such as ``"the sweep"``; a SpecError lists all faults, those found before too.

    The folder of the file is the validation's context.
    """
    found = list(faults)
    try:
        value = model.model_validate(document, context=file.parent if file else None)
    except ValidationError as error:
        found += fault_lines(error)
    else:
        if not found:
            return value
    raise SpecError(
        f"{what} has {len(found)} fault{'s' if len(found) != 1 else ''}",
        faults=found,
        where=str(file) if file is not None else None,
        remedy=f"{guide} describes every key",
    )
