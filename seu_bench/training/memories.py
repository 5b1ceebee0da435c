"""Memories of training images that outlive their task: what stays, what is drawn, and the bytes that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from seu_bench.data.images import Augmenter, TaskImages
from seu_bench.data.planning import StreamPlan
from seu_bench.training.monitoring import KeptImages

#: What images are told apart by where each group of them has its share of a memory.
Grouping: TypeAlias = Literal["class", "label", "task"]
#: Features ``[N, F]`` of images ``[N, C, H, W]``, by which exemplars are chosen.
Features: TypeAlias = Callable[[Tensor], Tensor]
#: Every image has these; ``origin`` is its task, also where learners are not told.
_OWN: Final = ("x", "y", "task", "origin")


class Batch(SimpleNamespace):
    """Images ``x`` ``[N, C, H, W]`` of a memory, labels ``y`` ``[N]``, task labels on the CPU ``task``, and what
    else was remembered of each image, by the name that it was given by."""

    x: Tensor
    y: Tensor
    task: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __getattr__(self, name: str) -> Tensor:
        raise AttributeError(f"nothing called {name!r} is remembered; there is {', '.join(vars(self)) or 'no image'}")


class Memory:
    """Base of memories: rows of tensors, drawn at random, that can be saved and know the bytes that they stand for.

    Images that come by ``add`` stay as they came. Those that come by ``add_images`` are kept as they are in the stream,
    and augmented whenever they are drawn as those of the present task are; not where its pixels are permuted or grey
    ones repeated, which comes after augmentation.
    """

    #: Numbers of each image that the memory cannot do without: they count among the bytes.
    _counted: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.fields: dict[str, Tensor] = {}
        self._augmenter: Augmenter | None = None
        self._origin = 0

    def __len__(self) -> int:
        return len(self.fields["y"]) if self.fields else 0

    def begin_task(self, images: TaskImages) -> None:
        """Take note of the task that comes; a :class:`~seu_bench.training.method.Method` calls it."""
        self._origin = images.task
        changed = images.permutation is not None or images.store.shape[1] != images.channels
        self._augmenter = None if changed else images.augmenter

    def draw(self, count: int) -> Batch:
        """Draw so many images at most at random, none twice, with all that is remembered of them."""
        return self.at(torch.randperm(len(self))[:count])

    def at(self, positions: Tensor) -> Batch:
        """Return the images at ``positions`` ``[N]`` of the memory, which may be on the CPU."""
        found = {name: _rows(rows, positions) for name, rows in self.fields.items()}
        if self._augmenter is not None and len(positions) and self._kept_as_they_are:
            found["x"] = self._augmenter(found["x"])
        return Batch(**found)

    def by_task(self) -> list[Tensor]:
        """Return the positions ``[N]`` of the images of each task, also where learners are not told it."""
        origin = self.fields["origin"] if len(self) else torch.zeros(0)
        return [(origin == task).nonzero().flatten() for task in origin.unique()]

    def all_images(self) -> Batch:
        """Return all images, not augmented."""
        return Batch(**self.fields)

    def tables(self) -> list[TaskImages]:
        """Return all images as tables of one task each, to train on."""
        found = []
        for task in self.fields["task"].unique().tolist() if len(self) else ():
            here = (self.fields["task"] == task).nonzero().flatten()
            x, y = self.fields["x"], self.fields["y"]
            augmenter = self._augmenter if self._kept_as_they_are else None
            found.append(TaskImages(x, here.to(x.device), y[here.to(y.device)], task, x.shape[1], augmenter=augmenter))
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the rows, as copies, for the memory changes."""
        return {"fields": {name: rows.clone() for name, rows in self.fields.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        on_cpu = ("task", "origin", *self._counted)
        self.fields = {k: rows.cpu().clone() if k in on_cpu else rows.clone() for k, rows in state["fields"].items()}

    def kept(self, plan: StreamPlan) -> dict[str, Any]:
        """Return what a deployment would have to keep, by kind, as ``StagedStrategy.kept`` does."""
        if not len(self):
            return {}
        counts = torch.bincount(self.fields["origin"], minlength=len(plan.tasks)).tolist()
        images = [KeptImages(count, plan.stored_shape(task)) for task, count in enumerate(counts) if count]
        return {
            "exemplars": [images, *(self.fields[name] for name in self._counted)],
            **{name: rows for name, rows in self.fields.items() if name not in (*_OWN, *self._counted)},
        }

    #: Whether images came by ``add_images``.
    _kept_as_they_are = True

    def _take(self, images: TaskImages, positions: Tensor) -> dict[str, Tensor]:
        (x, y), count = images.gather(positions), (len(positions),)
        tasks = {"task": torch.full(count, images.task_label), "origin": torch.full(count, images.task)}
        return {"x": x, "y": y, **tasks}

    def _join(self, new: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not self.fields:
            return dict(new)
        self._check_names(new)
        return {name: torch.cat(as_wide(self.fields[name], rows)) for name, rows in new.items()}

    def _check_names(self, new: Mapping[str, Tensor]) -> None:
        if self.fields and self.fields.keys() != new.keys():
            raise ValueError(f"each image has {', '.join(self.fields)}, and these have {', '.join(new)}")


def _rows(rows: Tensor, positions: Tensor) -> Tensor:
    """Rows at positions that may be on the CPU, from where an accelerator gets them without being waited for."""
    return rows[positions.to(rows.device, non_blocking=True)]


def as_wide(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Bring rows ``[N, A]`` and ``[M, B]`` to one width: the narrower ones get the lowest number."""
    if one.dim() != 2 or one.shape[1] == other.shape[1]:
        return one, other
    width = max(one.shape[1], other.shape[1])
    lowest = torch.finfo(one.dtype).min
    return pad(one, (0, width - one.shape[1]), value=lowest), pad(other, (0, width - other.shape[1]), value=lowest)


class Reservoir(Memory):
    """A uniform sample of all images shown so far (J. Vitter, "Random Sampling with a Reservoir", 1985).

    Example:
        ::

            memory = Reservoir(200)
            memory.add(x=x, y=y, task=task, logits=logits)
            old = memory.draw(32)
            distance = (model(old.x, old.task) - old.logits).square().mean()
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity, self.seen = capacity, 0

    def add(self, *, x: Tensor, y: Tensor, task: Tensor, **more: Tensor) -> None:
        """Show a batch: images as the network gets them, labels, task labels, and ``more`` of each, such as logits."""
        self._kept_as_they_are = False
        given = {"x": x, "y": y, "task": task.cpu(), "origin": torch.full((len(y),), self._origin), **more}
        self._show(len(y), lambda rows: {name: _rows(value.detach(), rows).clone() for name, value in given.items()})

    def add_images(self, images: TaskImages) -> None:
        """Show all images of a task, in an order drawn by torch's global generator."""
        order = torch.randperm(len(images))
        self._show(len(images), lambda rows: self._take(images, order[rows]))

    def _show(self, count: int, rows_at: Callable[[Tensor], dict[str, Tensor]]) -> None:
        numbers = torch.arange(self.seen, self.seen + count)
        places = torch.where(numbers < self.capacity, numbers, (torch.rand(count) * (numbers + 1)).long())
        # Of images that take one place the last one stays.
        last = {place: row for row, place in enumerate(places.tolist()) if place < self.capacity}
        self.seen += count
        if not last:
            return
        taken = torch.tensor(sorted(last))
        rows = rows_at(torch.tensor([last[place] for place in taken.tolist()]))
        replaced = int((taken < len(self)).sum())
        before = self.fields or {name: values[:0] for name, values in rows.items()}
        self._check_names(rows)
        for name, values in rows.items():
            held, fresh = as_wide(before[name], values)
            held[taken[:replaced].to(held.device, non_blocking=True)] = fresh[:replaced]
            self.fields[name] = held if replaced == len(fresh) else torch.cat([held, fresh[replaced:]])

    def state_dict(self) -> dict[str, Any]:
        """Return rows and the number of images shown."""
        return {**super().state_dict(), "seen": self.seen, "by_batch": not self._kept_as_they_are}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.seen, self._kept_as_they_are = int(state["seen"]), not state["by_batch"]


class GroupedMemory(Memory):
    """Base of memories in which each class, or each task, has its share.

    Args:
        capacity: images at most, of all groups together; groups share it equally, the first ones of what is left over.
        each: images of each group at most, in place of ``capacity``.
        by: what a group is. Where each task counts its classes from 0, they are classes of their own; ``"label"`` takes
            those of one number together, as Avalanche's buffers do.
    """

    def __init__(self, capacity: int | None = None, *, each: int | None = None, by: Grouping = "class") -> None:
        super().__init__()
        if capacity is None and each is None:
            raise ValueError("a memory needs a budget: capacity or each")
        self.capacity, self.each, self.by = capacity, each, by

    def room(self, group: int, groups: int) -> int:
        """Return how many images the ``group``-th of so many has room for."""
        share, left = divmod(self.capacity or 0, groups)
        return share + (group < left) if self.each is None else self.each

    def _add_ranked(self, images: TaskImages, rank: Tensor, old_rank: Tensor, **more: Tensor) -> None:
        """Add the images of a task; of each group those of the lowest rank ``[N]`` stay, in that order."""
        keys = torch.full((len(images),), images.task) if self.by == "task" else images.labels.cpu()
        near = torch.cat([_lowest(rank, keys == key, self.room(0, 1)) for key in keys.unique()])
        new = {**self._take(images, near), **{name: values[near] for name, values in more.items()}}
        rows, rank = self._join(new), torch.cat([old_rank, rank[near]])
        label = rows["y"].cpu()
        keys = {"task": rows["origin"], "label": label, "class": rows["task"] * 2**32 + label}[self.by]
        groups = keys.unique()
        kept = torch.cat(
            [_lowest(rank, keys == key, self.room(number, len(groups))) for number, key in enumerate(groups)]
        )
        self.fields = {name: _rows(values, kept) for name, values in rows.items()}


def _lowest(rank: Tensor, among: Tensor, count: int) -> Tensor:
    """Positions of the ``count`` lowest ranks of those ``among`` ``[N]``, the lowest first."""
    here = among.nonzero().flatten()
    return here[rank[here].argsort(stable=True)][:count]


class Balanced(GroupedMemory):
    """A uniform sample of each class's, or each task's, images, all of one size: each image has a random number, and
    those of the lowest stay (as Avalanche's balanced buffers), e.g. ``Balanced(200, by="task")``.
    """

    _counted = ("priority",)

    def add_images(self, images: TaskImages) -> None:
        """Show all images of a task."""
        priority = torch.rand(len(images))
        self._add_ranked(images, priority, self.fields.get("priority", priority[:0]), priority=priority)


class Ring(GroupedMemory):
    """The newest images of each class, or of each task, e.g. ``Ring(each=25, by="task")``."""

    def add_images(self, images: TaskImages) -> None:
        """Show all images of a task in their order, which is random already."""
        self._add_ranked(images, -torch.arange(1.0, len(images) + 1), torch.arange(float(len(self))))


class Herded(GroupedMemory):
    """Images whose mean feature is near that of their class, the most important first (S.-A. Rebuffi et al., "iCaRL",
    CVPR 2017, algorithms 4 and 5).
    """

    def __init__(self, capacity: int | None = None, *, each: int | None = None) -> None:
        super().__init__(capacity, each=each, by="class")

    def room(self, group: int, groups: int) -> int:
        """Return how many images a class has room for: the same for all, rounded down."""
        return self.each if self.each is not None else (self.capacity or 0) // groups

    def add_images(self, images: TaskImages, features: Features) -> None:
        """Choose images of a task's classes by ``features`` of length 1, and drop the least important of the others.

        Those of a class that comes back are chosen anew, among its images and those that were kept.
        """
        labels, task = images.labels.cpu(), images.task_label
        old = self.fields
        known = list(zip(old["task"].tolist(), old["y"].tolist(), strict=True)) if old else []
        groups = sorted({*known, *((task, label) for label in labels.unique().tolist())})
        parts: list[dict[str, Tensor]] = []
        for number, (its_task, label) in enumerate(groups):
            room = self.room(number, len(groups))
            here = torch.tensor([row for row, key in enumerate(known) if key == (its_task, label)], dtype=torch.int64)
            rows = {name: _rows(values, here) for name, values in old.items()}
            mine = (labels == label).nonzero().flatten() if its_task == task else here[:0]
            if len(mine):
                new = self._take(images, mine)
                rows = {name: torch.cat([rows[name], new[name]]) if rows else new[name] for name in new}
                chosen = herd(features(rows["x"]), room)
                rows = {name: _rows(values, chosen) for name, values in rows.items()}
            parts.append({name: values[:room] for name, values in rows.items()})
        self.fields = {name: torch.cat([part[name] for part in parts]) for name in _OWN}


def herd(features: Tensor, count: int) -> Tensor:
    """Choose so many rows of ``features`` ``[n, F]`` at most whose mean is near that of all (iCaRL, algorithm 4): each
    makes the mean of those chosen so far as near to the mean of all as it can, and none is chosen twice."""
    mean = features.mean(dim=0)
    chosen: list[int] = []
    missing = torch.zeros_like(mean)  # k times the mean, less the sum of those chosen
    squares = features.square().sum(dim=1)
    for _ in range(min(count, len(features))):
        missing = missing + mean
        # |missing - f|^2 less |missing|^2, which is the same for all: one product in place of all differences.
        distances = squares - 2 * (features @ missing)
        best = int(distances.argmin())
        chosen.append(best)
        missing = missing - features[best]
        squares[best] = torch.inf
    return torch.tensor(chosen, dtype=torch.int64)
