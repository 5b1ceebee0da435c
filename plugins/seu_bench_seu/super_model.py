"""The super model: layers of units, one path through them per task, one head per task (paper, section III-B)."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from seu_bench.data import InputShape
from seu_bench.errors import RunError, SeuBenchError
from seu_bench.models.answers import checksums
from seu_bench.models.multihead import not_learned
from seu_bench.models.walk import named_state, parts_of
from seu_bench.training import on_meta
from seu_bench_kit import Adapted, SearchSpace, Unit
from seu_bench_kit.units import AdaptedUnit, UnitModel, pool

ModuleT = TypeVar("ModuleT", bound=nn.Module)
#: Where something is, in the text that it is told by.
_PLACES = re.compile(r" at 0x[0-9a-f]+| \(cuda(:\d+)?\)")
#: Attributes that are others where they change; the objects that units of these consisted of, and the text of that.
_PLAIN = (int, float, str, tuple, type(None), Tensor, torch.device)
_told: WeakKeyDictionary[Unit, tuple[list[object], str]] = WeakKeyDictionary()
#: By the place of a unit, a head or a path, what it consists of, by name, as text or hash.
Frozen: TypeAlias = Mapping[str, Mapping[str, object]]
#: Units of a path, by layer: the index of one, or an old one wrapped.
Path: TypeAlias = Sequence[int | Adapted]


class SuperModel(UnitModel):
    """Grows from nothing: :meth:`expand` adds a new unit per layer, :meth:`keep` deletes those that were not chosen,
    :meth:`freeze` ends a task.

    Layer 0 holds the stems, layers 1 to L the extension units; a path has L + 1 indices in creation order.

    Args:
        input: shape of a sample.
        classes: outputs of each task's head.
        cells, channels: L and C.
        space: how units are built.
        stem: whether each task brings a stem to choose from, or all share the first.
        wrap: makes the module of an :class:`~seu_bench_kit.Adapted` from its genotype, given the old unit and the
            features of its output; ``None``: no unit can be wrapped.
    """

    has_frozen_layers = True

    def __init__(
        self,
        input: InputShape,
        classes: Sequence[int],
        cells: int,
        channels: int,
        space: SearchSpace,
        stem: Literal["selectable", "shared"] = "selectable",
        wrap: Callable[[Mapping[str, Any], Unit, int], nn.Module] | None = None,
    ) -> None:
        super().__init__(classes)
        self.input = input
        self.channels = channels
        self.space = space
        self.stem = stem
        self.wrap = wrap
        self.places = space.places(cells, channels)
        self.layers = nn.ModuleList(nn.ModuleList() for _ in range(cells + 1))
        self.heads = self._make_heads()
        self.paths: dict[int, tuple[int, ...]] = {}
        #: Paths with units that are not stored, which a creator tries.
        self.trials: dict[int, tuple[int | Adapted, ...]] = {}
        self.unit_tasks: list[list[int]] = [[] for _ in range(cells + 1)]
        #: As :meth:`architecture` tells them; spaces read copies, from which they may take parts.
        self.unit_genotypes: list[list[dict[str, Any]]] = [[] for _ in range(cells + 1)]

    # ------------------------------------------------------------------ growing

    def expand(self, genotype: Any, task: int) -> None:
        """Add one new unit of ``genotype`` to every layer (paper, algorithm 3)."""
        for layer in range(len(self.layers)):
            if layer == 0 and self.stem == "shared" and self.unit_tasks[0]:
                continue
            self._add_unit(layer, self._make_unit(layer, genotype), genotype.to_dict(), task)

    def keep(self, task: int, path: Path) -> None:
        """Make ``path`` the task's own, store old units that it wraps, and delete new ones that are not on it (paper,
        equations 21, 22)."""
        self.set_path(task, path)
        stored: list[int] = []
        for layer, chosen in enumerate(path):
            if self.has_new[layer] and chosen != self.candidates[layer] - 1:
                del self._units(layer)[-1]
                self.unit_tasks[layer].pop()
                self.unit_genotypes[layer].pop()
            if isinstance(chosen, Adapted):
                unit = AdaptedUnit(chosen)
                self._add_unit(layer, unit, {"adapts": unit.old, "genotype": unit.genotype}, task)
            stored.append(self.candidates[layer] - 1 if isinstance(chosen, Adapted) else chosen)
        self.set_path(task, stored)

    def renew(self, task: int) -> None:
        """Replace the new units on the task's path, and its head's weights, by freshly initialised ones."""
        for layer, index in enumerate(self.paths[task]):
            unit = self.unit(layer, index)
            if isinstance(unit, AdaptedUnit) and not unit.frozen:
                unit.module = self._here(self.wrapped(layer, unit.old, unit.genotype))
            elif not unit.frozen:
                genotype = self.space.from_dict(dict(self.unit_genotypes[layer][index]))
                self._units(layer)[index] = self._here(self._make_unit(layer, genotype))
        cast(nn.Linear, self.heads[task]).reset_parameters()

    def freeze(self) -> None:
        """Nothing that exists now trains again."""
        for unit in (unit for _, _, unit in self._all_units() if not unit.frozen):
            unit.freeze()

    @property
    def paths_stay(self) -> bool:  # type: ignore[override]
        """Whether tasks are computed by what is stored, and not by what a creator tries."""
        return not self.trials

    # ------------------------------------------------------------------ what a creator sees

    @property
    def candidates(self) -> list[int]:
        """Number of units in each layer."""
        return [len(tasks) for tasks in self.unit_tasks]

    @property
    def has_new(self) -> list[bool]:
        """Whether the last unit of each layer still trains."""
        return [not self.unit(layer, -1).frozen for layer in range(len(self.layers))]

    @property
    def outputs(self) -> list[int]:
        """Features of each layer's output."""
        return [self.places[0].newer, *(place.output for place in self.places)]

    def can_adapt(self, layer: int, index: int) -> bool:
        """Whether a unit can be wrapped: it is old, and no wrapped one itself."""
        unit = self.unit(layer, index)
        return unit.frozen and not isinstance(unit, AdaptedUnit)

    def set_path(self, task: int, path: Path) -> None:
        """Compute ``task`` by ``path``.

        Raises:
            ValueError: the path does not fit the layers.
        """
        if (fault := self.path_fault(path)) is not None:
            raise ValueError(fault)
        self.trials.pop(task, None)
        indices = tuple(int(it) for it in path if not isinstance(it, Adapted))
        if len(indices) == len(path):
            self.paths[task] = indices
        else:
            self.trials[task] = tuple(path)

    def path_fault(self, path: object) -> str | None:
        """Fault of a path that does not name a unit for each layer; ``None`` if it is valid."""
        try:
            # Not isinstance: every tensor has __index__, whatever it holds.
            indices = [_index(it) for it in path] if isinstance(path, Sequence) else None
        except TypeError:
            indices = None
        if not isinstance(path, Sequence) or indices is None:
            return f"{path!r} is no path: a path has a whole number, or an old unit that is adapted, for each layer"
        if len(indices) != len(self.layers) or any(
            not 0 <= index < count for index, count in zip(indices, self.candidates, strict=True)
        ):
            return f"path {tuple(path)} does not fit layers of {self.candidates} units"
        for layer, it in enumerate(path):
            if isinstance(it, Adapted) and not self.can_adapt(layer, it.old):
                return f"unit {it.old} of layer {layer} cannot be adapted: it is new, or adapted itself"
        return None

    def result_fault(self, path: object, before: Frozen) -> str | None:
        """Why a creator's path cannot be kept, given :meth:`frozen_state` from before it ran; ``None`` if it can."""
        return self.path_fault(path) or self.frozen_fault(before) or self._structure_fault(cast(Path, path), before)

    def _structure_fault(self, path: Path, before: Frozen) -> str | None:
        """Which part of a task, its new units, adapted ones and head, is not what its genotype says, or what has no
        genotype."""
        made: list[tuple[str, nn.Module, Any, Callable[[], nn.Module]]] = [
            (
                f"adapted unit {it.old} of layer {layer}",
                it.module,
                it.genotype,
                partial(self.wrapped, layer, it.old, it.genotype),
            )
            for layer, it in enumerate(path)
            if isinstance(it, Adapted)
        ]
        for layer, index, unit in self._all_units():
            if _name(layer, index) not in before:
                genotype = self.space.from_dict(dict(self.unit_genotypes[layer][index]))
                made.append((_name(layer, index), unit, genotype, partial(self._make_unit, layer, genotype)))
        for place, found, genotype, make in made:
            try:
                wrong = _difference(found, on_meta(make))
            except Exception as error:
                wrong = f"it cannot be made of it: {type(error).__name__}: {error}"
            if wrong is not None:
                return f"{place} is not what its genotype says: {wrong} (genotype {genotype})"
        if (wrong := _difference(self.heads, on_meta(self._make_heads))) is not None:
            return f"a head is not what it was: {wrong}"
        stray = next(iter(named_state(self, {self.heads, *(unit for *_, unit in self._all_units())})), None)
        return stray and f"{stray} belongs to no unit, and cannot be made again"

    def frozen_state(self, learning: int | None = None, known: Frozen | None = None) -> dict[str, Mapping[str, object]]:
        """All that no later task may change: units, heads and paths of tasks learned, but of the one that is still
        learned; numbers and paths that are ``known`` as they were then, modules (with hooks) as they are."""
        known = known or {}
        units = {_name(layer, index): unit for layer, index, unit in self._all_units() if unit.frozen}
        learned = {task: path for task, path in self.paths.items() if task != learning}
        heads = {f"the head of task {task}": self.heads[task] for task in learned}
        states = {place: named_state(part) for place, part in (units | heads).items() if place not in known}
        sums = iter(checksums(tensor for state in states.values() for tensor in state.values()))
        found = {place: dict(zip(state, sums, strict=False)) for place, state in states.items()}
        paths = {f"the path of task {task}": {"its units": str(path)} for task, path in learned.items()}
        seen: dict[str, Mapping[str, object]] = {**found, **paths, **known}
        told = {place: {"its modules": _parts_text(unit)} for place, unit in units.items()}
        return {place: {**state, **told.get(place, {})} for place, state in seen.items()}

    def frozen_fault(self, before: Frozen) -> str | None:
        """Which of it is not, bit by bit, what it was in ``before``; ``None``: all are."""
        now = self.frozen_state() if before else {}
        for place, known in before.items():
            # Modules first: where they were exchanged, the names of their numbers say less.
            for name in ("its modules", *known) if now.get(place) != known else ():
                if now.get(place, {}).get(name) != known.get(name):
                    return f"it changed {place} ({name}), which earlier tasks are computed by"
        return None

    def new_units(self, task: int) -> nn.ModuleList:
        """All new units and the task's head."""
        new = [self.unit(layer, -1) for layer, is_new in enumerate(self.has_new) if is_new]
        return nn.ModuleList([*new, self.heads[task]])

    # ------------------------------------------------------------------ computing

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]`` on the task's path; other heads are not computed.

        Raises:
            RunError: the task was not learned yet.
        """
        path = self.trials.get(task_label) or self.paths.get(task_label)
        if path is None:
            raise not_learned(task_label)
        logits: Tensor = self.heads[task_label](self.features(x, path))
        return logits

    def features(self, x: Tensor, path: Path) -> Tensor:
        """Extract features ``[N, F]`` of samples ``[N, *input.shape]`` on ``path``: the last layer's output, pooled."""
        begun = 0
        while begun < len(path) and self._is_frozen(begun, path[begun]):
            begun += 1
        if begun:
            older, newer = self._frozen_outputs(x, cast(tuple[int, ...], tuple(path[:begun])))
        else:
            older = newer = self._compute(0, path[0], x)
        for layer in range(max(1, begun), len(path)):
            older, newer = newer, self._compute(layer, path[layer], older, newer)
        return pool(newer)

    def _is_frozen(self, layer: int, it: int | Adapted) -> bool:
        return not isinstance(it, Adapted) and self.unit(layer, it).frozen

    def _compute(self, layer: int, it: int | Adapted, *inputs: Tensor) -> Tensor:
        unit = it if isinstance(it, Adapted) else self.unit(layer, it)
        if isinstance(unit, Unit) and not isinstance(unit, AdaptedUnit):
            return self.run_unit(unit, *inputs)
        output: Tensor = unit.module(self.unit(layer, unit.old), *inputs)
        return output

    def _frozen_outputs(self, x: Tensor, prefix: tuple[int, ...], *, keep: bool = True) -> tuple[Tensor, Tensor]:
        """Outputs of the last two layers of a frozen prefix."""

        def compute(x: Tensor) -> tuple[Tensor, ...]:
            if len(prefix) == 1:
                return (self._compute(0, prefix[0], x),)
            older, newer = self._frozen_outputs(x, prefix[:-1], keep=False)
            return newer, self._compute(len(prefix) - 1, prefix[-1], older, newer)

        outputs = self.cached_features(x, ("prefix", *prefix), compute, keep=keep)
        return outputs[0], outputs[-1]

    def task_module(self, task: int) -> nn.Module:
        """The units of the task's path, and its head."""
        return nn.ModuleList([*self._on_path(task), self.heads[task]])

    def trainable_module(self, task: int) -> nn.Module:
        """The new units of the task's path, and its head."""
        return nn.ModuleList([*(unit for unit in self._on_path(task) if not unit.frozen), self.heads[task]])

    def _on_path(self, task: int) -> list[Unit]:
        units = [self.unit(layer, index) for layer, index in enumerate(self.paths[task])]
        adapted = [self.unit(layer, unit.old) for layer, unit in enumerate(units) if isinstance(unit, AdaptedUnit)]
        return units + adapted

    # ------------------------------------------------------------------ the architecture as plain values

    def choices(self, task: int, path: Sequence[int]) -> tuple[str, ...]:
        """What a task did in each layer: ``new``, ``reuse`` or ``adapt``."""
        return tuple(
            ("adapt" if isinstance(self.unit(layer, index), AdaptedUnit) else "new")
            if self.unit_tasks[layer][index] == task
            else "reuse"
            for layer, index in enumerate(path)
        )

    def architecture(self) -> dict[str, Any]:
        """Units with the tasks and genotypes they were made for, which of them are frozen, and the paths."""
        return {
            "unit_tasks": [list(tasks) for tasks in self.unit_tasks],
            "unit_genotypes": [list(genotypes) for genotypes in self.unit_genotypes],
            "frozen": [
                [self.unit(layer, index).frozen for index in range(count)]
                for layer, count in enumerate(self.candidates)
            ],
            "paths": {str(task): list(path) for task, path in sorted(self.paths.items())},
        }

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give an empty super model the units and paths of ``architecture``.

        Raises:
            ValueError: it has another number of layers, or a path that does not fit.
        """
        layers = list(
            zip(architecture["unit_tasks"], architecture["unit_genotypes"], architecture["frozen"], strict=True)
        )
        if len(layers) != len(self.layers) or any(self.candidates):
            raise ValueError(f"units of {len(layers)} layers do not fit {len(self.layers)} empty ones")
        for layer, units in enumerate(layers):
            for task, genotype, frozen in zip(*units, strict=True):
                if "adapts" in genotype:
                    old, how = genotype["adapts"], genotype["genotype"]
                    unit: Unit = AdaptedUnit(Adapted(old, how, self.wrapped(layer, old, how)))
                else:
                    unit = self._make_unit(layer, self.space.from_dict(dict(genotype)))
                self._add_unit(layer, unit, genotype, task)
                if frozen:
                    self.unit(layer, -1).freeze()
        for task, path in architecture["paths"].items():
            self.set_path(int(task), path)

    def _add_unit(self, layer: int, unit: Unit, genotype: dict[str, Any], task: int) -> None:
        self._units(layer).append(self._here(unit))
        self.unit_tasks[layer].append(task)
        self.unit_genotypes[layer].append(genotype)

    def _make_heads(self) -> nn.ModuleList:
        return nn.ModuleList(nn.Linear(self.places[-1].output, width) for width in self.classes_per_task)

    def _make_unit(self, layer: int, genotype: Any) -> Unit:
        try:
            stem = self.space.stem(self.input, self.channels) if layer == 0 else None
            return stem or self.space.unit(genotype, self.places[layer - 1])
        except SeuBenchError:
            raise
        except Exception as error:
            what = f"the search space {type(self.space).__name__} failed to make a unit of layer {layer} of {genotype}"
            remedy = "repair it; seu-bench check-plugin NAME runs the contract of a space"
            raise RunError(f"{what}: {type(error).__name__}: {error}", remedy=remedy) from error

    def wrapped(self, layer: int, old: int, genotype: Mapping[str, Any]) -> nn.Module:
        """Make the module that adapts an old unit, of its genotype as a saved model has it."""
        if self.wrap is None:
            raise ValueError("the creator's factory has no wrap(genotype, unit, outputs), which makes it again")
        told = json.loads(json.dumps(dict(genotype), allow_nan=False))
        return self.wrap(told, self.unit(layer, old), self.outputs[layer])

    def _here(self, module: ModuleT) -> ModuleT:
        return module.to(next(self.heads.parameters()).device, non_blocking=True)

    def _all_units(self) -> Iterator[tuple[int, int, Unit]]:
        for layer, count in enumerate(self.candidates):
            yield from ((layer, index, self.unit(layer, index)) for index in range(count))

    def _units(self, layer: int) -> nn.ModuleList:
        units = self.layers[layer]
        if not isinstance(units, nn.ModuleList):
            raise TypeError("a layer is a list of units")
        return units

    def unit(self, layer: int, index: int) -> Unit:
        """A unit by layer and index in creation order; -1 is the newest."""
        unit = self._units(layer)[index]
        if not isinstance(unit, Unit):
            what = f"{_name(layer, index)} is not what its genotype says: it is a {type(unit).__name__}, no Unit"
            raise RunError(what, remedy="adapt an old unit by an Adapted on the path; a new one is of its genotype")
        return unit


def _index(it: Any) -> int:
    return operator.index(it.old if isinstance(it, Adapted) else it)


def _name(layer: int, index: int) -> str:
    return f"unit {index} of layer {layer}"


def _difference(found: nn.Module, expected: nn.Module) -> str | None:
    """What tells two modules apart, part by part, the values of their weights left aside."""
    here, there = _parts(found), _parts(expected)
    for name in [*there, *here]:
        if here.get(name) != there.get(name):
            return f"{name} is {here.get(name, 'missing')}, and must be {there.get(name, 'left out')}"
    return None


def _parts_text(unit: Unit) -> str:
    """What a unit consists of, told again only where something in it is another object than it was."""
    held, parts = list[object](), parts_of(unit)
    for part in parts:
        own = vars(part)
        held += own.values()
        for name in ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks"):
            if it := own[name]:
                held += it.values()
    before, text = _told.get(unit, ([], ""))
    if len(held) != len(before) or not all(map(operator.is_, held, before)):
        text = json.dumps([*_parts(unit).items()])
        if all(key[0] == "_" or isinstance(it, _PLAIN) for part in parts for key, it in vars(part).items()):
            _told[unit] = held, text
    return text


def _parts(module: nn.Module) -> dict[str, str]:
    """By name what a module consists of: classes, shapes, hooks, and attributes as text, but no address or device."""
    parts: dict[str, str] = {}
    for name, part in module.named_modules():
        place = name and f"{name}."
        parts[name or "it"] = f"{type(part).__qualname__}({_PLACES.sub('', part.extra_repr())})"
        tensors = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        parts |= {f"{place}{key}": f"{list(tensor.shape)}" for key, tensor in tensors}
        for key, value in vars(part).items():
            if key[0] != "_" and key != "training" and not isinstance(value, Tensor | torch.device):
                parts[f"{place}{key}"] = _PLACES.sub("", repr(value))
        if part._forward_hooks or part._forward_pre_hooks:
            parts[f"{place}hooks"] = "there"
    return parts
