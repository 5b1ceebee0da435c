"""Runs copied into a shared folder, with a manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seu_bench.config.toml_file import toml_text, validated
from seu_bench.errors import ResultsError
from seu_bench.results.metric import Metric
from seu_bench.results.record import RECORD_NAME, Record, parse_record, record_path
from seu_bench.results.record_files import MODEL_NAME, record_document
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.submissions.checking import record_faults
from seu_bench.results.submissions.manifest import (
    FOLDER,
    GUIDE,
    Manifest,
    SubmittedRun,
    environments_of,
    manifest_path,
    read_manifests,
    refuse_links,
)
from seu_bench.utils.files import refuse_link, remove_parts, write_atomic
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.reading import cannot_read, read_file


@dataclass(frozen=True)
class Submitted:
    """What was put into a shared folder: the manifest's file, run ids, and how many of the runs have a model there."""

    path: Path
    runs: tuple[str, ...]
    models: int


def submit(
    names: Sequence[str],
    folder: Path,
    name: str,
    *,
    about: Mapping[str, Any],
    results: Path = Path("results"),
    weights: bool = True,
    metrics: Mapping[str, Metric] = METRICS,
) -> Submitted:
    """Copy runs into a shared folder, and write the manifest.

    One process at a time reads the manifests and writes. Nothing is written through a link.

    Args:
        names: run ids, unique beginnings of them, or runs' folders.
        folder: the shared folder; made where there is none.
        name: of the submission's file. Runs are added to a submission of that name.
        about: ``submitter``, ``licence``, ``contact`` and ``note`` of the manifest.
        results: the folder that holds the runs.
        weights: whether to copy the models of runs that have one, by which others can verify the records.
        metrics: those known.

    Returns:
        What was written.

    Raises:
        ResultsError: a run cannot be found or read, would not be accepted, or has been submitted before; or the
            submission is somebody else's. Nothing was written.
        SpecError: what is said about the submission is refused.
    """
    if folder.resolve() == results.resolve():  # whose other runs would be in no table any more
        what = "this is the folder of one's own results, not a shared one"
        raise ResultsError(what, where=str(folder), remedy="give another folder with --to")
    texts = [record_document(results, each) for each in names]
    records = {(record := parse_record(text, each)).run_id: record for each, text in zip(names, texts, strict=True)}
    documents = dict(zip(records, texts, strict=True)) if len(records) == len(texts) else {}
    if not documents:
        raise ResultsError("a run is named twice", where=", ".join(names), remedy="name each run once")
    for run_id, text in documents.items():
        if faults := list(record_faults(json.loads(text), records[run_id], metrics)):
            told = f"the run would not be accepted: {'; '.join(faults)}"
            raise ResultsError(told, where=run_id, remedy="leave it out")
    models = {run_id: _model(results, record) for run_id, record in records.items()} if weights else {}
    runs = {
        run_id: SubmittedRun(
            record_sha256=str(record.record_sha256),
            weights_sha256=record.weights_sha256 if models.get(run_id) is not None else None,
        )
        for run_id, record in records.items()
    }
    refuse_links(folder, *(record_path(folder, run_id).parent for run_id in documents))
    with folder_lock(folder / FOLDER):
        others = _submissions_before(folder, name, runs)
        known = others[name].runs if name in others else {}
        made = [*records.values(), *(parse_record(record_document(folder, run_id), run_id) for run_id in known)]
        document = {**about, **environments_of(made), "runs": {**known, **runs}}
        manifest = validated(Manifest, document, "the submission", GUIDE)
        _refuse_others(others, name, manifest, folder)
        _write(folder, name, manifest, documents, models)
    count = sum(content is not None for content in models.values())
    return Submitted(manifest_path(folder, name), tuple(documents), count)


def _submissions_before(folder: Path, name: str, runs: Collection[str]) -> dict[str, Manifest]:
    """The submissions that are there. Runs of none of them were left by an interruption.

    Raises:
        ResultsError: one of ``runs`` is in a submission.
        SpecError: the submission ``name`` cannot be read.
    """
    found = {}
    for other, manifest in read_manifests(folder):
        if isinstance(manifest, Manifest):
            found[other] = manifest
            for run_id in manifest.runs.keys() & runs:
                told = f"the run has been submitted before, by {other}"
                raise ResultsError(told, where=run_id, remedy="leave it out")
        elif other == name:
            raise manifest
    return found


def _refuse_others(others: Mapping[str, Manifest], name: str, manifest: Manifest, folder: Path) -> None:
    """Refuse the submission of another submitter, and a second one of the same: rows belong to a submission."""
    for other, before in others.items():
        if (other == name) == (before.submitter_key == manifest.submitter_key):
            continue
        what = f"this submission is {before.submitter}'s"
        remedy = "choose another name with --name" if other == name else f"add to it with --name {other}"
        raise ResultsError(what, where=str(manifest_path(folder, other)), remedy=remedy)


def _write(
    folder: Path, name: str, manifest: Manifest, documents: Mapping[str, str], models: Mapping[str, bytes | None]
) -> None:
    """Write models, records, and the manifest last."""
    for path in (folder / "runs", folder / FOLDER, *(folder / "runs" / run_id for run_id in documents)):
        refuse_link(path, "remove the link")
    for run_id, text in documents.items():
        run = folder / "runs" / run_id
        remove_parts(run)
        if (content := models.get(run_id)) is not None:
            write_atomic(run / MODEL_NAME, content)
        write_atomic(run / RECORD_NAME, text)
    write_atomic(manifest_path(folder, name), toml_text(manifest.model_dump(mode="json", exclude_none=True)))


def _model(results: Path, record: Record) -> bytes | None:
    """The file with a run's model, as it was when the run was finished."""
    path = record_path(results, record.run_id).parent / MODEL_NAME
    if record.weights_sha256 is None or not path.is_file():
        return None
    try:
        content = read_file(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    if hashlib.sha256(content).hexdigest() != record.weights_sha256:
        raise ResultsError(
            "the model is not the one that the record names",
            where=str(path),
            remedy="leave the run out, or --no-models",
        )
    return content
