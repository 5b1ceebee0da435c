"""The record of a run: one JSON file from which leaderboards and reports are made, and can be made again.

It lies in ``<results>/runs/<run_id>/record.json`` and is always complete: it is written to a temporary file, flushed to
disk and renamed. :mod:`~seu_bench.results.record_files` reads those of a results folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, PrivateAttr, ValidationError

from seu_bench.config.faults import fault_lines
from seu_bench.config.matched import Matched
from seu_bench.config.run import MOST_THREADS, Evaluation, Precision
from seu_bench.config.streams import Scenario
from seu_bench.errors import NewerRecordError, ResultsError
from seu_bench.metrics import image_acc
from seu_bench.results.record_parts import (
    CodeRecord,
    Count,
    Document,
    Environment,
    FileName,
    Integer,
    Measurement,
    RankableRecord,
    Seconds,
    ShownRecord,
    StabilityRecord,
    TaskInput,
    TuningRecord,
)
from seu_bench.utils.files import write_atomic
from seu_bench.utils.reading import read_file

RECORD_NAME = "record.json"
#: Version of the records that are written now; those of a later one are refused. A key that is new and has a default
#: changes no version: records without it mean the default, and versions that do not know it ignore it. The version is
#: raised where a key gets another name or meaning. Then :func:`parse_record` must bring older documents up to date, and
#: a sample of them goes to ``tests/results/old_records``.
SCHEMA_VERSION: Final = 1
#: Bytes that a record may have; one of a thousand tasks has a fifth of that.
LARGEST: Final = 2**27

#: Strategies whose budget of images was called ``mem_size``, and those that were given it per task.
_MEM_SIZE: Final = ("er_ace", "gdumb", "mir", "replay")
_PER_TASK: Final = ("agem", "gem")

Status: TypeAlias = Literal["running", "finished", "failed", "interrupted"]
Matrix: TypeAlias = tuple[tuple[float | None, ...], ...]


class StageRecord(Document):
    """Costs and curves of one stage of one task.

    Attributes:
        task: 0-based.
        seconds: wall clock.
        image_passes: images passed forward, whether to train or to evaluate.
        cpu_seconds: of all threads of the process; ``None``: not measured, as in older records.
        flops: floating-point operations of convolutions and matrix products, forward and backward; ``None``: not
            counted, as in older records and in the stage ``evaluation``.
        clipped_share: of the optimiser's steps, those whose gradient's norm was above ``clip_norm``, in [0, 1];
            ``None``: nothing clips, or it was not counted, as in older records.
        stability: of the penalty that the stage trained with; ``None``: there was none, or it is not quadratic.
        chance_share: of the rewards of a search or creation, those that guessing would reach, in [0, 1]; ``None``:
            there are no rewards, or it was not measured, as in older records.
        losses, accuracies: of each epoch, mean loss per image and accuracy in [0, 1]; ``None`` where it did
            not, and empty where no epoch did.
    """

    name: str
    task: Integer
    epochs: Count
    seconds: Seconds
    image_passes: Count
    cpu_seconds: Seconds | None = None
    flops: Count | None = None
    clipped_share: Annotated[float, Field(ge=0, le=1)] | None = None
    stability: StabilityRecord | None = None
    chance_share: Annotated[float, Field(ge=0, le=1)] | None = None
    losses: tuple[Measurement | None, ...] = ()
    accuracies: tuple[Measurement | None, ...] = ()


class Versioned(Document):
    """The key that all versions of records have."""

    schema_version: Annotated[int, Field(strict=True, ge=1, lt=2**31)] = SCHEMA_VERSION


class Record(ShownRecord, RankableRecord, Versioned):
    """Record of a run.

    Attributes:
        benchmark_file: path of the benchmark's file from the results folder; ``None``: the benchmark is known by name,
            or the record is an older one.
        task_classes: outputs of each task's head; in the class-incremental scenario classes that no earlier task has.
        task_labels: outputs of the classes of each task; empty where no class comes back in the class-incremental
            scenario: there classes are numbered through, in others from 0 in each task.
        task_class_names: names of these outputs, in their order: numbers where the data set names none; empty in older
            records.
        one_class_tasks: places of the tasks whose images are of one class, so that every answer is right; empty in
            older records, whose ``task_classes`` show them.
        task_images: training, validation and test images of each task.
        input_shape: channels, height and width of the network's input.
        task_inputs: what makes it of each task's images; empty in older records.
        accuracy_matrix: ``R[i][j]`` in [0, 1], accuracy on task j's test images after learning task i; ``None`` where
            it was not measured. Tasks are in the order in which they were learned.
        task_confusion: in the class-incremental scenario, how many of task i's test images were answered with a class
            of task j when the model was evaluated last; a row is empty where it was not, and all are in other scenarios
            and in older records.
        task_class_counts: for each class of each task, in the order of its head's outputs, how many of its test images
            were answered right when the model was evaluated last, and how many there are; a task is empty where it was
            not evaluated then, and all are in older records.
        evaluation: ``validation``: withheld validation images stand in the place of test images, in the matrix and in
            ``task_images``.
        given_options: names, as ``-o`` takes them, of the options that were given for the run and are not the
            defaults; ``None`` in older records.
        tuned: what chose some of the options; ``None``: they were given, or are defaults that nobody tuned.
        matched: the run whose budget was to be met, and how near the option chosen for it came; ``None``: none was.
        first_tasks: so many tasks of the stream were learned; ``None``: all.
        scenario: whether the task of a test image was known, and what was asked; older records are task-incremental.
        metrics: by id, defined in :mod:`seu_bench.results.record_metrics`; ``None``: not measured, or not defined.
        attach: import paths of the plugins and metrics of Avalanche that were attached to the run.
        attached: values of the attached metrics, by the names that they gave them: the last value of each, such as
            ``Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp000``; ``None`` for what is no finite number.
        params_total, params_active: parameters stored, and on the task's own path, after each task.
        mask_bits: bits of binary masks that tell tasks apart, after each task; ``None`` or empty in older records.
        memory_bytes: bytes of all that is kept for later tasks, after each task; ``None`` where the strategy does not
            say what it keeps, and empty in older records.
        memory_by_kind: the same after the last task, by kind, e.g. ``parameters`` and ``exemplars``.
        genotypes: per task, the unit found for it (strategies that search).
        paths: per task, the unit used in each layer (strategies that choose).
        choices: per task, what was done in each layer, e.g. ``new``, ``reuse 0``, ``adapt 1`` (strategies that
            choose what to do with a unit).
        unit_tasks: per layer, the task that each unit was made for.
        weights_sha256: of the file with the model's weights; ``None``: none was saved.
        record_sha256: of all the rest of a finished run's record (:func:`record_digest`), by which a later edit is
            seen; ``None``: the run is not finished, or the record is an older one.
        precision: what learning computed in; accuracies are measured in float32.
        threads: torch computed with so many. Records of versions in which the machine decided that have none, and are
            read as what their environment says (:func:`upgraded`).
        code: the code that it used and that is not part of seu-bench, and its benchmark's file; empty where there was
            none, and in older records.
        earlier_code: other code that made parts of the run before it was continued with :attr:`code`.
        earlier_environments: where parts of the run were made before it was continued somewhere else.
        data_fingerprint: of the data sets as loaded and how they are cut into tasks, without the seed.
        reference: what the run is a reference of, which is never ranked; ``None`` for learners and in older records,
            where :func:`~seu_bench.results.reference_rows.reference_of` knows the usual ones by name.
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
    input_shape: tuple[Integer, Integer, Integer] | None = None
    task_inputs: tuple[TaskInput, ...] = ()
    accuracy_matrix: Matrix = ()
    task_confusion: tuple[tuple[Count, ...], ...] = ()
    task_class_counts: tuple[tuple[tuple[Count, Count], ...], ...] = ()
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
    record_sha256: str | None = None
    code: tuple[CodeRecord, ...] = ()
    earlier_code: tuple[CodeRecord, ...] = ()
    environment: Environment = Environment()
    earlier_environments: tuple[Environment, ...] = ()
    started: str = ""
    seconds: Seconds | None = None
    _submitter: str | None = PrivateAttr(None)

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
    path = record_path(results, record.run_id)
    write_atomic(path, record_text(record))
    return path


def record_text(record: Record) -> str:
    """A record as it is written."""
    return json.dumps(record.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"


def record_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of a record as JSON, sorted and without blanks; its own ``record_sha256`` is left out.

    Args:
        document: the record as it is in its file, with keys that this version does not know.

    Returns:
        64 hexadecimal digits.
    """
    rest = {key: value for key, value in document.items() if key != "record_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_record(path: Path) -> Record:
    """Read one record.

    Args:
        path: the file, or the run's folder.

    Returns:
        The record, validated.

    Raises:
        NewerRecordError: a later version of seu-bench wrote it.
        ResultsError: it is not there or is not a record.
    """
    file = path
    try:
        file = path / RECORD_NAME if path.is_dir() else path
        text = read_file(file, LARGEST).decode("utf-8")
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error
    return parse_record(text, str(file))


def parse_record(text: str, where: str) -> Record:
    """Parse a record; ``where`` it stands is for messages. Raises as :func:`read_record` does."""
    faults: list[str] = []
    try:
        found: Versioned = Record.model_validate_json(text)
    except ValidationError as error:
        faults = fault_lines(error)
        try:  # another version may mean something else by a key
            found = Versioned.model_validate_json(text)
        except ValidationError:
            found = Versioned()
    if found.schema_version > SCHEMA_VERSION:
        raise NewerRecordError(
            f"the record was written by a later version of seu-bench: its schema version is {found.schema_version}, "
            f"and those up to {SCHEMA_VERSION} are known here",
            where=where,
            remedy="update seu-bench, or choose another folder with --results",
        )
    if isinstance(found, Record):
        return upgraded(found)
    raise ResultsError(
        "this is not a complete record: " + "; ".join(faults[:5]),
        where=where,
        remedy="remove the run's folder and run it again",
    )


def upgraded(record: Record) -> Record:
    """Bring a record that was read up to date.

    Its budget of images gets the name ``memory``, and the metric over images is computed from its matrix. Of a version
    in which the machine decided the number of threads it gets that; on an accelerator threads decide nothing.
    """
    updates: dict[str, Any] = {}
    if record.strategy in _MEM_SIZE:
        updates["options"] = _with_memory(record.options)
        strategies = record.protocol_settings.get("strategies")
        if isinstance(strategies, dict) and isinstance(own := strategies.get(record.strategy), dict):
            strategies = {**strategies, record.strategy: _with_memory(own)}
            updates["protocol_settings"] = {**record.protocol_settings, "strategies": strategies}
    elif record.strategy in _PER_TASK and "memory" not in record.options:
        total = 200 if record.options.get("patterns_per_experience") is None else None
        updates["options"] = {"memory": total, **record.options}
    if record.metrics.get("lca", 0.0) is None:  # of an option that is gone and that no published run was given
        updates["metrics"] = {name: value for name, value in record.metrics.items() if name != "lca"}
    if record.metrics and "image_acc" not in record.metrics:
        over_images = image_acc(record.accuracy_matrix, [images for *_, images in record.task_images])
        updates |= {} if over_images is None else {"metrics": record.metrics | {"image_acc": over_images}}
    environment = record.environment
    if "threads" not in record.model_fields_set and environment.device.startswith("cpu"):
        threads = environment.threads or 1
        updates |= {"threads": threads} if 1 < threads <= MOST_THREADS else {}
    return record.model_copy(update=updates) if updates else record


def _with_memory(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with ``memory`` for ``mem_size``, as that was called before."""
    return {"memory" if key == "mem_size" else key: value for key, value in options.items()}


def image_budget(record: Record) -> int | None:
    """Return how many images of all tasks together a run may keep.

    Args:
        record: of any strategy; its option ``memory`` is read, or ``memory_per_class``, or ``mem_size`` of plugins that
            call it so.

    Returns:
        The number; ``None`` for a strategy without such an option.
    """
    options = record.options
    total = options.get("memory", options.get("mem_size"))
    if record.strategy in _PER_TASK and (each := options.get("patterns_per_experience")) is not None:
        total = each * len(record.task_order) if isinstance(each, int) else None
    if isinstance(each := options.get("memory_per_class"), int):
        total = each * (max if record.scenario == "domain" else sum)(record.task_classes or (0,))
    return total if isinstance(total, int) else None


def unreadable(file: Path | str, error: OSError | ValueError) -> ResultsError:
    """Return the error of a record that cannot be read."""
    remedy = "see that the file is there and may be read by you"
    reason = getattr(error, "strerror", None) or error
    return ResultsError(f"the record cannot be read: {reason}", where=str(file), remedy=remedy)
