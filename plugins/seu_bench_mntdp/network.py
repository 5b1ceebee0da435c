"""Paths of modules, a path that is tried with new ones, and the network of all that tasks made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from seu_bench.errors import RunError
from seu_bench.models.multihead import not_learned
from seu_bench_kit import Unit, even_resnet_parts
from seu_bench_kit.units import UnitModel

#: The module of each place from the input on, the head last, by its number there.
Path: TypeAlias = tuple[int, ...]
#: The same, with ``None`` where a new module is made.
Choices: TypeAlias = tuple[int | None, ...]


class Module(Unit):
    """A module of the network: a part of it, which never trains again once its task is over.

    Args:
        part: ``[N, inputs, H, W] -> [N, outputs, H', W']``, or the head, ``[N, channels] -> [N, classes]``.
    """

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        """The part's output."""
        output: Tensor = self.part(x)
        return output


class Candidate(nn.Module):
    """A path that is tried, with new modules.

    Args:
        choices: module of each place, ``None`` for a new one.
        modules: new ones by their place.
    """

    def __init__(self, choices: Choices, modules: Mapping[int, Module]) -> None:
        super().__init__()
        self.choices = choices
        self.new = nn.ModuleDict({str(place): module for place, module in modules.items()})

    def new_at(self, place: int) -> Module:
        """The new module of a place."""
        return cast(Module, self.new[str(place)])


class ModularResNet(UnitModel):
    """Grows from nothing: a candidate is tried, the best one kept, and its new modules are frozen with its path.

    The places are a stem, four groups of two residual blocks (with ``split_last`` the last group is two places) and a
    linear head behind global average pooling; all but the head are equally wide, so that any module fits behind any of
    the place before.

    Args:
        image_channels: of the images.
        channels: of every module but the head; 64 are published.
        classes: of each task.
        split_last: whether the last group is two modules.
        shares_heads: whether a task may be answered by an earlier one's head; not where its answers have to tell the
            tasks apart.

    Attributes:
        paths: of the tasks that were learned, in their order.
        unit_tasks: per place, the task that each module was made for.
        tried: the candidate that the next task is computed on, if there is one.
        best: the candidate that is compared with; the next task is computed on it where none is tried.

    Example:
        ``network = ModularResNet(3, 64, [10, 10]); network.try_path((None,) * 6); network.hold(); network.adopt()``
    """

    has_frozen_layers = paths_stay = True

    def __init__(
        self,
        image_channels: int,
        channels: int,
        classes: Sequence[int],
        *,
        split_last: bool = False,
        shares_heads: bool = True,
    ) -> None:
        super().__init__(classes)
        self.shares_heads = shares_heads
        self.channels = channels
        self._makers = even_resnet_parts(image_channels, channels, split_last=split_last)
        self.layers = nn.ModuleList(nn.ModuleList() for _ in range(self.places))
        self.paths: list[Path] = []
        self.unit_tasks: list[list[int]] = [[] for _ in range(self.places)]
        self.tried: Candidate | None = None
        self.best: Candidate | None = None

    @property
    def places(self) -> int:
        """Number of modules on a path, the head included."""
        return len(self._makers) + 1

    @property
    def task(self) -> int:
        """The task that candidates are tried for: the first one without a path."""
        return len(self.paths)

    def module_at(self, place: int, number: int) -> Module:
        """A module that is kept."""
        return cast(Module, cast(nn.ModuleList, self.layers[place])[number])

    # ------------------------------------------------------------------ growth

    def try_path(self, choices: Choices, device: torch.device | None = None) -> None:
        """Compute the next task on a path with new modules, whose weights the global generator draws.

        Raises:
            RunError: every task of the stream has a path.
            ValueError: a choice does not exist, or is a head for another number of classes.
        """
        if self.task >= len(self.classes_per_task):
            raise RunError(
                f"all of the stream's {self.task} tasks are learned",
                remedy="train on each experience of benchmark.train_stream once, with a strategy made for it",
            )
        self.tried = self._candidate(choices).to(device, non_blocking=True)

    def hold(self) -> None:
        """Let the candidate that is tried be the best one, in the place of the one that was."""
        self.best, self.tried = self.tried, None

    def adopt(self) -> None:
        """Freeze the new modules of the best candidate, and let its path be the task's.

        Raises:
            RuntimeError: there is no best candidate.
        """
        if self.best is None:
            raise RuntimeError("no candidate was tried")
        path = []
        for place, choice in enumerate(self.best.choices):
            path.append(len(self.unit_tasks[place]) if choice is None else choice)
            if choice is None:
                module = self.best.new_at(place)
                module.freeze()
                cast(nn.ModuleList, self.layers[place]).append(module)
                self.unit_tasks[place].append(self.task)
        self.paths.append(tuple(path))
        self.tried = self.best = None

    def add_new(self) -> None:
        """Give the next task a path of which nothing is reused, as estimates of cost do."""
        self.try_path((None,) * self.places)
        self.hold()
        self.adopt()

    def can_reuse_head(self, earlier: int) -> bool:
        """Whether the head of an earlier task could answer for the next one, which has as many classes."""
        return self.shares_heads and self.classes_per_task[earlier] == self.classes_per_task[self.task]

    # ------------------------------------------------------------------ computation

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]``.

        Raises:
            RunError: the task was not learned, and is not the one that candidates are tried for.
        """
        choices, modules = self._route(task_label)
        kept = next((place for place, choice in enumerate(choices) if choice is None), len(choices))
        kept = min(kept, len(self._makers))
        hidden = self.prefix(x, tuple(choice for choice in choices[:kept] if choice is not None))
        for module in modules[kept:-1]:
            hidden = self.run_unit(module, hidden)
        logits: Tensor = modules[-1](hidden.mean(dim=(2, 3)))
        return logits

    def prefix(self, x: Tensor, path: Path, *, keep: bool = True) -> Tensor:
        """Output of kept modules from the input on, computed without gradients, or read back from the cache.

        Args:
            x: images ``[N, C, H, W]``.
            path: modules of the first places; empty: the images themselves.
            keep: whether the output is cached from now on.
        """
        if not path:
            return x

        def compute(images: Tensor) -> tuple[Tensor, ...]:
            # It begins with what another candidate left in the cache, and leaves nothing but its own output there.
            return (self.module_at(len(path) - 1, path[-1])(self.prefix(images, path[:-1], keep=False)),)

        (output,) = self.cached_features(x, ("prefix", *path), compute, keep=keep)
        return output

    def head(self, task: int) -> Module:
        """The head of a learned task."""
        return self.module_at(self.places - 1, self.paths[task][-1])

    def features(self, x: Tensor, task: int) -> Tensor:
        """Input ``[N, channels]`` of the head of a learned task, for any images; nothing of it stays in the cache."""
        return self.prefix(x, self.paths[task][:-1], keep=False).mean(dim=(2, 3))

    def task_module(self, task: int) -> nn.Module:
        """The modules on the task's path."""
        return nn.ModuleList(self._route(task)[1])

    def trainable_module(self, task: int) -> nn.Module:
        """The new modules of the candidate; of a learned task all of its modules, which are frozen."""
        candidate = self._candidate_of(task)
        return self.task_module(task) if candidate is None else candidate.new

    # ------------------------------------------------------------------ architecture

    def architecture(self) -> dict[str, Any]:
        """The paths, and the choices of the candidates."""
        tried, best = (it and list(it.choices) for it in (self.tried, self.best))
        return {"paths": [list(path) for path in self.paths], "tried": tried, "best": best}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give a network without modules those of ``architecture``.

        Raises:
            ValueError: the paths do not belong to this network.
        """
        if self.paths or len(architecture["paths"]) > len(self.classes_per_task):
            raise ValueError(f"{len(architecture['paths'])} paths do not fit {len(self.classes_per_task)} tasks")
        for path in architecture["paths"]:
            there = [len(tasks) for tasks in self.unit_tasks]
            if len(path) != self.places:
                raise ValueError(f"a path of {len(path)} modules does not fit {self.places} places")
            choices = [None if number == count else number for number, count in zip(path, there, strict=True)]
            self.best = self._candidate(choices)
            self.adopt()
        self.tried, self.best = (it and self._candidate(it) for it in (architecture["tried"], architecture["best"]))

    def _candidate(self, choices: Sequence[int | None]) -> Candidate:
        if len(choices) != self.places:
            raise ValueError(f"{len(choices)} choices do not fit {self.places} places")
        for place, choice in enumerate(choices):
            if choice is not None and not 0 <= choice < len(self.unit_tasks[place]):
                raise ValueError(f"place {place} has no module {choice}")
        if choices[-1] is not None and not self.can_reuse_head(self.unit_tasks[-1][choices[-1]]):
            raise ValueError(f"head {choices[-1]} is not for {self.classes_per_task[self.task]} classes")
        head: Callable[[], nn.Module] = partial(nn.Linear, self.channels, self.classes_per_task[self.task])
        makers, new = [*self._makers, head], [place for place, choice in enumerate(choices) if choice is None]
        return Candidate(tuple(choices), {place: Module(makers[place]()) for place in new})

    def _candidate_of(self, task: int) -> Candidate | None:
        if task < self.task:
            return None
        candidate = self.best if self.tried is None else self.tried
        if task > self.task or candidate is None:
            raise not_learned(task, "path")
        return candidate

    def _route(self, task: int) -> tuple[Choices, list[nn.Module]]:
        """What a task is computed by: the number of each kept module, ``None`` for new ones, and the modules."""
        candidate = self._candidate_of(task)
        if candidate is None:
            path = self.paths[task]
            return path, [self.module_at(place, number) for place, number in enumerate(path)]
        return candidate.choices, [
            candidate.new_at(place) if choice is None else self.module_at(place, choice)
            for place, choice in enumerate(candidate.choices)
        ]
