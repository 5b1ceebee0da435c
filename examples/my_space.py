"""A search space of plain residual blocks: how many convolutions, and which activation."""

from functools import partial

from torch import Tensor, nn

from seu_bench import Register, hookimpl
from seu_bench_kit import CellPlan, ChoiceSpace, Chosen, Sample, SpaceFactory, Unit, blend

ACTIVATIONS = {"relu": nn.ReLU, "silu": nn.SiLU}
DEPTHS = (1, 2, 3)


def convolution(inputs: int, outputs: int, stride: int = 1, *, affine: bool = True, kernel: int = 3) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs, affine=affine))


class Residual(Unit):
    """``depth`` convolutions with activations between them, and beside them a shortcut of a 1x1 convolution."""

    def __init__(self, place: CellPlan, depth: int, activation: str, *, affine: bool = True) -> None:
        super().__init__()
        stride = 2 if place.reduction else 1
        self.shortcut = convolution(place.newer, place.output, stride, affine=affine, kernel=1)
        self.first = convolution(place.newer, place.output, stride, affine=affine)
        more = [convolution(place.output, place.output, affine=affine) for _ in range(depth - 1)]
        self.more = nn.ModuleList(more)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, older: Tensor, newer: Tensor) -> Tensor:
        x: Tensor = self.first(newer)
        for layer in self.more:
            x = layer(self.activation(x))
        shortcut: Tensor = self.shortcut(newer)
        return shortcut + x


class ProxyResidual(nn.Module):
    """The deepest unit, whose first convolutions all units share."""

    def __init__(self, place: CellPlan) -> None:
        super().__init__()
        self.deepest = Residual(place, max(DEPTHS), "relu", affine=False)
        self.activations = nn.ModuleList(make() for make in ACTIVATIONS.values())

    def forward(self, older: Tensor, newer: Tensor, sample: Sample) -> Tensor:
        depth, activation = sample

        def compute(depth: int) -> Tensor:
            x: Tensor = self.deepest.first(newer)
            for layer in self.deepest.more[: depth - 1]:
                x = layer(blend(activation, [partial(it, x) for it in self.activations]))
            return x

        shortcut: Tensor = self.deepest.shortcut(newer)
        return shortcut + blend(depth, [partial(compute, it) for it in DEPTHS])

    def copy_to(self, unit: Residual, genotype: Chosen) -> None:
        unit.load_state_dict(self.deepest.state_dict(), strict=False)


class ResidualSpace(ChoiceSpace):
    """Depth and activation."""

    options = {"depth": DEPTHS, "activation": tuple(ACTIVATIONS)}

    def unit(self, genotype: Chosen, place: CellPlan) -> Residual:
        return Residual(place, genotype["depth"], genotype["activation"])

    def proxy(self, place: CellPlan) -> ProxyResidual:
        return ProxyResidual(place)


@hookimpl
def register_spaces(register: Register[SpaceFactory]) -> None:
    register("residual", SpaceFactory("residual blocks: depth and activation", ResidualSpace))
