"""Storage of cached features: a row per image of a split, in one or several kinds of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from seu_bench.utils.hardware import free_host_memory

Values: TypeAlias = tuple[Tensor, ...]


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
        """Numbers in a row."""
        return self.shape.numel()

    @property
    def bytes(self) -> int:
        """Bytes of a row."""
        return self.numbers * self.cached_dtype.itemsize

    def flat(self, value: Tensor) -> Tensor:
        """``[N, ...]`` as rows."""
        return (value.permute(0, 2, 3, 1) if self.innermost else value).reshape(len(value), self.numbers)

    def as_cached(self, value: Tensor) -> Tensor:
        """``[N, ...]`` as a table would give it back: rounded and laid out as rows are."""
        return self.shaped(self.flat(value).to(self.cached_dtype).contiguous())

    def shaped(self, rows: Tensor) -> Tensor:
        """Rows as ``[N, ...]``."""
        rows = rows.to(self.dtype)
        if not self.innermost:
            return rows.view(-1, *self.shape)
        channels, height, width = self.shape
        return rows.view(-1, height, width, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class _Part:
    """Rows ``start`` to ``stop`` of a table."""

    start: int
    stop: int
    tier: Tier
    rows: list[Tensor]


class Table:
    """The first ``rows`` of a split, as many as there is memory for in ``tiers``, which are taken from in this order.

    They are written in chunks of so many images; a table ends with a whole one. ``asked``, the time of its last use, is
    set by its owner.
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

    def missing(self, numbers: Tensor) -> list[int]:
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
        """The values of images ``numbers``, ``[b]`` int64 on the CPU, on ``device``: from their rows, or for the places
        in ``numbers`` of those without a row from ``beyond(places)``."""
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
            back = torch.cat(places).argsort().to(device)
            read = [torch.cat(rows).index_select(0, back) for rows in zip(*found, strict=True)]
        return tuple(form.shaped(rows) for form, rows in zip(self.forms, read, strict=True))

    def free(self) -> None:
        """Give the memory back."""
        for part in self._parts:
            part.tier.left += (part.stop - part.start) * self._size
        self._parts = []
        self.rows = 0


#: Share of what is free when a task begins that its features may take, unless the user says otherwise.
SHARE = 0.5


def feature_tiers(device: torch.device, budget: int | None) -> list[Tier]:
    """Memory for features, the device's first, then the host's; ``budget`` in bytes, default half of what is free."""
    tiers = []
    if device.type == "cuda":
        free = int(SHARE * torch.cuda.mem_get_info(device)[0])
        tiers.append(Tier(device, free if budget is None else min(budget, free)))
        budget = None if budget is None else budget - tiers[0].limit
    host = int(SHARE * free_host_memory()) if budget is None else budget
    return [*tiers, Tier(torch.device("cpu"), host)]
