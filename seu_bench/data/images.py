"""Samples of a task: from pixels, numbers or tokens to a network's input, and batches gathered from a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seu_bench.config.streams import Augmentation, InputKind, InputSpec
from seu_bench.data.dataset import DatasetInfo, Images
from seu_bench.errors import RequestError, RunError
from seu_bench.utils.rehearsing import abridge, active_rehearsal


@dataclass(frozen=True)
class Normaliser:
    """Pads images, divides by 255, colours the background, resizes, then ``(x - mean) / std`` per channel.

    Of features the last step alone is done, per column; tokens stay as they are.

    Attributes:
        pad: zero pixels that are added on each side.
        background: ``[1, 3, 1, 1]``, colour of the background of grey images; ``None``: they stay grey.
        mean, std: ``[C]``, of pixels in [0, 1], or of columns; one value may stand for all.
        kind: of samples.
        resize: height and width that images are brought to, bicubic and antialiased; ``None``: they stay.
    """

    pad: int
    background: Tensor | None
    mean: Tensor
    std: Tensor
    kind: InputKind = "image"
    resize: int | None = None

    @classmethod
    def of(cls, spec: InputSpec, info: DatasetInfo, images: Iterable[NDArray[Any]]) -> Self:
        """What a benchmark asks for of a data set; where it gives no mean, those of blocks of ``images``, coloured but
        not padded."""
        mean, std, kind = spec.mean, spec.std, info.kind
        color = None if spec.color is None else np.asarray(spec.color, dtype=np.float64)
        if mean is None or std is None:
            average, deviation = _STATISTICS[kind](images)
            if color is not None:  # x + (1 - x) * c is c + (1 - c) * x
                average, deviation = color + (1 - color) * average, (1 - color) * deviation
            mean, std = tuple(average.tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist())
        channels = info.channels if color is None else 3
        # Grey images are repeated before they are normalised: by an encoder's means, or by those of a coloured task.
        repeats = channels == 1 and (spec.encoder is not None or len(mean) == spec.channels)
        if len(mean) not in (1, channels) and kind != "tokens" and not repeats:
            of = f"images of {channels} channels" if kind == "image" else f"{channels} features"
            raise RequestError(
                f"{len(mean)} means for {of}",
                where=f"input of data set {info.name!r}",
                remedy=f"give input.mean and input.std one value per {'channel' if kind == 'image' else 'column'}",
            )
        background = None if color is None else torch.from_numpy(color).float().view(1, -1, 1, 1)
        return cls(spec.pad, background, torch.tensor(mean), torch.tensor(std), kind, spec.resize)

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of an input that is made of a sample of this shape."""
        channels, sides = shape[0], self.sides(self.pad, self.resize, shape)
        channels = channels if self.background is None else 3
        return max(channels, len(self.mean)) if self.kind == "image" else channels, *sides

    @staticmethod
    def sides(pad: int, resize: int | None, shape: Sequence[int]) -> tuple[int, ...]:
        """Height and width of an input that is made of an image ``(C, H, W)``."""
        return tuple(resize or side + 2 * pad for side in shape[1:])

    def augmenter(self, asked: Augmentation, channels: int) -> Augmenter | None:
        """What augments inputs of so many channels; ``None`` where nothing is asked for."""
        if asked == Augmentation():
            return None
        black = torch.zeros(1) if self.background is None else self.background.flatten()
        return Augmenter(asked, self.mean, self.std, ((black - self.mean) / self.std).expand(channels))

    def document(self, shape: tuple[int, ...], permutation_seed: int | None) -> dict[str, Any]:
        """Plain values that say all of it, for samples of a shape whose numbers a task may permute."""
        background = None if self.background is None else tuple(self.background.flatten().tolist())
        values = {"mean": tuple(self.mean.tolist()), "std": tuple(self.std.tolist())}
        whole = {"shape": shape, "pad": self.pad, "background": background, **values}
        resize = {} if self.resize is None else {"resize": self.resize}
        return {**whole, "permutation_seed": permutation_seed, **resize}

    def to(self, device: torch.device) -> Normaliser:
        """Copy to another device."""
        background = None if self.background is None else self.background.to(device)
        return replace(self, background=background, mean=self.mean.to(device), std=self.std.to(device))

    def __call__(self, images: Tensor) -> Tensor:
        """Inputs of samples ``[n, *shape]``: float32, of tokens integers."""
        if self.kind == "tokens":
            return images
        if self.kind == "features":
            return (images - self.mean).div_(self.std)
        values = torch.nn.functional.pad(images, (self.pad,) * 4).float().div_(255)
        if self.background is not None:
            values = self.background + (1 - self.background) * values
        if self.resize is not None:
            values = resize_pixels(values, self.resize)
        if len(self.mean) > values.shape[1]:
            values = values.expand(-1, len(self.mean), -1, -1).contiguous()
        return values.sub_(self.mean.view(1, -1, 1, 1)).div_(self.std.view(1, -1, 1, 1))


def resize_pixels(images: Tensor, size: int) -> Tensor:
    """Images ``[N, C, H, W]`` in [0, 1] of ``size`` pixels on each side: bicubic, antialiased where they shrink.

    As two products of matrices, which are the same in every format that a model is exported to.
    """
    rows, columns = (_shares(length, size, images.device) for length in images.shape[2:])
    return (rows @ images @ columns.T).clamp(0, 1)  # a cubic goes beyond


def _shares(length: int, size: int, device: torch.device) -> Tensor:
    """Shares ``[size, length]`` that pixels have in those of another length."""
    scale = length / size
    centers = (torch.arange(size, device=device) + 0.5) * scale
    away = (torch.arange(length, device=device) + 0.5 - centers.unsqueeze(1)).abs()
    away = away / max(scale, 1.0)
    near = (1.5 * away - 2.5) * away.square() + 1
    far = ((2.5 - 0.5 * away) * away - 4) * away + 2  # R. Keys, 1981, a = -1/2
    shares = torch.where(away < 1, near, torch.where(away < 2, far, 0.0))
    return shares / shares.sum(dim=1, keepdim=True)


def feature_statistics(parts: Iterable[NDArray[np.float32]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation ``[D]`` of columns; that of a constant column is 0."""
    features = np.concatenate(list(parts))
    deviation = features.std(axis=0, dtype=np.float64)
    return features.mean(axis=0, dtype=np.float64), np.where(np.ptp(features, axis=0) > 0, deviation, 0.0)


def pixel_statistics(parts: Iterable[Images]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation ``[C]`` of pixels in [0, 1], from exact sums of whole numbers."""
    sums: Any = 0
    count = 0
    for block in parts:
        wide = block.astype(np.uint16)  # 255 squared fits
        # Of Python's integers, which have no limit.
        sums += np.array([it.sum(axis=(0, 2, 3), dtype=np.int64).astype(object) for it in (wide, wide * wide)])
        count += len(block) * math.prod(block.shape[2:])
    total, squares = sums.tolist()
    mean = [found / (255 * count) for found in total]
    variance = [(count * q - s * s) / (255 * count) ** 2 for s, q in zip(total, squares, strict=True)]
    return np.array(mean), np.sqrt(variance)


_STATISTICS: Final[dict[InputKind, Callable[[Iterable[NDArray[Any]]], tuple[np.ndarray, np.ndarray]]]] = {
    "image": pixel_statistics,
    "features": feature_statistics,
    "tokens": lambda _: (np.zeros(0), np.zeros(0)),
}


@dataclass(frozen=True)
class Augmenter:
    """Draws what a benchmark asks for, image by image, with torch's global generator of the CPU on every device.

    Attributes:
        asked: which changes, and how large.
        mean, std: ``[C]``, by which pixels in [0, 1] were normalised.
        black: ``[C]``, a black pixel after normalisation.
    """

    asked: Augmentation
    mean: Tensor
    std: Tensor
    black: Tensor

    def to(self, device: torch.device) -> Augmenter:
        """Copy to another device."""
        return replace(self, mean=self.mean.to(device), std=self.std.to(device), black=self.black.to(device))

    def __call__(self, images: Tensor) -> Tensor:
        """Return changed copies of ``images``, ``[b, C, H, W]``."""
        asked = self.asked
        if asked.crop:
            images = self._crop(images)
        if asked.flip:
            mirrored = self._drawn(torch.rand(len(images)) < 0.5, images)
            images = torch.where(mirrored, images.flip(-1), images)
        if asked.brightness or asked.contrast:
            images = self._jitter_colours(images)
        return images

    def _crop(self, images: Tensor) -> Tensor:
        margin = self.asked.crop
        count, channels, height, width = images.shape
        padded = self.black.view(1, -1, 1, 1).repeat(count, 1, height + 2 * margin, width + 2 * margin)
        padded[..., margin : margin + height, margin : margin + width] = images
        corners = torch.randint(2 * margin + 1, (2, count)).to(images.device, non_blocking=True)
        rows = corners[0].view(-1, 1) + torch.arange(height, device=images.device)
        columns = corners[1].view(-1, 1) + torch.arange(width, device=images.device)
        padded = padded.gather(2, rows.view(count, 1, height, 1).expand(-1, channels, -1, padded.shape[3]))
        return padded.gather(3, columns.view(count, 1, 1, width).expand(-1, channels, height, -1))

    def _jitter_colours(self, images: Tensor) -> Tensor:
        mean, std = self.mean.view(1, -1, 1, 1), self.std.view(1, -1, 1, 1)
        pixels = images * std + mean
        for spread, has_middle in ((self.asked.brightness, False), (self.asked.contrast, True)):
            if spread:
                factors = self._drawn(1 + spread * (2 * torch.rand(len(images)) - 1), images)
                middle = pixels.mean(dim=(1, 2, 3), keepdim=True) if has_middle else 0
                pixels = (middle + (pixels - middle) * factors).clamp_(0, 1)
        return (pixels - mean) / std

    @staticmethod
    def _drawn(values: Tensor, images: Tensor) -> Tensor:
        """One value for each image, beside whole images."""
        return values.to(images.device, non_blocking=True).view(-1, 1, 1, 1)


@dataclass(frozen=True)
class FileStore:
    """Inputs ``[N, C, H, W]`` of 8-bit images, of a file or kept as they are, with as much of a tensor's interface as
    gathering needs.

    Images of the test set are numbered after all training images; ``normalise`` makes inputs of them on ``device``.
    """

    train: Images
    test: Images
    normalise: Normaliser
    device: torch.device

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.train) + len(self.test), *self.normalise.shape(self.train.shape[1:])))

    def to(self, device: torch.device) -> FileStore:
        return replace(self, normalise=self.normalise.to(device), device=device)

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """Inputs ``[n, C, H, W]`` of the images ``rows`` ``[n]``; ``dim`` is 0, as torch calls it."""
        numbers = rows.cpu().numpy()
        is_test = numbers >= len(self.train)
        found = np.empty((len(numbers), *self.test.shape[1:]), dtype=self.test.dtype)
        found[~is_test] = self.train[numbers[~is_test]]
        found[is_test] = self.test[numbers[is_test] - len(self.train)]
        return self.normalise(torch.from_numpy(found).to(self.device))

    def __deepcopy__(self, memo: dict[int, object]) -> FileStore:
        return self  # what lies in a file is not copied with a learner that holds on to it


@dataclass(frozen=True)
class AbsentStore:
    """In place of training images of a task that is learned, which were not read: whoever asks for them is told."""

    shape: torch.Size
    device: torch.device

    def to(self, device: torch.device) -> AbsentStore:
        return replace(self, device=device)

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """Raise a RunError."""
        raise RunError(
            "training images of a task that was learned before are not at hand",
            remedy="a method that trains on earlier tasks' images again says so by revisits_tasks = True",
        )


#: What images of a task are gathered from.
Store: TypeAlias = Tensor | FileStore | AbsentStore


@dataclass(frozen=True)
class SampleIds:
    """Identity of a batch's images for the feature cache: owner of the split, and ``[n]`` int64 numbers on the CPU."""

    owner: object
    numbers: Tensor


def tag_batch(images: Tensor, ids: SampleIds) -> Tensor:
    """Return ``images`` themselves, known to :func:`sample_ids_of` from now on."""
    # An attribute, since batches reach models as plain tensors, through strategies, creators and Avalanche alike.
    if not images.is_inference():  # of those torch does not know whether they were changed
        images._seu_bench_sample_ids = (ids, images._version)  # type: ignore[attr-defined]
    return images


def sample_ids_of(images: Tensor) -> SampleIds | None:
    """Ids that :func:`tag_batch` gave this very tensor; ``None`` without any, or if it was changed in place since."""
    found: tuple[SampleIds, int] | None = getattr(images, "_seu_bench_sample_ids", None)
    return found[0] if found is not None and found[1] == images._version else None


@dataclass(frozen=True)
class TaskImages:
    """Images of one split of one task, or features or tokens: rows of a store that tasks share.

    Attributes:
        store: normalised float32 images ``[N, C, H, W]`` of the whole data set, on the run's device, or what makes them
            of images in a file; float32 features ``[N, D]``; integers ``[N, L]``, which are int64 in batches.
        rows: ``[n]`` int64, which of them are this split's, in its order.
        labels: ``[n]`` int64, numbered from 0 within the task; over all tasks in the class-incremental scenario.
        task: 0-based position of the task in the stream.
        permutation: ``[C*H*W]`` int64, the order in which this task sees the pixels.
        channels: a store of one channel is repeated to so many.
        sample_ids: who these images are; batches of them are tagged with it.
        hides_task: whether learners are not told the task: batches of all tasks have the task label 0.
        augmenter: changes images that train, before their pixels are permuted; ``None``: they stay as they are.
    """

    store: Store
    rows: Tensor
    labels: Tensor
    task: int
    channels: int
    permutation: Tensor | None = None
    sample_ids: SampleIds | None = None
    hides_task: bool = False
    augmenter: Augmenter | None = None

    @property
    def task_label(self) -> int:
        """The task as learners are told it."""
        return 0 if self.hides_task else self.task

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        return self.store.device

    def gather(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Images ``[b, C, H, W]`` and labels ``[b]`` at ``positions`` of this split, which may be on the CPU."""
        return self._gather(positions.to(self.device, non_blocking=True), positions, None)

    def training_batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The same, augmented."""
        return self._gather(positions.to(self.device, non_blocking=True), positions, self.augmenter)

    def _gather(self, positions: Tensor, as_given: Tensor, augmenter: Augmenter | None) -> tuple[Tensor, Tensor]:
        # ``positions`` are on the device; ``as_given`` may be on the CPU, which spares a copy to it.
        images = self.store.index_select(0, self.rows.index_select(0, positions))
        if augmenter is not None:
            images = augmenter(images)
        if self.permutation is not None:
            images = images.flatten(1).index_select(1, self.permutation).view_as(images)
        if not images.is_floating_point():
            images = images.long()
        elif images.shape[1] != self.channels:
            images = images.expand(-1, self.channels, -1, -1).contiguous()
        if self.sample_ids is not None and augmenter is None:  # others than these are seen once only
            tag_batch(images, SampleIds(self.sample_ids.owner, self.sample_ids.numbers[as_given.cpu()]))
        return images, self.labels.index_select(0, positions)

    def part(self, start: int, stop: int) -> TaskImages:
        """The images at positions ``start`` to ``stop`` (exclusive)."""
        return self.subset(slice(start, stop))

    def halves(self) -> tuple[TaskImages, TaskImages]:
        """First and second half by position, the second with the odd image: one trains weights, one scores (II-E)."""
        middle = len(self) // 2
        return self.part(0, middle), self.part(middle, len(self))

    def subset(self, positions: Tensor | slice) -> TaskImages:
        """The images at ``positions``, in that order."""
        ids = self.sample_ids
        if ids is not None:
            ids = SampleIds(ids.owner, ids.numbers[positions if isinstance(positions, slice) else positions.cpu()])
        return replace(self, rows=self.rows[positions], labels=self.labels[positions], sample_ids=ids)

    def to(self, device: torch.device) -> TaskImages:
        """Copy to another device."""
        if self.device == device:
            return self
        store, rows, labels = self.store.to(device), self.rows.to(device), self.labels.to(device)
        permutation = None if self.permutation is None else self.permutation.to(device)
        augmenter = None if self.augmenter is None else self.augmenter.to(device)
        return replace(self, store=store, rows=rows, labels=labels, permutation=permutation, augmenter=augmenter)

    def batches(self, size: int, *, shuffle: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """All images once, in batches of ``size`` images ``[b, C, H, W]`` and labels ``[b]``.

        With ``shuffle`` they are for training: in an order drawn by torch's global generator, augmented, and a single
        image left over joins the batch before it.
        """
        count = len(self)
        order = torch.randperm(count) if shuffle else torch.arange(count)
        here = order.to(self.device, non_blocking=True)
        bounds = batch_bounds(count, size, join=shuffle)
        if active_rehearsal() is not None:
            for turn in abridge([stop - start for start, stop in bounds]):
                yield self.gather(order[slice(*bounds[turn])])
            return
        for start, stop in bounds:
            yield self._gather(here[start:stop], order[start:stop], self.augmenter if shuffle else None)


def batch_bounds(count: int, size: int, *, join: bool) -> list[tuple[int, int]]:
    """Start and stop of each batch of ``size`` of ``count`` images.

    With ``join`` a single image left over joins the batch before it: BatchNorm cannot be trained on one image.
    """
    starts = list(range(0, count, size))
    if join and len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    return list(pairwise([*starts, count]))
