"""Models as ONNX: from pixels of any height and width to classes, with all that is done to them inside the graph."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor, nn

from seu_bench.engine.saved_model import LearnedModel, load_model
from seu_bench.errors import RequestError, ResultsError
from seu_bench.results.record_files import find_run
from seu_bench.utils.files import check_output, write_atomic
from seu_bench.utils.progress import bar

#: How pixels are given to a graph: from 0 to 255, or in [0, 1].
Pixels: TypeAlias = Literal["uint8", "float"]
#: Of each kind of sample the name of the graph's input, and what to give it.
_RAW: Final[dict[str, tuple[str, str]]] = {
    "image": ("images", "{}, [N, H, W, {}], of any height and width; the graph resizes and normalises them"),
    "features": ("features", "float32, as the data set has them, [N, {}]; the graph standardises them"),
    "tokens": ("tokens", "int64, [N, {}], ids of a vocabulary of {}"),
}
_PIXELS: Final[dict[Pixels, str]] = {"uint8": "uint8, pixels from 0 to 255", "float": "float32, pixels in [0, 1]"}


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize images ``[N, C, H, W]`` of whole numbers in 0..255 as Pillow does (bilinear, antialiased), to the bit.

    Sums of whole numbers are exact in 64-bit floating point; onnxruntime's own Resize differs from Pillow by 1 in some
    pixels of any picture, which is enough to change an answer. Rows are resized first. Pillow 13 begins with columns
    where it takes that for less work, mostly in tall pictures: some pixels of those differ by 1, too.
    """
    rows, columns = (_weights(images.shape[2 + axis], size[axis], images.device) for axis in (0, 1))
    return _scale(rows @ _scale(images.double() @ columns.T))


def _scale(sums: Tensor) -> Tensor:
    return ((sums + 2**21) / 2**22).floor()


def _weights(length: int, size: int, device: torch.device) -> Tensor:
    """Pillow's weights ``[size, length]`` of pixels, in whole parts of 2**22."""
    scale = torch.full((), length, dtype=torch.float64, device=device) / size
    centers = (torch.arange(size, dtype=torch.float64, device=device) + 0.5) * scale
    away = torch.arange(length, dtype=torch.float64, device=device) + 0.5 - centers.unsqueeze(1)
    shares = (1 - (away / scale.clamp(min=1)).abs()).clamp(min=0)
    return (shares / shares.sum(dim=1, keepdim=True) * 2**22 + 0.5).floor()


class _Answer(nn.Module):
    """Logits and probabilities of raw samples; of a task alone where its path is asked for."""

    def __init__(self, model: LearnedModel, task: int | None) -> None:
        super().__init__()
        self.inference = model.inference if task is None else None
        self.task = model.learned[-1] if task is None else task
        self.network = model.network if self.inference else model.network.alone(self.task)
        self.preprocess, self.tasks = model.inputs[self.task], len(model.learned)

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        if len(self.preprocess.shape) == 3:
            if samples.is_floating_point():  # as a data set of such images is stored
                samples = (samples * 255).round().clamp(0, 255)
            _, height, width = self.preprocess.shape
            samples = resize(samples.permute(0, 3, 1, 2), (height, width)).float()
        samples = self.preprocess(samples)
        if self.inference is not None:
            logits = self.inference(self.network, samples, self.tasks)
        else:
            logits = self.network.forward_single_task(samples, self.task)
        return logits, logits.softmax(dim=1)


def export_onnx(
    run: str | Path,
    task: int | str | None = None,
    *,
    pixels: Pixels = "uint8",
    results: Path = Path("results"),
    output: Path | None = None,
) -> Path:
    """Write the model of a run, from raw samples to logits and probabilities, for batches of any size.

    Raw are pixels ``[N, H, W, C]`` of any height and width, features (float32) or ids of tokens (int64).

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        task: by name or index; needed where the run is task-incremental. Of a run that infers tasks the path of this
            task alone, by default the whole of it.
        pixels: type of the input of images: from 0 to 255, or in [0, 1].
        output: the file; ``model.onnx`` or ``task-<task>.onnx`` in the run's folder by default.

    Returns:
        The file, whose metadata has the model's card and the class of each output.

    Raises:
        RequestError: the task was not learned, or must be given, or a package is not installed.
        ResultsError: there is no such run, its weights cannot be used, or the file cannot be written.

    Example:
        ``export_onnx(record.run_id)``
    """
    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        what, remedy = f"writing ONNX needs {' and '.join(missing)}", "pip install 'seu-bench[export]'"
        raise RequestError(what, where="seu-bench export", remedy=remedy)
    model = load_model(run, results)
    number = model.card.find_task(task)
    name = "model.onnx" if number is None else f"task-{number}.onnx"
    path = find_run(results, str(run)) / name if output is None else output
    check_output(path)
    with bar("writing ONNX"):
        write_atomic(path, onnx_bytes(model, number, pixels))
    return path


def onnx_bytes(model: LearnedModel, task: int | None = None, pixels: Pixels = "uint8") -> bytes:
    """The model as ONNX, for samples of a learned task, or of any."""
    card, (name, told) = model.card, _RAW[model.card.input_kind]
    channels, *size = card.task_inputs[task or 0].shape
    if size:
        sample = torch.zeros((2, 11, 13, channels), dtype=torch.uint8 if pixels == "uint8" else torch.float32)
        free, values = ["batch", "height", "width"], [_PIXELS[pixels], channels]
    else:
        sample = torch.zeros((2, channels), dtype=torch.int64 if card.input_kind == "tokens" else torch.float32)
        free, values = ["batch"], [channels, card.vocabulary]
    try:
        with _silence():
            program: Any = torch.onnx.export(
                _Answer(model, task).eval(),
                (sample,),
                input_names=[name],
                output_names=["logits", "probabilities"],
                dynamic_shapes=({axis: torch.export.Dim(called) for axis, called in enumerate(free)},),
                dynamo=True,
                verbose=False,
            )
        document = program.model_proto
        sides = document.graph.input[0].type.tensor_type.shape.dim[: len(free)]
        if fixed := [called for called, side in zip(free, sides, strict=True) if not side.dim_param]:
            raise ValueError(f"the network fixes the {' and the '.join(fixed)} of its input")
    except Exception as error:  # any layer of a plugin's may be one that the exporter does not know
        line = next(iter(str(error).splitlines()), "")
        which = "the model" if task is None else f"task {task}"
        what = f"{which} of run {model.run_id} cannot be written as ONNX: {type(error).__name__}: {line}"
        raise ResultsError(what, remedy="report it to the author of the strategy or of the backbone") from error
    # Stack traces and module names reveal folders of this machine, and are most of a small file.
    graph = document.graph
    for part in (document, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")
    about = {
        "run_id": model.run_id,
        **({} if task is None else {"task": str(task), "task_name": model.task_names[task]}),
        name: told.format(*values),
        "classes": json.dumps(card.classes_of(task), ensure_ascii=False),
        "model_card": json.dumps(card.model_dump(mode="json"), ensure_ascii=False),
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
