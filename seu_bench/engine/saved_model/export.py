"""Export of one task's network as ONNX, for programs that know nothing of seu-bench."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from seu_bench.engine.saved_model.model import LearnedModel, load_model
from seu_bench.errors import RequestError, ResultsError
from seu_bench.results.record_files import find_run
from seu_bench.utils.files import check_output, write_output
from seu_bench.utils.progress import bar

#: Whose warnings and log lines are the exporter's own: deprecations inside it and notes on its optimisations, about
#: which nobody who exports a model can do anything.
_CHATTY: Final = (
    *("torch.onnx", "torch.export", "torch._export", "torch.fx", "onnxscript", "onnx_ir"),
    "onnx.reference",  # folds constants, and computes a steep sigmoid by an infinity that it then leaves
)


class TaskNetwork(nn.Module):
    """One task of a model: images ``[N, C, H, W]`` to logits ``[N, num_classes]``.

    Images are 8-bit pixels as the data set has them; of a record that does not say how they are normalised, the
    network's own input.
    """

    def __init__(self, model: LearnedModel, task: int) -> None:
        super().__init__()
        self.network = model.network.alone(task)
        self.task = task
        self.preprocess = nn.Identity() if model.inputs is None else model.inputs[task]

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the task."""
        logits: Tensor = self.network.forward_single_task(self.preprocess(images), self.task)
        return logits


def export_onnx(run: str | Path, task: int, *, results: Path = Path("results"), output: Path | None = None) -> Path:
    """Write the network of one learned task of a run.

    The batch is of any size. The file needs no other: it takes 8-bit pixels, and its metadata names the run, the task
    and the class of each logit.

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        task: 0-based, in the order in which tasks were learned.
        output: the file; ``task-<task>.onnx`` in the run's folder by default, ``-`` for standard output.

    Returns:
        The file.

    Raises:
        RequestError: the task was not learned, or a package is not installed.
        ResultsError: there is no such run, its weights cannot be used, or the file cannot be written.
    """
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise RequestError(
            f"writing ONNX needs {' and '.join(missing)}",
            where="seu-bench export",
            remedy="pip install 'seu-bench[export]'",
        )
    model = load_model(run, results)
    model.check_task(task)
    path = find_run(results, str(run)) / f"task-{task}.onnx" if output is None else output
    check_output(path)
    with bar("writing ONNX"):
        write_output(path, onnx_bytes(model, task))
    return path


def onnx_bytes(model: LearnedModel, task: int) -> bytes:
    """The network of one learned task as ONNX."""
    example = torch.zeros((2, *(model.input_shape or ())))
    told = "float32, normalised as the benchmark does, of which the run's record says no more"
    if model.inputs is not None:
        shape = model.inputs[task].shape
        example = torch.zeros((2, *shape), dtype=torch.uint8)
        told = f"uint8, pixels from 0 to 255, [N, {', '.join(map(str, shape))}]; the graph normalises them"
    try:
        with _silence():
            program: Any = torch.onnx.export(
                TaskNetwork(model, task).eval(),
                (example,),
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                verbose=False,
            )
        document = program.model_proto
    except Exception as error:  # any layer of a plugin's may be one that the exporter does not know
        first = next(iter(str(error).splitlines()), "")
        raise ResultsError(
            f"task {task} of run {model.run_id} cannot be written as ONNX: {type(error).__name__}: {first}",
            remedy="report it to the author of the strategy or of the backbone",
        ) from error
    # Stack traces and module names reveal folders of this machine, and are most of a small file.
    graph = document.graph
    for part in (document, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")
    classes = json.dumps(model.class_names(task) or model.outputs(task), ensure_ascii=False)
    about = {"run_id": model.run_id, "task": str(task), "task_name": model.task_names[task], "images": told}
    for key, value in {**about, "classes": classes}.items():
        document.metadata_props.add(key=key, value=value)
    content: bytes = document.SerializeToString(deterministic=True)
    return content


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the exporter's own words off the terminal; what a model warns of is heard afterwards."""
    unread = io.StringIO()  # it prints the whole graph where it fails
    heard: list[warnings.WarningMessage] = []
    with contextlib.ExitStack() as stack:
        for logger in map(logging.getLogger, _CHATTY):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        try:
            with (
                warnings.catch_warnings(record=True) as heard,
                contextlib.redirect_stdout(unread),
                contextlib.redirect_stderr(unread),
            ):
                for name in _CHATTY:
                    warnings.filterwarnings("ignore", module=re.escape(name))
                yield
        finally:
            for warning in heard:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
