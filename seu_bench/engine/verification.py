"""Verification of a record: its model is built and measured again, or its claims are held against its request."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from seu_bench.config.run import Request, ResultFields
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.environment import choose_device
from seu_bench.engine.recorder import requested_fields, stream_fields
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.saved_model import (
    SEALED,
    SIZES,
    LearnedModel,
    build_model,
    learned_tasks,
    parse_weights,
    read_weights,
)
from seu_bench.errors import RequestError, ResultsError, SeuBenchError
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import FILES, RECORD_NAME, Record, code_fault, read_record, record_digest
from seu_bench.results.record_files import MODEL_NAME, find_run
from seu_bench.results.record_metrics import EVALUATION, check_metrics, measured_rows
from seu_bench.results.reference_rows import reference_of
from seu_bench.training.interfaces import Cost
from seu_bench.training.monitoring.evaluators import class_counts
from seu_bench.utils.hardware import computing_with
from seu_bench.utils.progress import tracked
from seu_bench.utils.reading import read_file
from seu_bench.utils.text import printable


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Attributes:
        passed: ``None``: it could not be compared, for the reason in ``detail``.
        detail: the values found, or every difference.
    """

    name: str
    passed: bool | None
    detail: tuple[str, ...]

    @classmethod
    def of(cls, name: str, faults: Sequence[str], passed: str) -> Check:
        """A check that failed with its ``faults`` if there are any, else one with the note ``passed``."""
        return cls(name, not faults, tuple(faults) or (passed,))

    @classmethod
    def same(cls, name: str, what: str, found: str, recorded: str | None, where: str = "") -> Check:
        """A check that two texts are the same."""
        faults = [] if found == recorded else [f"{where}{what} {found}, and the record names {recorded}"]
        return cls.of(name, faults, f"{what} {found}")


@dataclass(frozen=True)
class Verification:
    """Result of a verification, check by check."""

    record: Record
    folder: Path
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def document(self) -> dict[str, Any]:
        """Return plain values for other programs."""
        checks = [asdict(check) for check in self.checks]
        return {"run_id": self.record.run_id, "folder": str(self.folder), "passed": self.passed, "checks": checks}


def verify(
    registry: Registry,
    run: str,
    *,
    results: Path = Path("results"),
    data_root: Path | None = None,
    device: str = "auto",
    benchmark: Path | None = None,
) -> Verification:
    """Check a run's record against its weights and data.

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        device: where the test images are evaluated.
        benchmark: the TOML file, for a run of a benchmark that is not registered.

    Returns:
        The result of each check. It computes with the run's own number of threads.

    Raises:
        ResultsError: there is no such run, or it saved no weights.
        RequestError: what the record asks for is not installed, or is no valid request.
        DataError: a data set is missing or corrupt.
    """
    folder = find_run(results, run)
    record = read_record(folder)
    content = read_weights(folder, record)
    resolved = resolve_record(registry, record, benchmark, data_root)
    with computing_with(record.threads):
        checks = _checks(registry, folder, record, content, resolved, torch.device(choose_device(device)))
        return Verification(record, folder, tuple(checks))


def _checks(
    registry: Registry, folder: Path, record: Record, content: bytes, resolved: ResolvedRun, device: torch.device
) -> Iterator[Check]:
    spec, path = resolved.spec, folder / MODEL_NAME
    stream = build_stream(spec.benchmark, resolved.load, resolved.limits, spec.seed, device, **resolved.part)
    document = json.loads(read_file(folder / RECORD_NAME))
    if document.get("record_sha256") is None:
        yield Check("record", None, ("it has no digest",))
    else:
        is_same = record_digest(document) == document["record_sha256"]
        faults = [] if is_same else [f"{folder / RECORD_NAME}: something in it was changed after the run's end"]
        yield Check.of("record", faults, "unchanged since the run's end")
    why = "the record's settings or the benchmark were changed since, or it was made with a file (--benchmark)"
    faults = [f"the record's settings give run {spec.run_id}, not {record.run_id}", why]
    yield Check.of("run id", faults if spec.run_id != record.run_id else [], "what the record asks for has its run id")
    yield from _code(record, resolved)
    yield Check.same("weights", "SHA-256", hashlib.sha256(content).hexdigest(), record.weights_sha256, f"{path}: ")
    model = None
    try:
        seal, tensors = parse_weights(content, path)
        faults = list(differences(record.model_dump(mode="json", include=SEALED), seal.record, "", "sealed"))
        yield Check.of("sealed copy", faults, f"{len(SEALED)} fields are as they were sealed")
    except ResultsError as error:
        yield Check("sealed copy", None, ("the weights cannot be read",))
        yield Check("model", False, (f"{error.where}: {error.what}",))
    else:
        try:
            model = build_model(registry, seal, tensors, record, path).to(device)
            yield Check("model", True, (f"built and filled with {len(tensors)} tensors",))
        except ResultsError as error:
            yield Check("model", False, (f"{error.where}: {error.what}",))
    yield Check.same("data", "fingerprint", stream.fingerprint, record.data_fingerprint)
    made = stream_fields(stream.plan) | {"task_inputs": stream.inputs}
    faults = list(differences(record.model_dump(include=set(made)), made, "", "made"))
    yield Check.of("tasks", faults, f"{len(stream.plan.tasks)} tasks, their order, classes and images")
    if model is None:
        yield from (Check(name, None, ("there is no model to measure",)) for name in ("accuracy", *SIZES))
    else:
        yield _accuracy(record, model, stream, spec.protocol.eval_batch_size)
        yield from _sizes(record, model, device)
    faults, not_compared = check_metrics(record, registry.known_metrics)
    passed = f"{len(record.metrics) - len(not_compared)} follow from {RECORD_NAME}"
    yield Check.of("metrics", faults, passed + (f"; not compared: {', '.join(not_compared)}" if not_compared else ""))


def _code(record: Record, resolved: ResolvedRun) -> Iterator[Check]:
    """The code that builds and measures the model, where that is not seu-bench's own. Other code may do the same."""
    named = tuple(f"{code.kind} {code.name!r} of {code}" for code in record.code if code.kind not in FILES)
    if (fault := code_fault(record.code, resolved.code)) is not None:
        yield Check("code", None, (fault, "what follows is built and measured by the code that is here"))
    elif named:
        yield Check("code", True, named)
    elif any(code.kind not in ("metric", *FILES) for code in resolved.code):
        yield Check("code", None, ("the record does not name it",))


def _accuracy(record: Record, model: LearnedModel, stream: TaskStream, batch_size: int) -> Check:
    """The last row of the matrix evaluated anew: the same test images in the same batches."""
    tasks = learned_tasks(record)
    if not tasks:
        return Check("accuracy", None, ("the record has no measurement",))
    row = measured_rows(record)[-1]
    faults, images_in_all = [], 0
    by_class: list[list[tuple[int, int]]] = [[] for _ in stream.tasks]
    for task in tracked(tasks, "evaluating tasks"):
        place, recorded = f"accuracy_matrix[{row}][{task}]", record.accuracy_matrix[row][task] or 0.0
        try:
            images = stream.tasks[task].test
            by_class[task] = count_by_class(model, images, task, batch_size, stream.plan.tasks[task].labels)
        except Exception as error:  # a record that was changed may have made a model that these images do not fit
            faults.append(f"{place}: it cannot be evaluated: {type(error).__name__}: {error}")
            continue
        images_in_all += len(images)
        correct = sum(right for right, _ in by_class[task])
        if (found := correct / len(images)) != recorded:
            differ = abs(correct - recorded * len(images))
            faults.append(f"{place}: recorded {recorded}, found {found} ({differ:.4g} of {len(images)} images)")
    faults += differences(record.task_class_counts, by_class, "task_class_counts", "found")
    if faults:
        faults.append(f"the run was made on {record.environment.device}; another one may round differently")
    return Check.of("accuracy", faults, f"the last row on {images_in_all:,} test images of {len(tasks)} tasks")


def count_by_class(
    model: LearnedModel, images: TaskImages, task: int, batch_size: int, classes: Sequence[int]
) -> list[tuple[int, int]]:
    """Count the images of each class of a task that the model answers rightly, as the run measured, and all of them."""
    told = task if model.scenario == "task" else None
    with torch.no_grad():
        batches = images.batches(batch_size, shuffle=False)
        right = torch.cat([y[model(x, told).argmax(dim=1) == y] for x, y in batches])
    return class_counts(images.labels, right, classes)


def _sizes(record: Record, model: LearnedModel, device: torch.device) -> Iterator[Check]:
    """Parameters and bits of masks at the end; parameters and multiply-accumulates on each task's path."""
    network, shape, inference = model.network, record.input_shape or (), model.inference

    def answer(images: torch.Tensor, task: int) -> Any:
        return inference(network, images, task + 1) if inference else network.forward_single_task(images, task)

    counts: dict[str, Callable[[int], int]] = {
        "params_total": lambda _: count_parameters(network),
        "mask_bits": lambda _: network.mask_bits,
        "params_active": lambda task: count_parameters(network.task_module(task)),
        "macs": lambda task: count_macs(lambda images: answer(images, task), shape, device),
    }
    has_one_head = model.scenario != "task" and inference is None  # which has grown, and does not shrink
    for name in SIZES:
        values = getattr(record, name)
        faults = [] if values else [f"{name}: nothing was recorded"]
        # A strategy that learns all tasks at once is measured once, on the last.
        first = max(0, len(record.task_names) - len(values))
        at_end = name in ("params_total", "mask_bits") or (name == "macs" and has_one_head)
        for place in tracked(range(len(values))[-1 if at_end else 0 :], f"counting {name}"):
            try:
                found = counts[name](first + place)
            except Exception as error:
                faults.append(f"{name}[{place}]: it cannot be counted: {type(error).__name__}: {error}")
                continue
            if values[place] != found:
                faults.append(f"{name}[{place}]: recorded {values[place]}, found {found}")
        yield Check.of(name, faults, "counted after the last task" if at_end else "counted on each task's path")


def differences(recorded: Any, other: Any, name: str, word: str) -> Iterator[str]:
    """Differences of two plain values by place, e.g. ``accuracy_matrix[1][0]: recorded 0.9, sealed 0.8``."""
    if isinstance(recorded, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*recorded, *other]):
            place = f"{name}.{key}" if name else key
            if key not in recorded or key not in other:
                yield f"{place}: only {word if key in other else 'recorded'}"
            else:
                yield from differences(recorded[key], other[key], place, word)
    elif isinstance(recorded, list | tuple) and isinstance(other, list | tuple) and len(recorded) == len(other):
        for number, (left, right) in enumerate(zip(recorded, other, strict=True)):
            yield from differences(left, right, f"{name}[{number}]", word)
    elif recorded != other:
        yield f"{name}: recorded {_short(recorded)}, {word} {_short(other)}"


def _short(value: Any, most: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


# ---------------------------------------------------------------------- a stranger's record


def request_of(record: Record, benchmark: Path | None = None, data_root: Path | None = None) -> Request:
    """Request of a record; ``benchmark`` is the TOML file of one that is not registered."""
    options: dict[str, Any] = dict(record.options)
    for prefix, given in (
        ("searcher", record.searcher_options),
        ("creator", record.creator_options),
        ("benchmark", record.benchmark_overrides),
    ):
        options |= {f"{prefix}.{key}": value for key, value in given.items()}
    fields = {"strategy", "searcher", "creator", "protocol", "seed", *ResultFields.model_fields}
    name = record.benchmark if benchmark is None else str(benchmark)
    return Request(benchmark=name, options=options, data_root=data_root, **record.model_dump(include=fields))


def resolve_record(
    registry: Registry, record: Record, benchmark: Path | None = None, data_root: Path | None = None
) -> ResolvedRun:
    """Resolve the request of a record that may be a stranger's: it may name no file, and define no data.

    Args:
        registry: what is installed.
        record: of any origin.
        benchmark: the user's own TOML file, for a run of a benchmark that is not registered.
        data_root: folder of data sets.

    Raises:
        RequestError: the record names a file, or what it asks for is not installed, or is no valid request.
    """
    request, remedy = request_of(record, benchmark, data_root), "seu-bench verify --benchmark FILE.toml"
    if benchmark is None and record.benchmark not in registry.benchmarks:
        what = f"benchmark {record.benchmark!r} is not registered here"
        raise RequestError(what, where=record.run_id, remedy=f"give the file that the run was made with: {remedy}")
    for key, value in request.options.items():
        if benchmark is not None and key.startswith("benchmark."):
            continue
        if key.startswith("benchmark.datasets"):
            what = f"the record defines data of its own: {key}"
            raise RequestError(what, where=record.run_id, remedy=f"write it into a benchmark's file: {remedy}")
        if named := next(filter(_names_a_file, _texts(value)), None):
            what = f"the record names a file: {key}={printable(named)[:120]}"
            remedy = "records have the digests of files, and no paths: this one was changed, or is a plugin's fault"
            raise RequestError(what, where=record.run_id, remedy=remedy)
    return resolve(registry, request)


def _texts(value: Any) -> Iterator[str]:
    """Every text of plain values; keys are names of fields, which are validated."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def _names_a_file(text: str) -> bool:
    """Whether an option of this text might be opened as a file."""
    is_path = text.startswith("~") or any(letter in text for letter in "/\\\0")
    return is_path or (os.path.lexists(text) and not Path(text).is_dir())


def claim_faults(registry: Registry, record: Record, data_root: Path | None = None) -> list[str]:
    """Compare a record with the tasks, settings and cost that follow from its request: without data or training.

    Args:
        registry: what is installed.
        record: a finished run's.
        data_root: folder of data sets; only their sizes are asked for.

    Returns:
        Differences; that the request cannot be resolved here is one.
    """
    if ":" in record.strategy or record.attach:
        return ["it cannot be checked here: it names classes by import path, which are not imported for strangers"]
    try:
        run = resolve_record(registry, record, data_root=data_root)
        plan = run.plan()
        cost = run.cost(run.context(plan))
    except SeuBenchError as error:
        return [f"it cannot be checked here: {error.what}"]
    except Exception as error:  # a plugin's may raise anything where a stranger chose the options
        return [f"it cannot be checked here: {type(error).__name__}: {error}"]
    faults = []
    for name, value in requested_fields(run, plan).items():
        if name == "task_names" and "task_class_names" not in record.model_fields_set:
            continue  # an older record named its tasks otherwise
        if name == "task_class_names" and not record.task_class_names:
            continue  # nor did it name classes that have numbers only
        recorded, made = getattr(record, name), value
        if name == "reference":  # which older records do not say of those that are known by name
            recorded, made = reference_of(record), reference_of(record.model_copy(update={name: value}))
        # Keys that are missing within a field are at the defaults of a later version, or else the run id differs.
        faults += [told for told in differences(recorded, made, name, "found") if not told.endswith(": only found")]
    return faults or [*_size_faults(record, cost), *_stage_faults(record, cost)]


def _size_faults(record: Record, cost: Cost) -> Iterator[str]:
    """Tasks that were not measured, and sizes outside of what was forecast for them."""
    tasks = len(record.task_names)
    last = tasks - 1
    learned = {stage.task for stage in cost.stages if stage.name != EVALUATION and stage.image_passes}
    first = last if learned == {last} else 0  # a strategy that learns the whole stream at once is measured once
    for row in range(tasks):
        values = record.accuracy_matrix[row] if row < len(record.accuracy_matrix) else ()
        if [value is not None for value in values] != [first <= row >= task for task in range(tasks)]:
            yield f"accuracy_matrix[{row}] does not have a value for each task learned until then, and no other"
    none = (0,) * tasks
    ranges = {
        "params_total": (cost.params_total_min, cost.params_total),
        "params_active": (none, cost.params_total),
        "macs": (cost.macs_min, cost.macs),
        "memory_bytes": (cost.memory_bytes_min, cost.memory_bytes),
        "mask_bits": (cost.mask_bits or none, cost.mask_bits or none),
    }
    for name, (least, most) in ranges.items():
        values = getattr(record, name)
        if not most or (name == "mask_bits" and not values and not cost.mask_bits):
            continue  # not forecast, and stated then; older records have no masks
        if len(values) != tasks - first:
            yield f"{name} has {len(values)} values, and {tasks - first} were measured"
            continue
        for task, value in enumerate(values, start=first):
            if value is None or not least[task] <= value <= most[task]:
                yield f"{name} is {value} after task {task}, and {least[task]} to {most[task]} were forecast"
    if record.memory_by_kind and record.memory_bytes[-1:] != (sum(record.memory_by_kind.values()),):
        yield "memory_by_kind is not what memory_bytes has after the last task"


def _stage_faults(record: Record, cost: Cost) -> Iterator[str]:
    """Stages of learning whose passes and operations are outside of what was forecast for all of them together."""
    learned = [stage for stage in record.stages if stage.name != EVALUATION]
    if {stage.task for stage in record.stages} - set(range(len(record.task_names))):
        yield "a stage is of no task"
    passes = sum(stage.image_passes for stage in learned)
    evaluated = sum(stage.image_passes for stage in record.stages) - passes
    most = {"learn": (passes, cost.image_passes), "evaluate": (evaluated, cost.all_passes - cost.image_passes)}
    for what, (found, forecast) in most.items():
        if not 0 < found <= forecast:
            yield f"{found} image passes to {what}, and at most {forecast} were forecast"
    flops = None if any(stage.flops is None for stage in learned) else sum(stage.flops or 0 for stage in learned)
    if cost.train_flops is not None and cost.train_flops_min is not None:
        least, largest = cost.train_flops_min, cost.train_flops
        if flops is None or not least <= flops <= largest:
            yield f"{flops} operations of learning, and {least} to {largest} were forecast"
