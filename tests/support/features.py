"""A frozen layer that counts its images, feature caches, and the images of a small task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from support.tiny import CPU, class_stream
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.data.images import TaskImages
from seu_bench.models.feature_cache import FeatureCache, Tier

CHUNK = 8
STREAM = class_stream([[0, 1, 2]], images=40)
TRAIN, TEST = STREAM.tasks[0].train, STREAM.tasks[0].test


class Frozen(nn.Module):
    """A frozen convolution with BatchNorm, which counts the images that it sees."""

    def __init__(self, channels: int = 3, *, innermost: bool = True, inputs: int = 1) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(channels)
            self.convolution = nn.Conv2d(inputs, channels, 3, padding=1)
            self.norm = nn.BatchNorm2d(channels)
            nn.init.normal_(self.norm.running_mean)
        self.innermost = innermost
        self.seen = 0
        self.sizes: set[int] = set()
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Maps and numbers: ``[N, C, H, W]`` and ``[N, C]``."""
        self.seen += len(x)
        self.sizes.add(len(x))
        if self.innermost:
            x = x.expand(-1, max(2, x.shape[1]), -1, -1)[:, : x.shape[1]].contiguous(memory_format=torch.channels_last)
        y = functional.relu(self.norm(self.convolution(x)))
        return y, y.mean(dim=(2, 3))

    @property
    def row(self) -> int:
        """Bytes that it gives for an image of 8x8 pixels."""
        return 4 * self.convolution.out_channels * 65


def cache(budget: int = 10**9, *more: int, chunk: int = CHUNK, dtype: torch.dtype | None = None) -> FeatureCache:
    return FeatureCache([Tier(CPU, limit) for limit in (budget, *more)], chunk, dtype)


def all_of(images: TaskImages) -> Tensor:
    return images.gather(torch.arange(len(images)))[0]


def batches(images: TaskImages, size: int = CHUNK, seed: int = 0) -> Iterator[Tensor]:
    """An epoch."""
    torch.manual_seed(seed)
    for x, _ in images.batches(size, shuffle=True):
        yield x


def positions(count: int, *wanted: int) -> Tensor:
    """Some positions, with repetitions, or those wanted."""
    return torch.tensor(wanted) if wanted else torch.randint(count, (CHUNK,))


def equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Bit by bit, and of one layout: what is computed of them then is the same too."""
    return len(one) == len(other) and all(
        torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(one, other, strict=True)
    )


def answers(caches: Sequence[FeatureCache], compute: Callable[[Tensor], tuple[Tensor, ...]], which: Tensor) -> list:  # type: ignore[type-arg]
    """Features that each cache gives for the same images, one batch."""
    return [kept.get(kept.number(TRAIN).gather(which)[0], "key", compute) for kept in caches]


def epoch_of(kept: FeatureCache, key: str, frozen: Frozen, *splits: TaskImages) -> int:
    """Ask for all images; how many were computed."""
    frozen.seen = 0
    for images in splits:
        for x in batches(images):
            kept.get(x, key, frozen)
    return frozen.seen
