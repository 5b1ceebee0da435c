"""A finished run that learns further tasks: the run of a longer benchmark, continued where the finished one ended.

What it ends with is, bit by bit, what a run of all tasks from nothing would end with, so that it has that run's id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from seu_bench.config.benchmark import STANDARD_PROTOCOLS, BenchmarkSpec
from seu_bench.config.options import split_by_prefix
from seu_bench.config.run import ExecutionFields, Request
from seu_bench.config.streams import ClassSplit, DatasetSequence
from seu_bench.config.toml_file import toml_text
from seu_bench.data.own_folders import keep_benchmark
from seu_bench.data.tasks import ordered_tasks
from seu_bench.engine.launcher import launch
from seu_bench.engine.learner_file import Ancestor
from seu_bench.engine.resolve import ResolvedRun
from seu_bench.engine.runner import Outcome
from seu_bench.engine.stopping import StopRequest
from seu_bench.engine.verification import request_of, resolve_record
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_files import find_run
from seu_bench.utils.reading import absolute

#: Fields of a request that decide no result.
_EXECUTION: Final = {*ExecutionFields.model_fields, "restart", "max_seconds"} - {"match", "results"}
#: Of each kind of samples: endings of a file, or of a folder none, and the kind of its table in a benchmark file.
_KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "image": {"": "folder", ".csv": "files", ".npz": "npz"},
    "features": {".npz": "features", ".csv": "features", ".parquet": "features"},
    "tokens": {".npz": "tokens"},
}


def extend(
    registry: Registry,
    run: str | Path,
    *,
    data: Path | None = None,
    name: str | None = None,
    benchmark: str | None = None,
    results: Path = Path("results"),
    watcher: Callable[[ResolvedRun], object] | None = None,
    stop: StopRequest | None = None,
    **execution: Any,
) -> Outcome:
    """Have a finished run learn one more task, or those by which a benchmark file is longer than its own.

    The same call resumes an extension that was interrupted, and returns the record of one that is finished.

    Args:
        registry: plugins whose hooks are called.
        run: a run id, a unique beginning of one, or a run's folder.
        data: of the task: a folder of class folders or a file, as benchmark files may name; in place of ``benchmark``.
        name: of the task; by default that of ``data``.
        benchmark: a benchmark whose first tasks are those of the run.
        results: folder of records.
        watcher, stop: as :func:`seu_bench.engine.launcher.launch` takes them.
        execution: fields of a request that decide no result, such as ``device``.

    Raises:
        ResultsError: there is no such run, it kept no learner, or its files are corrupt.
        RequestError: the strategy cannot learn a further task, or the stream does not begin with the run's tasks.
        SeuBenchError: as of any run.
    """
    if decisive := sorted(execution.keys() & Request.model_fields.keys() - _EXECUTION):
        what = f"{', '.join(decisive)} of a run cannot change when it is extended"
        raise RequestError(what, remedy="leave it out, or run all tasks anew")
    asked = Request(**execution)
    folder = find_run(results, str(run))
    ancestor, given = Ancestor.read(folder), {"data_root": asked.data_root}
    record = ancestor.record
    own = None if record.benchmark_file is None else absolute(folder).parents[1] / record.benchmark_file
    if (data is None) == (benchmark is None):
        remedy = "seu-bench extend RUN --data FOLDER, or seu-bench extend RUN --benchmark FILE.toml"
        raise RequestError("give the data of a further task, or a longer benchmark", where="--data", remedy=remedy)
    if data is not None:
        parent = resolve_record(registry, record, own, **given)
        path = _write_longer(parent, record, absolute(data), name, results)
        request = request_of(record, path, **given)
        overrides = split_by_prefix(request.options)["benchmark"]
        left = {key: it for key, it in request.options.items() if key.removeprefix("benchmark.") not in overrides}
        request = request.model_copy(update={"options": left})
    else:
        request = request_of(record, **given).model_copy(update={"benchmark": benchmark})
    request = request.model_copy(update={key: getattr(asked, key) for key in execution})
    request = request.model_copy(update={"results": results, "first_tasks": None})
    return launch(request, registry, watcher=watcher, stop=stop, parent=ancestor)


def _write_longer(run: ResolvedRun, record: Record, data: Path, name: str | None, results: Path) -> Path:
    """Write the benchmark file of the run's tasks and one of ``data``, and return its path."""
    document = longer_document(run, record, data, name or data.stem)
    return keep_benchmark(document["name"], toml_text(document), results)


def longer_document(run: ResolvedRun, record: Record, data: Path, name: str) -> dict[str, Any]:
    """What a benchmark file says of the tasks of a run, in the order in which it learned them, and of one more."""
    spec, infos = run.spec.benchmark, run.infos()
    stream = spec.stream
    if not isinstance(stream, ClassSplit | DatasetSequence):
        what = f"a stream of kind {stream.kind!r} cannot be continued with data of another kind"
        raise RequestError(what, where="--data", remedy="give a benchmark with more tasks: --benchmark FILE.toml")
    tasks: dict[str, Any] = {}
    for task in ordered_tasks(spec, infos, run.spec.seed)[: len(record.task_names)]:
        names = infos[task.dataset].class_names or ()
        named = all(label < len(names) and names.count(names[label]) == 1 for label in task.labels)
        own: dict[str, Any] = {"dataset": task.dataset}
        own["labels"] = [names[label] if named else label for label in task.labels]
        if task.per_class is not None:
            own["train_per_class"], own["valid_per_class"] = task.per_class
        if task.test_per_class is not None:
            own["test_per_class"] = task.test_per_class
        tasks[task.name] = own | {"input": task.input.model_dump(mode="json", exclude_defaults=True)}
    if name in tasks:
        remedy = "give it another name with --name"
        raise RequestError(f"run {record.run_id} has learned a task {name!r} already", where="--name", remedy=remedy)
    datasets = {key: it.model_dump(mode="json", exclude_none=True) for key, it in spec.datasets.items() if key in infos}
    key = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[:50] or "task"
    key = key if key not in {*datasets, *infos} else f"{key}_{len(tasks)}"
    last = list(tasks.values())[-1]
    datasets[key] = _definition(record, data, datasets.get(last["dataset"], {}))
    tasks[name] = {"dataset": key, "input": last["input"]}
    shared = {"validation": stream.validation, "scenario": stream.scenario}
    document: dict[str, Any] = {"name": spec.name, "version": spec.version, "default_protocol": run.spec.protocol_name}
    document["stream"] = {"kind": "datasets", **shared, "tasks": tasks}
    document["datasets"] = datasets
    protocol = run.spec.protocol.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude={"tuned"})
    if protocol != STANDARD_PROTOCOLS.get(run.spec.protocol_name):
        document["protocols"] = {run.spec.protocol_name: protocol}
    BenchmarkSpec.model_validate({"protocols": STANDARD_PROTOCOLS, **document})
    return document


def _definition(record: Record, data: Path, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a data set of the same samples as a run's."""
    kinds = _KINDS[record.input_kind]
    ending = "" if data.is_dir() else data.suffix.lower()
    if (kind := kinds.get(ending)) is None:
        given = f"a file that ends in {ending!r}" if ending else "a folder"
        what = f"the run learned from {record.input_kind}, and {data} is {given}"
        needed = " or ".join(it or "a folder of class folders" for it in kinds)
        raise RequestError(what, where="--data", remedy=f"give {needed}")
    definition: dict[str, Any] = {"kind": kind, "path": str(data)}
    if kind in ("folder", "files"):
        channels, *size = record.task_inputs[-1].shape
        definition |= {"size": size, "channels": channels, "cache": "disk"}
    same = ("test_fraction", "label", "vocabulary") if earlier.get("kind") == kind else ()
    definition |= {key: earlier[key] for key in same if key in earlier}
    return definition | ({"vocabulary": record.vocabulary} if kind == "tokens" else {})
