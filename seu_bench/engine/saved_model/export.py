"""Export of one task's network as ONNX, for programs that know nothing of seu-bench."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from seu_bench.engine.saved_model.load import LearnedModel, load_model
from seu_bench.errors import RequestError, ResultsError
from seu_bench.results.record_files import find_run
from seu_bench.utils.files import write_atomic
from seu_bench.utils.progress import bar

#: Names of input and output.
IMAGES: Final = "images"
LOGITS: Final = "logits"

#: What torch's exporter needs beside torch.
NEEDED: Final = ("onnx", "onnxscript")

#: Whose warnings and log lines are the exporter's own: deprecations inside it and notes on its optimisations, about
#: which nobody who exports a model can do anything.
_CHATTY: Final = ("torch.onnx", "torch.export", "torch._export", "torch.fx", "onnxscript", "onnx_ir")


class TaskNetwork(nn.Module):
    """One task of a model: images ``[N, C, H, W]`` to logits ``[N, num_classes]``."""

    def __init__(self, model: LearnedModel, task: int) -> None:
        super().__init__()
        self.network = model.network
        self.task = task

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the task."""
        logits: Tensor = self.network.forward_single_task(images, self.task)
        return logits


def export_onnx(run: str | Path, task: int, *, results: Path = Path("results"), output: Path | None = None) -> Path:
    """Write the network of one learned task of a run.

    The batch is of any size. The file needs no other; its metadata names the run, the task and its classes.

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        task: 0-based, in the order in which tasks were learned.
        output: the file; ``task-<task>.onnx`` in the run's folder by default.

    Returns:
        The file.

    Raises:
        RequestError: the task was not learned, or a package is not installed.
        ResultsError: there is no such run, its weights cannot be used, or the file cannot be written.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise RequestError(
            f"writing ONNX needs {' and '.join(missing)}",
            where="seu-bench export",
            remedy="pip install 'seu-bench[export]'",
        )
    model = load_model(run, results)
    model.check_task(task)
    path = find_run(results, str(run)) / f"task-{task}.onnx" if output is None else output
    with bar("writing ONNX"):
        write_atomic(path, onnx_bytes(model, task))
    return path


def onnx_bytes(model: LearnedModel, task: int) -> bytes:
    """The network of one learned task as ONNX."""
    try:
        return _exported(model, task)
    except Exception as error:  # any layer of a plugin's may be one that the exporter does not know
        first = next(iter(str(error).splitlines()), "")
        raise ResultsError(
            f"task {task} of run {model.run_id} cannot be written as ONNX: {type(error).__name__}: {first}",
            remedy="report it to the author of the strategy or of the backbone",
        ) from error


def _exported(model: LearnedModel, task: int) -> bytes:
    example = torch.zeros((2, *(model.input_shape or ())))
    with _silence():
        program = torch.onnx.export(
            TaskNetwork(model, task).eval(),
            (example,),
            input_names=[IMAGES],
            output_names=[LOGITS],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch's exporter gave no program")
    document = program.model_proto
    _forget_origins(document)
    for key, value in {
        "run_id": model.run_id,
        "task": str(task),
        "task_name": model.task_names[task],
        "classes": str(model.classes_per_task[task]),
    }.items():
        document.metadata_props.add(key=key, value=value)
    content: bytes = document.SerializeToString(deterministic=True)
    return content


def _forget_origins(document: Any) -> None:
    """Strip stack traces and module names: they reveal folders of this machine, and are most of a small file."""
    graph = document.graph
    for part in (document, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the exporter's own words off the terminal; what a model warns of is heard afterwards."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    unread = io.StringIO()  # it prints the whole graph where it fails
    heard: list[warnings.WarningMessage] = []
    try:
        with (
            warnings.catch_warnings(record=True) as heard,
            contextlib.redirect_stdout(unread),
            contextlib.redirect_stderr(unread),
        ):
            for name in _CHATTY:
                warnings.filterwarnings("ignore", module=re.escape(name))
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for warning in heard:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
