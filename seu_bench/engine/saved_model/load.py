"""Models of finished runs, built from record and weights; no data set is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.options import build_options
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.data.planning import StreamPlan, TaskPlan
from seu_bench.engine.run_folder import MODEL_NAME
from seu_bench.engine.saved_model.file import MAKE_AGAIN, ModelFile, parse_weights, read_weights
from seu_bench.errors import RequestError, ResultsError, SeuBenchError
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_files import find_run
from seu_bench.training.components import Component
from seu_bench.training.interfaces import StrategyContext


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
        """Refuse a task that was not learned.

        Raises:
            RequestError: so it is; the message has the tasks that were.
        """
        if task not in self.learned:
            named = f" ({self.task_names[task]!r})" if 0 <= task < len(self.task_names) else ""
            known = ", ".join(f"{learned} ({self.task_names[learned]!r})" for learned in self.learned) or "none"
            raise RequestError(
                f"run {self.run_id} has not learned task {task}{named}", remedy=f"the tasks that it learned: {known}"
            )


def learned_tasks(record: Record) -> tuple[int, ...]:
    """The tasks of a run that can be answered at its end: those of the last row of the matrix with a measurement."""
    rows = [[task for task, value in enumerate(row) if value is not None] for row in record.accuracy_matrix]
    return tuple(next((row for row in reversed(rows) if row), ()))


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
        raise ResultsError(
            f"the weights are not those that the record names: SHA-256 {found}, not {record.weights_sha256}",
            where=str(path),
            remedy=MAKE_AGAIN,
        )
    return build_model(Registry(), parse_weights(content, path), record)


def build_model(registry: Registry, file: ModelFile, record: Record) -> LearnedModel:
    """The model of a record with the weights of a file, on the CPU."""
    if file.seal.run_id != record.run_id:
        raise ResultsError(
            f"the weights are those of run {file.seal.run_id}, and the record is that of {record.run_id}",
            where=str(file.path),
            remedy=MAKE_AGAIN,
        )
    try:
        network = _network(registry, record)
        network.load_architecture(file.seal.architecture)
        _fill(network, file.tensors)
    except Exception as error:
        # Whatever is wrong here lies in the two files, or in a plugin that is not the one that made them.
        what = error.what if isinstance(error, SeuBenchError) else f"{type(error).__name__}: {error}"
        remedy = error.remedy if isinstance(error, SeuBenchError) else None
        raise ResultsError(
            f"the model of run {record.run_id} cannot be built: {what}",
            where=str(file.path),
            remedy=remedy or f"install what made it (see seu-bench show {record.run_id}), or {MAKE_AGAIN}",
        ) from error
    return LearnedModel(network, record)


def context_of(registry: Registry, record: Record) -> StrategyContext:
    """The context of a run on the CPU, from its record alone."""
    factory = registry.strategies.find(record.strategy).factory
    options = build_options(factory.options, f"strategy {record.strategy!r}", record.options)
    backbone = registry.backbones.find(options.backbone).factory if isinstance(options, BackboneOptions) else None
    return StrategyContext(
        plan=plan_of(record),
        protocol=ProtocolSpec.model_validate(record.protocol_settings),
        options=options,
        seed=record.seed,
        searcher=_component(registry, "searcher", record.searcher, record.searcher_options),
        creator=_component(registry, "creator", record.creator, record.creator_options),
        backbone=backbone,
    )


def plan_of(record: Record) -> StreamPlan:
    """The shape of the stream that a run learned."""
    if record.input_shape is None or not record.task_images:
        raise ResultsError("the record does not say what images the run was made on", remedy="run it again")
    lengths = {len(record.task_names), len(record.task_classes), len(record.task_images), len(record.task_order)}
    if len(lengths) > 1:
        raise ResultsError("the record's lists of tasks differ in length", remedy=MAKE_AGAIN)
    tasks = [
        TaskPlan(name, classes, *images)
        for name, classes, images in zip(record.task_names, record.task_classes, record.task_images, strict=True)
    ]
    return StreamPlan(*record.input_shape, tuple(tasks), record.task_order)


def _network(registry: Registry, record: Record) -> MultiHeadModel:
    strategy: Any = registry.strategies.find(record.strategy).factory.build(context_of(registry, record))
    network = strategy.model
    if not isinstance(network, MultiHeadModel):
        raise TypeError(f"strategy {record.strategy!r} has a {type(network).__name__} for a model, no MultiHeadModel")
    return network


def _component(registry: Registry, kind: str, name: str | None, given: Mapping[str, Any]) -> Component | None:
    if name is None:
        return None
    entry = (registry.searchers if kind == "searcher" else registry.creators).find(name)
    options = build_options(entry.factory.options, f"{kind} {name!r}", given)
    return Component(kind, name, entry.factory, options, entry.plugin, entry.package)


def _fill(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights, all of them and no others; ValueError where names, shapes or types differ."""
    wanted = network.state_dict()
    faults = [f"{name} is missing" for name in wanted if name not in tensors]
    faults += [f"{name} is not in the model" for name in tensors if name not in wanted]
    for name in wanted.keys() & tensors.keys():
        form, found = (_form(tensor) for tensor in (wanted[name], tensors[name]))
        if form != found:
            faults.append(f"{name} is {found}, not {form}")
    if faults:
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise ValueError(f"the weights do not fit the model: {'; '.join(sorted(faults)[:3])}{more}")
    network.load_state_dict(dict(tensors), strict=True)


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
