"""A finished run's model on disk: weights, architecture and what was measured of them, saved and loaded.

``model.safetensors`` lies beside the record, as data that nothing executes. Its metadata is one JSON text under the key
``seu_bench``: several keys would come out in random order, and two equal runs are to leave equal bytes. The model is
built again from record and weights; no data set is needed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from seu_bench.config.options import build_options, fault_lines
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.data.planning import StreamPlan, TaskPlan
from seu_bench.engine.resolve import find_backbone, find_component
from seu_bench.engine.run_folder import MODEL_NAME
from seu_bench.errors import PluginError, RequestError, ResultsError, SeuBenchError
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_files import find_run
from seu_bench.results.record_metrics import measured_rows
from seu_bench.results.record_parts import FileName
from seu_bench.training.interfaces import StrategyContext
from seu_bench.utils.files import write_atomic

#: What the file says that it is, and in which form; the only key of its metadata.
FORMAT: Final = "seu-bench model"
SCHEMA_VERSION: Final = 1
KEY: Final = "seu_bench"

#: Sizes of the model in a record, and all fields of the record that the file has a copy of.
SIZES: Final = ("params_total", "params_active", "macs")
SEALED: Final = {"accuracy_matrix", *SIZES, "genotypes", "paths", "choices", "unit_tasks"}

#: What to do where record and weights do not belong together.
MAKE_AGAIN: Final = "run it again with --restart, or put the file back as it was"


class Seal(BaseModel):
    """The metadata of a file.

    Attributes:
        architecture: what :meth:`~seu_bench.models.multihead.MultiHeadModel.load_architecture` is given.
        shared: names of tensors that are another one by another name, with that name; the file has each once.
        record: the fields :data:`SEALED` of the record as they were when the run was finished.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: str
    schema_version: int
    run_id: FileName
    architecture: dict[str, Any]
    shared: dict[str, str] = Field(default_factory=dict)
    record: dict[str, Any]


@dataclass(frozen=True)
class ModelFile:
    """Content of a model file: metadata, and tensors by their names in the model."""

    path: Path
    seal: Seal
    tensors: Mapping[str, Tensor]


def unusable(path: Path, what: str, remedy: str = MAKE_AGAIN) -> ResultsError:
    """The error of a file that cannot be used, or does not belong to its record."""
    return ResultsError(what, where=str(path), remedy=remedy)


def save_model(path: Path, model: MultiHeadModel, record: Record) -> str:
    """Write a model atomically, with a copy of parts of its finished run's record; returns the SHA-256 of the file."""
    tensors, shared = _stored(model.state_dict())
    document = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
        "architecture": model.architecture(),
        "shared": shared,
        "record": record.model_dump(mode="json", include=SEALED),
    }
    try:
        text = json.dumps(document, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"the architecture of strategy {record.strategy!r} cannot be saved: {error}",
            where=f"{type(model).__name__}.architecture",
            remedy="it may have dictionaries with text for keys, lists, text and finite numbers",
        ) from error
    content = save(tensors, {KEY: text})
    write_atomic(path, content)
    return hashlib.sha256(content).hexdigest()


def read_weights(folder: Path, record: Record) -> bytes:
    """Read the file of a run's folder, unchecked."""
    path = folder / MODEL_NAME
    if record.weights_sha256 is None:
        why = f"it is {record.status}" if record.status != "finished" else "its record names none"
        remedy = "run it to its end, without --no-weights (a finished one: with --restart)"
        raise unusable(path, f"run {record.run_id} saved no weights: {why}", remedy)
    try:
        return path.read_bytes()
    except OSError as error:
        raise unusable(path, f"the weights cannot be read: {error.strerror or error}") from error


def parse_weights(content: bytes, path: Path) -> ModelFile:
    """Read the content of a model file, or refuse it by a ResultsError that names ``path``."""
    try:
        stored = load(content)
        # The library has checked the header; its own reader of metadata takes files only.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        seal = Seal.model_validate_json(header["__metadata__"][KEY])
        tensors = stored | {name: stored[first] for name, first in seal.shared.items()}
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        what = "; ".join(fault_lines(error)[:3]) if isinstance(error, ValidationError) else f"{error}"
        raise unusable(path, f"the weights cannot be read: {type(error).__name__}: {what}") from error
    if (seal.format, seal.schema_version) != (FORMAT, SCHEMA_VERSION):
        raise unusable(
            path,
            f"the file's form is {seal.format!r}, version {seal.schema_version}; "
            f"this is for {FORMAT!r}, version {SCHEMA_VERSION}",
            "use the version of seu-bench that wrote it, or run it again with --restart",
        )
    return ModelFile(path, seal, tensors)


def _stored(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor once, on the CPU, row by row and in memory of its own; and names that mean another one's."""
    tensors: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    known: dict[tuple[object, ...], str] = {}
    for name, tensor in state.items():
        place = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        # An empty tensor has no place.
        first = known.setdefault(place, name) if tensor.numel() else name
        if first != name:
            shared[name] = first
        else:
            tensors[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return tensors, shared


class LearnedModel(nn.Module):
    """Model of a finished run: ``model(images, task)`` gives logits ``[N, classes_per_task[task]]`` of a learned task.

    Attributes:
        run_id: whose model it is.
        task_names, classes_per_task: name and number of outputs of each task, in the order in which they were learned.
        learned: the tasks that can be asked for, by index.
        input_shape: channels, height and width of the images, which are normalised as the benchmark says.
        genotypes, paths: of each task, as in the record; ``None`` for strategies that have none.
        network: the strategy's own model.
    """

    def __init__(self, network: MultiHeadModel, record: Record) -> None:
        super().__init__()
        self.network = network
        self.run_id = record.run_id
        self.task_names = record.task_names
        self.classes_per_task = network.classes_per_task
        self.learned = learned_tasks(record)
        self.input_shape = record.input_shape
        self.genotypes = record.genotypes
        self.paths = record.paths
        self.eval()
        self.requires_grad_(False)

    def forward(self, images: Tensor, task: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]`` of normalised images ``[N, C, H, W]``.

        Raises:
            RequestError: the task was not learned.
        """
        self.check_task(task)
        logits: Tensor = self.network.forward_single_task(images, task)
        return logits

    def check_task(self, task: int) -> None:
        """Refuse a task that was not learned by a RequestError that names those that were."""
        if task not in self.learned:
            named = f" ({self.task_names[task]!r})" if 0 <= task < len(self.task_names) else ""
            known = ", ".join(f"{learned} ({self.task_names[learned]!r})" for learned in self.learned) or "none"
            raise RequestError(
                f"run {self.run_id} has not learned task {task}{named}", remedy=f"the tasks that it learned: {known}"
            )


def learned_tasks(record: Record) -> tuple[int, ...]:
    """The tasks of a run that can be answered at its end: those of the last row of the matrix with a measurement."""
    rows = (record.accuracy_matrix[row] for row in measured_rows(record)[-1:])
    return tuple(task for row in rows for task, value in enumerate(row) if value is not None)


def load_model(run: str | Path, results: str | Path = "results") -> LearnedModel:
    """Load the model of a finished run, on the CPU, in evaluation mode and without gradients.

    It is built by the run's strategy from the record alone; no data set is needed. The file is read as data: nothing in
    it is executed.

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        results: folder of records, for a run id.

    Returns:
        The model; its attributes describe the tasks.

    Raises:
        ResultsError: there is no such run, it saved no weights, or file and record do not belong together or are
            corrupt.

    Example:
        ``load_model(record.run_id)(images, task=0).argmax(dim=1)``
    """
    folder = find_run(Path(results), str(run))
    record = read_record(folder)
    content = read_weights(folder, record)
    path = folder / MODEL_NAME
    found = hashlib.sha256(content).hexdigest()
    if found != record.weights_sha256:
        told = f"SHA-256 {found}, not {record.weights_sha256}"
        raise unusable(path, f"the weights are not those that the record names: {told}")
    return build_model(Registry(), parse_weights(content, path), record)


def build_model(registry: Registry, file: ModelFile, record: Record) -> LearnedModel:
    """The model of a record with the weights of a file, on the CPU."""
    if file.seal.run_id != record.run_id:
        theirs = f"those of run {file.seal.run_id}, and the record is that of {record.run_id}"
        raise unusable(file.path, f"the weights are {theirs}")
    try:
        network: Any = registry.strategies.find(record.strategy).factory.build(_context(registry, record)).model
        if not isinstance(network, MultiHeadModel):
            kind = type(network).__name__
            raise TypeError(f"strategy {record.strategy!r} has a {kind} for a model, no MultiHeadModel")
        network.load_architecture(file.seal.architecture)
        _fill(network, file.tensors)
    except Exception as error:
        # Whatever is wrong here lies in the two files, or in a plugin that is not the one that made them.
        what, remedy = f"{type(error).__name__}: {error}", None
        if isinstance(error, SeuBenchError):
            what, remedy = error.what, error.remedy
        raise unusable(
            file.path,
            f"the model of run {record.run_id} cannot be built: {what}",
            remedy or f"install what made it (see seu-bench show {record.run_id}), or {MAKE_AGAIN}",
        ) from error
    return LearnedModel(network, record)


def _context(registry: Registry, record: Record) -> StrategyContext:
    """The context of a run on the CPU, from its record alone."""
    if record.input_shape is None or not record.task_images:
        raise ResultsError("the record does not say what images the run was made on", remedy="run it again")
    lists = (record.task_names, record.task_classes, record.task_images, record.task_order)
    if len({len(values) for values in lists}) > 1:
        raise ResultsError("the record's lists of tasks differ in length", remedy=MAKE_AGAIN)
    described = zip(record.task_names, record.task_classes, record.task_images, strict=True)
    tasks = tuple(TaskPlan(name, classes, *images) for name, classes, images in described)
    factory = registry.strategies.find(record.strategy).factory
    options = build_options(factory.options, f"strategy {record.strategy!r}", record.options)
    return StrategyContext(
        plan=StreamPlan(*record.input_shape, tasks, record.task_order),
        protocol=ProtocolSpec.model_validate(record.protocol_settings),
        options=options,
        seed=record.seed,
        searcher=find_component(registry, "searcher", record.searcher, record.searcher_options),
        creator=find_component(registry, "creator", record.creator, record.creator_options),
        backbone=find_backbone(registry, options),
    )


def _fill(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights, all of them and no others; ValueError where names, shapes or types differ."""
    wanted, found = (
        {name: f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" for name, tensor in state.items()}
        for state in (network.state_dict(), tensors)
    )
    faults = [f"{name} is missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name} is not in the model" for name in found.keys() - wanted.keys()]
    faults += [f"{name} is {found[name]}, not {form}" for name, form in wanted.items() if found.get(name, form) != form]
    if faults:
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise ValueError(f"the weights do not fit the model: {'; '.join(sorted(faults)[:3])}{more}")
    network.load_state_dict(dict(tensors), strict=True)
