"""Manifest of a submission: who submits which runs, under which licence, with the digests of records and models."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from seu_bench.config.options import Frozen
from seu_bench.config.toml_file import validate_document
from seu_bench.errors import ResultsError, SeuBenchError, SpecError
from seu_bench.results.record import FileName, Record, runs_folder
from seu_bench.results.record_files import record_in
from seu_bench.results.record_metrics import METRICS
from seu_bench.utils.files import refuse_link
from seu_bench.utils.reading import list_folder, read_file

#: Folder of the manifests in a shared folder, beside ``runs``.
FOLDER: Final = "submissions"
GUIDE: Final = "docs/guides/sharing.md"
#: Bytes that a manifest may have; one of ten thousand runs has a third of that.
_LARGEST: Final = 2**23
#: Names of submissions: letters that look like others, or differ in case alone, would be two names that read as one.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
#: The beginning of a tag or comment of HTML, or of an address that a browser would run.
_MARKUP: Final = re.compile(r"<[A-Za-z/!?]|javascript:", re.IGNORECASE)
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SubmittedRun(Frozen):
    """Digests of a run's record and of the file with its model; ``weights_sha256`` ``None``: no model is submitted."""

    record_sha256: _Digest
    weights_sha256: _Digest | None = None


class Manifest(Frozen):
    """What is submitted by whom: a person or a group, the licence of records and models, and runs by their id."""

    schema_version: int = Field(1, ge=1, le=1)
    submitter: str = Field(min_length=1, max_length=200)
    licence: str = Field(min_length=1, max_length=100)
    contact: str = Field("", max_length=300)
    note: str = Field("", max_length=2000)
    runs: dict[FileName, SubmittedRun] = Field(min_length=1)

    @property
    def submitter_key(self) -> str:
        """The submitter, equal for two that differ in case, blanks or the encoding of letters only."""
        return " ".join(unicodedata.normalize("NFKC", self.submitter).casefold().split())


def manifest_path(folder: Path, name: str) -> Path:
    """The file of a submission's manifest in a shared folder."""
    return folder / FOLDER / f"{name}.toml"


def refuse_links(folder: Path, *others: Path) -> None:
    """Refuse a shared folder that is a link, or whose parts or ``others`` are."""
    for path in (folder, folder / FOLDER, runs_folder(folder), *others):
        refuse_link(path, "name the folder that it leads to, or remove the link")


def read_manifests(folder: Path) -> Iterator[tuple[str, Manifest | SpecError]]:
    """Read the manifests of a shared folder but for hidden files; yield each by its name, or why it cannot be read."""
    for path in list_folder(folder / FOLDER):
        if path.name.startswith("."):
            continue
        try:
            if path.suffix != ".toml" or not _NAME.fullmatch(path.stem):
                what = "this is no manifest: its name must be of a-z, 0-9 and -, and end with .toml"
                raise SpecError(what, where=str(path), remedy="remove it, or rename it")
            document = tomllib.loads(read_file(path, _LARGEST).decode("utf-8"))
            yield (
                path.stem,
                validate_document(Manifest, document, "the submission", GUIDE, path, find_harmful_texts(document)),
            )
        except SpecError as error:
            yield path.stem, error
        except (OSError, ValueError, RecursionError) as error:
            reason = f"the submission cannot be read as TOML: {getattr(error, 'strerror', None) or error}"
            yield path.stem, SpecError(reason, where=str(path), remedy=f"see {GUIDE}")


def submitted_records(folder: Path) -> Iterator[Record | ResultsError]:
    """Read the records of the runs that manifests name, and no others.

    Metrics are made anew from the rest of each record. A run whose model is not submitted has no ``weights_sha256``.

    Yields:
        Record that belongs to its submission (:attr:`~seu_bench.results.record.Record.submitter`), or why not.

    Raises:
        ResultsError: the folder is a link, or cannot be read.
    """
    refuse_links(folder)
    found = list(read_manifests(folder))
    owners = Counter(run_id for _, item in found if isinstance(item, Manifest) for run_id in item.runs)
    for name, manifest in found:
        if not isinstance(manifest, Manifest):
            yield ResultsError(manifest.what, where=manifest.where, remedy=manifest.remedy)
            continue
        for run_id, submitted in manifest.runs.items():
            item = record_in(runs_folder(folder) / run_id)
            try:
                if not isinstance(item, Record):
                    raise item or ResultsError("there is no record")
                if item.run_id != run_id or item.record_sha256 != submitted.record_sha256 or owners[run_id] > 1:
                    raise ResultsError("the record is not the one that one manifest names")
                computed = {key: metric(item) for key, metric in METRICS.items() if metric.from_record}
            except (SeuBenchError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                told = error.what if isinstance(error, SeuBenchError) else f"no metrics can be computed: {error}"
                yield ResultsError(told, where=str(runs_folder(folder) / run_id), remedy="see check-submission")
                continue
            weights = item.weights_sha256 if submitted.weights_sha256 else None
            yield item.submitted_by(name, metrics=item.metrics | computed, weights_sha256=weights)


def find_harmful_texts(value: Any, place: str = "") -> Iterator[str]:
    """Yield the texts of plain values, keys included, that hold markup or steer a terminal, each with its place."""
    if isinstance(value, str):
        shown = ascii(value)
        shown = shown if len(shown) <= 80 else f"{shown[:76]}...'"
        if _MARKUP.search(value):
            yield f"{place}: {shown} holds markup"
        elif not all(letter.isprintable() or letter == "\n" for letter in value):
            yield f"{place}: {shown} holds control characters"
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from find_harmful_texts(str(key), f"{place}: the key" if place else "the key")
            yield from find_harmful_texts(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, Sequence):
        for number, part in enumerate(value):
            yield from find_harmful_texts(part, f"{place}[{number}]")
