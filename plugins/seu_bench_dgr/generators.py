"""What makes images from random numbers, and how it learns to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seu_bench.data import TaskImages

#: Images that the range of pixels is read from at once.
_AT_ONCE = 512


@dataclass(frozen=True)
class Sources:
    """Where a generator's step takes its images from, as pixels in [0, 1].

    Attributes:
        real: returns the next batch of the task's images, ``[N, C, H, W]``.
        replayed: makes images by the old generator, as many as the batch is given; ``None`` in the first task.
        share: weight of the task's images; the others have the rest.
    """

    real: Callable[[], Tensor]
    replayed: Callable[[int], Tensor] | None = None
    share: float = 1.0


class ImageGenerator(nn.Module, ABC):
    """Base of generators: random numbers to pixels in [0, 1], and those to the range of standardised images.

    It has no layer that behaves otherwise in evaluation mode.

    Args:
        shape: channels, height and width of an image.
        latent: random numbers that an image is made from.

    Attributes:
        low, high: darkest and brightest value of each channel, ``[C, 1, 1]``, in the first task's training images.
    """

    low: Tensor
    high: Tensor

    def __init__(self, shape: tuple[int, int, int], latent: int) -> None:
        super().__init__()
        self.shape = shape
        self.latent = latent
        self.register_buffer("low", torch.zeros(shape[0], 1, 1))
        self.register_buffer("high", torch.ones(shape[0], 1, 1))

    @abstractmethod
    def logits(self, noise: Tensor) -> Tensor:
        """Pixels ``[N, C, H, W]`` before the sigmoid, of ``noise`` ``[N, latent]``."""

    @abstractmethod
    def trainer(self, rate: float) -> GeneratorTrainer:
        """A fresh optimiser over all that learns, at a learning rate."""

    def pixels(self, count: int) -> Tensor:
        """Draw ``count`` images, pixels in [0, 1]."""
        noise = torch.randn(count, self.latent, device=self.low.device)
        return self.logits(noise).sigmoid()

    def images(self, count: int) -> Tensor:
        """Draw ``count`` images ``[count, C, H, W]`` in the range of the first task's training images."""
        return self.low + (self.high - self.low) * self.pixels(count)

    def fit_range(self, images: TaskImages) -> None:
        """Take the range of pixels from training images, whose own is that of 0 to 1 from then on."""
        lows, highs = [], []
        for batch, _ in images.batches(_AT_ONCE, shuffle=False):
            lows.append(batch.amin(dim=(0, 2, 3)))
            highs.append(batch.amax(dim=(0, 2, 3)))
        self.low.copy_(torch.stack(lows).amin(dim=0)[:, None, None])
        self.high.copy_(torch.stack(highs).amax(dim=0)[:, None, None])

    def scaled(self, images: Tensor) -> Tensor:
        """Images ``[N, C, H, W]`` as pixels in [0, 1]; what is beyond the range is brought into it."""
        span = (self.high - self.low).clamp_min(torch.finfo(images.dtype).tiny)
        return ((images - self.low) / span).clamp(0, 1)


class GeneratorTrainer(ABC):
    """Takes the steps of a generator.

    Attributes:
        optimizers: whose states are saved with the stage.
        passes: images passed by all steps so far: an image counts once for each network that it comes out of or goes
            through.
    """

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers
        self.passes = 0

    @staticmethod
    def adam(module: nn.Module, rate: float, betas: tuple[float, float] = (0.9, 0.999)) -> torch.optim.Adam:
        """Adam over a module, in one kernel where there is a device to compute on."""
        parameters = list(module.parameters())
        return torch.optim.Adam(parameters, lr=rate, betas=betas, fused=parameters[0].device.type != "meta")

    @abstractmethod
    def step(self, sources: Sources) -> Tensor:
        """Take one step of the generator, and return the loss.

        Args:
            sources: where its images come from.
        """
