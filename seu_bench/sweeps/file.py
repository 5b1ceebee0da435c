"""Sweeps from TOML files and options, with all faults at once; the last sweep of a results folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seu_bench.config.benchmark_file import names_a_file
from seu_bench.config.options import did_you_mean, flattened
from seu_bench.config.toml_file import read_toml, validated
from seu_bench.errors import SpecError
from seu_bench.sweeps.spec import SweepSpec, split_names
from seu_bench.utils.files import write_atomic

#: The page that describes sweep files.
_GUIDE = "docs/reference/sweeps.md"
#: The last sweep, in a results folder.
_KEPT = "sweep.json"


def make_spec(given: Mapping[str, Any], file: Path | None = None) -> SweepSpec:
    """Build a sweep from a file and options.

    Args:
        given: values by key, which replace the file's; each of ``options`` by itself.
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
    known = {key: value for key, value in document.items() if key in SweepSpec.model_fields}
    return validated(SweepSpec, known, "the sweep file" if file is not None else "the sweep", _GUIDE, file, faults)


def keep_spec(spec: SweepSpec) -> None:
    """Write the sweep into its results folder, for :func:`kept_spec`; paths become absolute."""
    places = {
        "results": spec.results.absolute(),
        "data_root": spec.data_root.absolute() if spec.data_root is not None else None,
        "benchmark": tuple(
            str(Path(name).expanduser().absolute()) if names_a_file(name) else name for name in spec.benchmark
        ),
        "retry_failed": False,  # that was for that time
    }
    document = spec.model_copy(update=places).model_dump(mode="json")
    write_atomic(spec.results / _KEPT, json.dumps(document, indent=1) + "\n")


def kept_spec(results: Path) -> SweepSpec:
    """Read the sweep that was started last with this results folder."""
    path = results / _KEPT
    remedy = "give the sweep's own command again: it attaches as well"
    try:
        return SweepSpec.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError("no sweep was begun with this results folder", where=str(results), remedy=remedy) from None
    except (OSError, ValueError) as error:
        raise SpecError("what was asked of the last sweep cannot be read", where=str(path), remedy=remedy) from error


def _document(file: Path) -> Mapping[str, Any]:
    """Contents of a file; relative paths start from its folder."""
    document = read_toml(file, "sweep", _GUIDE)
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
