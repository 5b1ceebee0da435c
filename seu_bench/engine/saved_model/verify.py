"""Verification of a record: the model is built from its file, and measured again where that is possible."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from seu_bench.config.run import Request, ResultFields, RunSpec
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.environment import choose_device
from seu_bench.engine.recorder import stream_fields
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.saved_model import file as saved
from seu_bench.engine.saved_model.model import LearnedModel, build_model, learned_tasks
from seu_bench.errors import RequestError, ResultsError
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.plugin.registry import Registry
from seu_bench.results.code import FILES, code_fault
from seu_bench.results.record import RECORD_NAME, Record, read_record, record_digest
from seu_bench.results.record_files import MODEL_NAME, find_run
from seu_bench.results.record_metrics import check_metrics, measured_rows
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
    content = saved.read_weights(folder, record)
    resolved = resolve_record(registry, record, benchmark, data_root)
    with computing_with(record.threads):
        return _verified(registry, folder, record, content, resolved, torch.device(choose_device(device)))


def _verified(
    registry: Registry, folder: Path, record: Record, content: bytes, resolved: ResolvedRun, chosen: torch.device
) -> Verification:
    spec = resolved.spec
    stream = build_stream(spec.benchmark, resolved.load, resolved.limits, spec.seed, chosen, **resolved.part)
    path, made = folder / MODEL_NAME, stream_fields(stream.plan) | {"task_inputs": stream.inputs}
    for name in ("task_class_names", "task_inputs"):  # of which earlier versions say nothing, or not of every data set
        if not getattr(record, name):
            del made[name]
    checks = [
        _record(folder),
        _run_id(record, spec),
        *_code(record, resolved),
        _same("weights", "SHA-256", hashlib.sha256(content).hexdigest(), record.weights_sha256, f"{path}: "),
    ]
    file, model = None, None
    sizes, sealed = saved.known_fields(record)
    try:
        file = saved.parse_weights(content, path)
        recorded = record.model_dump(mode="json", include=sealed)
        copy = {name: value for name, value in file.seal.record.items() if name in sealed}
        told = f"{len(sealed)} fields are as they were sealed"
        checks.append(_check("sealed copy", list(differences(recorded, copy, "", "sealed")), told))
        model = build_model(registry, file, record).to(chosen)
        checks.append(Check("model", True, (f"built and filled with {len(file.tensors)} tensors",)))
    except ResultsError as error:
        checks += [Check("sealed copy", None, ("the weights cannot be read",))] if file is None else []
        checks.append(Check("model", False, (f"{error.where}: {error.what}",)))
    faults = list(differences(record.model_dump(include=set(made)), made, "", "made"))
    checks += [
        _same("data", "fingerprint", stream.fingerprint, record.data_fingerprint),
        _check("tasks", faults, f"{len(stream.plan.tasks)} tasks, their order, classes and images"),
    ]
    if model is None:
        checks += [Check(name, None, ("there is no model to measure",)) for name in ("accuracy", *sizes)]
    else:
        checks.append(_accuracy(record, model, stream, resolved.spec.protocol.eval_batch_size))
        checks += _sizes(record, model, chosen, sizes)
    return Verification(record, folder, (*checks, _metrics(record, registry)))


def resolve_record(
    registry: Registry, record: Record, benchmark: Path | None = None, data_root: Path | None = None
) -> ResolvedRun:
    """Resolve the request of a record that may be a stranger's: it may name no file, and define no data.

    Args:
        registry: what is installed.
        record: of any origin.
        benchmark: the user's own TOML file, for a run of a benchmark that is not registered.
        data_root: folder of data sets.

    Returns:
        The run.

    Raises:
        RequestError: the record names a file, or what it asks for is not installed, or is no valid request.
    """
    request = request_of(record, benchmark, data_root)
    if benchmark is None and record.benchmark not in registry.benchmarks:
        raise RequestError(
            f"benchmark {record.benchmark!r} is not registered here",
            where=record.run_id,
            remedy="give the file that the run was made with: seu-bench verify --benchmark FILE.toml",
        )
    for key, value in request.options.items():
        if benchmark is not None and key.startswith("benchmark."):
            continue
        if key.startswith("benchmark.datasets"):
            what = f"the record defines data of its own: {key}"
            remedy = "write it into a benchmark's file: seu-bench verify --benchmark FILE.toml"
            raise RequestError(what, where=record.run_id, remedy=remedy)
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
        for place, (left, right) in enumerate(zip(recorded, other, strict=True)):
            yield from differences(left, right, f"{name}[{place}]", word)
    elif recorded != other:
        yield f"{name}: recorded {_short(recorded)}, {word} {_short(other)}"


def _short(value: Any, most: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _check(name: str, faults: Sequence[str], passed: str) -> Check:
    """A check that failed with its ``faults`` if there are any, else one with the note ``passed``."""
    return Check(name, not faults, tuple(faults) or (passed,))


def _same(name: str, what: str, found: str, recorded: str | None, where: str = "") -> Check:
    faults = [] if found == recorded else [f"{where}{what} {found}, and the record names {recorded}"]
    return _check(name, faults, f"{what} {found}")


def _run_id(record: Record, spec: RunSpec) -> Check:
    """The run id, by what the record asks for."""
    if spec.run_id == record.run_id:
        return Check("run id", True, ("what the record asks for has its run id",))
    if spec.model_copy(update={"threads": 1}).run_id == record.run_id:
        told = f"it does not say that the run computed with {record.threads} threads: an earlier version made it"
        return Check("run id", None, (told, "here this run id means one thread (--restart makes that run)"))
    why = "the record's settings or the benchmark were changed since, or it was made with a file (--benchmark)"
    return Check("run id", False, (f"the record's settings give run {spec.run_id}, not {record.run_id}", why))


def _code(record: Record, resolved: ResolvedRun) -> Iterator[Check]:
    """The code that builds and measures the model, where that is not seu-bench's own. Other code may do the same."""
    named = [code for code in record.code if code.kind not in FILES]
    if (fault := code_fault(record.code, resolved.code)) is not None:
        yield Check("code", None, (fault, "what follows is built and measured by the code that is here"))
    elif named:
        yield Check("code", True, tuple(f"{code.kind} {code.name!r} of {code}" for code in named))
    elif any(code.kind not in ("metric", *FILES) for code in resolved.code):
        yield Check("code", None, ("the record does not name it: its run was made by an earlier version",))


def _record(folder: Path) -> Check:
    """The record as a whole, by the digest that it was given when the run was finished."""
    path = folder / RECORD_NAME
    document = json.loads(read_file(path))
    recorded = document.get("record_sha256")
    if recorded is None:
        return Check("record", None, ("it has no digest: its run was made by an earlier version",))
    faults = [] if record_digest(document) == recorded else [f"{path}: something in it was changed after the run's end"]
    return _check("record", faults, "unchanged since the run's end")


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
    if record.task_class_counts:  # earlier versions did not count by class
        faults += differences(record.task_class_counts, by_class, "task_class_counts", "found")
    if faults:
        faults.append(f"the run was made on {record.environment.device}; another one may round differently")
    return _check("accuracy", faults, f"the last row on {images_in_all:,} test images of {len(tasks)} tasks")


def count_by_class(
    model: LearnedModel, images: TaskImages, task: int, batch_size: int, classes: Sequence[int]
) -> list[tuple[int, int]]:
    """Count the images of each class of a task that the model classifies correctly, and all of them."""
    with torch.no_grad():
        batches = images.batches(batch_size, shuffle=False)
        right = torch.cat([y[model.tested(x, task).argmax(dim=1) == y] for x, y in batches])
    return class_counts(images.labels, right, classes)


def _sizes(record: Record, model: LearnedModel, device: torch.device, names: Sequence[str]) -> Iterator[Check]:
    """Parameters and bits of masks at the end; parameters and multiply-accumulates on each task's path."""
    network, shape = model.network, record.input_shape or ()
    counts: dict[str, Callable[[int], int]] = {
        "params_total": lambda _: count_parameters(network),
        "mask_bits": lambda _: network.mask_bits,
        "params_active": lambda task: count_parameters(network.task_module(task)),
        "macs": lambda task: count_macs(lambda x: model.computed(x, task), shape, device),
    }
    for name in names:
        values = getattr(record, name)
        faults = [] if values else [f"{name}: nothing was recorded"]
        # A strategy that learns all tasks at once is measured once, on the last.
        first = max(0, len(record.task_names) - len(values))
        at_end = name in ("params_total", "mask_bits") or (name == "macs" and model.has_one_head)
        for place in tracked(range(len(values))[-1 if at_end else 0 :], f"counting {name}"):
            try:
                found = counts[name](first + place)
            except Exception as error:
                faults.append(f"{name}[{place}]: it cannot be counted: {type(error).__name__}: {error}")
                continue
            if values[place] != found:
                faults.append(f"{name}[{place}]: recorded {values[place]}, found {found}")
        yield _check(name, faults, "counted after the last task" if at_end else "counted on each task's path")


def _metrics(record: Record, registry: Registry) -> Check:
    """The metrics made anew from the record's own matrix, sizes and stages, core's and those of plugins."""
    faults, not_compared = check_metrics(record, registry.known_metrics)
    passed = f"{len(record.metrics) - len(not_compared)} follow from {RECORD_NAME}"
    return _check("metrics", faults, passed + (f"; not compared: {', '.join(not_compared)}" if not_compared else ""))
