"""The record of a run: one JSON file from which leaderboards and reports are made, and can be made again.

It lies in ``<results>/runs/<run_id>/record.json`` and is always complete: it is written to a temporary file, flushed to
disk and renamed. :mod:`~seu_bench.results.record_files` reads those of a results folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from seu_bench.config.options import format_errors
from seu_bench.config.run import MOST_THREADS, Evaluation, Matched, Precision
from seu_bench.config.streams import InputKind, Scenario
from seu_bench.errors import NewerRecordError, ResultsError
from seu_bench.metrics import avg_incremental_image_acc, chance_acc, image_acc, mixed_score_above_chance
from seu_bench.utils.files import write_atomic
from seu_bench.utils.reading import read_file
from seu_bench.utils.text import html_table

RECORD_NAME = "record.json"
#: Version of the records that are written now; those of a later one are refused. A key that is new and has a default
#: changes no version, one that gets another name or meaning does.
SCHEMA_VERSION: Final = 1
#: Bytes that a record may have; one of a thousand tasks has a fifth of that.
LARGEST: Final = 2**27

#: Strategies whose budget of images was called ``mem_size``, and those that were given it per task.
_MEM_SIZE: Final = ("er_ace", "gdumb", "mir", "replay")
_PER_TASK: Final = ("agem", "gem")
#: Kinds of code that learn, and those of which the run id has all that decides.
_LEARNERS: Final = ("strategy", "searcher", "creator", "backbone", "attached plugin")
FILES: Final = ("benchmark", "benchmark file")
#: Fields of a run that make it a run of another configuration where they are not at their default.
VARIANTS: Final = ("attach", "precision", "threads")

#: A name that files are called by. A record may come from a stranger: none of its names may lead out of a folder.
FileName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=200)]
#: Integers that tables and other programs can hold. A record of a stranger may have a number of any length.
Integer: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Measurement: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Status: TypeAlias = Literal["running", "finished", "failed", "interrupted"]
#: Of an image ``(C, H, W)``; the length of features and of tokens.
SampleShape: TypeAlias = tuple[Integer, Integer, Integer] | tuple[Integer]
Matrix: TypeAlias = tuple[tuple[float | None, ...], ...]


class Document(BaseModel):
    """Part of a record. Unknown keys, of a later version, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Environment(Document):
    """Device, versions and platform of a run; ``compile``: units were to be compiled, which rounds otherwise."""

    versions: dict[str, str] = Field(default_factory=dict)
    device: str = "cpu"
    git_revision: str | None = None
    platform: str = ""
    threads: Integer | None = None
    compile: bool = False


class CodeRecord(Document):
    """Code that a run used and that is not part of seu-bench, or its benchmark's file; ``kind``: what it was used as.

    ``package`` is ``None`` where it was not installed, ``sha256`` where the source could not be read.
    """

    kind: str
    name: str
    package: str | None = None
    version: str | None = None
    sha256: str | None = None

    @property
    def identity(self) -> str:
        """The digest of its source; where that is not known, package and version."""
        return self.sha256 or f"{self.package} {self.version}"

    def __str__(self) -> str:
        digest = "source unknown" if self.sha256 is None else self.sha256[:10]
        return " ".join(filter(None, (self.package, self.version, f"[{digest}]")))


class Parent(Document):
    """The run that this one continued, by its id and its record's digest, and how many tasks it had learned."""

    run_id: FileName
    record_sha256: str
    tasks: Count


class TaskInput(Document):
    """What makes the network's input of samples, in order; ``background``: for zero; ``layers``: of the encoder."""

    shape: SampleShape
    pad: Count
    background: tuple[Measurement, ...] | None
    mean: tuple[Measurement, ...]
    std: tuple[Measurement, ...]
    permutation_seed: Integer | None
    resize: Count | None = Field(None, exclude_if=lambda it: it is None)
    layers: tuple[Integer, ...] | None = Field(None, exclude_if=lambda it: it is None)


class EncoderRecord(Document):
    """A run's pretrained network, with its own ``params`` and ``macs``; a ``trained`` copy is part of the model."""

    name: str
    network: str
    sha256: str
    pretrained_on: str
    licence: str
    source: str
    mean: tuple[Measurement, ...]
    std: tuple[Measurement, ...]
    size: Count
    widths: tuple[Count, ...]
    params: Count
    bytes: Count
    macs: Count
    trained: bool = False


class StabilityRecord(Document):
    """Stability of SGD on a quadratic penalty: learning rate of the first epoch times the largest second derivative,
    and ``2 (1 + momentum)``, beyond which it diverges along that direction; ``share``: of the strength asked for."""

    value: Measurement
    bound: Measurement
    share: Share | None = Field(None, exclude_if=lambda it: it is None)


class TuningRecord(Document):
    """The tuning that chose options of a run: its file, how and on which seeds, what it chose, and its cost.

    ``options`` have keys as of ``-o``; costs that were not measured are ``None``.
    """

    id: FileName
    sha256: str
    method: str
    seeds: tuple[Integer, ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)
    runs: Count
    image_passes: Count
    cpu_seconds: Seconds | None = None
    flops: Count | None = None

    def __hash__(self) -> int:
        """By the file, which says all else: options may be lists."""
        return hash((self.id, self.sha256))


class StageRecord(Document):
    """Costs and curves of one stage of one task (0-based), see docs/reference/records.md; ``None``: not measured."""

    name: str
    task: Integer
    epochs: Count
    seconds: Seconds
    image_passes: Count
    cpu_seconds: Seconds | None = None
    flops: Count | None = None
    clipped_share: Share | None = None
    stability: StabilityRecord | None = None
    chance_share: Share | None = None
    losses: tuple[Measurement | None, ...] = ()
    accuracies: tuple[Measurement | None, ...] = ()


class Versioned(Document):
    """The key that all versions of records have."""

    schema_version: Annotated[int, Field(strict=True, ge=1, lt=2**31)] = SCHEMA_VERSION


class Record(Versioned):
    """Record of a run; docs/reference/records.md says what each key means.

    Lists are per task, in the order in which tasks were learned; older records lack some.
    """

    run_id: FileName
    status: Status
    error: str | None = None
    strategy: str
    options: dict[str, Any] = Field(default_factory=dict)
    searcher: str | None = None
    searcher_options: dict[str, Any] = Field(default_factory=dict)
    creator: str | None = None
    creator_options: dict[str, Any] = Field(default_factory=dict)
    benchmark: FileName
    benchmark_version: Integer
    benchmark_overrides: dict[str, Any] = Field(default_factory=dict)
    benchmark_file: str | None = None
    protocol: FileName
    protocol_settings: dict[str, Any] = Field(default_factory=dict)
    ranked: bool = True
    reference: str | None = None
    seed: Integer
    limit: Integer | None = None
    synthetic: bool = False
    precision: Precision = "float32"
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] = 1
    evaluation: Evaluation = "test"
    first_tasks: Integer | None = None
    attach: tuple[str, ...] = ()
    scenario: Scenario = "task"
    given_options: tuple[str, ...] | None = None
    tuned: TuningRecord | None = None
    matched: Matched | None = None
    task_order: tuple[Integer, ...] = ()
    task_names: tuple[str, ...] = ()
    task_classes: tuple[Count, ...] = ()
    task_labels: tuple[tuple[Count, ...], ...] = ()
    task_class_names: tuple[tuple[str, ...], ...] = ()
    one_class_tasks: tuple[Integer, ...] = ()
    task_images: tuple[tuple[Count, Count, Count], ...] = ()
    input_shape: SampleShape | None = None
    input_kind: InputKind = "image"
    vocabulary: Count | None = None
    open_ended: bool = False
    task_inputs: tuple[TaskInput, ...] = ()
    encoder: EncoderRecord | None = None
    accuracy_matrix: Matrix = ()
    task_confusion: tuple[tuple[Count, ...], ...] = ()
    task_class_counts: tuple[tuple[tuple[Count, Count], ...], ...] = ()
    forward_accuracies: tuple[tuple[Share | None, Share | None], ...] = ()
    metrics: dict[str, float | Integer | None] = Field(default_factory=dict)
    attached: dict[str, Measurement | None] = Field(default_factory=dict)
    params_total: tuple[Count, ...] = ()
    mask_bits: tuple[Count | None, ...] = ()
    params_active: tuple[Count, ...] = ()
    macs: tuple[Count, ...] = ()
    memory_bytes: tuple[Count | None, ...] = ()
    memory_by_kind: dict[str, Count] = Field(default_factory=dict)
    stages: tuple[StageRecord, ...] = ()
    genotypes: tuple[dict[str, Any] | None, ...] | None = None
    paths: tuple[tuple[Integer, ...], ...] | None = None
    choices: tuple[tuple[str, ...], ...] | None = None
    unit_tasks: tuple[tuple[Integer, ...], ...] | None = None
    data_fingerprint: str | None = None
    weights_sha256: str | None = None
    learner_sha256: str | None = None
    learner_bytes: Count | None = None
    parent: Parent | None = None
    record_sha256: str | None = None
    code: tuple[CodeRecord, ...] = ()
    earlier_code: tuple[CodeRecord, ...] = ()
    environment: Environment = Environment()
    earlier_environments: tuple[Environment, ...] = ()
    started: str = ""
    seconds: Seconds | None = None
    _submitter: str | None = PrivateAttr(None)

    @property
    def has_one_class_task(self) -> bool:
        """Whether a task has one class only, and an accuracy of 100 % by construction."""
        return self.scenario != "class" and (bool(self.one_class_tasks) or 1 in self.task_classes)

    @property
    def may_be_ranked(self) -> bool:
        """Whether it can enter a leaderboard: finished, on all of the real data, by a protocol that is ranked."""
        is_whole = self.limit is None and self.first_tasks is None and self.evaluation == "test"
        is_real = not self.synthetic and not self.has_one_class_task
        return self.status == "finished" and self.ranked and is_real and is_whole

    @property
    def pretrained(self) -> str | None:
        """Pretrained network and weights; ``None``: all weights were drawn."""
        if (it := self.encoder) is not None:
            return f"{it.name}, {it.network} on {it.pretrained_on}, weights sha256:{it.sha256}, licence {it.licence}"
        weights = self.options.get("weights")
        return None if weights is None else f"{self.options.get('backbone')}, weights {weights}"

    @property
    def encoder_sizes(self) -> dict[str, int]:
        """Sizes of a pretrained network that are not counted with the model, by the names of the record's fields."""
        if (it := self.encoder) is None or it.trained:
            return {}
        macs = it.macs if self.input_kind == "features" else 0
        return {"params_total": it.params, "params_active": it.params, "macs": macs, "memory_bytes": it.bytes}

    @property
    def learner(self) -> str:
        """Names of strategy, searcher and creator."""
        return " + ".join(name for name in (self.strategy, self.searcher, self.creator) if name)

    def class_name(self, task: int, place: int) -> str:
        """Return the name of a class by its place among a task's; the place where the record has no name."""
        names = dict(enumerate(dict(enumerate(self.task_class_names)).get(task, ())))
        if self.task_labels:  # a task names those classes alone that no earlier one has
            names = dict(enumerate(name for named in self.task_class_names for name in named))
            place = dict(enumerate(dict(enumerate(self.task_labels)).get(task, ()))).get(place, place)
        return str(names.get(place, place))

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show what the run is and what came of it; ``model_dump`` has all of it."""
        yield from (("run_id", self.run_id), ("status", self.status))
        if (accuracy := self.metrics.get("acc")) is not None:
            yield ("acc", round(accuracy, 4))

    def _repr_html_(self) -> str:
        what = f"{self.benchmark} {self.protocol}: {self.strategy}, seed {self.seed}, {self.status}"
        notes = [self.run_id, *([self.error] if self.error else [])]
        done = zip(self.task_names, self.accuracy_matrix, strict=False)
        matrix = [(name, *(None if it is None else f"{100 * it:.1f}" for it in row)) for name, row in done]
        metrics = [(name, f"{value:,.7g}") for name, value in self.metrics.items() if value is not None]
        accuracies = html_table(what, ["accuracy (%) after", *map(str, range(len(matrix)))], matrix, notes)
        return "\n".join((accuracies, html_table("metrics", ["metric", "value"], metrics)))

    @property
    def variant(self) -> dict[str, Any]:
        """Those of :data:`VARIANTS` that are not at their default, by name."""
        values = {name: getattr(self, name) for name in VARIANTS}
        return {name: value for name, value in values.items() if value != type(self).model_fields[name].default}

    @property
    def submitter(self) -> str | None:
        """The submission of a shared leaderboard that the run belongs to; no part of its file."""
        return self._submitter

    def submitted_by(self, name: str, **changed: Any) -> Record:
        """Return a copy that belongs to a submission, with ``changed`` fields."""
        record = self.model_copy(update=changed)
        record._submitter = name
        return record


def runs_folder(results: Path) -> Path:
    """Return the folder of the runs of a results folder."""
    return results / "runs"


def record_path(results: Path, run_id: str) -> Path:
    """Return the path of a run's record."""
    return runs_folder(results) / run_id / RECORD_NAME


def write_record(results: Path, record: Record) -> Path:
    """Write a record, completely or not at all."""
    write_atomic(path := record_path(results, record.run_id), record_text(record))
    return path


def record_text(record: Record) -> str:
    """Return a record as it is written, a line for each field: with ``indent``, Python encodes, ten times as slow."""
    fields = record.model_dump(mode="json").items()
    return "{\n" + ",\n".join(f' "{name}": {json.dumps(it, allow_nan=False)}' for name, it in fields) + "\n}\n"


def record_digest(document: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of a record's document, as sorted JSON without blanks and its own ``record_sha256``."""
    rest = {key: value for key, value in document.items() if key != "record_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_record(path: Path) -> Record:
    """Read one record from its file, or its run's folder.

    Raises:
        NewerRecordError: a later version of seu-bench wrote it.
        ResultsError: it is not there or is not a record.
    """
    file = path
    try:
        file = path / RECORD_NAME if path.is_dir() else path
        content = read_file(file, LARGEST)
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error
    return parse_record(content, str(file))


def parse_record(content: str | bytes, where: str) -> Record:
    """Parse a record; ``where`` it stands is for messages. Raises as :func:`read_record` does."""
    faults: list[str] = []
    found: Versioned | None = None
    try:
        found = Record.model_validate_json(content)
    except ValidationError as error:
        faults = format_errors(error)
        with contextlib.suppress(ValidationError):  # a later version may mean something else by a key
            found = Versioned.model_validate_json(content)
    if found is not None and (version := found.schema_version) > SCHEMA_VERSION:
        what = f"a later version wrote the record: its schema is {version}, known is up to {SCHEMA_VERSION}"
        remedy = "update seu-bench, or choose another folder with --results"
        raise NewerRecordError(what, where=where, remedy=remedy)
    if isinstance(found, Record):
        return _with_present_names(found)
    what = f"this is not a complete record: {'; '.join(faults[:5])}"
    raise ResultsError(what, where=where, remedy="remove the run's folder and run it again")


def _with_present_names(record: Record) -> Record:
    """Give published records the option ``memory`` and metrics that are younger than they are."""
    updates: dict[str, Any] = {}
    if "mem_size" in record.options and record.strategy in _MEM_SIZE:
        updates["options"] = _with_memory(record.options)
        strategies = record.protocol_settings.get("strategies")
        if isinstance(strategies, dict) and isinstance(own := strategies.get(record.strategy), dict):
            renamed = {"strategies": strategies | {record.strategy: _with_memory(own)}}
            updates["protocol_settings"] = record.protocol_settings | renamed
    elif record.strategy in _PER_TASK and "memory" not in record.options:
        total = 200 if record.options.get("patterns_per_experience") is None else None
        updates["options"] = {"memory": total, **record.options}
    images, functions = [tests for *_, tests in record.task_images], (image_acc, avg_incremental_image_acc)
    younger = {it.__name__: partial(it, record.accuracy_matrix, images) for it in functions}
    accuracy, size = record.metrics.get("acc"), record.metrics.get("params_total")
    chance = chance_acc(record.task_classes, record.scenario)
    younger["mixed_score_above_chance"] = partial(mixed_score_above_chance, accuracy, chance, size)
    found = {name: it() for name, it in younger.items() if name not in record.metrics} if record.metrics else {}
    if absent := {name: value for name, value in found.items() if value is not None}:
        updates["metrics"] = record.metrics | absent
    return record.model_copy(update=updates) if updates else record


def _with_memory(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"memory" if key == "mem_size" else key: value for key, value in options.items()}


def image_budget(record: Record) -> int | None:
    """Return how many images of all tasks together a run may keep; ``None`` for a strategy without such an option."""
    options = record.options
    total = options.get("memory", options.get("mem_size"))  # as plugins of Avalanche call it
    if record.strategy in _PER_TASK and (each := options.get("patterns_per_experience")) is not None:
        total = each * len(record.task_order) if isinstance(each, int) else None
    if isinstance(each := options.get("memory_per_class"), int):
        total = each * (max if record.scenario == "domain" else sum)(record.task_classes or (0,))
    return total if isinstance(total, int) else None


def unreadable(file: Path | str, error: OSError | ValueError) -> ResultsError:
    """Return the error of a record that cannot be read."""
    what = f"the record cannot be read: {getattr(error, 'strerror', None) or error}"
    return ResultsError(what, where=str(file), remedy="see that the file is there and may be read by you")


def differing_code(
    recorded: Sequence[CodeRecord], present: Sequence[CodeRecord]
) -> list[tuple[CodeRecord, CodeRecord | None]]:
    """Return what a record names and is other code at present, with that; ``None``: it is seu-bench's own.

    Metrics that are not there, and files of benchmarks, whose run id has all that decides, do not count.
    """
    here = {(code.kind, code.name): code for code in present}
    pairs = [(code, here.get((code.kind, code.name))) for code in recorded if code.kind not in FILES]
    return [
        (code, other)
        for code, other in pairs
        if (code.kind != "metric" if other is None else code.identity != other.identity)
    ]


def code_fault(recorded: Sequence[CodeRecord], present: Sequence[CodeRecord]) -> str | None:
    """Say that a run was made with other code than the present, with both; ``None``: it was not, or is not known."""
    pairs = differing_code(recorded, present)
    told = "; ".join(f"{code.kind} {code.name!r} of {code}, here {it or 'part of seu-bench'}" for code, it in pairs)
    return f"the run was made with other code: {told}" if pairs else None


def refuse_other_code(recorded: Sequence[CodeRecord], present: Sequence[CodeRecord], where: str) -> None:
    """Refuse a run that was made with other code than the present with a ResultsError that has both."""
    if (fault := code_fault(recorded, present)) is not None:
        remedy = "make it again with --restart, or accept it as it is with --accept-code"
        raise ResultsError(fault, where=where, remedy=remedy)


def learner_code(record: Record) -> list[list[str]]:
    """Return the code of what learned as plain values that are equal where it is: other code is another row."""
    parts = (("", record.code), ("earlier ", record.earlier_code))
    found = ((when, code) for when, codes in parts for code in codes if code.kind in _LEARNERS)
    return sorted([when + code.kind, code.name, code.identity] for when, code in found)


def learner_code_text(record: Record) -> str | None:
    """Name the code of what learned; ``None``: it is part of seu-bench, or the record is an older one."""
    now, before = (
        " + ".join(dict.fromkeys(str(code) for code in codes if code.kind in _LEARNERS))
        for codes in (record.code, record.earlier_code)
    )
    return (f"{now} after {before}" if before else now) or None


def metric_code(record: Record, metric: str) -> str | None:
    """Return the identity of the code that computed a metric of a plugin; ``None``: core's, or not known."""
    return next((code.identity for code in record.code if (code.kind, code.name) == ("metric", metric)), None)
