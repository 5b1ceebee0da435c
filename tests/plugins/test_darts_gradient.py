"""Gradients of the architecture against closed forms and direct computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from support.plugins.darts import flat, search
from support.tiny import all_threads, one_thread
from torch import Tensor, nn

from seu_bench_darts import gradient
from seu_bench_darts.gradient import first_order, second_order

setup_module, teardown_module = one_thread, all_threads


# --- the gradients, on a small smooth problem -------------------------------------------------------------------------


class Smooth:
    """A net of two layers whose hidden units are mixtures of smooth functions, in double precision."""

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def numbers(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.weights = [numbers(5, 3).requires_grad_(), numbers(2, 5).requires_grad_()]
        self.architecture = [numbers(5, 3).requires_grad_(), numbers(2).requires_grad_()]
        self.momentum = [0.3 * numbers(5, 3), 0.3 * numbers(2, 5)]
        self.train = numbers(7, 3), torch.arange(7) % 2
        self.valid = numbers(6, 3), torch.arange(6) % 2

    @staticmethod
    def loss(batch: tuple[Tensor, Tensor]) -> Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]:
        images, labels = batch

        def loss(weights: Sequence[Tensor], architecture: Sequence[Tensor]) -> Tensor:
            hidden = images @ weights[0].T
            shares = architecture[0].softmax(dim=1)
            mixed = shares[:, 0] * torch.tanh(hidden) + shares[:, 1] * torch.sin(hidden) + shares[:, 2] * hidden
            return nn.functional.cross_entropy(mixed @ weights[1].T * torch.sigmoid(architecture[1]), labels)

        return loss

    def second(self, **more: Any) -> list[Tensor]:
        given = {"rate": 0.4, "momentum": self.momentum, "weight_decay": 0.2, **more}
        return second_order(self.loss(self.train), self.loss(self.valid), self.weights, self.architecture, **given)

    def through(self, rate: float = 0.4, momentum: Any = None, weight_decay: float = 0.2) -> list[Tensor]:
        """By autograd through the step of the weights."""
        momentum = self.momentum if momentum is None else momentum
        descent = torch.autograd.grad(
            self.loss(self.train)(self.weights, self.architecture), self.weights, create_graph=True
        )
        stepped = [
            w - rate * (g + weight_decay * w + m) for w, g, m in zip(self.weights, descent, momentum, strict=True)
        ]
        return list(torch.autograd.grad(self.loss(self.valid)(stepped, self.architecture), self.architecture))

    def at_the_step(self) -> list[Tensor]:
        """The gradient at the stepped weights, as if they did not depend on the architecture."""
        descent = torch.autograd.grad(self.loss(self.train)(self.weights, self.architecture), self.weights)
        stepped = [w - 0.4 * (g + 0.2 * w + m) for w, g, m in zip(self.weights, descent, self.momentum, strict=True)]
        return list(torch.autograd.grad(self.loss(self.valid)(stepped, self.architecture), self.architecture))


def distance(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Relative to the expected one."""
    return float((flat(found) - flat(expected)).norm() / flat(expected).norm())


@pytest.mark.parametrize("seed", range(5))
def test_second_order_is_the_gradient_through_the_step(seed: int) -> None:
    """It equals what autograd gives through the inner step, with momentum and weight decay and without."""
    problem = Smooth(seed)
    assert distance(problem.second(), problem.through()) < 1e-4
    still = [torch.zeros_like(weight) for weight in problem.weights]
    plain = problem.second(momentum=still, weight_decay=0.0)
    assert distance(plain, problem.through(momentum=still, weight_decay=0.0)) < 1e-4
    # Each of the two takes part, and each by far more than the comparison allows.
    assert distance(problem.second(momentum=still), problem.through()) > 1e-2
    assert distance(problem.second(weight_decay=0.0), problem.through()) > 1e-2


def test_published_defect_would_be_noticed() -> None:
    """The published code divides the difference by 2 and multiplies it by the step: far from the gradient."""
    problem = Smooth()
    direct = problem.at_the_step()
    added = [d - g for d, g in zip(direct, problem.second(), strict=True)]
    stepped = [
        w - 0.4 * (g + 0.2 * w + m)
        for w, g, m in zip(
            problem.weights,
            torch.autograd.grad(problem.loss(problem.train)(problem.weights, problem.architecture), problem.weights),
            problem.momentum,
            strict=True,
        )
    ]
    stepped = [w.detach().requires_grad_() for w in stepped]
    direction = torch.autograd.grad(problem.loss(problem.valid)(stepped, problem.architecture), stepped)
    step = 0.01 / flat(direction).norm()
    # added = difference / (2 step); the defect makes difference / 2 * step of it.
    defective = [d - a * step**2 for d, a in zip(direct, added, strict=True)]
    assert distance(problem.second(), problem.through()) < 1e-4
    assert distance(defective, problem.through()) > 1e-2


@pytest.mark.parametrize("seed", range(3))
def test_first_order_is_the_plain_gradient(seed: int) -> None:
    """It equals autograd at the present weights, and is another than that of second order."""
    problem = Smooth(seed)
    found = first_order(problem.loss(problem.valid), problem.weights, problem.architecture)
    problem.loss(problem.valid)(problem.weights, problem.architecture).backward()
    assert all(torch.equal(g, a.grad) for g, a in zip(found, problem.architecture, strict=True))
    assert distance(found, problem.through()) > 1e-2
    # With a step of no length there is nothing to see through.
    assert distance(problem.second(rate=0.0), found) < 1e-12


# --- the gradients, on the proxy network ------------------------------------------------------------------------------


class Mixed(nn.Module):
    """Tensors that ``functional_call`` needs to put other weights into the proxy network."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, architecture: Sequence[Tensor]) -> Tensor:
        logits: Tensor = self.network.mixture(images, tuple(table.softmax(dim=1) for table in architecture))
        return logits


class OnTheProxy:
    """A searcher in double precision, whose weights were moved once, with one batch of each half."""

    def __init__(self, order: int) -> None:
        self.stage = search(order=order, weight_decay=0.05)
        self.stage.network.train()
        self.stage._step_weights(*self.stage.train_images.gather(torch.arange(8)))  # so that there is momentum
        self.stage.network.double()
        for table in self.stage.architecture:
            # Large enough that operations weigh differently.
            table.data = torch.randn(14, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        for state in self.stage.optimizer.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].double()
        self.train, self.valid = (
            (images.double(), labels)
            for images, labels in (
                half.gather(torch.arange(6)) for half in (self.stage.train_images, self.stage.valid_images)
            )
        )
        self.mixed = Mixed(self.stage.network)
        self.rate = self.stage.optimizer.param_groups[0]["lr"]

    def found(self) -> list[Tensor]:
        """Gradients that the searcher hands to Adam."""
        handed: list[Tensor] = []
        step = self.stage.arch_optimizer.step

        def keep() -> None:
            handed.extend(table.grad.clone() for table in self.stage.architecture)

        self.stage.arch_optimizer.step = keep
        try:
            self.stage._step_architecture(self.train, self.valid)
        finally:
            self.stage.arch_optimizer.step = step
        return handed

    def loss(self, values: Sequence[Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
        names = [name for name, _ in self.mixed.named_parameters()]
        state = {name: buffer.clone() for name, buffer in self.mixed.named_buffers()}
        state |= dict(zip(names, values, strict=True))
        logits = torch.func.functional_call(self.mixed, state, (batch[0], self.stage.architecture))
        return nn.functional.cross_entropy(logits, batch[1])

    def stepped(self, *, see_through: bool) -> list[Tensor]:
        """The weights after SGD's own step, whose rule is written out."""
        present = list(self.stage.network.parameters())
        slopes = torch.autograd.grad(self.loss(present, self.train), present, create_graph=see_through)
        stepped = []
        for weight, slope in zip(present, slopes, strict=True):
            buffer = self.stage.optimizer.state[weight]["momentum_buffer"]
            stepped.append(weight - self.rate * (0.9 * buffer + slope + 0.05 * weight))
        return stepped

    def through(self) -> list[Tensor]:
        """By autograd through the step."""
        loss = self.loss(self.stepped(see_through=True), self.valid)
        return list(torch.autograd.grad(loss, self.stage.architecture))

    def difference(self) -> tuple[list[Tensor], list[Tensor]]:
        """By a central difference of 0.01 over the gradient's norm, and without what it adds."""
        stepped = self.stepped(see_through=False)
        both = torch.autograd.grad(self.loss(stepped, self.valid), [*stepped, *self.stage.architecture])
        direction, direct = both[: len(stepped)], both[len(stepped) :]
        step = 0.01 / flat(direction).norm()
        slopes = []
        for sign in (1, -1):
            moved = [w + sign * step * v for w, v in zip(self.stage.network.parameters(), direction, strict=True)]
            slopes.append(torch.autograd.grad(self.loss(moved, self.train), self.stage.architecture))
        added = [(plus - minus) / (2 * step) for plus, minus in zip(*slopes, strict=True)]
        return [d - self.rate * a for d, a in zip(direct, added, strict=True)], list(direct)


@pytest.mark.long
def test_second_order_on_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The searcher's gradient of second order is that of autograd through the step that SGD would take.

    ReLU and max-pooling make the gradient jump wherever a unit switches; autograd leaves the jumps out, a finite
    difference counts those within its reach. So a difference so short that no unit switches is compared with autograd,
    and the one in use, which reaches over some, with the same difference written out.
    """
    problem = OnTheProxy(2)
    expected, direct = problem.difference()
    assert distance(problem.found(), expected) < 1e-9
    through = problem.through()
    monkeypatch.setattr(gradient, "STEP", 1e-6)
    short = problem.found()
    assert distance(short, through) < 1e-6
    # What is added is no small part of it.
    assert distance(direct, through) > 0.1


def test_step_that_is_seen_through_is_sgds_own() -> None:
    """The weights that the oracle and the searcher step to are those of the optimiser, clipping aside."""
    stage = search(order=2, weight_decay=0.05)
    for _ in range(2):
        batch = stage.train_images.gather(torch.arange(4))
        present = [weight.detach().clone() for weight in stage.weights]
        momentum = stage._momentum()
        stage.optimizer.zero_grad()
        nn.functional.cross_entropy(stage._forward(batch[0]), batch[1]).backward(inputs=stage.weights)
        rate = stage.optimizer.param_groups[0]["lr"]
        expected = [
            w - rate * (p.grad + 0.05 * w + m) for w, p, m in zip(present, stage.weights, momentum, strict=True)
        ]
        stage.optimizer.step()
        for weight, value in zip(stage.weights, expected, strict=True):
            torch.testing.assert_close(weight.detach(), value, rtol=1e-5, atol=1e-7)
