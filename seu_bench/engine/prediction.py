"""Predictions on new samples: files of images, which are decoded as a run's own were, images of Pillow, and arrays."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seu_bench.data.dataset import Images, as_8_bit, as_features, as_tokens, one_line
from seu_bench.data.own_files import IMAGE_FORMATS, FolderSource, as_pixels
from seu_bench.engine.model_card import ModelCard
from seu_bench.errors import DataCorruptError, DataMissingError, RequestError


@dataclass(frozen=True)
class Predictions:
    """Classes of samples, in the order in which the samples were given.

    Attributes:
        classes: names, in the order of the columns.
        probabilities: ``[N, classes]`` float64, the softmax of the outputs; each row sums to 1.
        files: of the samples, where all of them came from files.

    Example:
        ``load_model(run).predict("new_pictures/").labels``
    """

    classes: tuple[str, ...]
    probabilities: NDArray[np.float64]
    files: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def outputs(self) -> list[int]:
        """Column of the most probable class of each sample."""
        found: list[int] = self.probabilities.argmax(axis=1).tolist()
        return found

    @property
    def labels(self) -> list[str]:
        """Name of the most probable class of each sample."""
        return [self.classes[output] for output in self.outputs]

    def top(self, k: int = 3) -> list[list[tuple[str, float]]]:
        """The ``k`` most probable classes of each sample with their probabilities, the most probable one first."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :k]
        rows = zip(order.tolist(), np.take_along_axis(self.probabilities, order, axis=1).tolist(), strict=True)
        return [[(self.classes[place], share) for place, share in zip(*row, strict=True)] for row in rows]


def predict_batches(
    card: ModelCard, answer: Callable[[Tensor], Tensor], inputs: Any, task: int | None, batch_size: int
) -> Iterator[Predictions]:
    """Predict samples a batch at a time; no more than two batches of decoded images are held.

    Args:
        card: of the model.
        answer: logits ``[n, classes]`` of samples ``[n, *shape]`` as the data set of the task has them.
        inputs: what :meth:`~seu_bench.engine.saved_model.LearnedModel.predict` takes.
        task: that the samples are of, by index; ``None``: of any.

    Raises:
        RequestError: the inputs are none that the model takes; nothing was computed.
        DataCorruptError: files cannot be read, all named at once, after the predictions of all others.
    """
    classes = card.classes_of(task)
    for samples, files in sample_batches(card, inputs, task, batch_size):
        with torch.no_grad():
            # In 64 bits, so that outputs that differ have probabilities that differ.
            shares = answer(torch.from_numpy(samples)).double().softmax(dim=1)
        yield Predictions(classes, shares.cpu().numpy(), files)


def sample_batches(
    card: ModelCard, inputs: Any, task: int | None = None, batch_size: int = 64
) -> Iterator[tuple[NDArray[Any], tuple[Path, ...]]]:
    """Decode samples, ``[n, *shape]`` as the data set of the task has them, and the files that all of them came from.

    Arguments and errors are those of :func:`predict_batches`.
    """
    if batch_size < 1:
        raise RequestError(f"batches of {batch_size} samples", where="batch_size", remedy="give 1 or more")
    channels, *size = card.task_inputs[task or 0].shape
    if not size:
        samples = _as_rows(inputs, card, channels)
        yield from ((samples[at : at + batch_size], ()) for at in range(0, len(samples), batch_size))
        return
    items, faults = _as_items(inputs), list[str]()
    are_files = all(isinstance(item, Path) for item in items)
    for batch, found in _decode_ahead(items, partial(_decode, channels=channels, size=(size[0], size[1])), batch_size):
        usable = [(item, pixels) for item, pixels in zip(batch, found, strict=True) if isinstance(pixels, np.ndarray)]
        if usable:
            files = tuple(item for item, _ in usable) if are_files else ()
            yield np.stack([pixels for _, pixels in usable]), files
        faults += [
            f"{item}: {one_line(why)}" for item, why in zip(batch, found, strict=True) if isinstance(why, Exception)
        ]
    if faults:
        listed = "\n  - ".join(["", *faults[:100], *([f"and {len(faults) - 100:,} more"] if faults[100:] else [])])
        what = f"{len(faults):,} of {len(items):,} inputs are no usable images:{listed}"
        raise DataCorruptError(what, remedy="repair, convert or remove them")


def concatenate(parts: Sequence[Predictions], classes: tuple[str, ...]) -> Predictions:
    """Put the predictions of batches together; of none they are empty."""
    shares = [part.probabilities for part in parts] or [np.zeros((0, len(classes)))]
    return Predictions(classes, np.concatenate(shares), tuple(file for part in parts for file in part.files))


def find_images(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files of images in the order of ``paths``, of which folders are searched; each file by its relative path.

    Files in folders count where their names end like an image's and do not begin with a dot; a warning counts others.

    Raises:
        DataMissingError: paths that do not exist, all named at once, or a folder without images.
    """
    found: list[Path] = []
    missing = []
    for path in map(Path, paths):
        files = [path]
        if path.is_dir():
            source = FolderSource(SimpleNamespace(path=path), str(path))
            files = source.images(path)
            if others := len(source.files(path)) - len(files):
                warnings.warn(f"{path}: {others:,} files that do not end like images are left out", stacklevel=2)
        if not files or not path.exists():
            missing.append(f"{path}: {'no such file' if files else 'a folder without images'}")
        found += files
    if missing:
        listed = "\n  - ".join(["", *missing[:100]])
        raise DataMissingError(f"there is nothing to predict:{listed}", remedy="name files of images, or their folders")
    return found


def _as_items(inputs: Any) -> list[Any]:
    """Files, images of Pillow and arrays ``[C, H, W]`` (uint8), one for each sample."""
    from PIL.Image import Image

    single = isinstance(inputs, str | os.PathLike | Image | np.ndarray | Tensor)
    items: list[Any] = []
    for item in [inputs] if single else inputs:
        if isinstance(item, str | os.PathLike):
            items += find_images([item])
        elif isinstance(item, np.ndarray | Tensor):
            items.extend(_as_images(_as_array(item)))
        elif isinstance(item, Image):
            items.append(item)
        else:
            remedy = "give files, folders, images of Pillow, arrays or tensors"
            raise RequestError(f"a {type(item).__name__} is nothing to predict", where="inputs", remedy=remedy)
    return items


def _as_array(values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.asarray(values)


def _as_images(array: NDArray[Any]) -> Images:
    """Images ``[N, C, H, W]`` of an array of one or several, whose shape and values leave no doubt what they are."""
    shape, told = array.shape, ""
    first, last = (len(shape) > 2 and shape[axis] in (1, 3) for axis in (-3, -1))
    if len(shape) == 2:
        array = array[None, None]
    elif len(shape) == 3 and last and not first:
        array = array.transpose(2, 0, 1)[None]
    elif len(shape) == 3 and not last and shape[0] != 3:
        array = array[:, None]
    elif len(shape) == 4 and first != last:
        array = array.transpose(0, 3, 1, 2) if last else array
    else:
        told = f"which axis has the 1 or 3 channels of shape {shape} cannot be told" if first else f"has shape {shape}"
    try:
        if told:
            raise ValueError(told)
        return as_8_bit(array)
    except ValueError as error:
        remedy = "give images [N, H, W, C], [N, C, H, W], [N, H, W], [H, W, C] or [H, W] of 1 or 3 channels"
        raise RequestError(f"an array is no images: it {error}", where="inputs", remedy=remedy) from error


def _as_rows(inputs: Any, card: ModelCard, length: int) -> NDArray[Any]:
    """Features ``[N, D]`` or tokens ``[N, L]``, of one sample or several."""
    try:
        values = _as_array(inputs)
        values = values[None] if values.ndim == 1 else values
        rows = as_features(values) if card.input_kind == "features" else as_tokens(values, card.vocabulary or 0)
        if rows.shape[1] != length:
            raise ValueError(f"has {rows.shape[1]} numbers for each sample")
        return rows
    except ValueError as error:
        remedy = f"give an array [N, {length}] of {card.input_kind} as the run's data set has them"
        raise RequestError(f"the inputs are no {card.input_kind}: it {error}", where="inputs", remedy=remedy) from error


def _decode(item: Any, channels: int, size: tuple[int, int]) -> Images:
    from PIL import Image

    if isinstance(item, Path):
        with Image.open(item, formats=IMAGE_FORMATS) as image:
            return as_pixels(image, channels, size)
    if isinstance(item, np.ndarray):
        if item.shape == (channels, *size):
            return item
        item = Image.fromarray(item[0] if len(item) == 1 else np.ascontiguousarray(item.transpose(1, 2, 0)))
    return as_pixels(item, channels, size)


def _decode_ahead(
    items: Sequence[Any], decode: Callable[[Any], Images], size: int
) -> Iterator[tuple[Sequence[Any], list[Images | Exception]]]:
    """Batches of items and what they are decoded to by several threads, which decode one batch ahead."""
    from PIL.Image import DecompressionBombError

    def attempt(item: Any) -> Images | Exception:
        try:
            return decode(item)
        except (OSError, SyntaxError, ValueError, EOFError, DecompressionBombError) as error:
            return error

    batches = [items[start : start + size] for start in range(0, len(items), size)]
    with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1)), "decode images") as pool:
        ahead = [pool.map(attempt, batch) for batch in batches[:1]]
        for place, batch in enumerate(batches):
            ahead += [pool.map(attempt, batch) for batch in batches[place + 1 : place + 2]]
            yield batch, list(ahead.pop(0))
