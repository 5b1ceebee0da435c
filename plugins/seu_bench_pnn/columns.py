"""A column of a progressive network and its lateral connections (Rusu et al. 2016, equation 2 with the adapters of
section 2).

Layers are named by their *depth*: 0 to 2 are the convolutions, 3 and 4 the hidden linear layers, 5 is the head. The
input of the layer at depth d is what columns share: the lateral at depth d reads it from every earlier column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.models import AlexNetShape, ChannelsLastConv2d, dropout, freeze

#: Depth of the first linear layer, which is given the flattened output of the last convolution.
FLAT = 3

#: Depth of the head.
HEAD = 5


def input_sizes(shape: AlexNetShape) -> tuple[int, ...]:
    """Channels, or numbers where flat, of each depth's input."""
    return (shape.image_channels, *shape.convolutions[:-1], shape.flat, shape.linear, shape.linear)


def make_layer(shape: AlexNetShape, classes: int, depth: int) -> nn.Module:
    """A layer at ``depth``, with bias: W of a column, and U of a lateral, which has the same sizes."""
    inputs = input_sizes(shape)[depth]
    if depth < FLAT:
        return ChannelsLastConv2d(inputs, shape.convolutions[depth], 3, padding=1)
    return nn.Linear(inputs, classes if depth == HEAD else shape.linear)


class Lateral(nn.Module):
    """``U(ReLU(V(concat_j s_j h_j)))`` over the inputs h_j that earlier columns have at one depth.

    V brings them from ``columns`` times the size to one time (1x1 convolution, or linear), U is shaped as the column's
    own layer, and each earlier column has a learned scalar s_j, drawn from N(0, 1).
    """

    def __init__(self, shape: AlexNetShape, classes: int, depth: int, columns: int) -> None:
        super().__init__()
        size = input_sizes(shape)[depth]
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

    _always_eval = False

    def __init__(self, shape: AlexNetShape, classes: int, columns: int) -> None:
        super().__init__()
        self.dropout = shape.dropout
        self.layers = nn.ModuleList(make_layer(shape, classes, depth) for depth in range(HEAD + 1))
        self.laterals = nn.ModuleList(
            Lateral(shape, classes, depth, columns) for depth in range(1, HEAD + 1) if columns
        )

    @property
    def head_lateral(self) -> nn.ModuleList:
        """The lateral into the head as a list; empty in the first column."""
        return self.laterals[HEAD - 1 :]

    def body(self, depth: int = HEAD) -> nn.ModuleList:
        """Layers below ``depth`` and the laterals into them."""
        return nn.ModuleList([self.layers[:depth], self.laterals[: depth - 1]])

    def layer_inputs(self, images: Tensor, earlier: Sequence[Sequence[Tensor]], depth: int = HEAD) -> list[Tensor]:
        """The input of each layer up to ``depth``.

        Args:
            images: ``[N, C, H, W]``, the input at depth 0.
            earlier: this same list of each earlier column; empty: no laterals.

        Returns:
            ``depth + 1`` tensors: images, two pooled maps, one that is flattened too, then ``[N, linear]`` each.
        """
        found = [images]
        for at in range(depth):
            hidden = functional.relu(self._output(at, found[at], earlier))
            hidden = dropout(hidden, self.dropout[at], self.training)
            if at < FLAT:
                hidden = functional.max_pool2d(hidden, 2)
            found.append(hidden.flatten(1) if at == FLAT - 1 else hidden)
        return found

    def logits(self, images: Tensor, earlier: Sequence[Sequence[Tensor]], *, head_lateral: bool) -> Tensor:
        """``[N, num_classes]``; ``head_lateral`` says whether the lateral into the head is used."""
        features = self.layer_inputs(images, earlier)[HEAD]
        return self._output(HEAD, features, earlier if head_lateral else ())

    def freeze(self, *, always_eval: bool) -> None:
        """Stop training for good, and free the gradients; with ``always_eval`` dropout is off from now on."""
        freeze(self)
        self._always_eval = always_eval
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Switch to training, unless frozen in evaluation mode: strategies call this on the whole model."""
        return super().train(mode and not self._always_eval)

    def _output(self, depth: int, inputs: Tensor, earlier: Sequence[Sequence[Tensor]]) -> Tensor:
        output: Tensor = self.layers[depth](inputs)
        if depth and earlier:
            output = output + self.laterals[depth - 1]([column[depth] for column in earlier])
        return output
