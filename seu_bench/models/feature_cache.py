"""Outputs of frozen layers on a task's images, computed once and read back in every later epoch.

The cache knows the images of a batch by the tag that :class:`~seu_bench.data.images.TaskImages` leaves on it; for
others, such as test images or a batch that a plugin has changed, it computes.

Results do not depend on what is cached: outputs are computed in chunks of one size, whatever the batch, so that on a
CPU the output for an image is the same, bit by bit, whichever images it is computed with. A run with less memory, or
one that was interrupted and computes them again, gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import torch
from torch import Tensor

from seu_bench.data.images import SampleIds, TaskImages, sample_ids_of, tag_batch
from seu_bench.models.flops import FlopCounter, counted_as
from seu_bench.utils.hardware import free_host_memory

Values: TypeAlias = tuple[Tensor, ...]
Compute: TypeAlias = Callable[[Tensor], Values]

#: Share of what is free when a task begins that its features may take, unless the user says otherwise.
SHARE: Final = 0.5


class Tier:
    """Memory of one device with a limit in bytes, and how much of it is left."""

    def __init__(self, device: torch.device, limit: int) -> None:
        self.device = device
        self.limit = limit
        self.left = limit


@dataclass(frozen=True)
class Form:
    """Layout of a value ``[N, *shape]`` as cached rows ``[N, numbers]``: channels innermost, if it came so."""

    shape: torch.Size
    innermost: bool
    dtype: torch.dtype
    cached_dtype: torch.dtype

    @classmethod
    def of(cls, value: Tensor, dtype: torch.dtype | None) -> Form:
        """Layout of ``value``; floating point is cached in ``dtype``, if one is given."""
        # Maps of one channel, or of one pixel, are both: they count as contiguous.
        innermost = not value.is_contiguous() and value.dim() == 4
        innermost = innermost and value.is_contiguous(memory_format=torch.channels_last)
        cached = dtype if dtype is not None and value.is_floating_point() else value.dtype
        return cls(value.shape[1:], innermost, value.dtype, cached)

    @property
    def numbers(self) -> int:
        return self.shape.numel()

    @property
    def bytes(self) -> int:
        """Bytes of a row."""
        return self.numbers * self.cached_dtype.itemsize

    def flat(self, value: Tensor) -> Tensor:
        return (value.permute(0, 2, 3, 1) if self.innermost else value).reshape(len(value), self.numbers)

    def as_cached(self, value: Tensor) -> Tensor:
        """``[N, ...]`` as a table would give it back: rounded and laid out as rows are."""
        return self.reshape(self.flat(value).to(self.cached_dtype).contiguous())

    def reshape(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.dtype)
        if not self.innermost:
            return rows.view(-1, *self.shape)
        channels, height, width = self.shape
        return rows.view(-1, height, width, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class _Part:
    start: int
    stop: int
    tier: Tier
    rows: list[Tensor]


class Table:
    """The first ``rows`` of a split, as many as there is memory for in ``tiers``, in this order; written in chunks.

    ``asked``, the time of its last use, is set by its owner.
    """

    def __init__(self, forms: Sequence[Form], images: int, chunk: int, tiers: Sequence[Tier]) -> None:
        self.forms = tuple(forms)
        self.chunk = chunk
        self.asked = 0
        self.rows = 0
        self._parts: list[_Part] = []
        self._size = sum(form.bytes for form in forms)
        # Twice, because a last chunk that is short may fit where a whole one did not.
        for tier in (*tiers, *tiers):
            wanted = images - self.rows
            room = min(wanted, tier.left // max(self._size, 1))
            if room < wanted:
                room -= room % chunk
            if room > 0:
                rows = [torch.empty(room, form.numbers, dtype=form.cached_dtype, device=tier.device) for form in forms]
                self._parts.append(_Part(self.rows, self.rows + room, tier, rows))
                self.rows += room
                tier.left -= room * self._size
        self._missing = set(range(-(-self.rows // chunk)))

    def missing_chunks(self, numbers: Tensor) -> list[int]:
        """The chunks among those of rows ``numbers`` that were not written yet."""
        if not self._missing:
            return []
        return [chunk for chunk in (numbers // self.chunk).unique().tolist() if chunk in self._missing]

    def write(self, chunk: int, values: Values) -> None:
        """Cache the values ``[chunk, ...]`` of the images of a chunk."""
        first = chunk * self.chunk
        for part in self._parts:
            begin, end = max(first, part.start), min(first + len(values[0]), part.stop)
            if begin < end:
                for form, rows, value in zip(self.forms, part.rows, values, strict=True):
                    rows[begin - part.start : end - part.start].copy_(form.flat(value)[begin - first : end - first])
        self._missing.discard(chunk)

    def read(self, numbers: Tensor, device: torch.device, beyond: Callable[[Tensor], Values]) -> Values:
        """The values of images ``numbers`` on ``device``: of those without a row from ``beyond(places in numbers)``."""
        places, found = [], []
        for part in self._parts:
            here = ((numbers >= part.start) & (numbers < part.stop)).nonzero().flatten()
            if len(here):
                wanted = (numbers[here] - part.start).to(part.tier.device, non_blocking=True)
                places.append(here)
                found.append([rows.index_select(0, wanted).to(device, non_blocking=True) for rows in part.rows])
        here = (numbers >= self.rows).nonzero().flatten()
        if len(here):
            places.append(here)
            found.append([form.flat(value) for form, value in zip(self.forms, beyond(here), strict=True)])
        read = found[0]
        if len(found) > 1:
            back = torch.cat(places).argsort().to(device, non_blocking=True)
            read = [torch.cat(rows).index_select(0, back) for rows in zip(*found, strict=True)]
        return tuple(form.reshape(rows) for form, rows in zip(self.forms, read, strict=True))

    def free(self) -> None:
        for part in self._parts:
            part.tier.left += (part.stop - part.start) * self._size
        self._parts = []
        self.rows = 0


def feature_tiers(device: torch.device, budget: int | None) -> list[Tier]:
    """Memory for features, the device's first, then the host's; ``budget`` in bytes, default half of what is free."""
    tiers = []
    if device.type == "cuda":
        free = int(SHARE * torch.cuda.mem_get_info(device)[0])
        tiers.append(Tier(device, free if budget is None else min(budget, free)))
        budget = None if budget is None else budget - tiers[0].limit
    host = int(SHARE * free_host_memory()) if budget is None else budget
    return [*tiers, Tier(torch.device("cpu"), host)]


class FeatureCache:
    """Outputs of frozen layers on the images of one task, within a budget of memory.

    A table holds what one function gives for one split, a row per image, or for the first of them. One that was not
    used for as long as all images take to go by makes room for others.

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
        """``compute(x)`` without gradients; ``compute`` may ask the cache for what it begins with."""
        ids = sample_ids_of(x)
        with torch.no_grad():
            if ids is None or not isinstance(ids.owner, _Split) or ids.owner.cache is not self:
                return compute(x)
            if not len(x) or torch.is_inference_mode_enabled():  # no rows; rows that autograd could never read again
                return compute(x)
            # As many operations as without a cache: they say what a strategy takes, on any machine.
            with counted_as(lambda: len(x) * self._flops[key]):
                return self._looked_up(x, ids, ids.owner, key, self._measure(key, compute), keep=keep)

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
            return self._compute_rows(split, compute, x, numbers)

        def computed(places: Tensor) -> Values:
            rows = x.index_select(0, places.to(x.device, non_blocking=True))
            return self._compute_rows(split, compute, rows, numbers[places])

        table.asked = self._asked
        self._fill(split, table, numbers, compute)
        return table.read(numbers, x.device, computed)

    def _measure(self, key: Hashable, compute: Compute) -> Compute:
        """``compute``, whose operations are counted where they are not known yet."""
        if key in self._flops:
            return compute

        def counted(x: Tensor) -> Values:
            with FlopCounter() as counter:
                values = compute(x)
            self._flops[key] = counter.flops // len(x)
            return values

        return counted

    def _compute_rows(self, split: _Split, compute: Compute, x: Tensor, numbers: Tensor) -> Values:
        """Compute in the chunk's size, the last image repeated: uncached outputs are rounded as cached ones."""
        size, count = split.size, len(x)
        if count == size:
            return self._compute_nested(compute, tag_batch(x, SampleIds(split, numbers)))
        found = []
        for start in range(0, count, size):
            which = torch.arange(start, start + size).clamp_max(count - 1)
            rows = x.index_select(0, which.to(x.device, non_blocking=True))
            piece = tag_batch(rows, SampleIds(split, numbers[which]))
            values = self._compute_nested(compute, piece)
            found.append([value[: count - start] for value in values])
        return tuple(torch.cat(parts) for parts in zip(*found, strict=True))

    def _open(self, split: _Split, key: Hashable, compute: Compute) -> Table:
        values = self._compute_nested(compute, split.chunk(0))
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
        for chunk in table.missing_chunks(numbers):
            values = self._compute_nested(compute, split.chunk(chunk))
            beyond = chunk * self.chunk - split.first(chunk)
            table.write(chunk, tuple(value[beyond:] for value in values))

    def _compute_nested(self, compute: Compute, x: Tensor) -> Values:
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
