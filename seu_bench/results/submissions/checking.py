"""What is checked of a shared folder before a submission is accepted: without building models, data or plugins' code.

A liar can renew digests. What cannot be renewed is what follows from something else: metrics from the matrix, an
accuracy from a whole number of images, the model's digest from the model. ``seu-bench check-submission`` also asks
what each record's request gives (:mod:`seu_bench.engine.verification`), and measures some models again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from seu_bench.errors import ResultsError
from seu_bench.results.building import read_leaderboards
from seu_bench.results.labels import why_not_ranked
from seu_bench.results.metric import Metric
from seu_bench.results.record import LARGEST, RECORD_NAME, Record, parse_record, record_digest, runs_folder
from seu_bench.results.record_files import MODEL_NAME, PACKED_NAME
from seu_bench.results.record_metrics import METRICS, check_metrics
from seu_bench.results.submissions.manifest import Manifest, SubmittedRun, read_manifests, require_shared
from seu_bench.results.submissions.texts import faults_in
from seu_bench.utils.reading import list_folder, open_file, read_file

#: An accuracy times the images is this near to a whole number.
_WHOLE: Final = 1e-6
#: Files that a run's folder may hold.
_FILES: Final = frozenset({RECORD_NAME, MODEL_NAME})
#: Clocks of different machines differ.
_CLOCKS: Final = timedelta(hours=1)
#: Bytes of the longest header of a model's file.
_LONGEST_HEADER: Final = 2**26
#: Bytes of it that are read at once.
_CHUNK: Final = 2**20


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
        models: run ids of those with a model that is the record's.
        findings: why submissions are refused; none: all is accepted.
    """

    manifests: Mapping[str, Manifest]
    records: Mapping[str, Record]
    models: tuple[str, ...]
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
        ResultsError: the folder cannot be read, is a link, or has no submissions.
    """
    require_shared(folder)
    findings: list[Finding] = []
    manifests: dict[str, Manifest] = {}
    for name, item in read_manifests(folder):
        if isinstance(item, Manifest):
            manifests[name] = item
            findings += [Finding(name, "", what) for what in faults_in(item.model_dump(mode="json"))]
        else:
            findings.append(Finding(name, "", "; ".join([item.what, *item.faults])))
    names_of: dict[str, list[str]] = defaultdict(list)
    for name, manifest in manifests.items():
        names_of[manifest.submitter_key].append(name)
    findings += [
        Finding(other, "", f"its submitter is that of {first}")
        for first, *others in names_of.values()
        for other in others
    ]
    owners: dict[str, list[str]] = defaultdict(list)
    for name, manifest in manifests.items():
        for run_id in manifest.runs:
            owners[run_id].append(name)
    records: dict[str, Record] = {}
    models: dict[str, str] = {}
    for run_id, names in owners.items():
        findings += [Finding(other, run_id, f"has been submitted by {names[0]}") for other in names[1:]]
        found: list[str] = []
        submitted = manifests[names[0]].runs[run_id]
        record, tensors = _checked_run(runs_folder(folder) / run_id, submitted, metrics, found)
        if record is not None:
            records[run_id] = record.submitted_by(names[0])
        if tensors is not None:
            models[run_id] = tensors
        findings += [Finding(names[0], run_id, what) for what in found]
    strays = [path.name for path in _listed(runs_folder(folder)) if path.name not in owners]
    findings += [Finding("", name, "belongs to no submission: submit it, or remove it") for name in strays]
    if os.path.lexists(folder / PACKED_NAME):
        findings.append(Finding("", PACKED_NAME, "holds records of no submission: remove it"))
    findings += [Finding(owners[run_id][0], run_id, what) for run_id, what in _copies(records, models)]
    if not findings:  # numbers of seeds mean something once each record does
        findings += _few_seeds(folder, metrics, seeds)
    return Checked(manifests, records, tuple(models), tuple(findings))


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
    yield from _date_faults(record.started)
    yield from (
        f"{name} is {value}, which is no measurement"
        for name, value in record.metrics.items()
        if value is not None and (not math.isfinite(value) or (name.startswith("peak_") and value < 0))
    )
    if record.tuned is not None and record.seed in record.tuned.seeds:
        yield f"its options were tuned on its own seed, {record.seed}"
    yield from _matrix_faults(record)
    faults, not_computed = check_metrics(record, metrics, with_absent=False)
    known = [it for it in not_computed if it.partition(" ")[0] in metrics]  # others are in no table
    yield from (f"the metric {fault}" for fault in [*faults, *known])


def _checked_run(
    folder: Path, submitted: SubmittedRun, metrics: Mapping[str, Metric], faults: list[str]
) -> tuple[Record | None, str | None]:
    """Check a run's folder; the record, if it can be read, and the digest of its model's tensors, if that is its."""
    if folder.is_symlink() or not folder.is_dir():
        faults.append("has no folder in runs")
        return None, None
    files = _listed(folder)
    faults += [f"holds {path.name}, which is no part of a submission" for path in files if path.name not in _FILES]
    try:
        text = read_file(folder / RECORD_NAME, LARGEST).decode("utf-8")
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
        record = parse_record(text, folder.name)
    except (OSError, ValueError, RecursionError) as error:
        faults.append(f"its record cannot be read: {getattr(error, 'strerror', None) or error}")
        return None, None
    except ResultsError as error:
        faults.append(error.what)
        return None, None
    if record.run_id != folder.name:
        faults.append(f"its record is of run {record.run_id}")
    if record.record_sha256 != submitted.record_sha256:
        faults.append("its record is not the one that the manifest names")
    faults += record_faults(document, record, metrics)
    if submitted.weights_sha256 is not None and submitted.weights_sha256 != record.weights_sha256:
        faults.append("the manifest names another model than the record")
    model = folder / MODEL_NAME
    if model not in files and submitted.weights_sha256 is None:
        return record, None
    try:
        digest, tensors = _model_digests(model)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        faults.append(f"its model cannot be read: {getattr(error, 'strerror', None) or error}")
        return record, None
    if digest != record.weights_sha256 or submitted.weights_sha256 is None:
        faults.append("its model is not the one that record and manifest name")
        return record, None
    return record, tensors


def _listed(folder: Path) -> list[Path]:
    """What is in a folder, without hidden files: nothing reads them, and an interrupted write leaves such."""
    return [path for path in list_folder(folder) if not path.name.startswith(".")]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; ValueError where it has a key twice, of which readers take one or the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _model_digests(path: Path) -> tuple[str, str]:
    """SHA-256 of a model's file, and one of its tensors whatever their names and order.

    Raises:
        OSError: it is no regular file, or cannot be read.
        ValueError: it is not what its header says, and is read no further.
    """
    with open_file(path) as file:
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if length > _LONGEST_HEADER:
            raise ValueError("it is no file of safetensors")
        head += file.read(length)
        whole, place, tensors = hashlib.sha256(head), 0, []
        entries = [
            (*it["data_offsets"], it["dtype"]) for name, it in json.loads(head[8:]).items() if name != "__metadata__"
        ]
        for begin, end, dtype in sorted(entries):
            one, is_next = hashlib.sha256(str(dtype).encode()), begin == place
            while place < end and (part := file.read(min(end - place, _CHUNK))):
                for digest in (whole, one):
                    digest.update(part)
                place += len(part)
            if not is_next or place != end:
                raise ValueError("its tensors are not where its header says")
            tensors.append(one.hexdigest())
        if file.read(1):
            raise ValueError("there is more in it than its header says")
    return whole.hexdigest(), hashlib.sha256("".join(sorted(tensors)).encode()).hexdigest()


def _date_faults(started: str) -> Iterator[str]:
    """Say what is wrong with a run's start: of several runs the latest counts."""
    try:
        if datetime.fromisoformat(started) > datetime.now(UTC) + _CLOCKS:
            yield f"it was started in the future: {started}"
    except (ValueError, TypeError):  # TypeError: it has no time zone
        yield f"its start is no time with a time zone: {started!r}"


def _matrix_faults(record: Record) -> Iterator[str]:
    """Accuracies that no whole number of right answers gives."""
    images = [test for _, _, test in record.task_images]
    for task, answers in enumerate(record.task_confusion):
        if answers and (task >= min(len(images), len(answers)) or sum(answers) != images[task]):
            yield f"task_confusion[{task}] is not of all of the task's test images"
    for row, values in enumerate(record.accuracy_matrix):
        for task, value in enumerate(values):
            if value is None or task >= len(images):
                continue
            right = value * images[task]
            if not 0 <= value <= 1 or abs(right - round(right)) > _WHOLE * max(1, images[task]):
                yield f"accuracy_matrix[{row}][{task}] = {value} is no share of {images[task]} test images"


def _copies(records: Mapping[str, Record], models: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Runs that are another one under a new name: with its weights, or with all of its accuracies and losses.

    Two runs of one submitter and seed may have learned the same, and answer otherwise (``infer_task``).
    """
    seen: dict[tuple[str, object], list[str]] = defaultdict(list)
    for run_id, record in records.items():
        place = record.benchmark, record.benchmark_version, record.protocol, record.accuracy_matrix
        curves = tuple(stage.losses for stage in record.stages)
        learned = (*place, curves if any(curves) else record.started)
        keys: dict[str, object] = {"weights": models.get(run_id, run_id), "accuracies and losses": learned}
        for what, key in keys.items():
            others = [other for other in seen[what, key] if not _may_be_equal(record, records[other])]
            seen[what, key].append(run_id)
            if others:
                yield run_id, f"has the same {what} as {others[0]} of {records[others[0]].submitter}: one is a copy"
                break


def _may_be_equal(one: Record, other: Record) -> bool:
    return (one.submitter, one.seed) == (other.submitter, other.seed) and one.options != other.options


def _few_seeds(folder: Path, metrics: Mapping[str, Metric], seeds: int) -> Iterator[Finding]:
    """The configurations that have too few seeds."""
    for board in read_leaderboards(folder, metrics).boards:
        for row in board.rows:
            if row.seeds < seeds:
                told = f"{row.configuration} on {board.name} has {row.seeds} of {seeds} seeds"
                yield Finding(row.record.submitter or "", "", told)
