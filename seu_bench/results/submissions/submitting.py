"""Runs copied into a shared folder, with a manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seu_bench.config.toml_file import validated
from seu_bench.errors import ResultsError
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record, parse_record, record_path
from seu_bench.results.record_files import MODEL_NAME, find_record, record_document
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.submissions.checking import record_faults
from seu_bench.results.submissions.manifest import (
    GUIDE,
    Manifest,
    SubmittedRun,
    environments_of,
    manifest_path,
    read_manifest,
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
        ResultsError: a run cannot be found or read, would not be accepted, or has been submitted before. Nothing was
            written.
        SpecError: what is said about the submission is refused.
    """
    documents = {}
    for each in names:
        record = find_record(results, each)
        documents[record.run_id] = record_document(results, each)
    records = {run_id: parse_record(text, run_id) for run_id, text in documents.items()}
    for run_id, text in documents.items():
        _require_fit(run_id, json.loads(text), records[run_id], folder, metrics)
    models = {run_id: _model(results, record) for run_id, record in records.items()} if weights else {}
    path = manifest_path(folder, name)
    before = read_manifest(path) if path.exists() else None
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


def _require_fit(
    run_id: str, document: Mapping[str, Any], record: Record, folder: Path, metrics: Mapping[str, Metric]
) -> None:
    """Refuse a run that would not be accepted, or that is in the folder already."""
    if faults := list(record_faults(document, record, metrics)):
        raise ResultsError(f"the run would not be accepted: {'; '.join(faults)}", where=run_id, remedy="leave it out")
    if record_path(folder, run_id).exists():
        raise ResultsError("the run has been submitted before", where=run_id, remedy="leave it out")


def _model(results: Path, record: Record) -> bytes | None:
    """The file with a run's model, as it was when the run was finished."""
    path = record_path(results, record.run_id).parent / MODEL_NAME
    if record.weights_sha256 is None or not path.is_file():
        return None
    try:
        return read_file(path)
    except OSError as error:
        raise cannot_read(path, error) from error
