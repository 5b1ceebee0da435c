"""State of Avalanche's strategies between tasks, saved as tensors and plain values, and restored.

One class for each kind of memory; those that hold images are in :mod:`seu_bench_avalanche.buffers`, the table of all
is in :mod:`seu_bench_avalanche.methods`. Only what the next task reads is saved: what a plugin sets anew when a task,
an epoch or a batch begins is not, nor are anchors and teachers: between two tasks they are the model's own weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Protocol

import torch
from avalanche.training.utils import ParamData, copy_params_dict
from torch import Tensor, nn

from seu_bench_avalanche.places import task_dataset


class Rememberer(Protocol):
    """The part of a strategy that a memory uses."""

    methods: list[Any]
    model: Any
    device: Any
    experience: Any


class Memory(ABC):
    """State of a strategy between two tasks.

    Args:
        strategy: whose memory it is.
    """

    def __init__(self, strategy: Rememberer) -> None:
        self.strategy = strategy

    @property
    def plugin(self) -> Any:
        """The plugin that makes the strategy."""
        return self.strategy.methods[0]

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Copies, as tensors and plain values; also before the first task."""

    @abstractmethod
    def contents(self) -> dict[str, Any]:
        """What is kept for later tasks beside the model, by kind, as it is: anchors and teachers too, since the model
        moves away from them; exemplars as :class:`~seu_bench.training.KeptImages`. Called after a task."""

    @abstractmethod
    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put back what :meth:`state` gave, into a strategy as it was built, whose model has the weights that the last
        task left. Called when the next task begins.

        Args:
            stream: the training stream, whose tasks can be taken by position.

        Raises:
            Exception: of any kind, the state is another strategy's or another stream's; the caller says so.
        """


class NoMemory(Memory):
    """Empty memory: for a single task, or where each starts with an empty one."""

    def state(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def contents(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Ignore ``state``, which is empty."""


class LwfMemory(Memory):
    """The tasks whose classes are distilled. The teacher is a copy of the model."""

    def state(self) -> dict[str, Any]:
        """The tasks."""
        return {"tasks": list(range(self.plugin.lwf.expcount))}

    def contents(self) -> dict[str, Any]:
        """The teacher."""
        return {"teacher": self.plugin.lwf.prev_model}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Read the classes anew: their sets are then iterated in the same order, which decides the last bits."""
        lwf = self.plugin.lwf
        for task in state["tasks"]:
            dataset: Any = task_dataset(task, stream)
            for label in dataset.targets_task_labels.uniques:
                known = lwf.prev_classes_by_task.get(label)
                classes = set(dataset.targets.uniques)
                lwf.prev_classes_by_task[label] = classes if known is None else known.union(classes)
        lwf.expcount = len(state["tasks"])
        if state["tasks"]:
            self.plugin.teach_by(self.strategy.model)


class CwrMemory(Memory):
    """How many images of each class were seen, where classes share a head. The weights of those classes are the
    head's own."""

    def state(self) -> dict[str, Any]:
        """By class; nothing where each task has a head of its own, which begins with an empty memory."""
        return {"seen": {str(label): int(count) for label, count in self._model.past_j.items()} if self._shared else {}}

    def contents(self) -> dict[str, Any]:
        """Nothing beside the model: numbers of images are a few bytes."""
        return {}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put them back; the weights are read from the head when the task begins."""
        for label, count in state["seen"].items():
            self._model.past_j[int(label)] = int(count)

    @property
    def _model(self) -> Any:
        return self.strategy.model

    @property
    def _shared(self) -> bool:
        return bool(self._model.scenario != "task")


class SiMemory(Memory):
    """Importances, and the sums over all tasks that they come from."""

    def state(self) -> dict[str, Any]:
        """Both, flat, by parameter."""
        return {
            "importances": _values(self.plugin.ewc_data[1]),
            "sums": _values(self.plugin.syn_data["cum_trajectory"]),
        }

    def contents(self) -> dict[str, Any]:
        """Both, and the weights that the last task left."""
        return {"anchor": _tensors(self.plugin.ewc_data[0]), **self.state()}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Have Avalanche make all of its entries, which it does together or not at all, and fill these two."""
        if not state["sums"]:
            return
        plugin = self.plugin
        plugin.create_syn_data(self.strategy.model, plugin.ewc_data, plugin.syn_data, plugin.excluded_parameters)
        _fill(plugin.ewc_data[1], state["importances"])
        _fill(plugin.syn_data["cum_trajectory"], state["sums"])


class MasMemory(Memory):
    """Importances. The anchor is a copy of the model's weights."""

    def state(self) -> dict[str, Any]:
        """By parameter."""
        return {"importances": _values(self.plugin.importance)}

    def contents(self) -> dict[str, Any]:
        """Both."""
        return {"anchor": _tensors(self.plugin.params), **self.state()}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put them back."""
        self.plugin.importance = _entries(state["importances"], self.strategy.model)
        if self.plugin.importance is not None:
            self.plugin.params = copy_params_dict(self.strategy.model)


class RwalkMemory(Memory):
    """The running Fisher information, scores and penalties. The anchor is a copy of the model's weights."""

    kept: Final = ("iter_importance", "exp_scores", "exp_penalties")

    def state(self) -> dict[str, Any]:
        """By parameter; parameters that had no gradient in the last batch have none."""
        return {name: _values(getattr(self.plugin, name)) for name in self.kept}

    def contents(self) -> dict[str, Any]:
        """Both."""
        names = ("importances", "scores", "penalties")
        return {"anchor": _tensors(self.plugin.exp_params), **dict(zip(names, self.state().values(), strict=True))}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put them back."""
        for name in self.kept:
            setattr(self.plugin, name, _entries(state[name], self.strategy.model))
        self.plugin.exp_importance = self.plugin.iter_importance
        if self.plugin.exp_penalties is not None:
            self.plugin.exp_params = copy_params_dict(self.strategy.model)


class FromScratchMemory(Memory):
    """The initial weights."""

    def state(self) -> dict[str, Any]:
        """By name; ``None`` before the first task."""
        initial = self.plugin.initial_weights
        return {"initial": None if initial is None else copied(initial)}

    def contents(self) -> dict[str, Any]:
        """The same."""
        return {"initial weights": self.plugin.initial_weights}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put them back."""
        if state["initial"] is not None:
            check_same_form(state["initial"], self.strategy.model.state_dict())
            self.plugin.initial_weights = copied(state["initial"])


def copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of a state dictionary."""
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def _tensors(kept: Mapping[str, Any] | None) -> dict[str, Tensor]:
    return {name: entry.data for name, entry in (kept or {}).items()}


def _values(kept: Mapping[str, Any] | None) -> dict[str, Tensor] | None:
    return None if kept is None else copied(_tensors(kept))


def _entries(state: Mapping[str, Tensor] | None, model: nn.Module) -> dict[str, ParamData] | None:
    if state is None:
        return None
    parameters = dict(model.named_parameters())
    check_same_form(state, {name: parameters[name] for name in state})
    devices = {name: parameters[name].device for name in state}
    return {
        name: ParamData(name, device=devices[name], init_tensor=tensor.to(devices[name], copy=True))
        for name, tensor in state.items()
    }


def _fill(kept: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    check_same_form(state, {name: entry.data for name, entry in kept.items()})
    for name, entry in kept.items():
        entry.data = state[name].to(entry.data.device, copy=True)


def check_same_form(state: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    """Tensors of the same names, shapes and types.

    Raises:
        ValueError: they differ.
    """
    if _outline(state) != _outline(like):
        raise ValueError("names, shapes or types of tensors differ")


def _outline(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
