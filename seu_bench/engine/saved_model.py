"""Models of finished runs: saved beside the record, loaded without a data set, and asked.

``model.safetensors`` is data that nothing executes. Its metadata is one JSON text under the key ``seu_bench``: several
keys would come out in random order, and two equal runs are to leave equal bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from seu_bench.config.commands import command
from seu_bench.config.options import build_options, format_errors
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.data.dataset import InputShape
from seu_bench.data.encoding import layer_columns
from seu_bench.data.images import Normaliser
from seu_bench.data.planning import StreamPlan, TaskPlan
from seu_bench.data.tasks import shuffle_indices
from seu_bench.engine.encoders import find_record_encoder
from seu_bench.engine.model_card import ModelCard
from seu_bench.engine.prediction import Predictions, concatenate, sample_batches
from seu_bench.engine.resolve import find_backbone, find_component, find_space
from seu_bench.errors import PluginError, ResultsError, SeuBenchError
from seu_bench.models.answers import to_cpu
from seu_bench.models.encoder import Encoder
from seu_bench.models.modes import modes_kept
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.record import FileName, Record, TaskInput, read_record
from seu_bench.results.record_files import MODEL_NAME, find_run
from seu_bench.training.interfaces import StrategyContext
from seu_bench.training.task_inference import TaskInference, task_inference
from seu_bench.utils.reading import read_file

#: The only key of a file's metadata.
KEY: Final = "seu_bench"
#: Sizes of the model in a record, and all fields of the record that the file has a copy of.
SIZES: Final = ("params_total", "mask_bits", "params_active", "macs")
SEALED: Final = {"accuracy_matrix", *SIZES, "genotypes", "paths", "choices", "unit_tasks"}
_MAKE_AGAIN: Final = "run it again with --restart, or put the file back as it was"


SealT = TypeVar("SealT", bound=BaseModel)


class Seal(BaseModel):
    """The metadata of a file.

    Attributes:
        architecture: what ``MultiHeadModel.load_architecture`` is given.
        shared: names of tensors that are another one by another name, with that name; the file has each once.
        record: the fields :data:`SEALED` of the record as they were when the run was finished.
        card: what the model takes and answers, for readers without the record; older files have none.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["seu-bench model"] = "seu-bench model"
    schema_version: Literal[1] = 1
    run_id: FileName
    architecture: dict[str, Any]
    shared: dict[str, str] = Field(default_factory=dict)
    record: dict[str, Any]
    card: dict[str, Any] | None = None


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
            tensors[name] = tensor
    tensors = {name: tensor.clone() for name, tensor in zip(tensors, to_cpu(tensors.values()), strict=True)}
    copy = record.model_dump(mode="json", include=SEALED)
    try:
        card = ModelCard.of(record).model_dump(mode="json")
        seal = Seal(run_id=record.run_id, architecture=model.architecture(), shared=shared, record=copy, card=card)
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
    with readable(path, "the weights"):
        return read_file(path)


def check_digest(path: Path, content: bytes, digest: str | None) -> None:
    """Refuse a file of a run's folder that is not the one whose SHA-256 the record has."""
    if (found := hashlib.sha256(content).hexdigest()) != digest:
        raise _unusable(path, f"{path.name} is not that of the record: SHA-256 {found}, not {digest}")


@contextlib.contextmanager
def readable(path: Path, what: str) -> Iterator[None]:
    """Turn any error of reading a file, which is ``what``, into a ResultsError that names it."""
    try:
        yield
    except OSError as error:
        raise _unusable(path, f"{what} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        told = "; ".join(format_errors(error)[:3]) if isinstance(error, ValidationError) else f"{error}"
        raise _unusable(path, f"{what} cannot be read: {type(error).__name__}: {told}") from error


def parse_sealed(content: bytes, kind: type[SealT]) -> tuple[SealT, dict[str, Tensor]]:
    """The metadata of a file and its tensors by their names."""
    stored = load(content)
    # The library has checked the header; its own reader of metadata takes files only.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return kind.model_validate_json(header["__metadata__"][KEY]), stored


def parse_weights(content: bytes, path: Path) -> tuple[Seal, dict[str, Tensor]]:
    """Read the metadata of a model file and its tensors by their names, or raise a ResultsError that names ``path``."""
    with readable(path, "the weights"):
        seal, stored = parse_sealed(content, Seal)
        return seal, stored | {name: stored[first] for name, first in seal.shared.items()}


def _unusable(path: Path, what: str, remedy: str = _MAKE_AGAIN) -> ResultsError:
    return ResultsError(what, where=str(path), remedy=remedy)


class RawInput(nn.Module):
    """Makes a network's input ``takes`` of samples as the data set has them, e.g. 8-bit images ``[N, C, H, W]``.

    Where ``layers`` of an encoder are read, the input is their features.
    """

    def __init__(self, given: TaskInput, takes: InputShape, encoder: Encoder | None = None) -> None:
        super().__init__()
        # Not a module of this one, so that its weights are no part of any model's.
        self.encoder = [] if given.layers is None or encoder is None else [encoder]
        self.columns: Tensor | None = None
        if given.layers is not None and encoder is not None:
            self.columns = torch.from_numpy(layer_columns(encoder.info.widths, given.layers))
            takes = InputShape("image", (3, *Normaliser.sides(given.pad, given.resize, given.shape)))
        background = None if given.background is None else torch.tensor(given.background).view(1, -1, 1, 1)
        mean, std = torch.tensor(given.mean), torch.tensor(given.std)
        self.normalise = Normaliser(given.pad, background, mean, std, takes.kind, given.resize)
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
        samples = samples.expand(-1, *self.takes.shape)
        for encoder in self.encoder:
            samples = encoder.readings(samples)[:, self.columns]
        return samples


class LearnedModel(nn.Module):
    """Model of a finished run: ``model.predict("pictures/")``, and the network below it.

    ``model(images, task)`` gives logits ``[N, classes_per_task[task]]`` of a learned task. Where the run was not told
    tasks at test time ``model(images)`` answers as it did.

    Attributes:
        card: what the model takes and what its outputs mean.
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

    def __init__(
        self,
        network: MultiHeadModel,
        record: Record,
        inference: TaskInference | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.inference = inference
        self.card = ModelCard.of(record)
        self.scenario = record.scenario
        self.run_id = record.run_id
        self.task_names = record.task_names
        self.classes_per_task = network.classes_per_task
        self.learned = self.card.learned
        self.input_shape = record.input_shape
        self.inputs = [
            RawInput(it, InputShape(record.input_kind, record.input_shape or it.shape, record.vocabulary), encoder)
            for it in record.task_inputs
        ]
        self.genotypes = record.genotypes
        self.paths = record.paths
        self.eval()
        self.requires_grad_(False)

    def class_names(self, task: int | None = None) -> list[str]:
        """Name of the class of each logit of ``model(images, task)``; its number where the data set names none."""
        return list(self.card.classes_of(task))

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
        if task is None and self.scenario != "task":
            if self.inference is not None:
                return self.inference(self.network, images, len(self.learned))
            task = self.learned[-1]
        return self.network.forward_single_task(images, self.card.find_task(task) or 0)

    def predict(self, inputs: Any, *, task: int | str | None = None, batch_size: int = 64) -> Predictions:
        """Predict the classes of new samples.

        Args:
            inputs: files of images and folders, which are searched; images of Pillow; arrays or tensors of one image or
                several, ``[N, H, W, C]``, ``[N, C, H, W]``, ``[N, H, W]``, ``[H, W, C]`` or ``[H, W]``, whole numbers
                in 0..255 or floating point in [0, 1]; a sequence of such. Of any size: they are made grey or coloured
                and resized as the run's own files were. Of runs on features ``[N, D]`` as the data set has them, on
                tokens ``[N, L]``.
            task: of the samples, by name or index; needed where the run is task-incremental, or prepared the samples of
                its tasks in different ways.
            batch_size: of the samples that are decoded and computed at once.

        Returns:
            Names and probabilities of classes, in the order of ``inputs``; the files of a folder by relative path.

        Raises:
            RequestError: the task must be given, or was not learned; the inputs are none that the model takes.
            DataError: files are missing, or are no usable images.

        Example:
            ``load_model(run).predict(["a.jpg", "b.png"]).top(3)``
        """
        number = self.card.find_task(task)
        return concatenate(list(self.predict_batches(inputs, number, batch_size)), self.card.classes_of(number))

    def predict_batches(self, inputs: Any, task: int | None = None, batch_size: int = 64) -> Iterator[Predictions]:
        """Predict samples as :meth:`predict` does, and yield the answers to each batch, in bounded memory.

        Where files are no usable images the error is raised behind the answers to all others.
        """
        number, device = self.card.find_task(task), next(iter(self.state_dict().values()), torch.empty(0)).device
        classes = self.card.classes_of(number)
        with modes_kept(self):
            self.eval()
            for raw, files in sample_batches(self.card, inputs, number, batch_size):
                with torch.no_grad():
                    samples = self.preprocess(torch.from_numpy(raw), number or 0).to(device)
                    logits = self.forward(samples, number if self.card.has_task_outputs else None)
                    # In 64 bits, so that outputs that differ have probabilities that differ.
                    shares = logits.double().softmax(dim=1)
                yield Predictions(classes, shares.cpu().numpy(), files)


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
    check_digest(path, content, record.weights_sha256)
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
        encoder = None if context.encoder is not None else find_record_encoder(registry, record)
        return LearnedModel(network, record, task_inference(context), encoder)
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
        encoder=find_record_encoder(registry, record) if getattr(factory, "uses_encoder", False) else None,
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
