"""Random crops, flips and changes of colour, on whole batches that are normalised already."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seu_bench.config.streams import Augmentation


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
