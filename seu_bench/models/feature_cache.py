"""Outputs of frozen layers on a task's images, computed once and read back in every later epoch.

The cache knows the images of a batch by the tag that :class:`~seu_bench.data.images.TaskImages` leaves on it; for
others, such as test images or a batch that a plugin has changed, it computes.

Results do not depend on what is cached: outputs are computed in chunks of one size, whatever the batch, so that on a
CPU the output for an image is the same, bit by bit, whichever images it is computed with. A run with less memory, or
one that was interrupted and computes them again, gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from seu_bench.data.images import SampleIds, TaskImages, sample_ids_of, tag_batch
from seu_bench.models.feature_store import Form, Table, Tier, Values
from seu_bench.models.flops import FlopCounter, counted_as

Compute: TypeAlias = Callable[[Tensor], Values]


class FeatureCache:
    """Outputs of frozen layers on the images of one task, within a budget of memory.

    A table holds what one function gives for one split, a row per image. Where the budget does not suffice for all of
    them it holds the first ones, and the others are computed as often as they are asked for. A table that was not used
    for as long as all images take to go by makes room for others.

    Args:
        tiers: memory of the rows, in order of preference.
        chunk: images that are computed at once, always: sums over other numbers of images may be rounded otherwise.
        dtype: of cached floating point; ``None``: as computed.
    """

    def __init__(self, tiers: Sequence[Tier], chunk: int, dtype: torch.dtype | None = None) -> None:
        self.tiers = tuple(tiers)
        self.chunk = chunk
        self.dtype = dtype
        self.peak_bytes = 0  # largest size so far
        self._flops: dict[Hashable, int] = {}  # per image, of each function
        self._images = 0  # of all splits
        self._tables: dict[tuple[_Split, Hashable], Table] = {}
        self._asked = 0
        self._newest: Tensor | None = None
        self._depth = 0

    @property
    def bytes(self) -> int:
        """Bytes cached now."""
        return sum(tier.limit - tier.left for tier in self.tiers)

    def number(self, images: TaskImages) -> TaskImages:
        """``images``, a split of the task, with ids by which the cache knows them and all parts of them."""
        self._images += len(images)
        return _Split(self, images).images

    def begin_stage(self) -> None:
        """Begin a stage: tables of earlier stages stay as long as no other needs the room."""
        self._asked += 1 + self._images

    def get(self, x: Tensor, key: Hashable, compute: Compute, *, keep: bool = True) -> Values:
        """``compute(x)`` as in :meth:`~seu_bench.models.multihead.MultiHeadModel.cached_features`; no gradient goes
        through it. ``compute`` may ask the cache for what it begins with."""
        ids = sample_ids_of(x)
        with torch.no_grad():
            if ids is None or not isinstance(ids.owner, _Split) or ids.owner.cache is not self:
                return compute(x)
            if not len(x) or torch.is_inference_mode_enabled():  # no rows; rows that autograd could never read again
                return compute(x)
            # As many operations as without a cache: they say what a strategy takes, on any machine.
            with counted_as(lambda: len(x) * self._flops[key]):
                return self._looked_up(x, ids, ids.owner, key, self._measured(key, compute), keep=keep)

    def _looked_up(
        self, x: Tensor, ids: SampleIds, split: _Split, key: Hashable, compute: Compute, *, keep: bool
    ) -> Values:
        if not self._depth and ids.numbers is not self._newest:
            # Several functions may be asked for the same images: these go by once.
            self._newest = ids.numbers
            self._asked += len(x)
        table = self._tables.get((split, key))
        if table is not None and table.rows < len(split.images) and self._is_idle(table):
            self._tables.pop((split, key)).free()
            table = None  # there may be more room for it by now
        if table is None and keep and any(tier.limit for tier in self.tiers):
            table = self._open(split, key, compute)
        numbers = ids.numbers
        if table is None or not table.rows:
            return self._computed(split, compute, x, numbers)

        def computed(places: Tensor) -> Values:
            return self._computed(split, compute, x.index_select(0, places.to(x.device)), numbers[places])

        table.asked = self._asked
        self._fill(split, table, numbers, compute)
        return table.read(numbers, x.device, computed)

    def _measured(self, key: Hashable, compute: Compute) -> Compute:
        """``compute``, whose operations are counted where they are not known yet."""
        if key in self._flops:
            return compute

        def counted(x: Tensor) -> Values:
            with FlopCounter() as counter:
                values = compute(x)
            self._flops[key] = counter.flops // len(x)
            return values

        return counted

    def _computed(self, split: _Split, compute: Compute, x: Tensor, numbers: Tensor) -> Values:
        """Compute in the chunk's size, the last image repeated: uncached outputs are rounded as cached ones."""
        size, count = split.size, len(x)
        if count == size:
            return self._nested(compute, tag_batch(x, SampleIds(split, numbers)))
        found = []
        for start in range(0, count, size):
            which = torch.arange(start, start + size).clamp_max(count - 1)
            piece = tag_batch(x.index_select(0, which.to(x.device)), SampleIds(split, numbers[which]))
            values = self._nested(compute, piece)
            found.append([value[: count - start] for value in values])
        return tuple(torch.cat(parts) for parts in zip(*found, strict=True))

    def _open(self, split: _Split, key: Hashable, compute: Compute) -> Table:
        """Create a table with as many rows as memory allows."""
        values = self._nested(compute, split.chunk(0))
        forms = [Form.of(value, self.dtype) for value in values]
        wanted = len(split.images) * sum(form.bytes for form in forms)
        # Evict idle tables for it, least recently used first.
        for other in sorted(self._tables, key=lambda other: self._tables[other].asked):
            if self._is_idle(self._tables[other]) and sum(tier.left for tier in self.tiers) < wanted:
                self._tables.pop(other).free()
        table = Table(forms, len(split.images), self.chunk, self.tiers)
        self._tables[split, key] = table
        table.asked = self._asked
        if table.rows:
            table.write(0, values)
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        return table

    def _is_idle(self, table: Table) -> bool:
        """Whether a whole pass over the images did not use the table."""
        return self._asked - table.asked > self._images

    def _fill(self, split: _Split, table: Table, numbers: Tensor, compute: Compute) -> None:
        """Compute those chunks of the table that ``numbers`` need and that are not there yet."""
        for chunk in table.missing(numbers):
            values = self._nested(compute, split.chunk(chunk))
            beyond = chunk * self.chunk - split.first(chunk)
            table.write(chunk, tuple(value[beyond:] for value in values))

    def _nested(self, compute: Compute, x: Tensor) -> Values:
        """Compute as a table would return it; requests nested in ``compute`` are not counted as the run's."""
        self._depth += 1
        try:
            values = compute(x)
        finally:
            self._depth -= 1
        return tuple(Form.of(value, self.dtype).as_cached(value) for value in values)


class _Split:
    """A split of the task in chunks of ``size`` images."""

    def __init__(self, cache: FeatureCache, images: TaskImages) -> None:
        self.cache = cache
        self.images = replace(images, sample_ids=SampleIds(self, torch.arange(len(images))))
        self.size = min(cache.chunk, len(images))

    def first(self, chunk: int) -> int:
        """First image of a chunk; the last chunk begins earlier, so that all have one size."""
        return min((chunk + 1) * self.size, len(self.images)) - self.size

    def chunk(self, chunk: int) -> Tensor:
        """The images of a chunk, ``[size, C, H, W]``."""
        return self.images.gather(self.first(chunk) + torch.arange(self.size))[0]
