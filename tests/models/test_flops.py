"""Operations: by hand for each kind of layer, reckoned for batches that repeat, the same by any route."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seu_bench.models.flops import FlopCounter, RepeatedBatches, active_counter
from seu_bench_kit.kernels import DepthwiseConv2d

#: Layers, an input, and multiply-accumulates of the forward pass by hand: places times what is summed in each.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "linear": (lambda: nn.Linear(5, 3), (4, 5), 4 * 3 * 5),
    "linear without bias": (lambda: nn.Linear(5, 3, bias=False), (4, 5), 4 * 3 * 5),
    "convolution": (lambda: nn.Conv2d(6, 4, 3, padding=1), (2, 6, 7, 7), 2 * 4 * 49 * 6 * 9),
    "stride": (lambda: nn.Conv2d(6, 4, 3, 2, 1), (2, 6, 7, 7), 2 * 4 * 16 * 6 * 9),
    "groups": (lambda: nn.Conv2d(6, 4, 3, padding=1, groups=2), (2, 6, 7, 7), 2 * 4 * 49 * 3 * 9),
    "transposed": (lambda: nn.ConvTranspose2d(6, 4, 3, 2, groups=2), (2, 6, 5, 5), 2 * 6 * 25 * 2 * 9),
    **{
        f"depthwise {kernel}, {stride}, {dilation}": (
            lambda kernel=kernel, stride=stride, dilation=dilation: DepthwiseConv2d(8, kernel, stride, dilation),
            (2, 8, 7, 7),
            2 * 8 * (-(-7 // stride)) ** 2 * kernel**2,
        )
        for kernel, stride, dilation in ((3, 1, 1), (5, 1, 1), (5, 2, 1), (3, 2, 2), (5, 1, 2))
    },
}


def layer_and_input(name: str, *, input_grad: bool) -> tuple[nn.Module, Tensor, int]:
    make, shape, macs = LAYERS[name]
    x = torch.zeros(shape)
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return make(), x.requires_grad_(input_grad), macs


@pytest.mark.parametrize("name", LAYERS)
def test_each_pass_of_a_layer(name: str) -> None:
    """Forward, the gradient of the weight and the gradient of the input take the same; each counts where it is asked
    for."""
    layer, x, macs = layer_and_input(name, input_grad=True)
    with FlopCounter() as forward:
        layer(x)
    with FlopCounter() as whole:
        layer(x).sum().backward()
    frozen, y, _ = layer_and_input(name, input_grad=True)
    with FlopCounter() as of_input:
        frozen.requires_grad_(False)(y).sum().backward()
    first, y, _ = layer_and_input(name, input_grad=False)
    with FlopCounter() as of_weight:
        first(y).sum().backward()
    found = [counter.flops for counter in (forward, whole, of_input, of_weight)]
    assert found == [2 * macs * passes for passes in (1, 3, 2, 2)]


#: What is computed from ``a`` [6, 6], symmetric and positive, ``tall`` [7, 3], ``b`` [6, 4] and ``c`` [7, 2], and its
#: operations by hand: 72 are 1/3 of 6^3, and 9 of 3^3.
LINEAR_ALGEBRA: dict[str, tuple[Callable[..., object], int]] = {
    "solve": (lambda a, b, **_: torch.linalg.solve(a, b), 2 * 72 + 2 * 36 * 4),
    "solve from the right": (lambda a, b, **_: torch.linalg.solve(a, b.mT, left=False), 2 * 72 + 2 * 36 * 4),
    "inverse": (lambda a, **_: torch.linalg.inv(a), 2 * 216),
    "determinant": (lambda a, **_: torch.linalg.det(a), 2 * 72),
    "log-determinant": (lambda a, **_: torch.logdet(a), 2 * 72),
    "Cholesky": (lambda a, **_: torch.linalg.cholesky(a), 72),
    "Cholesky, solve": (lambda a, b, **_: torch.cholesky_solve(b, torch.linalg.cholesky(a)), 72 + 2 * 36 * 4),
    "Cholesky, inverse": (lambda a, **_: torch.cholesky_inverse(torch.linalg.cholesky(a)), 216),
    "triangular": (lambda a, b, **_: torch.linalg.solve_triangular(a, b, upper=True), 36 * 4),
    "triangular, older": (lambda a, b, **_: torch.triangular_solve(b, a), 36 * 4),
    "LU": (lambda tall, **_: torch.linalg.lu(tall), 7 * 9 - 9),
    "LU of a wide one": (lambda tall, **_: torch.linalg.lu(tall.mT), 7 * 9 - 9),
    "LU, solve": (lambda a, b, **_: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b), 2 * 72 + 2 * 36 * 4),
    "QR": (lambda tall, **_: torch.linalg.qr(tall), 2 * (2 * 7 * 9 - 2 * 9)),
    "QR without Q": (lambda tall, **_: torch.linalg.qr(tall, mode="r"), 2 * 7 * 9 - 2 * 9),
    "QR, whole Q": (lambda tall, **_: torch.linalg.qr(tall, mode="complete"), 108 + 4 * 49 * 3 - 4 * 7 * 9 + 4 * 9),
    "least squares": (lambda tall, c, **_: torch.linalg.lstsq(tall, c), 108 + 2 * (4 * 21 - 9)),
    "least squares, wide": (lambda tall, c, **_: torch.linalg.lstsq(tall.mT, c[..., :3, :]), 108 + 2 * (4 * 21 - 9)),
    "eigenvectors": (lambda a, **_: torch.linalg.eigh(a), 9 * 216),
    "eigenvalues": (lambda a, **_: torch.linalg.eigvalsh(a), 9 * 216),
    "singular values": (lambda tall, **_: torch.linalg.svdvals(tall), 14 * 7 * 9 + 8 * 27),
    "SVD": (lambda tall, **_: torch.linalg.svd(tall, full_matrices=False), 14 * 7 * 9 + 8 * 27),
    "SVD, all vectors": (lambda tall, **_: torch.linalg.svd(tall), 4 * 49 * 3 + 8 * 7 * 9 + 9 * 27),
    "pseudo-inverse": (lambda tall, **_: torch.linalg.pinv(tall), 16 * 7 * 9 + 8 * 27),
    "pseudo-inverse, symmetric": (lambda a, **_: torch.linalg.pinv(a, hermitian=True), 11 * 216),
    "distances": (lambda tall, **_: torch.cdist(tall, tall[..., :5, :]), 3 * 7 * 5 * 3),
    "distances by products": (lambda c, **_: torch.cdist(c, c, compute_mode="use_mm_for_euclid_dist"), 3 * 7 * 7 * 2),
    "distances of another norm": (lambda tall, **_: torch.cdist(tall, tall, p=1), 3 * 7 * 7 * 3),
}


def matrices(*batch: int, grad: bool = False) -> dict[str, Tensor]:
    """The matrices that :data:`LINEAR_ALGEBRA` is computed from."""
    torch.manual_seed(0)
    root = torch.randn(6, 6, dtype=torch.double)
    shapes = {"tall": (7, 3), "b": (6, 4), "c": (7, 2)}
    drawn = {name: torch.randn(shape, dtype=torch.double) for name, shape in shapes.items()}
    drawn["a"] = root @ root.T + torch.eye(6, dtype=torch.double)
    return {name: it.expand(*batch, *it.shape).clone().requires_grad_(grad) for name, it in drawn.items()}


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("batch", [(), (2, 3)], ids=["one", "batch"])
@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_linear_algebra(name: str, batch: tuple[int, ...]) -> None:
    """Of one matrix and of six; what torch computes it from is not counted again, with gradients or without."""
    compute, flops = LINEAR_ALGEBRA[name]
    for grad in (False, True):
        given = matrices(*batch, grad=grad)
        with FlopCounter() as counter:
            compute(**given)
        assert counter.flops == flops * (6 if batch else 1)


def test_gradients_of_linear_algebra() -> None:
    """Backward passes count by what they are made of: here a solution by the same LU and a product."""
    given = matrices(grad=True)
    solution = torch.linalg.solve(given["a"], given["b"])
    distances = torch.cdist(given["tall"], given["tall"][:5].detach())
    with FlopCounter() as of_solution:
        solution.sum().backward()
    with FlopCounter() as of_distances:
        distances.sum().backward()
    assert of_solution.flops == 2 * 36 * 4 + 2 * 36 * 4
    assert of_distances.flops == 3 * 7 * 5 * 3


def test_repeated_batches_are_reckoned() -> None:
    """The first batch of each network is counted, and nothing but the network's name is looked at afterwards."""
    layers = {"small": nn.Linear(5, 3), "large": nn.Linear(5, 30)}
    batches = [("small", 4), ("large", 2), ("small", 3), ("large", 7), ("small", 1)]
    with FlopCounter() as plain:
        for network, images in batches:
            layers[network](torch.zeros(images, 5)).sum().backward()
    seen = []
    with FlopCounter() as counter, RepeatedBatches() as repeated:
        for network, images in batches:
            repeated.begin(network)
            seen.append(active_counter() is counter)
            layers[network](torch.zeros(images, 5)).sum().backward()
            repeated.end(images)
        layers["small"](torch.zeros(1, 5))  # what is between batches is counted as it comes
    assert counter.flops == plain.flops + 2 * 15
    assert seen == [True, True, False, False, False]


def test_counting_changes_no_bit() -> None:
    def trained(*, counts: bool) -> list[Tensor]:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(8, 8, 1), DepthwiseConv2d(8, 5, 2, 1), nn.BatchNorm2d(8), nn.Dropout())
        x = torch.randn(4, 8, 9, 9).contiguous(memory_format=torch.channels_last)
        if counts:
            with FlopCounter():
                network(x).square().sum().backward()
        else:
            network(x).square().sum().backward()
        return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]

    assert all(map(torch.equal, trained(counts=True), trained(counts=False)))
