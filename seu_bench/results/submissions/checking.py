"""What is checked of a shared folder before a submission is accepted: without models, data or plugins' code.

A liar can renew digests. What cannot be renewed is what follows from something else: metrics from the matrix, an
accuracy from a whole number of images, the model's digest from the model. ``seu-bench check-submission`` measures some
models again, too.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seu_bench.errors import ResultsError
from seu_bench.results.labels import why_not_ranked
from seu_bench.results.leaderboard.building import read_leaderboards
from seu_bench.results.metric import Metric
from seu_bench.results.recomputing import recomputed
from seu_bench.results.record import RECORD_NAME, Record, parse_record, record_digest, runs_folder
from seu_bench.results.record_files import MODEL_NAME
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.submissions.manifest import Manifest, SubmittedRun, read_manifests
from seu_bench.results.submissions.texts import faults_in
from seu_bench.utils.reading import list_folder, read_file

#: An accuracy times the images is this near to a whole number.
_WHOLE: Final = 1e-6
#: Files that a run's folder may hold.
_FILES: Final = frozenset({RECORD_NAME, MODEL_NAME})


@dataclass(frozen=True)
class Finding:
    """Why a submission is not accepted; ``run`` empty: not about one run."""

    submission: str
    run: str
    what: str


@dataclass(frozen=True)
class Checked:
    """Result of a check.

    Attributes:
        manifests: by name, of those that can be read.
        records: by run id, of those that can be read.
        findings: why submissions are refused; none: all is accepted.
    """

    manifests: Mapping[str, Manifest]
    records: Mapping[str, Record]
    findings: tuple[Finding, ...]


def check_submissions(folder: Path, metrics: Mapping[str, Metric] = METRICS, *, seeds: int = 3) -> Checked:
    """Check a shared folder.

    Args:
        folder: with ``submissions`` and ``runs``.
        metrics: those known.
        seeds: that each configuration has at least.

    Returns:
        What was found.

    Raises:
        ResultsError: the folder cannot be read.
    """
    findings: list[Finding] = []
    manifests: dict[str, Manifest] = {}
    for name, item in read_manifests(folder):
        if isinstance(item, Manifest):
            manifests[name] = item
        else:
            findings.append(Finding(name, "", "; ".join([item.what, *item.faults])))
    owners: dict[str, list[str]] = defaultdict(list)
    for name, manifest in manifests.items():
        for run_id in manifest.runs:
            owners[run_id].append(name)
    records: dict[str, Record] = {}
    for run_id, names in owners.items():
        findings += [Finding(other, run_id, f"has been submitted by {names[0]}") for other in names[1:]]
        found: list[str] = []
        record = _checked_run(runs_folder(folder) / run_id, manifests[names[0]].runs[run_id], metrics, found)
        if record is not None:
            records[run_id] = record
        findings += [Finding(names[0], run_id, what) for what in found]
    strays = [path.name for path in list_folder(runs_folder(folder)) if path.name not in owners]
    findings += [Finding("", name, "belongs to no submission") for name in strays]
    findings += [Finding(owners[run_id][0], run_id, what) for run_id, what in _copies(records)]
    if not findings:  # numbers of seeds mean something once each record does
        findings += [Finding(owners[run_id][0], run_id, what) for run_id, what in _few_seeds(folder, metrics, seeds)]
    return Checked(manifests, records, tuple(findings))


def record_faults(document: Mapping[str, Any], record: Record, metrics: Mapping[str, Metric]) -> Iterator[str]:
    """Why a record is not accepted, by itself.

    Args:
        document: as it is in its file.
        record: the same, validated.
        metrics: those known.

    Yields:
        Reasons.
    """
    if (reason := why_not_ranked(record)) is not None:
        yield f"it is never ranked: {reason}"
    if record.record_sha256 is None:
        yield "it has no digest: an earlier version made it"
    elif record_digest(document) != record.record_sha256:
        yield "the record was changed after the run's end"
    yield from faults_in(document)
    if record.tuned is not None and record.seed in record.tuned.seeds:
        yield f"its options were tuned on its own seed, {record.seed}"
    yield from _matrix_faults(record)
    yield from (f"the metric {fault}" for fault in recomputed(record, metrics, with_absent=False)[0])


def _checked_run(
    folder: Path, submitted: SubmittedRun, metrics: Mapping[str, Metric], faults: list[str]
) -> Record | None:
    """Check a run's folder; the record, if it can be read."""
    if folder.is_symlink() or not folder.is_dir():
        faults.append("has no folder in runs")
        return None
    files = list_folder(folder)
    faults += [f"holds {path.name}, which is no part of a submission" for path in files if path.name not in _FILES]
    try:
        text = read_file(folder / RECORD_NAME).decode("utf-8")
        record = parse_record(text, folder.name)
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"its record cannot be read: {error}")
        return None
    except ResultsError as error:
        faults.append(error.what)
        return None
    if record.run_id != folder.name:
        faults.append(f"its record is of run {record.run_id}")
    if record.record_sha256 != submitted.record_sha256:
        faults.append("its record is not the one that the manifest names")
    faults += record_faults(json.loads(text), record, metrics)
    model = folder / MODEL_NAME
    if submitted.weights_sha256 is not None and submitted.weights_sha256 != record.weights_sha256:
        faults.append("the manifest names another model than the record")
    if model in files or submitted.weights_sha256 is not None:
        try:
            digest = hashlib.sha256(read_file(model)).hexdigest()
        except OSError as error:
            faults.append(f"its model cannot be read: {error.strerror or error}")
        else:
            if digest != record.weights_sha256:
                faults.append("its model is not the one that the record names")
    return record


def _matrix_faults(record: Record) -> Iterator[str]:
    """Accuracies that no whole number of right answers gives."""
    images = [test for _, _, test in record.task_images]
    for row, values in enumerate(record.accuracy_matrix):
        for task, value in enumerate(values):
            if value is None or task >= len(images):
                continue
            right = value * images[task]
            if not 0 <= value <= 1 or abs(right - round(right)) > _WHOLE * max(1, images[task]):
                yield f"accuracy_matrix[{row}][{task}] = {value} is no share of {images[task]} test images"


def _copies(records: Mapping[str, Record]) -> Iterator[tuple[str, str]]:
    """Runs that are another one under a new name: with its model, or with all of its accuracies."""
    models: dict[str, str] = {}
    matrices: dict[tuple[object, ...], str] = {}
    for run_id, record in records.items():
        if record.weights_sha256 is not None:
            first = models.setdefault(record.weights_sha256, run_id)
            if first != run_id:
                yield run_id, f"has the same model as {first}"
                continue
        place = record.benchmark, record.benchmark_version, record.protocol, record.strategy, record.accuracy_matrix
        first = matrices.setdefault((*place, record.started), run_id)
        if first != run_id:
            yield run_id, f"has the same accuracies and the same start as {first}"


def _few_seeds(folder: Path, metrics: Mapping[str, Metric], seeds: int) -> Iterator[tuple[str, str]]:
    """The first run of each configuration that has too few seeds."""
    for board in read_leaderboards(folder, metrics).boards:
        for row in board.rows:
            if row.seeds < seeds:
                told = f"{row.configuration} on {board.name} has {row.seeds} of {seeds} seeds"
                yield row.record.run_id, told
