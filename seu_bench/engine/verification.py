"""Verification of a record: its model is built and measured again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from seu_bench.config.run import Request, ResultFields
from seu_bench.data.dataset import InputShape
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.environment import choose_device
from seu_bench.engine.model_card import learned_tasks
from seu_bench.engine.recorder import stream_fields
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.saved_model import (
    SEALED,
    SIZES,
    LearnedModel,
    build_model,
    parse_weights,
    read_weights,
)
from seu_bench.errors import RequestError, ResultsError
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import FILES, RECORD_NAME, Record, code_fault, read_record, record_digest
from seu_bench.results.record_files import LEARNER_NAME, MODEL_NAME, find_run
from seu_bench.results.record_metrics import check_metrics, measured_rows
from seu_bench.training.monitoring import class_counts
from seu_bench.utils.hardware import computing_with
from seu_bench.utils.progress import track
from seu_bench.utils.reading import read_file
from seu_bench.utils.text import printable

#: Share of a task's test images that another kind of device may answer otherwise, as it rounds otherwise.
TOLERATED: Final = 0.005


@dataclass(frozen=True)
class Check:
    """Result of one check: passed, failed, or not compared (``None``); with the values found, or every difference."""

    name: str
    passed: bool | None
    detail: tuple[str, ...]

    @classmethod
    def of(cls, name: str, faults: Sequence[str], passed: str) -> Check:
        """A check that failed with its ``faults`` if there are any, else one with the note ``passed``."""
        return cls(name, not faults, tuple(faults) or (passed,))


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
    faults = [f"{folder / RECORD_NAME}: something in it was changed after the run's end"]
    is_same = record_digest(document) == document.get("record_sha256")
    yield Check.of("record", [] if is_same else faults, "unchanged since the run's end")
    why = "the record's settings or the benchmark were changed since, or it was made with a file (--benchmark)"
    faults = [f"the record's settings give run {spec.run_id}, not {record.run_id}", why]
    yield Check.of("run id", faults if spec.run_id != record.run_id else [], "what the record asks for has its run id")
    # Where the model is built and measured by code that is not seu-bench's own; other code may do the same.
    if (fault := code_fault(record.code, resolved.code)) is not None:
        yield Check("code", None, (fault, "what follows is built and measured by the code that is here"))
    elif named := tuple(f"{code.kind} {code.name!r} of {code}" for code in record.code if code.kind not in FILES):
        yield Check("code", True, named)
    yield _digest("weights", record.weights_sha256, content, path)
    yield from _learner(folder, record)
    model, sealed = None, Check("sealed copy", None, ("the weights cannot be read",))
    try:
        seal, tensors = parse_weights(content, path)
        faults = list(differences(record.model_dump(mode="json", include=SEALED), seal.record, "", "sealed"))
        sealed = Check.of("sealed copy", faults, f"{len(SEALED)} fields are as they were sealed")
        model = build_model(registry, seal, tensors, record, path).to(device)
        built = Check("model", True, (f"built and filled with {len(tensors)} tensors",))
    except ResultsError as error:
        built = Check("model", False, (f"{error.where}: {error.what}",))
    yield from (sealed, built)
    faults = list(differences(record.data_fingerprint, stream.fingerprint, "fingerprint", "found"))
    yield Check.of("data", faults, f"fingerprint {stream.fingerprint}")
    made = stream_fields(stream.plan) | {"task_inputs": stream.inputs}
    faults = list(differences(record.model_dump(include=set(made)), made, "", "made"))
    yield Check.of("tasks", faults, f"{len(stream.plan.tasks)} tasks, their order, classes and images")
    if model is None:
        yield from (Check(name, None, ("there is no model to measure",)) for name in ("accuracy", *SIZES))
    else:
        yield accuracy_check(record, model, stream, spec.protocol.eval_batch_size)
        yield from _sizes(record, model, device)
    faults, not_compared = check_metrics(record, registry.known_metrics)
    passed = f"{len(record.metrics) - len(not_compared)} follow from {RECORD_NAME}"
    yield Check.of("metrics", faults, passed + (f"; not compared: {', '.join(not_compared)}" if not_compared else ""))


def _digest(name: str, digest: str | None, content: bytes, path: Path) -> Check:
    found = f"SHA-256 {hashlib.sha256(content).hexdigest()}"
    return Check.of(name, list(differences(f"SHA-256 {digest}", found, str(path), "found")), found)


def _learner(folder: Path, record: Record) -> Iterator[Check]:
    """What further tasks are learned from, and the run that this one continued, as far as they are at hand."""
    if record.learner_sha256 is not None:
        path = folder / LEARNER_NAME
        is_there = path.is_file()
        absent = Check("learner", None, (f"{path} is not here",))
        yield _digest("learner", record.learner_sha256, read_file(path), path) if is_there else absent
    if (parent := record.parent) is None:
        return
    if not (folder.parent / parent.run_id / RECORD_NAME).is_file():
        yield Check("parent", None, (f"{parent.run_id} is not beside it",))
        return
    other = read_record(folder.parent / parent.run_id)
    own = tuple(row[: parent.tasks] for row in record.accuracy_matrix[: parent.tasks])
    check = Check.of("parent", list(differences(own, other.accuracy_matrix, "accuracy_matrix", "its")), parent.run_id)
    if check.passed and other.record_sha256 != parent.record_sha256:
        check = Check("parent", None, (f"{parent.run_id} was made again since, with the same accuracies",))
    yield check


def accuracy_check(record: Record, model: LearnedModel, stream: TaskStream, batch_size: int) -> Check:
    """Evaluate the last row of the matrix anew: the same test images in the same batches.

    On the kind of device that the run was made on nothing may differ; on another :data:`TOLERATED` of a task's images.
    """
    tasks, device = learned_tasks(record), stream.tasks[0].test.device.type
    same = record.environment.device.startswith(device)
    if not tasks:
        return Check("accuracy", None, ("the record has no measurement",))
    row, faults, images_in_all, others = measured_rows(record)[-1], list[str](), 0, 0.0
    by_class: list[list[tuple[int, int]]] = [[] for _ in stream.tasks]
    for task in track(tasks, "evaluating tasks"):
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
            others += differ
            if not same and differ <= max(1.0, TOLERATED * len(images)):
                continue
            faults.append(f"{place}: recorded {recorded}, found {found} ({differ:.4g} of {len(images)} images)")
    faults += [] if others else differences(record.task_class_counts, by_class, "task_class_counts", "found")
    if faults:
        faults.append(f"the run was made on {record.environment.device}; another one may round differently")
    passed = f"the last row on {images_in_all:,} test images of {len(tasks)} tasks"
    where = f"; on {device} {others:.0f} of them differ, of each task {TOLERATED:.1%} at most" if others else ""
    return Check.of("accuracy", faults, passed + where)


def count_by_class(
    model: LearnedModel, images: TaskImages, task: int, batch_size: int, classes: Sequence[int]
) -> list[tuple[int, int]]:
    """Count the images of each class of a task that the model answers right, as the run measured, and all of them."""
    told = task if model.scenario == "task" else None
    with torch.no_grad():
        batches = images.batches(batch_size, shuffle=False)
        right = torch.cat([y[model(x, told).argmax(dim=1) == y] for x, y in batches])
    return class_counts(images.labels, right, classes)


def _sizes(record: Record, model: LearnedModel, device: torch.device) -> Iterator[Check]:
    """Parameters and bits of masks at the end; parameters and multiply-accumulates on each task's path."""
    network, shape, inference = model.network, record.input_shape or (), model.inference
    dtype = InputShape(record.input_kind, shape).dtype

    def answer(images: torch.Tensor, task: int) -> Any:
        return inference(network, images, task + 1) if inference else network.forward_single_task(images, task)

    counts: dict[str, Callable[[int], int]] = {
        "params_total": lambda _: count_parameters(network),
        "mask_bits": lambda _: network.mask_bits,
        "params_active": lambda task: count_parameters(network.task_module(task)),
        "macs": lambda task: count_macs(lambda images: answer(images, task), shape, device, dtype),
    }
    has_one_head = model.scenario != "task" and inference is None  # which has grown, and does not shrink
    for name in SIZES:
        values = getattr(record, name)
        faults = [] if values else [f"{name}: nothing was recorded"]
        # A strategy that learns all tasks at once is measured once, on the last.
        first = max(0, len(record.task_names) - len(values))
        # The head of an extended run, and a model that grew, were smaller on the paths of earlier tasks.
        grew = record.parent is not None or len({*record.params_total}) > 1
        has_grown = has_one_head and (name == "macs" or (name == "params_active" and grew))
        at_end = name in ("params_total", "mask_bits") or has_grown
        for place in track(range(len(values))[-1 if at_end else 0 :], f"counting {name}"):
            try:
                found = counts[name](first + place)
            except Exception as error:
                faults.append(f"{name}[{place}]: it cannot be counted: {type(error).__name__}: {error}")
                continue
            found += record.encoder_sizes.get(name, 0)
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


def request_of(record: Record, benchmark: Path | None = None, data_root: Path | None = None) -> Request:
    """Request of a record; ``benchmark`` is the TOML file of one that is not registered."""
    options: dict[str, Any] = dict(record.options)
    parts = {"searcher": record.searcher_options, "creator": record.creator_options}
    for prefix, given in (parts | {"benchmark": record.benchmark_overrides}).items():
        options |= {f"{prefix}.{key}": value for key, value in given.items()}
    fields = {"strategy", "searcher", "creator", "protocol", "seed", *ResultFields.model_fields}
    name = record.benchmark if benchmark is None else str(benchmark)
    return Request(benchmark=name, options=options, data_root=data_root, **record.model_dump(include=fields))


def resolve_record(
    registry: Registry, record: Record, benchmark: Path | None = None, data_root: Path | None = None
) -> ResolvedRun:
    """Resolve the request of a record that may be a stranger's: it may name no file, and define no data.

    ``benchmark`` is the user's own TOML file, for a run of one that is not registered. A RequestError: the record names
    a file, or what it asks for is not installed, or is no valid request.
    """
    request, remedy = request_of(record, benchmark, data_root), "seu-bench verify --benchmark FILE.toml"
    if benchmark is None and record.benchmark not in registry.benchmarks:
        what = f"benchmark {record.benchmark!r} is not registered here"
        file = f" ({printable(record.benchmark_file)}, from the results folder)" if record.benchmark_file else ""
        raise RequestError(
            what, where=record.run_id, remedy=f"give the file that the run was made with{file}: {remedy}"
        )
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
