"""A sweep from a TOML file and from what was given beside it, every fault reported at once."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seu_bench.errors import SpecError
from seu_bench.options import did_you_mean, fault_lines
from seu_bench.resolve import names_a_file
from seu_bench.sweep_spec import SweepSpec, flattened, split_names

#: Where the guide for files is.
_GUIDE = "docs/sweeps.md describes every key"


def make_spec(given: Mapping[str, Any], file: Path | None = None) -> SweepSpec:
    """The sweep that a file and the options beside it describe.

    Args:
        given: by key, what was given on the command line or by a caller; it replaces what the file says of that key,
            each of ``options`` by itself.
        file: relative paths in it start from its folder.

    Raises:
        SpecError: the file cannot be read, or something does not fit; all faults are listed.
    """
    document = dict(_document(file)) if file is not None else {}
    own = document.get("options", {})
    document |= given
    if "options" in given:
        document["options"] = dict(flattened(own)) | dict(flattened(given["options"])) if isinstance(own, dict) else own
    faults = [
        f"{key}: no such key{did_you_mean(key, SweepSpec.model_fields)}"
        for key in document
        if key not in SweepSpec.model_fields
    ]
    try:
        spec = SweepSpec.model_validate({key: document[key] for key in document if key in SweepSpec.model_fields})
    except ValidationError as error:
        faults += fault_lines(error)
    if faults:
        what = "the sweep file" if file is not None else "the sweep"
        raise SpecError(
            f"{what} has {len(faults)} fault{'s' if len(faults) != 1 else ''}",
            faults=faults,
            where=str(file) if file is not None else None,
            remedy=_GUIDE,
        )
    return spec


def _document(file: Path) -> Mapping[str, Any]:
    """What the file says, its paths made independent of the working folder."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError("the sweep file does not exist", where=str(file), remedy="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"the sweep file cannot be read: {error}",
            where=str(file),
            remedy=f"give a TOML file in UTF-8 that you may read; {_GUIDE}",
        ) from error
    except (ValueError, RecursionError) as error:
        raise SpecError(
            f"the sweep file is not TOML: {error}", where=str(file), remedy=f"see https://toml.io; {_GUIDE}"
        ) from error
    for key in ("results", "data_root"):
        if isinstance(document.get(key), str):
            document[key] = str(_beside(file, document[key]))
    benchmarks = document.get("benchmark")
    listed = split_names(benchmarks) if isinstance(benchmarks, str) else benchmarks
    if isinstance(listed, list):
        document["benchmark"] = [
            str(_beside(file, name)) if isinstance(name, str) and names_a_file(name) else name for name in listed
        ]
    return document


def _beside(file: Path, path: str) -> Path:
    return file.parent / Path(path).expanduser()
