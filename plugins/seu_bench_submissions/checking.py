"""What is checked of a shared folder before a submission is accepted: without building models, data or plugins' code.

A liar can renew digests. What cannot be renewed is what follows from something else: metrics from the matrix, an
accuracy from a whole number of images, the model's digest from the model. ``seu-bench check-submission`` also asks
what each record's request gives, and measures some models again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from seu_bench.errors import ResultsError
from seu_bench.results import read_leaderboards
from seu_bench.results.labels import why_not_ranked
from seu_bench.results.metric import Metric
from seu_bench.results.record import LARGEST, RECORD_NAME, Record, parse_record, record_digest, runs_folder
from seu_bench.results.record_files import MODEL_NAME, PACKED_NAME
from seu_bench.results.record_metrics import METRICS, check_metrics
from seu_bench.utils.reading import list_folder, open_file, read_file
from seu_bench_submissions.manifest import (
    Manifest,
    SubmittedRun,
    find_harmful_texts,
    read_manifests,
    refuse_links,
)

#: Clocks of different machines differ.
_CLOCKS: Final = timedelta(hours=1)
#: Bytes of the longest header of a model's file, and bytes of the file that are read at once.
_LONGEST_HEADER, _CHUNK = 2**26, 2**20


@dataclass(frozen=True)
class Finding:
    """Why a submission is not accepted; ``run`` empty: not about one run."""

    submission: str
    run: str
    what: str


@dataclass(frozen=True)
class Checked:
    """Result of a check: manifests and records that can be read, by name and run id, and why the folder is refused.

    Attributes:
        models: digests of the tensors of each model that is its record's, by run id.
    """

    manifests: dict[str, Manifest] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def refuse(self, submission: str, run: str, *reasons: str) -> None:
        """Add reasons to refuse a submission."""
        self.findings.extend(Finding(submission, run, what) for what in reasons)


def check_submissions(folder: Path, metrics: Mapping[str, Metric] = METRICS, *, seeds: int = 3) -> Checked:
    """Check a shared folder.

    Args:
        folder: with ``submissions`` and ``runs``.
        metrics: those known.
        seeds: that each configuration has at least.

    Raises:
        ResultsError: the folder cannot be read, is a link, or has no submissions.
    """
    refuse_links(folder)
    checked = Checked()
    owners = _check_manifests(checked, folder)
    for run_id, name in owners.items():
        submitted = checked.manifests[name].runs[run_id]
        checked.refuse(name, run_id, *_check_run(checked, name, runs_folder(folder) / run_id, submitted, metrics))
    for path in _list_files(runs_folder(folder)):
        if path.name not in owners:
            checked.refuse("", path.name, "belongs to no submission: submit it, or remove it")
    if os.path.lexists(folder / PACKED_NAME):
        checked.refuse("", PACKED_NAME, "holds records of no submission: remove it")
    for run_id, what in _copies(checked):
        checked.refuse(owners[run_id], run_id, what)
    if not checked.findings:  # numbers of seeds mean something once each record does
        rows = [(board.name, row) for board in read_leaderboards(folder, metrics).boards for row in board.rows]
        for board, row in rows:
            if row.seeds < seeds:
                told = f"{row.configuration} on {board} has {row.seeds} of {seeds} seeds"
                checked.refuse(row.record.submitter or "", "", told)
    return checked


def _check_manifests(checked: Checked, folder: Path) -> dict[str, str]:
    """Check the manifests of a folder; return the submission of each run."""
    found = dict(read_manifests(folder))
    if not found:
        remedy = "name the folder that seu-bench submit --to was given"
        raise ResultsError("there are no submissions in this folder", where=str(folder), remedy=remedy)
    submitters: dict[str, str] = {}
    owners: dict[str, str] = {}
    for name, item in found.items():
        if not isinstance(item, Manifest):
            checked.refuse(name, "", "; ".join([item.what, *item.faults]))
            continue
        checked.manifests[name] = item
        if (first := submitters.setdefault(item.submitter_key, name)) != name:
            checked.refuse(name, "", f"its submitter is that of {first}")
        for run_id in item.runs:
            if (first := owners.setdefault(run_id, name)) != name:
                checked.refuse(name, run_id, f"has been submitted by {first}")
    return owners


def check_record(document: Mapping[str, Any], record: Record, metrics: Mapping[str, Metric]) -> Iterator[str]:
    """Yield why a record is not accepted, by itself; ``document`` is as it is in its file."""
    if (reason := why_not_ranked(record)) is not None:
        yield f"it is never ranked: {reason}"
    if record.record_sha256 is None:
        yield "it has no digest: an earlier version made it"
    elif record_digest(document) != record.record_sha256:
        yield "the record was changed after the run's end"
    yield from find_harmful_texts(document)
    try:
        if datetime.fromisoformat(record.started) > datetime.now(UTC) + _CLOCKS:
            yield f"it was started in the future: {record.started}"  # of several runs the latest counts
    except (ValueError, TypeError):  # TypeError: it has no time zone
        yield f"its start is no time with a time zone: {record.started!r}"
    for name, value in record.metrics.items():
        if value is not None and (not math.isfinite(value) or (name.startswith("peak_") and value < 0)):
            yield f"{name} is {value}, which is no measurement"
    if record.tuned is not None and record.seed in record.tuned.seeds:
        yield f"its options were tuned on its own seed, {record.seed}"
    yield from _check_matrix(record)
    faults, not_computed = check_metrics(record, metrics, with_absent=False)
    known = [it for it in not_computed if it.partition(" ")[0] in metrics]  # others are in no table
    yield from (f"the metric {fault}" for fault in [*faults, *known])


def _check_run(
    checked: Checked, name: str, folder: Path, submitted: SubmittedRun, metrics: Mapping[str, Metric]
) -> Iterator[str]:
    """Check a run's folder, and note its record, and its model if that is the record's."""
    if folder.is_symlink() or not folder.is_dir():
        yield "has no folder in runs"
        return
    files = {path.name for path in _list_files(folder)}
    yield from (f"holds {file}, which is no part of a submission" for file in files - {RECORD_NAME, MODEL_NAME})
    try:
        text = read_file(folder / RECORD_NAME, LARGEST).decode("utf-8")
        document = json.loads(text, object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant)
        record = parse_record(text, folder.name)
    except (OSError, ValueError, RecursionError) as error:
        yield f"its record cannot be read: {getattr(error, 'strerror', None) or error}"
        return
    except ResultsError as error:
        yield error.what
        return
    checked.records[folder.name] = record.submitted_by(name)
    if record.run_id != folder.name:
        yield f"its record is of run {record.run_id}"
    if record.record_sha256 != submitted.record_sha256:
        yield "its record is not the one that the manifest names"
    yield from check_record(document, record, metrics)
    if submitted.weights_sha256 is not None and submitted.weights_sha256 != record.weights_sha256:
        yield "the manifest names another model than the record"
    if MODEL_NAME not in files and submitted.weights_sha256 is None:
        return
    try:
        digest, tensors = _model_digests(folder / MODEL_NAME)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        yield f"its model cannot be read: {getattr(error, 'strerror', None) or error}"
        return
    if digest != record.weights_sha256 or submitted.weights_sha256 is None:
        yield "its model is not the one that record and manifest name"
    else:
        checked.models[folder.name] = tensors


def _list_files(folder: Path) -> list[Path]:
    """What is in a folder, without hidden files: nothing reads them, and an interrupted write leaves such."""
    return [path for path in list_folder(folder) if not path.name.startswith(".")]


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):  # readers take one or the other
        raise ValueError("a key stands twice in one object")
    return found


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _model_digests(path: Path) -> tuple[str, str]:
    """SHA-256 of a model's file, and one of its tensors whatever their names and order.

    What is not as its header says is a ValueError, and is read no further.
    """
    with open_file(path) as file:
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if length > _LONGEST_HEADER:
            raise ValueError("it is no file of safetensors")
        head += file.read(length)
        whole, place, tensors = hashlib.sha256(head), 0, []
        header = {name: it for name, it in json.loads(head[8:]).items() if name != "__metadata__"}
        for begin, end, dtype in sorted((*it["data_offsets"], it["dtype"]) for it in header.values()):
            one, is_next = hashlib.sha256(str(dtype).encode()), begin == place
            while place < end and (part := file.read(min(end - place, _CHUNK))):
                whole.update(part)
                one.update(part)
                place += len(part)
            if not is_next or place != end:
                raise ValueError("its tensors are not where its header says")
            tensors.append(one.hexdigest())
        if file.read(1):
            raise ValueError("there is more in it than its header says")
    return whole.hexdigest(), hashlib.sha256("".join(sorted(tensors)).encode()).hexdigest()


def _check_matrix(record: Record) -> Iterator[str]:
    """Find accuracies that no whole number of right answers gives."""
    images = [test for _, _, test in record.task_images]
    for task, answers in enumerate(record.task_confusion):
        if answers and (task >= min(len(images), len(answers)) or sum(answers) != images[task]):
            yield f"task_confusion[{task}] is not of all of the task's test images"
    for row, values in enumerate(record.accuracy_matrix):
        for task, (value, count) in enumerate(zip(values, images, strict=False)):
            right = 0.0 if value is None else value * count
            if not 0 <= (value or 0) <= 1 or abs(right - round(right)) > 1e-6 * max(1, count):
                yield f"accuracy_matrix[{row}][{task}] = {value} is no share of {count} test images"


def _copies(checked: Checked) -> Iterator[tuple[str, str]]:
    """Find runs that are another one under a new name: with its weights, or with all of its accuracies and losses.

    Two runs of one submitter and seed may have learned the same, and answer otherwise (``infer_task``).
    """
    seen: dict[tuple[str, object], list[str]] = defaultdict(list)
    for run_id, record in checked.records.items():
        curves = tuple(stage.losses for stage in record.stages)
        place = record.benchmark, record.benchmark_version, record.protocol, record.accuracy_matrix
        learned = (*place, curves if any(curves) else record.started)
        keys: dict[str, object] = {"weights": checked.models.get(run_id, run_id), "accuracies and losses": learned}
        for what, key in keys.items():
            others = [it for it in seen[what, key] if not _may_be_equal(record, checked.records[it])]
            seen[what, key].append(run_id)
            if others:
                owner = checked.records[others[0]].submitter
                yield run_id, f"has the same {what} as {others[0]} of {owner}: one is a copy"
                break


def _may_be_equal(one: Record, other: Record) -> bool:
    return (one.submitter, one.seed) == (other.submitter, other.seed) and one.options != other.options
