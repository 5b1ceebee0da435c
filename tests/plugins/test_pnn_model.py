"""Progressive networks: outputs, modes, gradients and paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.plugins.pnn import (
    CLASSES,
    SMALL,
    Variant,
    both,
    network,
)
from support.tiny import (
    all_threads,
    one_thread,
)
from torch import Tensor, nn
from torch.nn import functional

from seu_bench_kit.blocks import AlexNetShape

setup_module, teardown_module = one_thread, all_threads


def images(count: int = 6, shape: AlexNetShape = SMALL) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(count, shape.image_channels, shape.height, shape.width, generator=generator)


def reference(state: dict[str, Tensor], x: Tensor, task: int, variant: Variant) -> Tensor:
    """Logits without dropout, straight from the formula: everything is computed anew wherever it is named."""

    def affine(name: str, value: Tensor) -> Tensor:
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        if weight.dim() == 4:
            return functional.conv2d(value, weight, bias, padding=weight.shape[-1] // 2)
        return value @ weight.T + bias

    def hidden(column: int, depth: int, laterals: bool) -> Tensor:
        """The input of the layer at a depth."""
        if depth == 0:
            return x
        value = output(column, depth - 1, laterals).relu()
        if depth <= 3:
            value = functional.max_pool2d(value, 2)
        return value.reshape(len(x), -1) if depth == 3 else value

    def output(column: int, depth: int, laterals: bool) -> Tensor:
        """W(h), and U(ReLU(V(concat s h))) where there is a lateral."""
        total = affine(f"columns.{column}.layers.{depth}", hidden(column, depth, laterals))
        if laterals and column and depth and not (variant == "compat" and depth == 5):
            name = f"columns.{column}.laterals.{depth - 1}"
            # In the published code earlier columns are computed as if they had no laterals.
            earlier = [
                state[f"{name}.scales"][other] * hidden(other, depth, variant == "proper") for other in range(column)
            ]
            total = total + affine(f"{name}.projection", affine(f"{name}.reduction", torch.cat(earlier, 1)).relu())
        return total

    return output(task, 5, True)


@both
@pytest.mark.parametrize("mode", ["eval", "train without dropout"])
def test_outputs_by_the_formula(variant: Variant, mode: str) -> None:
    """Three columns of unequal heads compute what the formula says."""
    shape = SMALL if mode == "eval" else replace(SMALL, dropout=(0.0,) * 5)
    made = network(variant, shape).double().train(mode != "eval")
    state, x = made.state_dict(), images().double()
    for task, classes in enumerate(CLASSES):
        found = made.forward_single_task(x, task)
        assert found.shape == (6, classes)
        assert torch.allclose(found, reference(state, x, task, variant), rtol=1e-12, atol=1e-12)
    other = reference(state, x, 2, "compat" if variant == "proper" else "proper")
    assert not torch.allclose(found, other, rtol=1e-2)


@both
def test_dropout_of_earlier_columns(variant: Variant) -> None:
    """While a column trains, earlier ones compute as in evaluation; in ``compat`` they drop as well."""
    made, x = network(variant), images()
    made.eval()
    quiet = made(x, 2)
    made.train()
    made.column(2).eval()
    assert torch.equal(made(x, 2), quiet) == (variant == "proper")
    assert torch.equal(made(x, 2), made(x, 2)) == (variant == "proper")


@both
def test_earlier_columns_are_computed_once(variant: Variant) -> None:
    """One sweep: no layer of any column is computed twice, and none whose output nobody reads."""
    made = network(variant)
    calls: dict[str, int] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, output: Any) -> None:
            calls[name] = calls.get(name, 0) + 1

        return hook

    names = {name: module for name, module in made.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
    for name, module in names.items():
        module.register_forward_hook(note(name))
    made(images(), 2)
    path = {id(module) for module in made.task_module(2).modules()}
    assert calls == {name: 1 for name, module in names.items() if id(module) in path}


@both
def test_gradients(variant: Variant) -> None:
    """All of the new column learns, each scalar, V and U too, and nothing of the earlier ones."""
    made, x = network(variant, replace(SMALL, dropout=(0.0,) * 5), seed=1), images(32)
    earlier = [parameter for task in (0, 1) for parameter in made.column(task).parameters()]
    assert not any(parameter.requires_grad for parameter in earlier)
    for parameter in earlier:
        parameter.requires_grad_()  # not even then: no graph is made of earlier columns
    functional.cross_entropy(made(x, 2), torch.arange(32) % 3).backward()
    assert all(parameter.grad is None for parameter in earlier)
    trained = {id(parameter) for parameter in made.trainable_module(2).parameters()}
    for name, parameter in made.column(2).named_parameters():
        if variant == "compat" and name.startswith("laterals.4."):
            assert parameter.grad is None and id(parameter) not in trained
        else:
            assert parameter.grad is not None and id(parameter) in trained
            assert bool(parameter.grad.all() if name.endswith("scales") else parameter.grad.any()), name


@both
def test_paths(variant: Variant) -> None:
    """A task's path is what its logits depend on, and every part of it once: the rest may be anything."""
    made = network(variant).eval()
    before = made(images(), 1)
    parameters = list(made.task_module(1).parameters())
    path = {id(parameter) for parameter in parameters}
    assert len(path) == len(parameters)
    for parameter in made.parameters():
        if id(parameter) not in path:
            parameter.data.fill_(float("nan"))
    assert torch.equal(made(images(), 1), before)
    for parameter in parameters:
        kept = parameter.data.clone()
        parameter.data.fill_(float("nan"))
        assert bool(made(images(), 1).isnan().any())
        parameter.data.copy_(kept)
    assert {id(parameter) for parameter in made.trainable_module(1).parameters()} <= path
