"""What a finished run keeps to learn further tasks: ``learner.safetensors``, beside the weights, which it has not.

It is data that nothing executes. Its metadata is one JSON text: the state of the strategy with the names of tensors in
their places, and what made each task, by which a longer stream is known to begin with the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import save

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.commands import command
from seu_bench.data.streams import TaskStream
from seu_bench.engine.saved_model import KEY, check_digest, parse_sealed, parse_weights, read_weights, readable
from seu_bench.errors import RequestError, ResultsError
from seu_bench.results.labels import protocol_settings
from seu_bench.results.record import FileName, Record, read_record
from seu_bench.results.record_files import LEARNER_NAME, MODEL_NAME
from seu_bench.training.method import Method
from seu_bench.utils.reading import read_file

#: Fields of a record that a run and one that continues it have in common.
_SETTINGS: Final = (
    *("strategy", "searcher", "creator", "options", "searcher_options", "creator_options", "seed", "scenario"),
    *(
        "limit",
        "synthetic",
        "precision",
        "threads",
        "evaluation",
        "attach",
        "input_kind",
        "input_shape",
        "vocabulary",
        "encoder",
    ),
)
_OF_TASKS: Final = ("task_classes", "task_class_names", "task_images", "task_inputs")
_PLAIN: Final = (type(None), bool, int, float, str)


class LearnerSeal(BaseModel):
    """The metadata of a file: the run, what made each of its tasks, its benchmark with absolute paths, and its state
    without tensors."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["seu-bench learner"] = "seu-bench learner"
    schema_version: Literal[1] = 1
    run_id: FileName
    tasks: tuple[dict[str, Any], ...]
    benchmark: BenchmarkSpec
    state: Any


@dataclass(frozen=True)
class Ancestor:
    """A finished run from which a longer one continues.

    Attributes:
        record: its record.
        state: of its strategy behind the last task.
        tasks: what made each of its tasks (:attr:`~seu_bench.data.streams.TaskStream.identities`).
        benchmark: that it learned, with absolute paths.
    """

    record: Record
    state: Mapping[str, Any]
    tasks: Sequence[Mapping[str, Any]]
    benchmark: BenchmarkSpec

    @classmethod
    def read(cls, folder: Path, device: str = "cpu") -> Ancestor:
        """Read the run of a folder; tensors that were on an accelerator go to ``device``.

        Raises:
            ResultsError: it is not finished, it kept no learner, or its files are not those that the record names.
        """
        record, path = read_record(folder), folder / LEARNER_NAME
        if record.status != "finished":
            again = "run the command that began it again, then extend it"
            raise ResultsError(f"run {record.run_id} is {record.status}", where=str(folder), remedy=again)
        if record.learner_sha256 is None:
            again = "run it" if record.parent is None else f"extend {record.parent.run_id}"
            more = "" if record.open_ended else " -o benchmark.stream.input.normalise=first_task"
            what = f"run {record.run_id} kept no learner: it can answer, and learn nothing more"
            raise ResultsError(what, where=str(path), remedy=f"{again} again with --restart --keep-learner{more}")
        with readable(path, "the learner"):
            content = read_file(path)
            weights = read_weights(folder, record)
            check_digest(path, content, record.learner_sha256)
            check_digest(folder / MODEL_NAME, weights, record.weights_sha256)
            state, seal = parse_learner(content, device)
        _, tensors = parse_weights(weights, folder / MODEL_NAME)
        return cls(record, {**state, "weights": tensors}, seal.tasks, seal.benchmark)

    def check(self, stream: TaskStream, present: Record) -> None:
        """Refuse a run that begins as ``present`` on a stream: its first tasks, or how it learns, are not this run's,
        or no further task follows."""
        record = self.record
        for place, (known, found) in enumerate(zip(self.tasks, stream.identities, strict=False)):
            if other := [key for key in known if json.loads(json.dumps(found.get(key))) != known[key]]:
                what = f"task {place} ({record.task_names[place]!r}) is not the one that run {record.run_id} learned"
                remedy = "bring its data back as they were, or run all tasks anew"
                raise RequestError(f"{what}: its {' and '.join(other)} differ", where=record.run_id, remedy=remedy)
        self.check_record(present)

    def check_record(self, present: Record) -> None:
        """Refuse a run as :meth:`check`, as far as its record tells of that."""
        record, known, tasks = self.record, len(self.tasks), len(present.task_names)
        if tasks <= known:
            what = f"the benchmark has {tasks} tasks, and run {record.run_id} learned {known}"
            remedy = f"give the data of a further one: {command('extend', record.run_id, data='FOLDER')}"
            raise RequestError(what, where=record.run_id, remedy=remedy)
        settings = [_settings(it, known) for it in (record, present)]
        if other := [key for key, value in settings[0].items() if settings[1].get(key) != value]:
            what = f"its first tasks would be learned otherwise than by run {record.run_id}: {', '.join(other)} differ"
            remedy = "give the benchmark as the run learned it, with further tasks"
            raise RequestError(what, where=record.run_id, remedy=remedy)


def _settings(record: Record, tasks: int) -> dict[str, Any]:
    """What decides how the first tasks of a record are learned, and their outputs, as plain values."""
    document = record.model_dump(mode="json", include={*_SETTINGS, *_OF_TASKS})
    # Outputs are numbered as they are met, and are written down where classes come back, perhaps in a later task.
    return document | {key: document[key][:tasks] for key in _OF_TASKS} | protocol_settings(record)


def needs_whole_stream(strategy: Any) -> str | None:
    """Say why a strategy cannot learn a task that was not known at the beginning; ``None``: it can."""
    if not isinstance(strategy, Method):
        return "it is no method of seu_bench, whose state can be kept"
    return strategy.needs_whole_stream()


def learner_bytes(
    state: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], run_id: str, benchmark: BenchmarkSpec
) -> bytes:
    """A strategy's state as it is written, without its weights, which lie in the file of the model."""
    tensors: dict[str, torch.Tensor] = {}
    own = {key: value for key, value in state.items() if key not in ("weights", "own_now")}
    seal = LearnerSeal(run_id=run_id, tasks=tuple(map(dict, tasks)), benchmark=benchmark, state=None)
    # In the order of its keys: that of a benchmark's tasks is the order in which they are learned.
    text = json.dumps({**seal.model_dump(mode="json"), "state": _plain(own, "", tensors)})
    return save(tensors, {KEY: text})


def parse_learner(content: bytes, device: str = "cpu") -> tuple[dict[str, Any], LearnerSeal]:
    """Parse what :func:`learner_bytes` wrote: the state without weights, and what is said of it."""
    seal, tensors = parse_sealed(content, LearnerSeal)
    state = _restored(seal.state, tensors, torch.device(device))
    return {**state, "own_now": state["own"]}, seal


def _plain(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """A state as JSON's values: collections as pairs of their kind and what they hold, tensors by their names."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name, "moves": value.device.type != "cpu"}
    if isinstance(value, Mapping):
        pairs = [[_plain(key, name, tensors), _plain(it, f"{name}/{key}", tensors)] for key, it in value.items()]
        return {"map": pairs}
    if isinstance(value, list | tuple | set):
        ordered = sorted(value) if isinstance(value, set) else value
        parts = [_plain(part, f"{name}/{place}", tensors) for place, part in enumerate(ordered)]
        return {type(value).__name__: parts}
    if not isinstance(value, _PLAIN):
        raise TypeError(f"{name} is a {type(value).__name__}, which cannot be saved")
    return value


def _restored(value: Any, tensors: Mapping[str, torch.Tensor], device: torch.device) -> Any:
    if not isinstance(value, Mapping):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]].to(device if value["moves"] else "cpu")
    ((kind, parts),) = value.items()
    if kind == "map":
        return {_restored(key, tensors, device): _restored(it, tensors, device) for key, it in parts}
    restored = [_restored(part, tensors, device) for part in parts]
    return {"list": list, "tuple": tuple, "set": set}[kind](restored)
