"""Predictions on new samples: files of images, which are decoded as a run's own were, images of Pillow, and arrays."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seu_bench.data.dataset import Images, as_8_bit, as_features, as_tokens
from seu_bench.data.own_files import FolderSource, as_pixels, attempted, refuse_faults
from seu_bench.engine.model_card import ModelCard
from seu_bench.errors import DataMissingError, RequestError


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


def sample_batches(
    card: ModelCard, inputs: Any, task: int | None = None, batch_size: int = 64
) -> Iterator[tuple[NDArray[Any], tuple[Path, ...]]]:
    """Decode samples, ``[n, *shape]`` as the data set of the task has them, and the files that all of them came from.

    Args:
        card: of the model.
        inputs: what :meth:`~seu_bench.engine.saved_model.LearnedModel.predict` takes.
        task: that the samples are of, by index; ``None``: of any.
        batch_size: of the samples that are held at once, besides a few decoded ones.

    Raises:
        RequestError: the inputs are none that the model takes; nothing was computed.
        DataCorruptError: files cannot be read, all named at once, behind all others.
    """
    if batch_size < 1:
        raise RequestError(f"batches of {batch_size} samples", where="batch_size", remedy="give 1 or more")
    channels, *size = card.task_inputs[task or 0].shape
    if not size:
        samples = _as_rows(inputs, card, channels)
        yield from ((samples[at : at + batch_size], ()) for at in range(0, len(samples), batch_size))
        return
    items, faults = _as_items(inputs), list[tuple[Any, Exception]]()
    are_files = all(isinstance(item, Path) for item in items)
    found = zip(items, attempted(items, partial(_decode, channels=channels, size=(size[0], size[1]))), strict=True)
    while batch := list(islice(found, batch_size)):
        usable = [(item, pixels) for item, pixels in batch if not isinstance(pixels, Exception)]
        faults += [(item, error) for item, error in batch if isinstance(error, Exception)]
        if usable:
            files = tuple(item for item, _ in usable) if are_files else ()
            yield np.stack([pixels for _, pixels in usable]), files
    refuse_faults(faults, f"{len(faults):,} of {len(items):,} inputs are no usable images")


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

    if isinstance(item, np.ndarray):
        if item.shape == (channels, *size):
            return item
        item = Image.fromarray(item[0] if len(item) == 1 else np.ascontiguousarray(item.transpose(1, 2, 0)))
    return as_pixels(item, channels, size)
