"""Gradients of the architecture against closed forms and direct computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from support.components import IMAGES, SCHEDULE, search_task
from torch import Tensor, nn

from seu_bench.config.protocol import SearchSchedule
from seu_bench_darts import DartsOptions, estimate_passes, searcher
from seu_bench_darts.searcher import DartsSearch, first_order, second_order
from seu_bench_kit.search_space import OPERATIONS, SearchSpace


def search(seed: int = 3, space: SearchSpace | None = None, schedule: SearchSchedule = SCHEDULE, **more: Any) -> Any:
    stage = DartsSearch(DartsOptions(**more), search_task(seed, space, schedule))
    assert isinstance(stage, DartsSearch)
    return stage


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


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

    def through(self) -> list[Tensor]:
        """By autograd through SGD's own step, whose rule is written out."""
        present = list(self.stage.network.parameters())
        slopes = torch.autograd.grad(self.loss(present, self.train), present, create_graph=True)
        stepped = []
        for weight, slope in zip(present, slopes, strict=True):
            buffer = self.stage.optimizer.state[weight]["momentum_buffer"]
            stepped.append(weight - self.rate * (0.9 * buffer + slope + 0.05 * weight))
        return list(torch.autograd.grad(self.loss(stepped, self.valid), self.stage.architecture))


@pytest.mark.long
def test_second_order_on_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The searcher's gradient of second order is that of autograd through the step that SGD would take.

    ReLU and max-pooling make the gradient jump wherever a unit switches; autograd leaves the jumps out, a finite
    difference counts those within its reach: here it is so short that no unit switches.
    """
    monkeypatch.setattr(searcher, "STEP", 1e-6)
    problem = OnTheProxy(2)
    assert distance(problem.found(), problem.through()) < 1e-6


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


pytestmark = pytest.mark.long


@pytest.mark.parametrize("edges", ["top2", "all14"])
def test_genotype_is_that_of_the_softmax(edges: Any) -> None:
    """The genotype is read off the softmax: of each edge the best operation, of each node the best two edges."""
    stage = search(space=SearchSpace(edges), epochs=1)
    torch.manual_seed(0)
    stage.best = [torch.randn(14, 8) for _ in range(2)]
    # One edge has large numbers throughout: its softmax is no larger for it.
    stage.best[0][4] = 100 + 0.01 * torch.arange(8)
    found = stage.result()
    for table, form in zip(stage.best, (found.normal, found.reduction), strict=True):
        shares = (table.exp() / table.exp().sum(dim=1, keepdim=True)).double() if table.max() < 50 else None
        if shares is None:
            shifted = table - table.amax(dim=1, keepdim=True)
            shares = (shifted.exp() / shifted.exp().sum(dim=1, keepdim=True)).double()
        expected, row = set(), 0
        for node in (2, 3, 4, 5):
            candidates = []
            for source in range(node):
                first = 1 if edges == "top2" else 0
                share, operation = max((float(shares[row, at]), at) for at in range(first, 8))
                candidates.append((share, (node, source, OPERATIONS[operation])))
                row += 1
            kept = sorted(candidates, reverse=True)[: 2 if edges == "top2" else None]
            expected |= {edge for _, edge in kept}
        assert {tuple(edge) for edge in form} == expected


@pytest.mark.parametrize(
    ("restore", "seed", "epochs"), [pytest.param("best_valid", 5, 3, marks=pytest.mark.long), ("last", 3, 2)]
)
def test_architecture_of_the_best_epoch(restore: Any, seed: int, epochs: int) -> None:
    """The architecture is that of the epoch with the lowest loss on the second half, or the last one."""
    schedule = SCHEDULE.model_copy(update={"epochs": epochs, "learning_rate": 0.1, "min_learning_rate": 0.1})
    # Recalibrated, so small a network is best at its last epoch with every seed.
    options = {"restore": restore, "arch_learning_rate": 0.2, "recalibration_images": 0}
    stage = search(seed=seed, schedule=schedule, **options)
    kept: list[tuple[float, list[Tensor]]] = []
    while stage.epoch < stage.epochs:
        stage.advance()
        stage.network.eval()
        images, labels = stage.valid_images.gather(torch.arange(len(stage.valid_images)))
        mixture = tuple(table.softmax(dim=1) for table in stage.architecture)
        with torch.no_grad():
            logits = stage.network.mixture(images, mixture)
        assert stage.report.accuracy == float((logits.argmax(dim=1) == labels).double().mean())
        loss = float(nn.functional.cross_entropy(logits, labels))
        kept.append((loss, [table.detach().clone() for table in stage.architecture]))
    lowest = min(range(epochs), key=lambda epoch: kept[epoch][0])
    assert lowest < epochs - 1, "the last epoch is the best: this test could not fail"
    found = stage.run()
    expected = kept[lowest if restore == "best_valid" else -1][1]
    assert all(torch.equal(one, other) for one, other in zip(stage.best, expected, strict=True))
    space = SearchSpace()
    derived = [space.derive([t.softmax(dim=1).double().numpy() for t in architecture]) for _, architecture in kept]
    assert found == derived[lowest if restore == "best_valid" else -1]
    assert derived[lowest] != derived[-1]


@pytest.mark.parametrize("order", [1, 2])
def test_passes(order: Any) -> None:
    """The factory predicts exactly what the stage counts, which is what the network is shown."""
    one = SCHEDULE.model_copy(update={"epochs": 1})
    expected = estimate_passes(DartsOptions(order=order), one, len(IMAGES))
    assert expected == ({1: 2, 2: 5}[order] * 8, 8 + 9)
    stage, seen = search(order=order, epochs=1, batch_size=4), list[int]()
    mixture = stage.network.mixture
    stage.network.mixture = lambda images, weights: (seen.append(len(images)), mixture(images, weights))[1]
    stage.run()
    assert stage.image_passes == sum(expected) == sum(seen)
