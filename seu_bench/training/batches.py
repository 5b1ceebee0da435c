"""Avalanche's data flow on whole batches: images are gathered by index, and models grow in stages only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from seu_bench.data.avalanche import BatchLoader, task_images
from seu_bench.data.images import TaskImages


class WholeBatches:
    """Mixin for an Avalanche strategy, placed before its template: its loaders, its forward pass and its adaptation."""

    # Attributes of the template.
    model: Any
    device: Any
    experience: Any
    adapted_dataset: Any
    train_mb_size: int
    eval_mb_size: int
    dataloader: Any
    mbatch: Any
    mb_x: Tensor
    mb_task_id: Any

    def make_train_dataloader(self, *arguments: Any, **kwargs: Any) -> None:
        """Whole batches by index in place of Avalanche's loader."""
        images = task_images(self.adapted_dataset, self._task_of(self.experience), self.device)
        self.dataloader = BatchLoader(images, self.train_mb_size, shuffle=True)

    def make_eval_dataloader(self, *arguments: Any, **kwargs: Any) -> None:
        """Whole batches by index in place of Avalanche's loader."""
        images = task_images(self.adapted_dataset, self._task_of(self.experience), self.device)
        self.dataloader = BatchLoader(images, self.eval_mb_size, shuffle=False)

    def check_model_and_optimizer(self, *arguments: Any, **kwargs: Any) -> None:
        """Do not adapt here: stages grow the model and make their optimisers."""

    def model_adaptation(self, model: Any = None) -> Any:
        """Return the model unchanged: evaluation must not adapt it."""
        return self.model if model is None else model

    def _unpack_minibatch(self) -> None:
        # Batches are on the device already; the task labels stay on the CPU, where choosing a head costs no sync.
        batch = self.mbatch
        if isinstance(batch, list) and batch[0].device != self.device:
            self.mbatch = [*(tensor.to(self.device, non_blocking=True) for tensor in batch[:-1]), batch[-1]]

    def forward(self) -> Tensor:
        """Logits of the present batch on its task's path."""
        logits: Tensor = self.model(self.mb_x, self.mb_task_id)
        return logits

    @staticmethod
    def _task_of(experience: Any) -> int:
        return int(experience.current_experience)

    def _validation_of(self, experience: Any, eval_streams: Any) -> TaskImages | None:
        """The validation images among ``eval_streams``; streams of other names are never selected on."""
        for stream in eval_streams or ():
            for candidate in stream if isinstance(stream, Iterable) else [stream]:
                if candidate.origin_stream.name.startswith("valid") and self._task_of(candidate) == self._task_of(
                    experience
                ):
                    return task_images(candidate.dataset.eval(), self._task_of(candidate), self.device)
        return None
