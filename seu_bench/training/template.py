"""Avalanche's template, lean: whole batches gathered by index, no idle callbacks, models that grow in stages only.

Nine callbacks per batch that reach every plugin are a twentieth of the time of a small network. Who listens is found
out once per epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from avalanche.core import BasePlugin, BaseSGDPlugin, SupervisedPlugin
from avalanche.evaluation import PluginMetric
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin
from torch import Tensor, nn

from seu_bench.data.avalanche import BatchLoader, task_images
from seu_bench.data.images import TaskImages
from seu_bench.models.multihead import NotLearnedError
from seu_bench.training.task_inference import TaskInference

#: Classes whose callbacks do nothing.
_EMPTY = (BasePlugin, BaseSGDPlugin, SupervisedPlugin, PluginMetric, BaseLogger)


class SilentLogger(BaseLogger):
    """A logger that logs nothing: without one, Avalanche warns that there is none."""


def implements(target: object, event: str) -> bool:
    """Return whether ``target`` does something in the callback ``event``."""
    if isinstance(target, EvaluationPlugin) and event not in vars(type(target)):
        return any(implements(listener, event) for listener in (*target.metrics, *target.loggers))
    owner = next((base for base in type(target).__mro__ if event in vars(base)), None)
    return (owner is not None and owner not in _EMPTY) or event in vars(target)


def _lean(event: str) -> Callable[..., None]:
    def trigger(self: LeanTemplate, **kwargs: Any) -> None:
        listeners = self._listeners.get(event)
        if listeners is None:
            found = [plugin for plugin in self.plugins if implements(plugin, event)]
            listeners = self._listeners[event] = [getattr(plugin, event) for plugin in found]
        for listener in listeners:
            listener(self, **kwargs)

    return trigger


if TYPE_CHECKING:
    from avalanche.training.templates import SupervisedTemplate as _Template
else:
    # Avalanche wraps the constructor of every class that derives from its own, and a wrapped one would pass by those of
    # its strategies (experience replay, ...), which stand between these mixins and the template.
    _Template = object


class LeanTemplate(_Template):  # type: ignore[type-arg]
    """Mixin for an Avalanche strategy, placed before its template: loaders, forward pass, adaptation and callbacks."""

    # Avalanche's annotations of these do not agree with one another.
    dataloader: Any
    experience: Any
    mbatch: Any

    #: How the task of a test image is found where it is not known; ``None``: it is known, or there are no paths.
    task_inference: TaskInference | None = None

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._listeners: dict[str, list[Callable[..., Any]]] = {}

    @property
    def batches_per_epoch(self) -> int:
        """Batches of an epoch of the training that runs."""
        return len(self.dataloader)

    @property
    def batch_number(self) -> int:
        """0-based number of the present batch within its epoch of training; batches done after the epoch."""
        return int(self.clock.train_epoch_iterations)

    def make_train_dataloader(self, *arguments: Any, **kwargs: Any) -> None:
        """Load whole batches by index."""
        self.dataloader = self._loader(self.train_mb_size, shuffle=True)

    def make_eval_dataloader(self, *arguments: Any, **kwargs: Any) -> None:
        """Load whole batches by index."""
        self.dataloader = self._loader(self.eval_mb_size, shuffle=False)

    def check_model_and_optimizer(self, *arguments: Any, **kwargs: Any) -> None:
        """Have the model take note of the task; stages grow it and make their optimisers."""
        self.model.begin_task(self._task_of(self.experience))

    def model_adaptation(self, model: Any = None) -> Any:
        """Return the model unchanged: evaluation must not adapt it."""
        return self.model if model is None else model

    @property
    def mb_task_id(self) -> Tensor:  # type: ignore[override]
        """Task labels of the present batch; 0 where the benchmark has none."""
        batch = self.mbatch
        return batch[-1] if len(batch) > 2 else torch.zeros(len(batch[1]), dtype=torch.int64)

    def forward(self) -> Tensor:
        """Logits of the present batch on its task's path, or on the path that is inferred; of a task that was not
        learned, where a model has no path for it, all the lowest number."""
        learned = int(self.clock.train_exp_counter)
        try:
            if self.task_inference is not None and not self.is_training:
                logits = self.task_inference(self.model, self.mb_x, learned)
            else:
                logits = self.model(self.mb_x, self.mb_task_id)
        except NotLearnedError:
            logits = self.mb_x.new_zeros((len(self.mb_x), 0))
        if not self.is_training and self._task_of(self.experience) >= learned:
            # A stream may be evaluated whole: outputs of classes that were not seen yet are never the answer.
            missing = int(self.mb_y.max()) + 1 - logits.shape[1]
            logits = nn.functional.pad(logits, (0, max(missing, 0)), value=torch.finfo(logits.dtype).min)
        return logits

    def train_one_epoch(self) -> None:
        """One epoch over the training images, with Avalanche's callbacks."""
        self._listeners = {}
        self._before_training_epoch()  # type: ignore[no-untyped-call]
        self.training_epoch()  # type: ignore[no-untyped-call]
        self._after_training_epoch()  # type: ignore[no-untyped-call]

    def _loader(self, batch_size: int, *, shuffle: bool) -> BatchLoader:
        images = task_images(self.adapted_dataset, self._task_of(self.experience), self.device)
        if self.task_inference is not None and self.is_training:
            images = self.task_inference.with_label(images)
        return BatchLoader(images, batch_size, shuffle=shuffle)

    def _unpack_minibatch(self) -> None:
        # Batches are on the device already; the task labels stay on the CPU, where choosing a head costs no sync.
        batch = self.mbatch
        if isinstance(batch, list) and batch[0].device != self.device:
            self.mbatch = [*(tensor.to(self.device, non_blocking=True) for tensor in batch[:-1]), batch[-1]]

    @staticmethod
    def _task_of(experience: Any) -> int:
        return int(experience.current_experience)

    def _validation_of(self, experience: Any, eval_streams: Any) -> TaskImages | None:
        """The validation images among ``eval_streams``; streams of other names are never selected on."""
        task = self._task_of(experience)
        for stream in eval_streams or ():
            for candidate in stream if isinstance(stream, Iterable) else [stream]:
                if candidate.origin_stream.name.startswith("valid") and self._task_of(candidate) == task:
                    images = task_images(candidate.dataset.eval(), task, self.device)
                    return images if self.task_inference is None else self.task_inference.with_label(images)
        return None

    def _before_eval_exp(self, **kwargs: Any) -> None:
        self._listeners = {}
        super()._before_eval_exp(**kwargs)  # type: ignore[no-untyped-call]


for _place in ("training_iteration", "forward", "backward", "update", "eval_iteration", "eval_forward"):
    for _event in (f"before_{_place}", f"after_{_place}"):
        setattr(LeanTemplate, f"_{_event}", _lean(_event))
