"""From 8-bit pixels to a network's input: padding, background, mean and standard deviation; and augmentation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seu_bench.config.streams import Augmentation, InputSpec
from seu_bench.data.dataset import Images, RawDataset, blocks
from seu_bench.errors import RequestError


@dataclass(frozen=True)
class Normaliser:
    """Pads, divides by 255, colours the background, then ``(x - mean) / std`` per channel.

    Each image is computed for itself, so that it comes out equal bit by bit alone and among others.

    Attributes:
        pad: zero pixels that are added on each side.
        background: ``[1, 3, 1, 1]``, colour of the background of grey images; ``None``: they stay grey.
        mean, std: ``[C]``, of pixels in [0, 1]; one value may stand for all channels.

    Example:
        ``Normaliser.of(InputSpec(), data)(torch.from_numpy(data.train.images))``
    """

    pad: int
    background: Tensor | None
    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, spec: InputSpec, data: RawDataset) -> Self:
        """What a benchmark asks for; where it gives no mean, those of all training images, coloured but not padded.

        Raises:
            RequestError: there are as many means as neither one nor the channels.
        """
        mean, std = spec.mean, spec.std
        color = None if spec.color is None else np.asarray(spec.color, dtype=np.float64)
        if mean is None or std is None:
            average, deviation = pixel_statistics(data.train.images)
            if color is not None:  # x + (1 - x) * c is c + (1 - c) * x
                average, deviation = color + (1 - color) * average, (1 - color) * deviation
            mean, std = tuple(average.tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist())
        channels = data.info.channels if color is None else 3
        if len(mean) not in (1, channels):
            raise RequestError(
                f"{len(mean)} means for images of {channels} channels",
                where=f"input of data set {data.info.name!r}",
                remedy="give input.mean and input.std one value per channel",
            )
        background = None if color is None else torch.from_numpy(color).float().view(1, -1, 1, 1)
        return cls(spec.pad, background, torch.tensor(mean), torch.tensor(std))

    def shape(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        """Shape of an input that is made of an image of this shape."""
        return channels if self.background is None else 3, height + 2 * self.pad, width + 2 * self.pad

    def augmenter(self, asked: Augmentation, channels: int) -> Augmenter | None:
        """What augments inputs of so many channels; ``None`` where nothing is asked for."""
        if asked == Augmentation():
            return None
        black = torch.zeros(1) if self.background is None else self.background.flatten()
        return Augmenter(asked, self.mean, self.std, ((black - self.mean) / self.std).expand(channels))

    def document(self, shape: tuple[int, int, int], permutation_seed: int | None) -> dict[str, Any]:
        """Plain values that say all of it, for images of a shape whose pixels a task may permute."""
        return {
            "shape": shape,
            "pad": self.pad,
            "background": None if self.background is None else tuple(self.background.flatten().tolist()),
            "mean": tuple(self.mean.tolist()),
            "std": tuple(self.std.tolist()),
            "permutation_seed": permutation_seed,
        }

    def to(self, device: torch.device) -> Normaliser:
        """Copy to another device."""
        background = None if self.background is None else self.background.to(device)
        return Normaliser(self.pad, background, self.mean.to(device), self.std.to(device))

    def __call__(self, images: Tensor) -> Tensor:
        """Inputs ``[n, C, H, W]`` (float32) of 8-bit images."""
        values = torch.nn.functional.pad(images, (self.pad,) * 4).float().div_(255)
        if self.background is not None:
            values = self.background + (1 - self.background) * values
        return values.sub_(self.mean.view(1, -1, 1, 1)).div_(self.std.view(1, -1, 1, 1))


def pixel_statistics(images: Images) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation ``[C]`` of pixels in [0, 1], from exact sums of whole numbers.

    Example:
        ``pixel_statistics(data.train.images)``
    """
    channels = images.shape[1]
    total, squares = [0] * channels, [0] * channels
    for block in blocks(images):
        wide = block.astype(np.uint16)  # 255 squared fits
        for sums, values in ((total, wide), (squares, wide * wide)):
            for channel, found in enumerate(values.sum(axis=(0, 2, 3), dtype=np.int64).tolist()):
                sums[channel] += found
    count = len(images) * math.prod(images.shape[2:])
    mean = [found / (255 * count) for found in total]
    variance = [(count * q - s * s) / (255 * count) ** 2 for s, q in zip(total, squares, strict=True)]
    return np.array(mean), np.sqrt(variance)


@dataclass(frozen=True)
class Augmenter:
    """Draws what a benchmark asks for, image by image, with torch's global generator of the CPU.

    What is drawn is the same on every device.

    Args:
        asked: which changes, and how large.
        mean, std: ``[C]``, by which pixels in [0, 1] were normalised.
        black: ``[C]``, a black pixel after normalisation.

    Example:
        ``x = augmenter(x)  # [b, C, H, W]``
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
            images = self._cropped(images)
        if asked.flip:
            mirrored = self._drawn(torch.rand(len(images)) < 0.5, images)
            images = torch.where(mirrored, images.flip(-1), images)
        if asked.brightness or asked.contrast:
            images = self._coloured(images)
        return images

    def _cropped(self, images: Tensor) -> Tensor:
        margin = self.asked.crop
        count, channels, height, width = images.shape
        padded = self.black.view(1, -1, 1, 1).repeat(count, 1, height + 2 * margin, width + 2 * margin)
        padded[..., margin : margin + height, margin : margin + width] = images
        corners = torch.randint(2 * margin + 1, (2, count)).to(images.device)
        rows = corners[0].view(-1, 1) + torch.arange(height, device=images.device)
        columns = corners[1].view(-1, 1) + torch.arange(width, device=images.device)
        padded = padded.gather(2, rows.view(count, 1, height, 1).expand(-1, channels, -1, padded.shape[3]))
        return padded.gather(3, columns.view(count, 1, 1, width).expand(-1, channels, height, -1))

    def _coloured(self, images: Tensor) -> Tensor:
        mean, std = self.mean.view(1, -1, 1, 1), self.std.view(1, -1, 1, 1)
        pixels = images * std + mean
        if spread := self.asked.brightness:
            pixels = pixels * self._factors(spread, images)
            pixels = pixels.clamp_(0, 1)
        if spread := self.asked.contrast:
            middle = pixels.mean(dim=(1, 2, 3), keepdim=True)
            pixels = middle + (pixels - middle) * self._factors(spread, images)
            pixels = pixels.clamp_(0, 1)
        return (pixels - mean) / std

    def _factors(self, spread: float, images: Tensor) -> Tensor:
        return self._drawn(1 + spread * (2 * torch.rand(len(images)) - 1), images)

    @staticmethod
    def _drawn(values: Tensor, images: Tensor) -> Tensor:
        """One value for each image, beside whole images."""
        return values.to(images.device).view(-1, 1, 1, 1)
