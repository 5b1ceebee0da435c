"""A backbone as a chain of layers: what strategies that mask, grow or route units have to know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd

from seu_bench.errors import RequestError
from seu_bench.models.layers import channels_last

#: What may stand between two layers: it computes each unit by itself, and has no weights and no running statistics.
_BETWEEN = (
    *(nn.Flatten, nn.Identity, _DropoutNd),
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
)


@dataclass(frozen=True, eq=False)
class ChainLayer:
    """A convolution or linear layer, and what is computed before and behind it.

    Its *units* are the channels of a convolution, the numbers of a linear layer.

    Attributes:
        weighted: the layer itself.
        before: applied to its input: flattening, and for the first layer all that comes before it.
        after: applied to its output: activation, dropout, pooling. It keeps units apart.
        inputs: units that it reads: of the layer before, or of the image.
        spread: numbers that each of them is read by: 1, or the pixels of a channel that was flattened.
    """

    weighted: nn.Conv2d | nn.Linear
    before: nn.Sequential
    after: nn.Sequential
    inputs: int
    spread: int = 1

    @property
    def units(self) -> int:
        """Channels or numbers that it computes."""
        return self.weighted.out_channels if isinstance(self.weighted, nn.Conv2d) else self.weighted.out_features

    def like(self, inputs: int, units: int) -> nn.Conv2d | nn.Linear:
        """Make a fresh layer of this sort and another size, by torch's global generator."""
        bias = self.weighted.bias is not None
        if isinstance(self.weighted, nn.Linear):
            return nn.Linear(inputs * self.spread, units, bias)
        made = self.weighted
        return type(made)(inputs, units, made.kernel_size, made.stride, made.padding, made.dilation, 1, bias)  # type: ignore[arg-type]

    def compute(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's output with other weights than its own, without :attr:`before` and :attr:`after`."""
        if isinstance(self.weighted, nn.Linear):
            return functional.linear(x, weight, bias)
        made = self.weighted
        # As ChannelsLastConv2d does: pooling is several times faster so on a CPU.
        x = channels_last(x)
        return channels_last(functional.conv2d(x, weight, bias, made.stride, made.padding, made.dilation))


def chain_of(backbone: nn.Module, needed_by: str) -> tuple[ChainLayer, ...]:
    """Read a backbone as a chain of layers.

    Args:
        backbone: a ``Sequential`` of convolutions and linear layers, with activations, dropout, pooling and
            flattening between them, the last one linear.
        needed_by: who needs a chain, for the error.

    Returns:
        The layers in order; they share their weights with ``backbone``.

    Raises:
        RequestError: the backbone has branches or BatchNorm, or ends with a convolution.
    """
    if not isinstance(backbone, nn.Sequential):
        raise _no_chain(needed_by, f"{type(backbone).__name__} is no Sequential")
    layers: list[ChainLayer] = []
    before: list[nn.Module] = []
    for module in backbone:
        if isinstance(module, nn.Conv2d | nn.Linear):
            if isinstance(module, nn.Conv2d) and (module.groups != 1 or module.padding_mode != "zeros"):
                raise _no_chain(needed_by, f"{module} reads its inputs in groups, or pads with other than zeros")
            numbers = module.in_channels if isinstance(module, nn.Conv2d) else module.in_features
            inputs = layers[-1].units if layers else numbers
            spread, rest = divmod(numbers, inputs)
            if rest or (spread > 1 and not any(isinstance(each, nn.Flatten) for each in before)):
                raise _no_chain(needed_by, f"{module} does not read the {inputs} units of the layer before it")
            layers.append(ChainLayer(module, nn.Sequential(*before), nn.Sequential(), inputs, spread))
            before = []
        elif not isinstance(module, _BETWEEN):
            raise _no_chain(needed_by, f"it has a {type(module).__name__}")
        elif layers and not before and not isinstance(module, nn.Flatten):
            layers[-1].after.append(module)
        else:
            before.append(module)
    if not layers or before or not isinstance(layers[-1].weighted, nn.Linear):
        raise _no_chain(needed_by, "it does not end with a linear layer and its activation")
    return tuple(layers)


def _no_chain(needed_by: str, reason: str) -> RequestError:
    return RequestError(
        f"{needed_by} needs a backbone that is a chain of convolutions and linear layers: {reason}",
        remedy="choose one that has neither branches nor BatchNorm, e.g. with -o backbone=mlp",
    )


def run_chain(layers: Sequence[ChainLayer], x: Tensor, compute: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Features ``[N, F]`` of images; ``compute(index, input)`` gives a layer's output before its activation."""
    for index, layer in enumerate(layers):
        x = layer.after(compute(index, layer.before(x)))
    return x
