"""Inputs made of an image file when a batch asks for them: what :class:`~seu_bench.data.images.TaskImages` gathers from
in place of a tensor of all images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from seu_bench.data.dataset import RawDataset
from seu_bench.data.image_file import ImageFile
from seu_bench.data.normaliser import Normaliser

#: Batches that are read while one is computed on.
_AHEAD: Final = 2


@dataclass(frozen=True)
class FileStore:
    """Inputs ``[N, C, H, W]`` of a data set in a file, with as much of a tensor's interface as gathering needs.

    Attributes:
        train, test: 8-bit images; those of the test set are numbered after all training images.
        normalise: makes inputs of them.
        device: where inputs are made.

    Example:
        ``FileStore.of(data, normalise, device).index_select(0, rows)``
    """

    train: ImageFile
    test: ImageFile | np.ndarray
    normalise: Normaliser
    device: torch.device

    @classmethod
    def of(cls, data: RawDataset, normalise: Normaliser, device: torch.device) -> FileStore | None:
        """The store of a data set that lies in a file; ``None`` where it is in memory."""
        if not isinstance(data.train.images, ImageFile):
            return None
        return cls(data.train.images, data.test.images, normalise.to(device), device)

    @property
    def shape(self) -> torch.Size:
        """Images, channels, height and width."""
        return torch.Size((len(self.train) + len(self.test), *self.normalise.shape(*self.train.image_shape)))

    def to(self, device: torch.device) -> FileStore:
        """The same store, which makes its inputs on another device."""
        return replace(self, normalise=self.normalise.to(device), device=device)

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """Inputs ``[n, C, H, W]`` of the images ``rows`` ``[n]``; ``dim`` is 0, as torch calls it."""
        return self._made(self._read(rows.cpu().numpy()))

    def batches(self, rows: Sequence[Tensor]) -> Iterator[Tensor]:
        """Inputs of one batch of rows after another; the next ones are read in the background."""
        wanted = [batch.cpu().numpy() for batch in rows]
        with ThreadPoolExecutor(1, "read images") as reader:
            reads = [reader.submit(self._read, batch) for batch in wanted[:_AHEAD]]
            for place in range(len(wanted)):
                images = reads.pop(0).result()
                reads += [reader.submit(self._read, batch) for batch in wanted[place + _AHEAD : place + _AHEAD + 1]]
                yield self._made(images)

    def _read(self, rows: np.ndarray) -> np.ndarray:
        is_test = rows >= len(self.train)
        if not is_test.any():
            return self.train[rows]
        if is_test.all():
            return self.test[rows - len(self.train)]
        found = np.empty((len(rows), *self.train.image_shape), dtype=np.uint8)
        found[~is_test] = self.train[rows[~is_test]]
        found[is_test] = self.test[rows[is_test] - len(self.train)]
        return found

    def _made(self, images: np.ndarray) -> Tensor:
        return self.normalise(torch.from_numpy(images).to(self.device))


#: What images of a task are gathered from.
Store: TypeAlias = Tensor | FileStore


def gathered(store: Store, rows: Iterable[Tensor]) -> Iterator[Tensor]:
    """Inputs of one batch of rows after another; those in a file are read in the background."""
    if isinstance(store, FileStore):
        return store.batches(list(rows))
    return (store.index_select(0, batch) for batch in rows)
