"""Operations and inputs of cells computed directly by torch's functions: what modules are compared with."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench_kit.search_space import CellPlan


def unsettled(module: nn.Module) -> nn.Module:
    """``module`` in evaluation mode, its normalisations with statistics and factors unlike the initial ones."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            torch.nn.init.uniform_(part.running_mean, -1, 1)
            torch.nn.init.uniform_(part.running_var, 0.5, 2)
            if part.affine:
                torch.nn.init.uniform_(part.weight, 0.5, 2)
                torch.nn.init.uniform_(part.bias, -1, 1)
    return module.eval()


def norm(x: Tensor, module: nn.Module) -> Tensor:
    """Batch normalisation with a module's numbers."""
    assert isinstance(module, nn.BatchNorm2d)
    return functional.batch_norm(x, module.running_mean, module.running_var, module.weight, module.bias, eps=1e-5)


def conv(x: Tensor, module: nn.Module, stride: int = 1, padding: int = 0, dilation: int = 1) -> Tensor:
    """Bias-free convolution with a module's weights, depthwise where they are."""
    assert isinstance(module, nn.Conv2d) and module.bias is None
    groups = x.shape[1] // module.weight.shape[1]
    return functional.conv2d(x, module.weight, None, stride, padding, dilation, groups)


def inputs(plan: CellPlan, size: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    older = size * 2 if plan.after_reduction else size
    shapes = ((3, plan.older, older, older), (3, plan.newer, size, size))
    first, second = (torch.randn(*shape, generator=generator) for shape in shapes)
    return first, second


def reduce_directly(x: Tensor, convolutions: tuple[nn.Module, nn.Module], batch_norm: nn.Module) -> Tensor:
    x = functional.relu(x)
    halves = [conv(x[:, :, ::2, ::2], convolutions[0]), conv(x[:, :, 1::2, 1::2], convolutions[1])]
    return norm(torch.cat(halves, dim=1), batch_norm)


def operate_directly(name: str, stride: int, module: nn.Module, x: Tensor) -> Tensor:
    """An operation from the weights of ``module``, written out anew."""
    parts = [part for part in module.modules() if isinstance(part, nn.Conv2d | nn.BatchNorm2d)]
    if name == "none":
        return torch.zeros_like(x[:, :, ::stride, ::stride])
    if name == "max_pool_3x3":
        return functional.max_pool2d(x, 3, stride, 1)
    if name == "avg_pool_3x3":
        return functional.avg_pool2d(x, 3, stride, 1, count_include_pad=False)
    if name == "skip_connect":
        return x if stride == 1 else reduce_directly(x, (parts[0], parts[1]), parts[2])
    kernel = int(name[-1])
    if name.startswith("dil"):
        x = conv(functional.relu(x), parts[0], stride, kernel - 1, 2)
        return norm(conv(x, parts[1]), parts[2])
    x = norm(conv(conv(functional.relu(x), parts[0], stride, kernel // 2), parts[1]), parts[2])
    return norm(conv(conv(functional.relu(x), parts[3], 1, kernel // 2), parts[4]), parts[5])


def bring(x: Tensor, module: nn.Module, halve: bool) -> Tensor:
    """An input of a cell, preprocessed anew with the weights of ``module``."""
    parts = [part for part in module.modules() if isinstance(part, nn.Conv2d | nn.BatchNorm2d)]
    if halve:
        return reduce_directly(x, (parts[0], parts[1]), parts[2])
    return norm(conv(functional.relu(x), parts[0]), parts[1])
