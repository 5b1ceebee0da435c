"""The progressive network: columns that are added one by one, and computed in one sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from seu_bench.errors import RunError
from seu_bench.models import AlexNetShape, MultiHeadModel, freeze, is_frozen
from seu_bench.models.multihead import not_learned
from seu_bench_pnn.columns import HEAD, Column


class ProgressiveNetwork(MultiHeadModel):
    """Grows from nothing: :meth:`expand` adds a task's column with its head, :meth:`freeze` ends the task.

    Args:
        shape: of every column.
        classes: outputs of each task's head.
        variant: ``proper`` (Rusu et al. 2016): frozen columns compute with their own laterals, in evaluation mode, and
            the head has a lateral. ``compat`` (the SEU paper's code): earlier columns compute without their laterals,
            with dropout while a later one trains; the lateral into the head exists and is not used.
    """

    has_frozen_layers = True

    def __init__(
        self, shape: AlexNetShape, classes: Sequence[int], variant: Literal["proper", "compat"] = "proper"
    ) -> None:
        super().__init__(classes)
        self.shape = shape
        self.proper = variant == "proper"
        self.columns = nn.ModuleList()
        # The head is the only layer that reads an earlier column's last features, and in compat it does not.
        self._shared_depth = HEAD if self.proper else HEAD - 1

    def expand(self, task: int, device: torch.device | None = None) -> None:
        """Add the column of ``task``, its weights drawn from the global generator.

        Args:
            device: where the column is put; where it was made by default.

        Raises:
            RunError: columns are added in the order of the tasks, one for each.
        """
        if task != len(self.columns):
            raise RunError(
                f"task {task} cannot get column {len(self.columns)}: a progressive network learns each task once, "
                "in the stream's order",
                remedy="train on benchmark.train_stream from its beginning, with a strategy made for it",
            )
        column = Column(self.shape, self.classes_per_task[task], task)
        if not self.proper:
            freeze(column.head_lateral)
        self.columns.append(column.to(device))

    def architecture(self) -> dict[str, Any]:
        """The number of columns, and of those that are frozen."""
        frozen = sum(is_frozen(column) for column in self.columns)
        return {"columns": len(self.columns), "frozen": frozen}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give a network without columns those of ``architecture``.

        Raises:
            ValueError: there are more columns than tasks.
        """
        columns, frozen = int(architecture["columns"]), int(architecture["frozen"])
        if not 0 <= frozen <= columns <= len(self.classes_per_task) or len(self.columns):
            raise ValueError(
                f"{columns} columns, {frozen} of them frozen, do not fit {len(self.classes_per_task)} tasks"
            )
        for task in range(columns):
            self.expand(task)
            if task == frozen - 1:
                self.freeze()

    def freeze(self) -> None:
        """No column that exists now trains again."""
        for index in range(len(self.columns)):
            self.column(index).freeze(always_eval=self.proper)

    def column(self, task: int) -> Column:
        """The column of a learned task."""
        return cast(Column, self.columns[task])

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]``: each column up to the task's is computed once.

        Raises:
            RunError: the task was not learned yet.
        """
        if not 0 <= task_label < len(self.columns):
            raise not_learned(task_label, "column")
        return self.column(task_label).logits(x, self._earlier(x, task_label), head_lateral=self.proper)

    def _earlier(self, x: Tensor, columns: int) -> list[list[Tensor]]:
        """Layer inputs of earlier, frozen columns; cached, unless the dropout of ``compat`` is drawn per batch."""
        depth = self._shared_depth

        def compute(x: Tensor) -> tuple[Tensor, ...]:
            found: list[list[Tensor]] = []
            for index in range(columns):
                found.append(self.column(index).layer_inputs(x, found if self.proper else (), depth))
            return tuple(hidden for inputs in found for hidden in inputs[1:])

        if self.proper or not self.training:
            hidden = self.cached_features(x, ("columns", columns), compute) if columns else ()
        else:
            with torch.no_grad():
                hidden = compute(x)
        return [[x, *hidden[index * depth : (index + 1) * depth]] for index in range(columns)]

    def task_module(self, task: int) -> nn.Module:
        """Modules that the task's logits depend on: its own column, and of earlier ones what laterals read.

        Earlier heads are excluded, and in ``compat`` also earlier columns' laterals and second linear layer, and the
        lateral into the head.
        """
        shared = [
            self.column(index).body() if self.proper else self.column(index).layers[: self._shared_depth]
            for index in range(task)
        ]
        return nn.ModuleList([*shared, self.trainable_module(task)])

    def trainable_module(self, task: int) -> nn.Module:
        """The task's column with laterals and head; in ``compat`` without the lateral into the head."""
        column = self.column(task)
        return column if self.proper else nn.ModuleList([column.body(), column.layers[HEAD]])
