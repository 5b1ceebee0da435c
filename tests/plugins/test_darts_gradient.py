"""The differentiable search: its gradient against autograd, who moves what, what is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from support.components import IMAGES, SCHEDULE, search_task
from support.tiny import all_threads, one_thread, same
from torch import Tensor, nn

from seu_bench.config.protocol import SearchSchedule
from seu_bench_darts import DartsOptions, estimate_passes
from seu_bench_darts.searcher import DartsSearch
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.genotypes import OPERATIONS


def search(seed: int = 3, space: CellSpace | None = None, schedule: SearchSchedule = SCHEDULE, **more: Any) -> Any:
    stage = DartsSearch(DartsOptions(**more), search_task(seed, space, schedule))
    assert isinstance(stage, DartsSearch)
    return stage


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


setup_module, teardown_module = one_thread, all_threads


def test_gradient_is_that_of_autograd_at_the_present_weights() -> None:
    """What Adam is handed is the gradient of the second half's loss by the tables, through their softmax alone."""
    stage = search()
    stage.network.train()
    stage.network.double()
    for table in stage.architecture:
        # Large enough that operations weigh differently.
        table.data = torch.randn(28, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    images, labels = stage.valid_images.gather(torch.arange(6))
    running = {name: buffer.clone() for name, buffer in stage.network.named_buffers()}
    handed: list[Tensor] = []
    stage.arch_optimizer.step = lambda: handed.extend(table.grad.clone() for table in stage.architecture)
    stage._step_architecture(images.double(), labels)
    assert same(dict(stage.network.named_buffers()), running)
    mixture = [row for table in stage.architecture for row in table.softmax(dim=1)]
    loss = nn.functional.cross_entropy(stage.network(images.double(), mixture), labels)
    expected = torch.autograd.grad(loss, list(stage.architecture))
    assert float(flat(expected).norm()) > 1e-3
    torch.testing.assert_close(flat(handed), flat(expected), rtol=1e-9, atol=1e-12)


# --- who moves what ---------------------------------------------------------------------------------------------------


def tables(stage: Any) -> list[list[list[float]]]:
    return [table.detach().tolist() for table in stage.architecture]


def parameters(stage: Any) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in stage.network.named_parameters()}


def test_only_adam_moves_the_architecture() -> None:
    """With a rate of Adam that moves no number the architecture stays, decay of the weights and all; the weights
    do not."""
    stage = search(arch_learning_rate=1e-30, weight_decay=0.5, arch_weight_decay=0.5)
    before, weight = tables(stage), parameters(stage)
    stage.advance()
    assert tables(stage) == before
    assert not same(parameters(stage), weight)


# --- what is found ----------------------------------------------------------------------------------------------------


def test_starts_nearly_uniform() -> None:
    """A row for each edge of both cell types, normal numbers of deviation 0.001; the weights of an edge sum to one."""
    stage = search()
    assert [tuple(table.shape) for table in stage.architecture] == [(28, 8)]
    assert tables(stage)[0][:14] != tables(stage)[0][14:]
    values = flat(stage.architecture)
    # 224 numbers: the deviation is known to 5 %, the mean to 0.00007; within four of each.
    assert 0.8e-3 < float(values.std()) < 1.2e-3 and abs(float(values.mean())) < 2.8e-4
    assert len(stage._weights_of_operations) == 28
    for row in stage._weights_of_operations:
        torch.testing.assert_close(row.sum(), torch.ones(()))


@pytest.mark.parametrize("edges", ["top2", "all14"])
def test_genotype_is_that_of_the_softmax(edges: Any) -> None:
    """The genotype is read off the softmax: of each edge the best operation, of each node the best two edges."""
    stage = search(space=CellSpace(edges), epochs=1)
    torch.manual_seed(0)
    stage.best = [torch.randn(28, 8)]
    # One edge has large numbers throughout: its softmax is no larger for it.
    stage.best[0][4] = 100 + 0.01 * torch.arange(8)
    found = stage.result()
    for table, form in zip(stage.best[0].split(14), (found.normal, found.reduction), strict=True):
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
        mixture = [row for table in stage.architecture for row in table.softmax(dim=1)]
        with torch.no_grad():
            logits = stage.network(images, mixture)
        assert stage.report.accuracy == float((logits.argmax(dim=1) == labels).double().mean())
        loss = float(nn.functional.cross_entropy(logits, labels))
        kept.append((loss, [table.detach().clone() for table in stage.architecture]))
    lowest = min(range(epochs), key=lambda epoch: kept[epoch][0])
    assert lowest < epochs - 1, "the last epoch is the best: this test could not fail"
    found = stage.run()
    expected = kept[lowest if restore == "best_valid" else -1][1]
    assert all(torch.equal(one, other) for one, other in zip(stage.best, expected, strict=True))
    space = CellSpace()
    derived = [space.derive(list(table.softmax(dim=1).double().numpy())) for _, (table,) in kept]
    assert found == derived[lowest if restore == "best_valid" else -1]
    assert derived[lowest] != derived[-1]


# --- as a stage -------------------------------------------------------------------------------------------------------


def test_passes() -> None:
    """The factory predicts exactly what the stage counts, which is what the network is shown."""
    expected = estimate_passes(DartsOptions(), SCHEDULE.model_copy(update={"epochs": 1}), len(IMAGES))
    assert expected == (2 * 8, 8 + 9)
    stage, seen = search(epochs=1, batch_size=4), list[int]()
    stage.network.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    stage.run()
    assert stage.image_passes == sum(expected) == sum(seen)
