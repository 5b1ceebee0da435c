"""Runs copied into a shared folder, with a manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seu_bench.config.toml_file import validated
from seu_bench.errors import ResultsError
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record, parse_record, record_path
from seu_bench.results.record_files import MODEL_NAME, record_document
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.submissions.checking import record_faults
from seu_bench.results.submissions.manifest import (
    GUIDE,
    Manifest,
    SubmittedRun,
    environments_of,
    manifest_path,
    read_manifest,
    read_manifests,
    write_manifest,
)
from seu_bench.utils.files import write_atomic
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
    texts = [record_document(results, each) for each in names]
    records = {(record := parse_record(text, each)).run_id: record for each, text in zip(names, texts, strict=True)}
    documents = dict(zip(records, texts, strict=True)) if len(records) == len(texts) else {}
    if not documents:
        raise ResultsError("a run is named twice", where=", ".join(names), remedy="name each run once")
    before = _submission_before(folder, name, str(about["submitter"]))
    owners = {run_id: owner for owner, run_id in _submitted_runs(folder)}
    for run_id, text in documents.items():
        if (owner := owners.get(run_id)) is not None:
            raise ResultsError(f"the run has been submitted before, by {owner}", where=run_id, remedy="leave it out")
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
    known = {} if before is None else before.runs
    others = [parse_record(record_document(folder, run_id), run_id) for run_id in known]
    manifest = validated(
        Manifest,
        {**about, **environments_of([*others, *records.values()]), "runs": {**known, **runs}},
        "the submission",
        GUIDE,
    )
    for run_id, text in documents.items():
        if (content := models.get(run_id)) is not None:
            write_atomic(record_path(folder, run_id).parent / MODEL_NAME, content)
        write_atomic(record_path(folder, run_id), text)
    written = write_manifest(folder, name, manifest)
    return Submitted(written, tuple(documents), sum(content is not None for content in models.values()))


def _submission_before(folder: Path, name: str, submitter: str) -> Manifest | None:
    """The submission that runs are added to; ``None``: there is none of that name.

    Raises:
        ResultsError: somebody else made it.
    """
    path = manifest_path(folder, name)
    before = read_manifest(path) if path.exists() else None
    if before is not None and before.submitter != submitter:
        raise ResultsError(
            f"this submission is {before.submitter}'s", where=str(path), remedy="choose another name with --name"
        )
    return before


def _submitted_runs(folder: Path) -> Iterator[tuple[str, str]]:
    """Runs of all submissions, each behind the submission's name. Runs of none were left by an interruption."""
    for name, manifest in read_manifests(folder):
        if isinstance(manifest, Manifest):
            yield from ((name, run_id) for run_id in manifest.runs)


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
