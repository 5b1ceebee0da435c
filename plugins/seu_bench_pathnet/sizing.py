"""How wide modules are, so that the whole network has the parameters of the one that it replaces: in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seu_bench.models import ChainLayer


def module_factor(chain: Sequence[ChainLayer], modules: int, classes: Sequence[int]) -> float:
    """The factor f on all widths by which M modules in each layer have as many parameters as the chain, heads included.

    With u units in a layer, w weights from each unit of the layer before to each of its own, and inputs of the first
    layer that stay as they are, M modules of f u units in each layer and the heads have

        f^2 M sum_{l>1} u_{l-1} u_l w_l  +  f (M (u_0 u_1 w_1 + sum_l u_l) + u_L sum_t c_t)  +  sum_t c_t

    parameters, the sum of the u_l being that of the biases. It is the positive root at which they are those of the
    chain with heads of its own.

    Args:
        chain: whose layers are replaced.
        modules: M, in each layer.
        classes: c, outputs of each task's head.

    Returns:
        f; 1 for one module.
    """
    first, *others = chain
    quadratic = sum(layer.inputs * layer.units * _weights(layer) for layer in others)
    linear = first.inputs * first.units * _weights(first)
    linear += sum(layer.units for layer in chain if layer.weighted.bias is not None)
    heads = chain[-1].units * sum(classes)
    total = quadratic + linear + heads
    a, b = modules * quadratic, modules * linear + heads
    # The stable form of the root, which holds for a = 0 as well.
    return 2 * total / (b + math.sqrt(b * b + 4 * a * total))


def module_widths(chain: Sequence[ChainLayer], modules: int, classes: Sequence[int]) -> tuple[int, ...]:
    """Units of a module in each layer: those of the chain's times :func:`module_factor`, rounded down, at least 1.

    Rounded down, the network has at most the parameters of the chain with its heads, unless a layer is so narrow that
    one unit is too many.
    """
    factor = module_factor(chain, modules, classes)
    # A factor of 1 may come out one rounding error below it.
    return tuple(max(1, math.floor(factor * layer.units + 1e-9)) for layer in chain)


def _weights(layer: ChainLayer) -> int:
    """Weights from one unit of the layer before to one of its own: of a kernel, or of the numbers it is read by."""
    return layer.weighted.weight.numel() // (layer.inputs * layer.units)
