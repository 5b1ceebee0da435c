"""Manifest of a submission: who submits which runs, under which licence, with the digests of records and models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, field_validator

from seu_bench.config.options import Frozen
from seu_bench.config.toml_file import read_toml, toml_text, validated
from seu_bench.errors import SpecError
from seu_bench.results.record import Record
from seu_bench.results.record_parts import FileName
from seu_bench.results.submissions.texts import fault_of
from seu_bench.utils.files import write_atomic
from seu_bench.utils.reading import list_folder

#: Folder of the manifests in a shared folder, beside ``runs``.
FOLDER: Final = "submissions"
GUIDE: Final = "docs/guides/sharing.md"
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


def manifest_path(folder: Path, name: str) -> Path:
    """The file of a submission's manifest in a shared folder."""
    return folder / FOLDER / f"{name}.toml"


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        SpecError: it cannot be read or is none; all faults are named.
    """
    return validated(Manifest, read_toml(path, "submission", GUIDE), "the submission", GUIDE, path)


def read_manifests(folder: Path) -> Iterator[tuple[str, Manifest | SpecError]]:
    """Read all manifests of a shared folder.

    Yields:
        Name of a submission and its manifest, or why that cannot be read.
    """
    for path in list_folder(folder / FOLDER):
        try:
            if path.is_symlink() or path.suffix != ".toml":
                raise SpecError("this is no manifest", where=str(path), remedy="remove it")
            yield path.stem, read_manifest(path)
        except SpecError as error:
            yield path.stem, error


def write_manifest(folder: Path, name: str, manifest: Manifest) -> Path:
    """Write a manifest, completely or not at all."""
    path = manifest_path(folder, name)
    write_atomic(path, toml_text(manifest.model_dump(mode="json", exclude_none=True)))
    return path


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
