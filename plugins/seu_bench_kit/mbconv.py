"""Search space of inverted residuals: what MobileNets and EfficientNets are built of, in three choices a form.

Source: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018; squeeze-and-excitation
behind the depthwise convolution and the choices that are searched: M. Tan et al., "MnasNet: Platform-Aware Neural
Architecture Search for Mobile", CVPR 2019. Here all activations are ReLU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench_kit.kernels import DepthwiseConv2d
from seu_bench_kit.search_space import Arrow, CellPlan, ChoiceSpace, Chosen, Sample
from seu_bench_kit.units import Unit, blend

KERNELS: Final = (3, 5)
EXPANSIONS: Final = (1, 2, 4)
#: Choices of a form.
CHOICES: Final = 3
#: Channels of a unit's input to those between squeeze and excitation.
REDUCTION: Final = 4


class SqueezeExcite(nn.Module):
    """Scale channels by what the means of all of them say (Hu, Shen & Sun, "Squeeze-and-Excitation Networks", 2018).

    Args:
        channels: of the input.
        squeezed: channels in between.
    """

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """``[N, C, H, W] -> [N, C, H, W]``."""
        scale = self.excite(functional.relu(self.squeeze(x.mean(dim=(2, 3), keepdim=True))))
        scaled: Tensor = x * scale.sigmoid()
        return scaled


class InvertedResidual(Unit):
    """1x1 convolution to more channels, depthwise convolution, squeeze-and-excitation or not, 1x1 convolution back.

    Of its two inputs it takes the newer one, which is added to the output where both are of one shape.

    Args:
        plan: place of the unit.
        kernel: side of the depthwise convolution, in pixels.
        expansion: inner channels, as a multiple of those of the input.
        squeeze_excite: whether channels are scaled.
    """

    def __init__(self, plan: CellPlan, kernel: int, expansion: int, squeeze_excite: bool) -> None:
        super().__init__()
        inner, self.adds = expansion * plan.newer, _adds(plan)
        self.expand = nn.Sequential(nn.Conv2d(plan.newer, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU())
        self.depthwise = _depthwise(plan, inner, kernel, affine=True)
        self.excite = SqueezeExcite(inner, _squeezed(plan)) if squeeze_excite else nn.Identity()
        self.project = nn.Conv2d(inner, plan.output, 1, bias=False)
        self.norm = nn.BatchNorm2d(plan.output)

    def forward(self, older: Tensor, newer: Tensor) -> Tensor:
        """``[N, newer, H, W] -> [N, output, H, W]``, at half the resolution in a reduction."""
        output: Tensor = self.norm(self.project(self.excite(self.depthwise(self.expand(newer)))))
        return output + newer if self.adds else output


class ProxyResidual(nn.Module):
    """All inverted residuals of a place on shared weights: the widest one, of which narrower ones take the first
    channels, with a depthwise convolution for each kernel.

    Statistics of a channel do not depend on how many others there are, so that all widths share them.
    """

    def __init__(self, plan: CellPlan) -> None:
        super().__init__()
        self.plan, self.adds = plan, _adds(plan)
        inner = max(EXPANSIONS) * plan.newer
        norm = nn.BatchNorm2d(inner, affine=False)
        self.expand = nn.Sequential(nn.Conv2d(plan.newer, inner, 1, bias=False), norm, nn.ReLU())
        self.depthwise = nn.ModuleList(_depthwise(plan, inner, kernel, affine=False) for kernel in KERNELS)
        self.excite = SqueezeExcite(inner, _squeezed(plan))
        self.project = nn.Conv2d(inner, plan.output, 1, bias=False)
        self.norm = nn.BatchNorm2d(plan.output, affine=False)
        masks = torch.arange(inner) < plan.newer * torch.tensor(EXPANSIONS)[:, None]
        self.register_buffer("masks", masks.float()[..., None, None], persistent=False)

    def forward(self, older: Tensor, newer: Tensor, sample: Sample) -> Tensor:
        """As of a unit, for one architecture or for all of them, weighted."""
        kernel, expansion, excited = sample[CHOICES:] if self.plan.reduction else sample[:CHOICES]
        x = self.expand(newer)
        x = blend(kernel, [partial(layer, x) for layer in self.depthwise])
        x = x * blend(expansion, [partial(torch.clone, mask) for mask in cast(Tensor, self.masks)])
        x = blend(excited, [partial(torch.clone, x), partial(self.excite, x)])
        output: Tensor = self.norm(self.project(x))
        return output + newer if self.adds else output

    def copy_to(self, unit: InvertedResidual, genotype: Chosen) -> None:
        """Give a unit the weights that its genotype shares; what is affine in it alone stays as it is."""
        kernel = KERNELS.index(genotype[f"{self.plan.kind}.kernel"])
        given = {name.replace(f"depthwise.{kernel}.", "depthwise."): it for name, it in self.state_dict().items()}
        for name, there in unit.state_dict().items():
            if name in given:
                there.copy_(given[name][tuple(map(slice, there.shape))])


class MBConvSpace(ChoiceSpace):
    """Inverted residuals: kernel, expansion, and squeeze-and-excitation, of the normal and of the reduction units."""

    options: ClassVar[Mapping[str, Sequence[Any]]] = {
        f"{kind}.{name}": values
        for kind in ("normal", "reduction")
        for name, values in (("kernel", KERNELS), ("expansion", EXPANSIONS), ("squeeze_excite", (False, True)))
    }

    def unit(self, genotype: Chosen, place: CellPlan) -> InvertedResidual:
        """The inverted residual of the place's form."""
        names = "kernel", "expansion", "squeeze_excite"
        return InvertedResidual(place, *(genotype[f"{place.kind}.{name}"] for name in names))

    def proxy(self, place: CellPlan) -> ProxyResidual:
        """All inverted residuals of a place."""
        return ProxyResidual(place)

    def draw(self, genotype: Chosen) -> Mapping[str, Sequence[Arrow]]:
        """A chain of layers for each form."""

        def chain(kind: str) -> list[Arrow]:
            kernel, expansion = genotype[f"{kind}.kernel"], genotype[f"{kind}.expansion"]
            layers = [f"1x1, times {expansion}", f"depthwise {kernel}x{kernel}"]
            layers += [*["squeeze, excite"] * genotype[f"{kind}.squeeze_excite"], "1x1"]
            nodes = ["newer", *map(str, range(1, len(layers))), "output"]
            return [Arrow(*arrow) for arrow in zip(nodes, nodes[1:], layers, strict=False)]

        return {kind: chain(kind) for kind in ("normal", "reduction")}


def _adds(plan: CellPlan) -> bool:
    return plan.newer == plan.output and not plan.reduction


def _squeezed(plan: CellPlan) -> int:
    return max(1, plan.newer // REDUCTION)


def _depthwise(plan: CellPlan, channels: int, kernel: int, *, affine: bool) -> nn.Sequential:
    convolution = DepthwiseConv2d(channels, kernel, 2 if plan.reduction else 1, 1)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels, affine=affine), nn.ReLU())
