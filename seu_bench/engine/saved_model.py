"""Models of finished runs: saved beside the record, loaded without a data set, and exported as ONNX.

``model.safetensors`` is data that nothing executes. Its metadata is one JSON text under the key ``seu_bench``: several
keys would come out in random order, and two equal runs are to leave equal bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from seu_bench.config.commands import command
from seu_bench.config.options import build_options, format_errors
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.data.dataset import InputShape
from seu_bench.data.images import Normaliser
from seu_bench.data.planning import StreamPlan, TaskPlan
from seu_bench.data.tasks import shuffle_indices
from seu_bench.engine.resolve import find_backbone, find_component, find_space
from seu_bench.errors import PluginError, RequestError, ResultsError, SeuBenchError
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.record import FileName, Record, TaskInput, read_record
from seu_bench.results.record_files import MODEL_NAME, find_run
from seu_bench.results.record_metrics import measured_rows
from seu_bench.training.interfaces import StrategyContext
from seu_bench.training.task_inference import TaskInference, task_inference
from seu_bench.utils.files import check_output, write_atomic
from seu_bench.utils.progress import bar
from seu_bench.utils.reading import read_file

#: The only key of a file's metadata.
KEY: Final = "seu_bench"
#: Sizes of the model in a record, and all fields of the record that the file has a copy of.
SIZES: Final = ("params_total", "mask_bits", "params_active", "macs")
SEALED: Final = {"accuracy_matrix", *SIZES, "genotypes", "paths", "choices", "unit_tasks"}
_MAKE_AGAIN: Final = "run it again with --restart, or put the file back as it was"


class Seal(BaseModel):
    """The metadata of a file.

    Attributes:
        architecture: what ``MultiHeadModel.load_architecture`` is given.
        shared: names of tensors that are another one by another name, with that name; the file has each once.
        record: the fields :data:`SEALED` of the record as they were when the run was finished.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["seu-bench model"] = "seu-bench model"
    schema_version: Literal[1] = 1
    run_id: FileName
    architecture: dict[str, Any]
    shared: dict[str, str] = Field(default_factory=dict)
    record: dict[str, Any]


def model_bytes(model: MultiHeadModel, record: Record) -> bytes:
    """A model as it is written, with a copy of parts of its finished run's record."""
    tensors: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    known: dict[tuple[object, ...], str] = {}
    for name, tensor in model.state_dict().items():
        place = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        # An empty tensor has no place.
        first = known.setdefault(place, name) if tensor.numel() else name
        if first != name:
            shared[name] = first
        else:
            tensors[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    copy = record.model_dump(mode="json", include=SEALED)
    try:
        seal = Seal(run_id=record.run_id, architecture=model.architecture(), shared=shared, record=copy)
        text = json.dumps(dict(seal), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        what = f"the architecture of strategy {record.strategy!r} cannot be saved: {error}"
        remedy = "it may have dictionaries with text for keys, lists, text and finite numbers"
        raise PluginError(what, where=f"{type(model).__name__}.architecture", remedy=remedy) from error
    return save(tensors, {KEY: text})


def read_weights(folder: Path, record: Record) -> bytes:
    """Read the file of a run's folder, unchecked."""
    path = folder / MODEL_NAME
    if record.weights_sha256 is None:
        why = f"it is {record.status}" if record.status != "finished" else "its record names none"
        remedy = "run it to its end, without --no-weights (a finished one: with --restart)"
        raise ResultsError(f"run {record.run_id} saved no weights: {why}", where=str(path), remedy=remedy)
    try:
        return read_file(path)
    except OSError as error:
        raise _unusable(path, f"the weights cannot be read: {error.strerror or error}") from error


def parse_weights(content: bytes, path: Path) -> tuple[Seal, dict[str, Tensor]]:
    """Read the metadata of a model file and its tensors by their names, or raise a ResultsError that names ``path``."""
    try:
        stored = load(content)
        # The library has checked the header; its own reader of metadata takes files only.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        seal = Seal.model_validate_json(header["__metadata__"][KEY])
        return seal, stored | {name: stored[first] for name, first in seal.shared.items()}
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        what = "; ".join(format_errors(error)[:3]) if isinstance(error, ValidationError) else f"{error}"
        raise _unusable(path, f"the weights cannot be read: {type(error).__name__}: {what}") from error


def _unusable(path: Path, what: str, remedy: str = _MAKE_AGAIN) -> ResultsError:
    return ResultsError(what, where=str(path), remedy=remedy)


class RawInput(nn.Module):
    """Makes a network's input ``takes`` of samples as the data set has them, e.g. 8-bit images ``[N, C, H, W]``."""

    def __init__(self, given: TaskInput, takes: InputShape) -> None:
        super().__init__()
        background = None if given.background is None else torch.tensor(given.background).view(1, -1, 1, 1)
        mean, std = torch.tensor(given.mean), torch.tensor(given.std)
        self.normalise = Normaliser(given.pad, background, mean, std, takes.kind)
        self.shape, self.takes = given.shape, takes
        made = self.normalise.shape(given.shape)
        if len(made) != len(takes.shape) or made[1:] != takes.shape[1:]:
            what = f"the record's samples of shape {given.shape} become {made}, and the network takes {takes.shape}"
            raise ResultsError(what, remedy=_MAKE_AGAIN)
        self.order: Tensor | None = None
        if given.permutation_seed is not None:
            self.order = torch.from_numpy(shuffle_indices(math.prod(made), given.permutation_seed))

    def forward(self, raw: Tensor) -> Tensor:
        """Samples for the network."""
        samples = self.normalise(raw).to(self.takes.dtype)
        if self.order is not None:
            samples = samples.flatten(1).index_select(1, self.order).view_as(samples)
        return samples.expand(-1, *self.takes.shape)


class LearnedModel(nn.Module):
    """Model of a finished run: ``model(images, task)`` gives logits ``[N, classes_per_task[task]]`` of a learned task.

    Where the run was not told tasks at test time ``model(images)`` answers as it did.

    Attributes:
        run_id: whose model it is.
        task_names, classes_per_task: name and number of outputs of each task, in the order in which they were learned.
        learned: the tasks that can be asked for, by index.
        input_shape: channels, height and width of the images that it takes; of other samples the length.
        inputs: what :meth:`preprocess` does to samples of each task.
        scenario: of the run.
        genotypes, paths: of each task, as in the record; ``None`` for strategies that have none.
        network: the strategy's own model.
        inference: chooses the task of each image; ``None``: it is told, or one head answers.
    """

    def __init__(self, network: MultiHeadModel, record: Record, inference: TaskInference | None = None) -> None:
        super().__init__()
        self.network = network
        self.inference = inference
        self.scenario = record.scenario
        self.run_id = record.run_id
        self.task_names = record.task_names
        self.classes_per_task = network.classes_per_task
        self.learned = learned_tasks(record)
        self.input_shape = record.input_shape
        self.inputs = [
            RawInput(it, InputShape(record.input_kind, record.input_shape or it.shape, record.vocabulary))
            for it in record.task_inputs
        ]
        self.genotypes = record.genotypes
        self.paths = record.paths
        self._class_names = [
            [record.class_name(task, place) for place in range(classes)]
            for task, classes in enumerate(self.classes_per_task)
        ]
        self.eval()
        self.requires_grad_(False)

    def class_names(self, task: int) -> list[str]:
        """Name of the class of each logit of ``model(images, task)``; its number where the data set names none."""
        if self.scenario == "class" and self.inference is None:  # one head, which has grown
            return [name for learned in self.learned for name in self._class_names[learned]]
        return self._class_names[task]

    def preprocess(self, raw: Tensor, task: int) -> Tensor:
        """Make what :meth:`forward` takes of samples of a task as the data set has them, e.g. 8-bit images."""
        samples: Tensor = self.inputs[task](raw.cpu())
        return samples.to(raw.device)

    def forward(self, images: Tensor, task: int | None = None) -> Tensor:
        """Logits of what :meth:`preprocess` returns; without a ``task`` if the run's scenario allows it.

        Returns:
            ``[N, classes_per_task[task]]``; of all classes learned where one head answers with any of them, and where
            the task was inferred.

        Raises:
            RequestError: the task was not learned, or must be given.
        """
        if task is None and self.scenario == "task":
            what = f"run {self.run_id} was task-incremental: its model needs the task of the images"
            raise RequestError(what, remedy=f"give one that it learned: {', '.join(map(str, self.learned))}")
        if task is None and self.inference is not None:
            return self.inference(self.network, images, len(self.learned))
        task = self.learned[-1] if task is None else task
        self.check_task(task)
        logits: Tensor = self.network.forward_single_task(images, task)
        return logits

    def check_task(self, task: int) -> None:
        """Refuse a task that was not learned by a RequestError that names those that were."""
        if task not in self.learned:
            named = f" ({self.task_names[task]!r})" if 0 <= task < len(self.task_names) else ""
            known = ", ".join(f"{learned} ({self.task_names[learned]!r})" for learned in self.learned) or "none"
            what = f"run {self.run_id} has not learned task {task}{named}"
            raise RequestError(what, remedy=f"the tasks that it learned: {known}")


def learned_tasks(record: Record) -> tuple[int, ...]:
    """The tasks of a run that can be answered at its end: those of the last row of the matrix with a measurement."""
    rows = (record.accuracy_matrix[row] for row in measured_rows(record)[-1:])
    return tuple(task for row in rows for task, value in enumerate(row) if value is not None)


def load_model(
    run: str | Path, results: str | Path = "results", *, plugin: str | Path | Sequence[str | Path] = ()
) -> LearnedModel:
    """Load the model of a finished run, on the CPU, in evaluation mode and without gradients.

    It is built by the run's strategy from the record alone, without a data set. Nothing in its file is executed.

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        results: folder of records, for a run id.
        plugin: files of Python with the strategy, where it is in one.

    Raises:
        ResultsError: there is no such run, it saved no weights, or file and record do not belong together or are
            corrupt.

    Example:
        ``load_model(record.run_id)(images, task=0).argmax(dim=1)``
    """
    folder = find_run(Path(results), str(run))
    record, path = read_record(folder), folder / MODEL_NAME
    content = read_weights(folder, record)
    if (found := hashlib.sha256(content).hexdigest()) != record.weights_sha256:
        told = f"SHA-256 {found}, not {record.weights_sha256}"
        raise _unusable(path, f"the weights are not those that the record names: {told}")
    return build_model(use_plugins(plugin), *parse_weights(content, path), record, path)


def build_model(
    registry: Registry, seal: Seal, tensors: Mapping[str, Tensor], record: Record, path: Path
) -> LearnedModel:
    """The model of a record with the weights of the file ``path``, on the CPU."""
    if seal.run_id != record.run_id:
        theirs = f"those of run {seal.run_id}, and the record is that of {record.run_id}"
        raise _unusable(path, f"the weights are {theirs}")
    try:
        context = _context(registry, record)
        network: Any = registry.strategies.find(record.strategy).factory.build(context).model
        if not isinstance(network, MultiHeadModel):
            kind = type(network).__name__
            raise TypeError(f"strategy {record.strategy!r} has a {kind} for a model, no MultiHeadModel")
        network.load_architecture(seal.architecture)
        _fill(network, tensors)
        return LearnedModel(network, record, task_inference(context))
    except Exception as error:
        # Whatever is wrong here lies in the two files, or in a plugin that is not the one that made them.
        what = error.what if isinstance(error, SeuBenchError) else f"{type(error).__name__}: {error}"
        remedy = f"install what made it (see {command('show', str(path.parent))}), or {_MAKE_AGAIN}"
        remedy = getattr(error, "remedy", None) or remedy
        raise _unusable(path, f"the model of run {record.run_id} cannot be built: {what}", remedy) from error


def _context(registry: Registry, record: Record) -> StrategyContext:
    """The context of a run on the CPU, from its record alone."""
    if record.input_shape is None or not record.task_images:
        raise ResultsError("the record does not say what images the run was made on", remedy="run it again")
    of_tasks = (record.task_names, record.task_classes, record.task_images, record.task_order, record.task_inputs)
    if len({len(values) for values in of_tasks}) > 1:
        raise ResultsError("the record's lists of tasks differ in length", remedy=_MAKE_AGAIN)
    described = zip(*of_tasks[:3], strict=True)
    tasks = tuple(TaskPlan(name, classes, *images) for name, classes, images in described)
    factory = registry.strategies.find(record.strategy).factory
    options = build_options(factory.options, f"strategy {record.strategy!r}", record.options)
    sample = InputShape(record.input_kind, record.input_shape, record.vocabulary)
    plan = StreamPlan(*sample.sides, tasks, record.task_order, record.scenario, sample.kind, sample.vocabulary)
    return StrategyContext(
        plan=replace(plan, open_ended=record.open_ended),
        protocol=ProtocolSpec.model_validate(record.protocol_settings),
        options=options,
        seed=record.seed,
        searcher=find_component(registry, "searcher", record.searcher, record.searcher_options),
        creator=find_component(registry, "creator", record.creator, record.creator_options),
        backbone=find_backbone(registry, options),
        space=find_space(registry, options),
        restores=True,
    )


def _fill(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights, all of them and no others; ValueError where names, shapes or types differ."""
    wanted, found = (
        {name: f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" for name, tensor in state.items()}
        for state in (network.state_dict(), tensors)
    )
    if differing := sorted(wanted.items() ^ found.items()):
        name = differing[0][0]
        told = f"{name} is {found.get(name, 'missing')}, not {wanted.get(name, 'in the model')}"
        raise ValueError(f"the weights do not fit the model: {told}")
    network.load_state_dict(dict(tensors), strict=True)


class TaskNetwork(nn.Module):
    """One task of a model: samples as the data set has them, e.g. 8-bit pixels, to logits ``[N, num_classes]``."""

    def __init__(self, model: LearnedModel, task: int) -> None:
        super().__init__()
        self.network = model.network.alone(task)
        self.task = task
        self.preprocess = model.inputs[task]

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the task."""
        logits: Tensor = self.network.forward_single_task(self.preprocess(images), self.task)
        return logits


def export_onnx(run: str | Path, task: int, *, results: Path = Path("results"), output: Path | None = None) -> Path:
    """Write the network of one learned task of a run, from raw samples to logits, for batches of any size.

    Raw are 8-bit pixels, features (float32) or ids of tokens (int64).

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        task: 0-based, in the order in which tasks were learned.
        output: the file; ``task-<task>.onnx`` in the run's folder by default.

    Returns:
        The file, whose metadata names the run, the task and the class of each logit.

    Raises:
        RequestError: the task was not learned, or a package is not installed.
        ResultsError: there is no such run, its weights cannot be used, or the file cannot be written.
    """
    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        what, remedy = f"writing ONNX needs {' and '.join(missing)}", "pip install 'seu-bench[export]'"
        raise RequestError(what, where="seu-bench export", remedy=remedy)
    model = load_model(run, results)
    model.check_task(task)
    path = find_run(results, str(run)) / f"task-{task}.onnx" if output is None else output
    check_output(path)
    with bar("writing ONNX"):
        write_atomic(path, onnx_bytes(model, task))
    return path


#: Of each kind of sample the name and type of the graph's input, and what to give it.
_RAW: Final[dict[str, tuple[str, torch.dtype, str]]] = {
    "image": ("images", torch.uint8, "uint8, pixels from 0 to 255, {}; the graph normalises them"),
    "features": ("features", torch.float32, "float32, as the data set has them, {}; the graph standardises them"),
    "tokens": ("tokens", torch.int64, "int64, {}, ids of a vocabulary of {}"),
}


def onnx_bytes(model: LearnedModel, task: int) -> bytes:
    """The network of one learned task as ONNX."""
    shape, kind = model.inputs[task].shape, model.inputs[task].takes.kind
    name, dtype, told = _RAW[kind]
    try:
        with _silence():
            program: Any = torch.onnx.export(
                TaskNetwork(model, task).eval(),
                (torch.zeros((2, *shape), dtype=dtype),),
                input_names=[name],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                verbose=False,
            )
        document = program.model_proto
    except Exception as error:  # any layer of a plugin's may be one that the exporter does not know
        first = next(iter(str(error).splitlines()), "")
        what = f"task {task} of run {model.run_id} cannot be written as ONNX: {type(error).__name__}: {first}"
        raise ResultsError(what, remedy="report it to the author of the strategy or of the backbone") from error
    # Stack traces and module names reveal folders of this machine, and are most of a small file.
    graph = document.graph
    for part in (document, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")
    about = {
        "run_id": model.run_id,
        "task": str(task),
        "task_name": model.task_names[task],
        name: told.format(f"[N, {', '.join(map(str, shape))}]", model.inputs[task].takes.vocabulary),
        "classes": json.dumps(model.class_names(task), ensure_ascii=False),
    }
    for key, value in about.items():
        document.metadata_props.add(key=key, value=value)
    content: bytes = document.SerializeToString(deterministic=True)
    return content


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the exporter's own words off the terminal; it prints the whole graph where it fails."""
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        for redirect in (contextlib.redirect_stdout, contextlib.redirect_stderr):
            stack.enter_context(redirect(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
