"""A finished run that learns further tasks: the run of a longer benchmark, continued where the finished one ended.

What it ends with is, bit by bit, what a run of all tasks from nothing would end with, so that it has that run's id.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from seu_bench.config.benchmark import STANDARD_PROTOCOLS, BenchmarkFile, BenchmarkSpec
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.config.run import EXTENSION_FIELDS, Request
from seu_bench.config.streams import ClassSplit, DatasetSequence
from seu_bench.config.toml_file import toml_text
from seu_bench.data.dataset import DatasetInfo
from seu_bench.data.own_folders import keep_benchmark, own_tasks, unused
from seu_bench.data.tasks import ordered_tasks
from seu_bench.engine.environment import choose_device
from seu_bench.engine.launcher import launch
from seu_bench.engine.learner_file import Ancestor
from seu_bench.engine.resolve import ResolvedRun, dataset_infos
from seu_bench.engine.runner import Outcome
from seu_bench.engine.stopping import StopRequest
from seu_bench.engine.verification import request_of
from seu_bench.errors import DataMissingError, RequestError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, record_path
from seu_bench.results.record_files import find_run
from seu_bench.utils.reading import absolute
from seu_bench.utils.text import plain_name, some

_FOLDER: Final = "folder of class folders"
#: Of each kind of samples: endings of a file, or a folder, and the kind of its table in a benchmark file.
_KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "image": {_FOLDER: "folder", ".csv": "files", ".npz": "npz"},
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

    Other arguments are those of :func:`seu_bench.extend`.

    Args:
        registry: plugins whose hooks are called.
        watcher, stop: as :func:`seu_bench.engine.launcher.launch` takes them.
        execution: fields of a request that decide no result, such as ``device``.

    Raises:
        ResultsError: there is no such run, it kept no learner, or its files are corrupt.
        RequestError: the strategy cannot learn a further task, or the stream does not begin with the run's tasks.
        SeuBenchError: as of any run.
    """
    if (data is None) == (benchmark is None):
        remedy = "seu-bench extend RUN --data FOLDER, or seu-bench extend RUN --benchmark FILE.toml"
        raise RequestError("give the data of a further task, or a longer benchmark", where="--data", remedy=remedy)
    asked = Request(**execution)
    if decisive := [key for key in execution if key not in EXTENSION_FIELDS and getattr(asked, key) is not None]:
        what = f"an extended run learns as the run does that it continues, and {', '.join(decisive)} cannot change"
        raise RequestError(what, where=decisive[0], remedy="leave it out, or run all tasks anew")
    folder = absolute(find_run(results, str(run)))
    ancestor = Ancestor.read(folder, choose_device(asked.device))
    record, path = ancestor.record, None
    request = request_of(record, data_root=asked.data_root)
    if data is None:
        request = request.model_copy(update={"benchmark": benchmark})
    else:
        spec = _learned_benchmark(ancestor, folder)
        infos, place = dataset_infos(registry, spec, request.data_root), absolute(data)
        if not place.exists():
            raise DataMissingError("there are no such data", where=str(data), remedy="correct the path of --data")
        title = name or (place.name if place.is_dir() else place.stem)
        document = longer_document(spec, infos, record, place, title)
        before = {*(results / "streams").glob("*/*.toml")}
        path = keep_benchmark(document["name"], benchmark_text(document, results), results)
        is_new = path not in map(absolute, before)
        # A file of TOML has no way to say that a value of a protocol is none.
        none = {f"benchmark.{key}" for key, it in record.benchmark_overrides.items() if it is None}
        options = {key: it for key, it in request.options.items() if key in none or not key.startswith("benchmark.")}
        request = request.model_copy(update={"benchmark": str(path), "options": options})
    given = {key: getattr(asked, key) for key in execution}
    request = request.model_copy(update={**given, "results": results, "first_tasks": None})
    made: list[Path] = []

    def watch(resolved: ResolvedRun) -> object:
        made.append(record_path(results, resolved.spec.run_id))
        return object() if watcher is None else watcher(resolved)

    try:
        outcome = launch(request, registry, watcher=watch, stop=stop, parent=ancestor)
        ancestor.check_record(outcome.record)  # which may have been finished before, and be another one
        return outcome
    finally:
        if path is not None and is_new and not any(it.exists() for it in made):  # it was refused
            path.unlink(missing_ok=True)
            for empty in (path.parent, path.parent.parent):
                with contextlib.suppress(OSError):
                    empty.rmdir()


def _learned_benchmark(ancestor: Ancestor, folder: Path) -> BenchmarkSpec:
    """The benchmark that a run in a folder learned; data are looked for where they were, then where the benchmark's
    file has them now, which may have moved with the results."""
    record = ancestor.record
    spec, file = ancestor.benchmark, folder.parent.parent / str(record.benchmark_file)
    gone = {name for name, it in spec.datasets.items() if not getattr(it, "path", file.parent).exists()}
    moved = BenchmarkFile(file).load(record.benchmark_overrides).datasets if gone and file.is_file() else {}
    return spec.model_copy(update={"datasets": spec.datasets | {name: moved[name] for name in gone & moved.keys()}})


def benchmark_text(document: Mapping[str, Any], results: Path) -> str:
    """A benchmark file, with paths from its folder below the results, which may be moved together with the data."""
    folder = results.resolve() / "streams" / "any"  # where paths that go up from a link would begin
    defined = {
        name: {key: os.path.relpath(it, folder) if key == "path" else it for key, it in own.items()}
        for name, own in document["datasets"].items()
    }
    return toml_text({**document, "datasets": defined})


def longer_document(
    spec: BenchmarkSpec, infos: Mapping[str, DatasetInfo], record: Record, data: Path, name: str
) -> dict[str, Any]:
    """What a benchmark file says of the tasks of a run, in the order in which it learned them, and of one more."""
    stream = spec.stream
    shares_by_place = isinstance(stream, ClassSplit) and stream.scenario == "domain"
    in_sessions = isinstance(stream, ClassSplit) and stream.sessions > 1
    if not isinstance(stream, ClassSplit | DatasetSequence) or shares_by_place or in_sessions:
        what = f"a stream of kind {stream.kind!r} cannot be continued with data of another kind"
        if in_sessions:
            what = "the images of a class are cut into sessions here, which further data are not"
        if shares_by_place:
            what = "classes of different names share an output here, by their places, which further data do not have"
        raise RequestError(what, where="--data", remedy="give a benchmark with more tasks: --benchmark FILE.toml")
    tasks: dict[str, Any] = {}
    for task in ordered_tasks(spec, infos, record.seed)[: len(record.task_names)]:
        names = infos[task.dataset].class_names or ()
        named = all(label < len(names) and names.count(names[label]) == 1 for label in task.labels)
        own: dict[str, Any] = {"dataset": task.dataset}
        own["labels"] = [names[label] if named else label for label in task.labels]
        if task.per_class is not None:
            own["train_per_class"], own["valid_per_class"] = task.per_class
        if task.test_per_class is not None:
            own["test_per_class"] = task.test_per_class
        tasks[task.name] = own | {"input": task.input.model_dump(mode="json", exclude_defaults=True)}
    if not name.strip():
        raise RequestError("the name of the task is blank", where="--name", remedy="leave --name out, or give a word")
    if name in tasks:
        remedy = "give it another name with --name"
        raise RequestError(f"run {record.run_id} has learned a task {name!r} already", where="--name", remedy=remedy)
    datasets = {key: it.model_dump(mode="json", exclude_none=True) for key, it in spec.datasets.items() if key in infos}
    key = unused(plain_name(name), {*datasets, *infos})
    last = list(tasks.values())[-1]
    datasets[key] = _definition(record, data, key, datasets.get(last["dataset"], {}))
    # Without the colour that was drawn for the last task; where there is one, images have 3 channels.
    own = {key: it for key, it in last["input"].items() if key != "color"}
    tasks[name] = {"dataset": key, "input": own | ({"channels": 3} if "color" in last["input"] else {})}
    shared = {"validation": stream.validation, "scenario": stream.scenario}
    document: dict[str, Any] = {"name": spec.name, "version": spec.version, "default_protocol": record.protocol}
    document["stream"] = {"kind": "datasets", **shared, "tasks": tasks}
    document["datasets"] = datasets
    protocol = spec.protocols[record.protocol].model_copy(update={"tuned": {}, "stream": {}})
    if protocol != ProtocolSpec.model_validate(STANDARD_PROTOCOLS.get(record.protocol, {})):
        own = protocol.model_dump(mode="json", exclude_none=True, exclude={"tuned", "stream"})
        document["protocols"] = {record.protocol: own}
    return document


def _definition(record: Record, data: Path, key: str, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a data set of the same samples as a run's."""
    kinds = _KINDS[record.input_kind]
    ending = _FOLDER if data.is_dir() else data.suffix.lower()
    if (kind := kinds.get(ending)) is None:
        what = f"the run learned from {record.input_kind}, and {data.name} is none of: {', '.join(kinds)}"
        raise RequestError(what, where="--data", remedy="give data of the kind that the run learned")
    definition: dict[str, Any] = {"kind": kind, "path": str(data)}
    if kind in ("folder", "files"):
        if parts := own_tasks(data, key):
            what = f"{data} has {len(parts)} tasks, not one: {some(parts)}"
            remedy = "give the data of one of them; or a longer benchmark: --benchmark FOLDER/"
            raise RequestError(what, where="--data", remedy=remedy)
        channels, *size = record.task_inputs[-1].shape
        definition |= {"size": size, "channels": channels, "cache": "disk"}
    if earlier.get("kind") == kind and "test_fraction" in earlier:
        definition["test_fraction"] = earlier["test_fraction"]
    if kind == "features" and ending != ".npz":
        if "label" not in earlier:
            what = "which column has the labels is not known: the run learned from no such table"
            raise RequestError(what, where=str(data), remedy="give an .npz, or all tasks: --benchmark FILE.toml")
        definition["label"] = earlier["label"]
    return definition | ({"vocabulary": record.vocabulary} if kind == "tokens" else {})
