"""TOML files: read, and refused with all of their faults at once; written, a value per line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError, ValidationInfo

from seu_bench.config.options import format_errors
from seu_bench.errors import SpecError
from seu_bench.utils.reading import read_file
from seu_bench.utils.text import toml_key, toml_value

#: Bytes that a file may have: those that people write have a thousandth of it.
LARGEST: Final = 2**24
ModelT = TypeVar("ModelT", bound=BaseModel)


def _beside_the_file(path: Path, info: ValidationInfo) -> Path:
    """``path`` from the folder of the file, which is the context of the validation; of none, from the working one."""
    try:
        return ((info.context or Path()) / path.expanduser()).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # e.g. a null character, or "~nobody"
        raise ValueError(f"cannot be a path: {error}") from error


OwnPath: TypeAlias = Annotated[Path, AfterValidator(_beside_the_file)]


def read_toml(file: Path, kind: str, guide: str, if_missing: str = "check the path") -> dict[str, Any]:
    """Read a ``kind`` of file, such as ``"benchmark"``, that the page ``guide`` describes, or raise a SpecError."""
    try:
        return tomllib.loads(read_file(file.resolve(), LARGEST).decode("utf-8"))
    except FileNotFoundError:
        raise SpecError(f"the {kind} file does not exist", where=str(file), remedy=if_missing) from None
    except (OSError, UnicodeDecodeError, RuntimeError) as error:  # a RuntimeError: links in a circle, deep nesting
        what = f"the {kind} file cannot be read: {getattr(error, 'strerror', None) or error}"
        remedy = f"give a TOML file in UTF-8 that you may read; {guide} describes it"
        raise SpecError(what, where=str(file), remedy=remedy) from error
    except ValueError as error:  # numbers of thousands of digits, too
        remedy = f"see https://toml.io, and {guide}"
        raise SpecError(f"the {kind} file is not TOML: {error}", where=str(file), remedy=remedy) from error


def validate_document(
    model: type[ModelT],
    document: Mapping[str, Any],
    what: str,
    guide: str,
    file: Path | None = None,
    faults: Iterable[str] = (),
    options: Mapping[str, str] | None = None,
) -> ModelT:
    """Validate what a ``file`` defines, such as ``"the sweep"``; a SpecError lists all faults, those found before too.

    ``options`` are the keys that were given elsewhere than in the file, with what their faults are listed under.
    """
    found = list(faults)
    try:
        value = model.model_validate(document, context=file.parent if file else None)
    except ValidationError as error:
        found += format_errors(error, document, model)
    else:
        if not found:
            return value
    for key, option in (options or {}).items():
        found = [option + it[len(key) :] if re.match(rf"{re.escape(key)}[.:[]", it) else it for it in found]
    said, where = f"{what} has {len(found)} fault{'s' * (len(found) != 1)}", str(file) if file is not None else None
    raise SpecError(said, faults=found, where=where, remedy=f"{guide} describes every key")


def toml_text(document: Mapping[str, Any], heading: str = "") -> str:
    """Write plain values as TOML; lists of tables become arrays of tables, two deep; all else stays on its line."""
    tables = {key: value for key, value in document.items() if _is_table(value, heading)}
    lines = [f"{toml_key(key)} = {toml_value(value)}\n" for key, value in document.items() if key not in tables]
    for key, value in tables.items():
        name = f"{heading}{toml_key(key)}"
        if isinstance(value, Mapping):
            lines.append(f"\n[{name}]\n{toml_text(value, f'{name}.')}" if value else "")
        else:
            lines += [f"\n[[{name}]]\n{toml_text(part, f'{name}.')}" for part in value]
    return "".join(lines)


def _is_table(value: Any, heading: str) -> bool:
    if isinstance(value, Mapping):
        return not heading
    is_list = isinstance(value, list | tuple) and bool(value) and all(isinstance(part, Mapping) for part in value)
    return is_list and heading.count(".") < 2
