"""The model of a finished run, built again from record and weights; no data set is needed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.config.commands import command
from seu_bench.config.options import build_options
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.data.normaliser import Normaliser
from seu_bench.data.planning import StreamPlan, TaskPlan
from seu_bench.data.tasks import shuffled
from seu_bench.engine.backbones import find_backbone
from seu_bench.engine.resolve import find_component
from seu_bench.engine.saved_model.file import MAKE_AGAIN, ModelFile, parse_weights, read_weights, unusable
from seu_bench.errors import RequestError, ResultsError, SeuBenchError
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_files import MODEL_NAME, find_run
from seu_bench.results.record_metrics import measured_rows
from seu_bench.results.record_parts import TaskInput
from seu_bench.training.interfaces import StrategyContext
from seu_bench.training.task_inference import TaskInference, task_inference


class PixelInput(nn.Module):
    """What makes a network's input of 8-bit images: ``[N, C, H, W]`` as the data set has them.

    Args:
        given: of the record.
        input_shape: channels, height and width of the network's input.
    """

    def __init__(self, given: TaskInput, input_shape: tuple[int, int, int]) -> None:
        super().__init__()
        background = None if given.background is None else torch.tensor(given.background).view(1, -1, 1, 1)
        self.normalise = Normaliser(given.pad, background, torch.tensor(given.mean), torch.tensor(given.std))
        self.shape, self.channels = given.shape, input_shape[0]
        made = self.normalise.shape(*given.shape)
        if made[1:] != input_shape[1:]:
            what = f"the record's images of shape {given.shape} become {made}, and the network takes {input_shape}"
            raise ResultsError(what, remedy=MAKE_AGAIN)
        self.order: Tensor | None = None
        if given.permutation_seed is not None:
            self.order = torch.from_numpy(shuffled(math.prod(made), given.permutation_seed))

    def forward(self, pixels: Tensor) -> Tensor:
        """Images for the network."""
        images = self.normalise(pixels)
        if self.order is not None:
            images = images.flatten(1).index_select(1, self.order).view_as(images)
        return images.expand(-1, self.channels, -1, -1)


class LearnedModel(nn.Module):
    """Model of a finished run: ``model(images, task)`` gives logits ``[N, classes_per_task[task]]`` of a learned task.

    Where the run was not told tasks at test time ``model(images)`` answers as it did.

    Attributes:
        run_id: whose model it is.
        task_names, classes_per_task: name and number of outputs of each task, in the order in which they were learned.
        learned: the tasks that can be asked for, by index.
        input_shape: channels, height and width of the images, of which :meth:`preprocess` makes what the model takes.
        inputs: how it does, of each task; ``None``: an earlier version wrote the record, which does not say.
        scenario: of the run.
        genotypes, paths: of each task, as in the record; ``None`` for strategies that have none.
        network: the strategy's own model.
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
        self.inputs = [PixelInput(it, record.input_shape or it.shape) for it in record.task_inputs] or None
        self._class_names = [
            [record.class_name(task, place) for place in range(classes)]
            for task, classes in enumerate(self.classes_per_task if record.task_class_names else ())
        ]
        self.genotypes = record.genotypes
        self.paths = record.paths
        self.eval()
        self.requires_grad_(False)

    @property
    def has_one_head(self) -> bool:
        """Whether one head answers for all tasks, whichever is asked for. It may have grown, and does not shrink."""
        return self.scenario != "task" and self.inference is None

    def outputs(self, task: int) -> int:
        """Number of logits of ``model(images, task)``."""
        if self.scenario == "class" and self.inference is None:
            return sum(self.classes_per_task[: len(self.learned)])
        return self.classes_per_task[task]

    def class_names(self, task: int) -> list[str] | None:
        """Name of the class of each logit of ``model(images, task)``; its number where the data set names none.

        Returns:
            The names; ``None`` where an earlier version wrote the record, which has none.
        """
        names = self._class_names
        if names and self.scenario == "class" and self.inference is None:
            return [name for learned in self.learned for name in names[learned]]
        return names[task] if names else None

    def preprocess(self, pixels: Tensor, task: int) -> Tensor:
        """Make what the model takes of images as the data set has them.

        Args:
            pixels: ``[N, C, H, W]``, uint8, 0 to 255.
            task: of the images. In most benchmarks all tasks are normalised alike.

        Returns:
            Images for :meth:`forward`.

        Raises:
            ResultsError: an earlier version wrote the record, which does not say how.
        """
        if self.inputs is None:
            raise ResultsError(
                f"the record of run {self.run_id} does not say how images were normalised: an earlier version wrote it",
                remedy="normalise them as the benchmark does, or run it again with --restart",
            )
        images: Tensor = self.inputs[task](pixels.cpu())
        return images.to(pixels.device)

    def forward(self, images: Tensor, task: int | None = None) -> Tensor:
        """Logits of normalised images.

        Args:
            images: ``[N, C, H, W]``.
            task: of the images; ``None``: it is not known, which the run's scenario must allow.

        Returns:
            ``[N, classes_per_task[task]]``; of all classes learned where one head answers with any of them, and where
            the task was inferred.

        Raises:
            RequestError: the task was not learned, or must be given.
        """
        if task is None and self.scenario == "task":
            raise RequestError(
                f"run {self.run_id} was task-incremental: its model needs the task of the images",
                remedy=f"give one of the tasks that it learned: {', '.join(map(str, self.learned))}",
            )
        if task is None and self.inference is not None:
            return self.inference(self.network, images, len(self.learned))
        task = self.learned[-1] if task is None else task
        self.check_task(task)
        logits: Tensor = self.network.forward_single_task(images, task)
        return logits

    def tested(self, images: Tensor, task: int) -> Tensor:
        """Logits of test images of a task, as the run measured them: without the task where it was not told."""
        logits: Tensor = self(images, task if self.scenario == "task" else None)
        return logits

    def computed(self, images: Tensor, task: int) -> Tensor:
        """What an image took after learning a task: its path, or all paths until then where the task is inferred."""
        if self.inference is not None:
            return self.inference(self.network, images, task + 1)
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


def load_model(
    run: str | Path, results: str | Path = "results", *, plugin: str | Path | Sequence[str | Path] = ()
) -> LearnedModel:
    """Load the model of a finished run, on the CPU, in evaluation mode and without gradients.

    It is built by the run's strategy from the record alone; no data set is needed. The file is read as data: nothing in
    it is executed.

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        results: folder of records, for a run id.
        plugin: files of Python with the strategy, where it is in one.

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
    return build_model(use_plugins(plugin), parse_weights(content, path), record)


def build_model(registry: Registry, file: ModelFile, record: Record) -> LearnedModel:
    """The model of a record with the weights of a file, on the CPU."""
    if file.seal.run_id != record.run_id:
        theirs = f"those of run {file.seal.run_id}, and the record is that of {record.run_id}"
        raise unusable(file.path, f"the weights are {theirs}")
    try:
        context = _context(registry, record)
        inference = task_inference(context)
        network: Any = registry.strategies.find(record.strategy).factory.build(context).model
        if not isinstance(network, MultiHeadModel):
            kind = type(network).__name__
            raise TypeError(f"strategy {record.strategy!r} has a {kind} for a model, no MultiHeadModel")
        network.load_architecture(file.seal.architecture)
        _fill(network, file.tensors)
        return LearnedModel(network, record, inference)
    except Exception as error:
        # Whatever is wrong here lies in the two files, or in a plugin that is not the one that made them.
        what, remedy = f"{type(error).__name__}: {error}", None
        if isinstance(error, SeuBenchError):
            what, remedy = error.what, error.remedy
        raise unusable(
            file.path,
            f"the model of run {record.run_id} cannot be built: {what}",
            remedy or f"install what made it (see {command('show', str(file.path.parent))}), or {MAKE_AGAIN}",
        ) from error


def _context(registry: Registry, record: Record) -> StrategyContext:
    """The context of a run on the CPU, from its record alone."""
    if record.input_shape is None or not record.task_images:
        raise ResultsError("the record does not say what images the run was made on", remedy="run it again")
    lists = [record.task_names, record.task_classes, record.task_images, record.task_order]
    lists += [record.task_inputs] if record.task_inputs else []
    if len({len(values) for values in lists}) > 1:
        raise ResultsError("the record's lists of tasks differ in length", remedy=MAKE_AGAIN)
    described = zip(record.task_names, record.task_classes, record.task_images, strict=True)
    tasks = tuple(TaskPlan(name, classes, *images) for name, classes, images in described)
    factory = registry.strategies.find(record.strategy).factory
    options = build_options(factory.options, f"strategy {record.strategy!r}", record.options)
    return StrategyContext(
        plan=StreamPlan(*record.input_shape, tasks, record.task_order, record.scenario),
        protocol=ProtocolSpec.model_validate(record.protocol_settings),
        options=options,
        seed=record.seed,
        searcher=find_component(registry, "searcher", record.searcher, record.searcher_options),
        creator=find_component(registry, "creator", record.creator, record.creator_options),
        backbone=find_backbone(registry, options),
        restores=True,
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
