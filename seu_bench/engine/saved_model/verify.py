"""Verification of a record: the model is built from its file, and measured again where that is possible."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seu_bench.config.run import Request, ResultFields
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.engine.run_folder import MODEL_NAME
from seu_bench.engine.saved_model.checks import Check, Verification, compared, differences, near
from seu_bench.engine.saved_model.file import SEALED, ModelFile, parse_weights, read_weights
from seu_bench.engine.saved_model.load import LearnedModel, build_model, learned_tasks
from seu_bench.errors import RequestError, ResultsError, SeuBenchError
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import RECORD_NAME, Record, read_record
from seu_bench.results.record_files import find_run
from seu_bench.results.record_metrics import METRICS, measured_rows
from seu_bench.utils.progress import tracked


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
        The result of each check.

    Raises:
        ResultsError: there is no such run, or it saved no weights.
        RequestError: what the record asks for is not installed, or is no valid request.
        DataError: a data set is missing or corrupt.
    """
    import torch

    from seu_bench.engine.environment import choose_device

    folder = find_run(results, run)
    record = read_record(folder)
    content = read_weights(folder, record)
    if benchmark is None and record.benchmark not in registry.benchmarks:
        raise RequestError(
            f"benchmark {record.benchmark!r} is not registered here",
            where=str(folder),
            remedy="give the file that the run was made with: --benchmark FILE.toml",
        )
    resolved = resolve(registry, request_of(record, benchmark, data_root))
    chosen = torch.device(choose_device(device))
    spec = resolved.spec
    stream = build_stream(spec.benchmark, resolved.load, resolved.limits, spec.seed, chosen)
    file, model = None, None
    checks = [_run_id(record, resolved), _sha256(record, content, folder)]
    try:
        file = parse_weights(content, folder / MODEL_NAME)
        checks.append(_sealed(record, file))
        model = build_model(registry, file, record).to(chosen)
        checks.append(Check("model", True, (f"built and filled with {len(file.tensors)} tensors",)))
    except ResultsError as error:
        checks += [Check("sealed copy", None, ("the weights cannot be read",))] if file is None else []
        checks.append(Check("model", False, _told(error)))
    checks += [_data(record, stream), _stream(record, stream)]
    if model is None:
        names = ("accuracy", "params_total", "params_active", "macs")
        checks += [Check(name, None, ("there is no model to measure",)) for name in names]
    else:
        checks.append(_accuracy(record, model, stream, spec.protocol.eval_batch_size))
        checks += _sizes(record, model, chosen)
    checks.append(_metrics(record, registry))
    return Verification(record, folder, tuple(checks))


def request_of(record: Record, benchmark: Path | None = None, data_root: Path | None = None) -> Request:
    """Request of a record; ``benchmark`` is the TOML file of one that is not registered."""
    options: dict[str, Any] = dict(record.options)
    for prefix, given in (
        ("searcher", record.searcher_options),
        ("creator", record.creator_options),
        ("benchmark", record.benchmark_overrides),
    ):
        options |= {f"{prefix}.{key}": value for key, value in given.items()}
    return Request(
        strategy=record.strategy,
        benchmark=record.benchmark if benchmark is None else str(benchmark),
        searcher=record.searcher,
        creator=record.creator,
        protocol=record.protocol,
        seed=record.seed,
        options=options,
        data_root=data_root,
        **record.model_dump(include=set(ResultFields.model_fields)),
    )


def _run_id(record: Record, resolved: ResolvedRun) -> Check:
    found = resolved.spec.run_id
    if found == record.run_id:
        return Check("run id", True, ("what the record asks for has its run id",))
    fault = f"the record's settings give run {found}, not {record.run_id}"
    why = "the record's settings or the benchmark were changed since, or it was made with a file (--benchmark)"
    return Check("run id", False, (fault, why))


def _sha256(record: Record, content: bytes, folder: Path) -> Check:
    found = hashlib.sha256(content).hexdigest()
    if found == record.weights_sha256:
        return Check("weights", True, (f"SHA-256 {found}",))
    fault = f"{folder / MODEL_NAME}: SHA-256 {found}, and the record names {record.weights_sha256}"
    return Check("weights", False, (fault,))


def _sealed(record: Record, file: ModelFile) -> Check:
    """Compare the record with the copy saved beside the weights."""
    recorded = record.model_dump(mode="json", include=set(SEALED))
    found = []
    for name in SEALED:
        if name not in file.seal.record:
            found.append(f"{name}: not sealed")
        else:
            found += differences(recorded[name], file.seal.record[name], name, "sealed")
    return compared("sealed copy", found, f"{len(SEALED)} fields are as they were sealed")


def _data(record: Record, stream: TaskStream) -> Check:
    if record.data_fingerprint == stream.fingerprint:
        return Check("data", True, (f"fingerprint {stream.fingerprint}",))
    return Check("data", False, (f"fingerprint {stream.fingerprint}, and the record names {record.data_fingerprint}",))


def _stream(record: Record, stream: TaskStream) -> Check:
    plan = stream.plan
    found = {
        "task_order": plan.order,
        "task_names": tuple(task.name for task in plan.tasks),
        "task_classes": plan.classes_per_task,
        "task_images": tuple((task.num_train, task.num_valid, task.num_test) for task in plan.tasks),
        "input_shape": (plan.channels, plan.height, plan.width),
    }
    faults = [line for name, value in found.items() for line in differences(getattr(record, name), value, name, "made")]
    return compared("tasks", faults, f"{len(plan.tasks)} tasks, their order, classes and images")


def _accuracy(record: Record, model: LearnedModel, stream: TaskStream, batch_size: int) -> Check:
    """The last row of the matrix evaluated anew: the same test images in the same batches."""
    tasks = learned_tasks(record)
    if not tasks:
        return Check("accuracy", None, ("the record has no measurement",))
    row = measured_rows(record)[-1]
    faults = []
    for task in tracked(tasks, "evaluating tasks"):
        place = f"accuracy_matrix[{row}][{task}]"
        recorded = record.accuracy_matrix[row][task]
        if task >= len(stream.tasks) or recorded is None:
            faults.append(f"{place}: recorded {recorded}, and the stream has {len(stream.tasks)} tasks")
            continue
        images = stream.tasks[task].test
        try:
            correct = count_correct(model, images, task, batch_size)
        except Exception as error:  # a record that was changed may have made a model that these images do not fit
            faults.append(f"{place}: it cannot be evaluated: {type(error).__name__}: {error}")
            continue
        if correct / len(images) != recorded:
            differ = abs(correct - recorded * len(images))
            faults.append(
                f"{place}: recorded {recorded}, found {correct / len(images)} ({differ:.4g} of {len(images)} images)"
            )
    images_in_all = sum(len(stream.tasks[task].test) for task in tasks if task < len(stream.tasks))
    if faults:
        made_on = record.environment
        faults.append(
            f"the run was made on {made_on.device} with {made_on.threads} threads; others may round differently"
        )
    return compared("accuracy", faults, f"the last row on {images_in_all:,} test images of {len(tasks)} tasks")


def count_correct(model: LearnedModel, images: TaskImages, task: int, batch_size: int) -> int:
    """Count the images of a task that the model classifies correctly."""
    import torch

    correct = 0
    with torch.no_grad():
        for x, y in images.batches(batch_size, shuffle=False):
            correct += int((model(x, task).argmax(dim=1) == y).sum())
    return correct


def _sizes(record: Record, model: LearnedModel, device: Any) -> list[Check]:
    """Parameters at the end, and on each task's path parameters and multiply-accumulates."""
    network, shape = model.network, record.input_shape or ()
    # A strategy that learns all tasks at once is measured once, on the last.
    tasks = range(len(record.task_names))
    active = tasks[-len(record.params_active) :] if record.params_active else ()
    macs = tasks[-len(record.macs) :] if record.macs else ()
    last = len(record.params_total) - 1
    total = {f"params_total[{last}]": (record.params_total[-1:], lambda: count_parameters(network))}
    paths = {
        f"params_active[{place}]": (
            record.params_active[place : place + 1],
            lambda task=task: count_parameters(network.task_module(task)),
        )
        for place, task in enumerate(active)
    }
    costs = {
        f"macs[{place}]": (
            record.macs[place : place + 1],
            lambda task=task: count_macs(lambda x: network.forward_single_task(x, task), shape, device),
        )
        for place, task in enumerate(macs)
    }
    return [
        _counted("params_total", total, "after the last task"),
        _counted("params_active", paths, "on each task's path"),
        _counted("macs", costs, "on each task's path"),
    ]


def _counted(name: str, expected: Mapping[str, tuple[Sequence[int], Any]], what: str) -> Check:
    faults = []
    for place, (recorded, count) in tracked(expected.items(), f"counting {name}"):
        try:
            found = count()
        except Exception as error:
            faults.append(f"{place}: it cannot be counted: {type(error).__name__}: {error}")
            continue
        if list(recorded) != [found]:
            faults.append(f"{place}: recorded {recorded[0] if recorded else None}, found {found}")
    if not expected:
        faults.append(f"{name}: nothing was recorded")
    return compared(name, faults, f"counted {what}")


def _metrics(record: Record, registry: Registry) -> Check:
    """The metrics made anew from the record's own matrix, sizes and stages, core's and those of plugins."""
    metrics = registry.known_metrics
    faults, not_compared = [], []
    for name in dict.fromkeys([*METRICS, *record.metrics]):
        if name not in metrics:
            not_compared.append(f"{name} (its plugin is not installed)")
            continue
        if not metrics[name].from_record:
            continue
        try:
            found = metrics[name](record)
        except Exception as error:
            if name in METRICS:
                return Check("metrics", False, (f"they cannot be computed: {error}",))
            not_compared.append(f"{name} ({type(error).__name__}: {error})")
            continue
        if name not in record.metrics:
            faults.append(f"{name}: not recorded, found {found}")
        elif not near(record.metrics[name], found):
            faults.append(f"{name}: recorded {record.metrics[name]}, found {found}")
    passed = f"{len(record.metrics) - len(not_compared)} follow from {RECORD_NAME}"
    return compared("metrics", faults, passed + (f"; not compared: {', '.join(not_compared)}" if not_compared else ""))


def _told(error: SeuBenchError) -> tuple[str, ...]:
    return (f"{error.where}: {error.what}" if error.where else error.what,)
