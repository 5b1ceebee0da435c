"""Manifest of a submission: who submits which runs, under which licence, with the digests of records and models."""

from __future__ import annotations

import os
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, field_validator

from seu_bench.config.options import Frozen
from seu_bench.config.toml_file import validated
from seu_bench.errors import ResultsError, SeuBenchError, SpecError
from seu_bench.results.record import Record, runs_folder
from seu_bench.results.record_files import record_in
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.record_parts import FileName
from seu_bench.results.submissions.texts import fault_of
from seu_bench.utils.files import refuse_link
from seu_bench.utils.reading import list_folder, read_file

#: Folder of the manifests in a shared folder, beside ``runs``.
FOLDER: Final = "submissions"
GUIDE: Final = "docs/guides/sharing.md"
#: Bytes that a manifest may have; one of ten thousand runs has a third of that.
LARGEST: Final = 2**23
#: What nobody can compute again: it stands in tables as those who submit it say.
STATED: Final = (
    "stated by those who submit, and never measured again: times, peak memory, the environment, tuning and "
    "matching, image passes below the forecast, accuracies before the last row of the matrix, and answers between tasks"
)
#: Names of submissions: letters that look like others, or differ in case alone, would be two names that read as one.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SubmittedRun(Frozen):
    """Digests of a run's record and of the file with its model; ``weights_sha256`` ``None``: no model is submitted."""

    record_sha256: _Digest
    weights_sha256: _Digest | None = None


class Manifest(Frozen):
    """What is submitted by whom.

    Attributes:
        submitter: a person or a group, as it is to be shown.
        licence: of the records and models, e.g. ``CC-BY-4.0``.
        contact: where questions go, e.g. an address on the web; may be empty.
        note: about the runs; may be empty.
        revisions, devices, versions: of code, machines and packages, of all runs together.
        runs: by run id.
    """

    schema_version: int = Field(1, ge=1, le=1)
    submitter: str = Field(min_length=1, max_length=200)
    licence: str = Field(min_length=1, max_length=100)
    contact: str = Field("", max_length=300)
    note: str = Field("", max_length=2000)
    revisions: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    versions: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    runs: dict[FileName, SubmittedRun] = Field(min_length=1)

    @field_validator("submitter", "licence", "contact", "note")
    @classmethod
    def _harmless(cls, value: str) -> str:
        if (fault := fault_of(value)) is not None:
            raise ValueError(fault)
        return value

    @property
    def submitter_key(self) -> str:
        """The submitter, equal for two that differ in case, blanks or the encoding of letters only."""
        return " ".join(unicodedata.normalize("NFKC", self.submitter).casefold().split())


def manifest_path(folder: Path, name: str) -> Path:
    """The file of a submission's manifest in a shared folder."""
    return folder / FOLDER / f"{name}.toml"


def is_shared(folder: Path) -> bool:
    """Whether a folder is that of a shared leaderboard."""
    return os.path.lexists(folder / FOLDER)


def refuse_links(folder: Path, *others: Path) -> None:
    """Refuse a shared folder that is a link, or whose parts or ``others`` are."""
    for path in (folder, folder / FOLDER, runs_folder(folder), *others):
        refuse_link(path, "name the folder that it leads to, or remove the link")


def require_shared(folder: Path) -> None:
    """Refuse a folder without submissions, and one of links.

    Raises:
        ResultsError: it is no shared leaderboard's folder.
    """
    refuse_links(folder)
    if not any(True for _ in read_manifests(folder)):
        raise ResultsError(
            "there are no submissions in this folder",
            where=str(folder),
            remedy="name the folder that seu-bench submit --to was given; one's own results are read with --results",
        )


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        SpecError: it cannot be read or is none; all faults are named.
    """
    try:
        document = tomllib.loads(read_file(path, LARGEST).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError(
            f"the submission cannot be read as TOML: {reason}", where=str(path), remedy=f"see {GUIDE}"
        ) from error
    return validated(Manifest, document, "the submission", GUIDE, path)


def read_manifests(folder: Path) -> Iterator[tuple[str, Manifest | SpecError]]:
    """Read all manifests of a shared folder. Hidden files, such as those of a lock, are none.

    Yields:
        Name of a submission and its manifest, or why that cannot be read.
    """
    for path in list_folder(folder / FOLDER):
        if path.name.startswith("."):
            continue
        try:
            if path.suffix != ".toml" or not _NAME.fullmatch(path.stem):
                what = "this is no manifest: its name must be of a-z, 0-9 and -, and end with .toml"
                raise SpecError(what, where=str(path), remedy="remove it, or rename it")
            yield path.stem, read_manifest(path)
        except SpecError as error:
            yield path.stem, error


def submitted_records(folder: Path) -> Iterator[Record | SeuBenchError]:
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
            yield manifest
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


def environments_of(records: Iterable[Record]) -> dict[str, Any]:
    """The manifest's fields about code and machines.

    Returns:
        ``revisions``, ``devices`` and ``versions``, each value once, sorted.
    """
    found = [it for record in records for it in (record.environment, *record.earlier_environments)]
    packages = sorted({package for it in found for package in it.versions})
    return {
        "revisions": tuple(sorted({it.git_revision for it in found if it.git_revision})),
        "devices": tuple(sorted({it.device for it in found})),
        "versions": {
            package: tuple(sorted({it.versions[package] for it in found if package in it.versions}))
            for package in packages
        },
    }
