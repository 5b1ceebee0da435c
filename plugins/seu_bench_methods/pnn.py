"""Progressive networks (A. A. Rusu et al., "Progressive Neural Networks", 2016, arXiv:1606.04671)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Final, Self, cast

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn
from torch.nn import functional

from seu_bench import Method
from seu_bench.config import SelectingOptions, TaskInferenceOptions, WidthOptions
from seu_bench.models import (
    ChannelsLastConv2d,
    MultiHeadModel,
    count_parameters,
    dropout,
    freeze,
    is_frozen,
    state_bytes,
)
from seu_bench.models.multihead import not_learned, out_of_turn
from seu_bench.training import (
    Cost,
    Phase,
    StrategyContext,
    TaskData,
    dropout_factor,
    evaluation_passes,
    on_meta,
    width_factor,
)
from seu_bench_kit import AlexNetShape
from seu_bench_kit.costing import price_stages, task_flops, task_macs, training_passes

#: Depths of the first linear layer, which is given the flattened output of the last convolution, and of the head. Below
#: are three convolutions; the input of the layer at depth d is what the lateral at depth d reads of earlier columns.
FLAT: Final = 3
HEAD: Final = 5


def make_layer(shape: AlexNetShape, classes: int, depth: int) -> nn.Module:
    """A layer at ``depth``, with bias: W of a column, and U of a lateral, which has the same sizes."""
    inputs = _inputs(shape, depth)
    if depth < FLAT:
        return ChannelsLastConv2d(inputs, shape.convolutions[depth], 3, padding=1)
    return nn.Linear(inputs, classes if depth == HEAD else shape.linear)


def _inputs(shape: AlexNetShape, depth: int) -> int:
    return (shape.image_channels, *shape.convolutions[:-1], shape.flat, shape.linear, shape.linear)[depth]


class Lateral(nn.Module):
    """``U(ReLU(V(concat_j s_j h_j)))`` over the inputs h_j that earlier columns have at one depth (equation 2 with the
    adapters of section 2).

    V brings them from ``columns`` times the size to one time (1x1 convolution, or linear), U is shaped as the column's
    own layer, and each earlier column has a learned scalar s_j, drawn from N(0, 1).
    """

    def __init__(self, shape: AlexNetShape, classes: int, depth: int, columns: int) -> None:
        super().__init__()
        size = _inputs(shape, depth)
        self.scales = nn.Parameter(torch.randn(columns))
        self.reduction: nn.Module = (
            nn.Conv2d(columns * size, size, 1) if depth < FLAT else nn.Linear(columns * size, size)
        )
        self.projection = make_layer(shape, classes, depth)

    def forward(self, earlier: Sequence[Tensor]) -> Tensor:
        """``[N, size, ...]`` of each earlier column -> what is added to the layer's output before its activation."""
        scaled = [scale * inputs for scale, inputs in zip(self.scales.unbind(), earlier, strict=True)]
        added: Tensor = self.projection(functional.relu(self.reduction(torch.cat(scaled, dim=1))))
        return added


class Column(nn.Module):
    """One network of the AlexNet variant with its head, and laterals into all layers but the first.

    Args:
        shape: sizes and dropout.
        classes: outputs of the head.
        columns: number of earlier columns; the first column has no laterals.
    """

    def __init__(self, shape: AlexNetShape, classes: int, columns: int) -> None:
        super().__init__()
        self.dropout = shape.dropout
        self.layers = nn.ModuleList(make_layer(shape, classes, depth) for depth in range(HEAD + 1))
        self.laterals = nn.ModuleList(
            Lateral(shape, classes, depth, columns) for depth in range(1, HEAD + 1) if columns
        )

    @property
    def body(self) -> nn.ModuleList:
        """Layers below the head and the laterals into them."""
        return nn.ModuleList([self.layers[:HEAD], self.laterals[: HEAD - 1]])

    def layer_inputs(self, images: Tensor, earlier: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """The input of each layer.

        Args:
            images: ``[N, C, H, W]``, the input at depth 0.
            earlier: this same list of each earlier column; empty: no laterals.

        Returns:
            ``HEAD + 1`` tensors: images, two pooled maps, one that is flattened too, then ``[N, linear]`` each.
        """
        found = [images]
        for at in range(HEAD):
            hidden = functional.relu(self._output(at, found[at], earlier))
            hidden = dropout(hidden, self.dropout[at], self.training)
            if at < FLAT:
                hidden = functional.max_pool2d(hidden, 2)
            found.append(hidden.flatten(1) if at == FLAT - 1 else hidden)
        return found

    def logits(self, images: Tensor, earlier: Sequence[Sequence[Tensor]]) -> Tensor:
        """``[N, classes]``."""
        return self._output(HEAD, self.layer_inputs(images, earlier)[HEAD], earlier)

    def train(self, mode: bool = True) -> Self:
        """Switch to training, unless frozen: strategies call this on the whole model."""
        return super().train(mode and not is_frozen(self))

    def _output(self, depth: int, inputs: Tensor, earlier: Sequence[Sequence[Tensor]]) -> Tensor:
        output: Tensor = self.layers[depth](inputs)
        if depth and earlier:
            output = output + self.laterals[depth - 1]([column[depth] for column in earlier])
        return output


class ProgressiveNetwork(MultiHeadModel):
    """Grows from nothing: :meth:`expand` adds a task's column with its head, :meth:`freeze` ends the task.

    Args:
        shape: of every column.
        classes: outputs of each task's head.
    """

    has_frozen_layers = paths_stay = True

    def __init__(self, shape: AlexNetShape, classes: Sequence[int]) -> None:
        super().__init__(classes)
        self.shape = shape
        self.columns = nn.ModuleList()

    def expand(self, task: int, device: torch.device | None = None) -> None:
        """Add the column of ``task``, its weights drawn from the global generator.

        Raises:
            RunError: columns are added in the order of the tasks, one for each.
        """
        if task != len(self.columns):
            raise out_of_turn(task, len(self.columns))
        self.columns.append(Column(self.shape, self.classes_per_task[task], task).to(device))

    def architecture(self) -> dict[str, Any]:
        """The number of columns, and of those that are frozen."""
        return {"columns": len(self.columns), "frozen": sum(map(is_frozen, self.columns))}

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
        freeze(self.columns)
        self.train(self.training)

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
        return self.column(task_label).logits(x, self._earlier(x, task_label))

    def _earlier(self, x: Tensor, columns: int) -> list[list[Tensor]]:
        """Layer inputs of earlier, frozen columns, which are cached."""

        def compute(x: Tensor) -> tuple[Tensor, ...]:
            found: list[list[Tensor]] = []
            for index in range(columns):
                found.append(self.column(index).layer_inputs(x, found))
            return tuple(hidden for inputs in found for hidden in inputs[1:])

        hidden = self.cached_features(x, ("columns", columns), compute) if columns else ()
        return [[x, *hidden[index * HEAD : (index + 1) * HEAD]] for index in range(columns)]

    def task_module(self, task: int) -> nn.Module:
        """The task's own column, and earlier ones without their heads."""
        return nn.ModuleList([*(self.column(index).body for index in range(task)), self.column(task)])

    def trainable_module(self, task: int) -> nn.Module:
        """The task's column with laterals and head."""
        return self.column(task)


class Pnn(Method):
    """Progressive networks: a new column per task, with laterals from the frozen ones (Rusu et al. 2016)."""

    name = "pnn"
    title = "PNN"
    citation = "seu_bench_kit:rusu2016progressive"
    scenarios = ("task",)

    class Options(WidthOptions, SelectingOptions, TaskInferenceOptions):
        """Options of progressive networks."""

        removed: ClassVar[Mapping[str, Any]] = {"variant": "proper"}

        weight_decay: NonNegativeFloat | None = Field(
            3e-4, description="weight decay of SGD; the SEU paper's code uses this one for every benchmark"
        )

    model: ProgressiveNetwork

    @classmethod
    def make_model(cls, context: StrategyContext) -> ProgressiveNetwork:
        """A network without columns; it refuses images below 8x8."""
        plan = context.plan
        shape = AlexNetShape.of(plan.channels, plan.height, plan.width, width_factor(context), dropout_factor(context))
        return ProgressiveNetwork(shape, plan.classes_per_task)

    def before_task(self, task: TaskData) -> None:
        """Add the task's column."""
        with self.drawing("expand", task):
            self.model.expand(task.index, self.device)

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of a new column, which is frozen afterwards."""
        return [Phase(lambda: self._begin_training(task), lambda _: self.model.freeze())]

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """Exact, since a column's size depends on its place alone."""

        def whole() -> ProgressiveNetwork:
            network = cls.make_model(context)
            for task in range(len(context.plan.tasks)):
                network.expand(task)
            return network

        network, options, plan = on_meta(whole), context.options, context.plan
        params, memory = (tuple(accumulate(map(count, network.columns))) for count in (count_parameters, state_bytes))
        macs, schedule = task_macs(network, plan), options.applied_to(context.protocol.training)
        stages = training_passes(plan, schedule, validate=options.restore == "best_valid")
        stages = price_stages(stages, task_flops(network, plan))
        return Cost(params, params, macs, macs, (*stages, *evaluation_passes(plan)), memory, memory)
