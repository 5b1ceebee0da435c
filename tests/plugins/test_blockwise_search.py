"""The searches of both budgets: images passed, states and results."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from support.plugins.blockwise import IMAGES, SCHEDULE, search_task
from support.tiny import all_threads, one_thread, registry, same
from torch import Tensor, nn

from seu_bench.training.loops import cosine_rate
from seu_bench_blockwise import BlockwiseOptions, build_search, estimate_passes
from seu_bench_blockwise.qlearning import EpsilonSchedule
from seu_bench_blockwise.scratch import ScratchSearch
from seu_bench_blockwise.shared import SharedSearch
from seu_bench_kit.search_space import EDGES, OPERATIONS, SearchSpace
from seu_bench_seu.options import SearchOptions
from seu_bench_seu.searcher import MdlSearch

pytestmark = pytest.mark.long

setup_module, teardown_module = one_thread, all_threads


def shared(seed: int = 3, space: SearchSpace | None = None, **options: Any) -> SharedSearch:
    stage = build_search(BlockwiseOptions(**options), search_task(seed, space))
    assert isinstance(stage, SharedSearch)
    return stage


def scratch(seed: int = 3, space: SearchSpace | None = None, **options: Any) -> ScratchSearch:
    given = {"budget": "scratch", "samples": 3, "scratch_epochs": 2, **options}
    stage = build_search(BlockwiseOptions(**given), search_task(seed, space))
    assert isinstance(stage, ScratchSearch)
    return stage


# --- the budget of shared weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [None, 2])
def test_shared_costs_what_mdl_costs(epochs: int | None) -> None:
    """The passes are exactly the factory's, and those of the paper's searcher with as many epochs: 8 images train, and
    recalibrate; 9 are scored."""
    count = len(IMAGES)
    assert count == 17
    options = BlockwiseOptions(epochs=epochs)
    predicted = estimate_passes(options, SCHEDULE, count)
    assert predicted == ((epochs or 3) * 8, (epochs or 3) * (8 + 9))
    assert predicted == registry().searchers.find("mdl").factory.estimate_passes(
        SearchOptions(epochs=epochs), SCHEDULE, count
    )
    stages: list[Any] = [shared(epochs=epochs), MdlSearch(SearchOptions(epochs=epochs), search_task())]
    for stage in stages:
        stage.run()
        assert stage.image_passes == sum(predicted)


def test_shared_trains_what_was_decided() -> None:
    """An epoch trains the operations of its architecture alone, on one network; its accuracy is remembered."""
    stage = shared(weight_decay=0.0)
    network = stage.network
    for epoch in range(2):
        before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
        stage.advance()
        decisions, value = stage.agent.learner.memory[epoch]
        assert len(stage.agent.learner.memory) == epoch + 1 and value == stage.report.accuracy
        found = stage.agent.genotype(decisions)
        moved = {n for n, parameter in network.named_parameters() if not torch.equal(parameter, before[n])}
        assert any(".edges." in name for name in moved)
        for name in moved:
            if ".edges." in name:
                _, cell, _, row, index, *_ = name.split(".")
                form = found.reduction if network.cells[int(cell)].plan.reduction else found.normal
                assert (*EDGES[int(row)], OPERATIONS[int(index)]) in {tuple(edge) for edge in form}
        # The accuracy is that of the same architecture on the second half.
        network.eval()
        images, labels = stage.score_images.gather(torch.arange(9))
        with torch.no_grad():
            right = stage.forward_of(decisions)(images).argmax(dim=1) == labels
        assert value == float(right.double().mean())
    assert stage.network is network


def test_shared_follows_the_cosine_and_epsilon() -> None:
    """The weights' rate is the schedule's; decisions are random at first and the Q-values' in the end."""
    stage = shared(epsilon_first=1.0, epsilon_last=0.0, explore=0.5, epochs=4, replay=0)
    rates, asked = [], []
    decide = stage.agent.learner.decide

    def watched(epsilon: float) -> tuple[int, ...]:
        asked.append(epsilon)
        return decide(epsilon)

    stage.agent.learner.decide = watched  # type: ignore[method-assign]
    while stage.epoch < stage.epochs:
        stage.advance()
        rates.append(stage.optimizer.param_groups[0]["lr"])
    assert rates == [cosine_rate(stage.schedule, epoch) for epoch in range(4)]
    # At a half the first of nine steps down, at three quarters the fifth.
    assert asked == pytest.approx([1, 1, 8 / 9, 4 / 9])
    stage.agent.epsilon = EpsilonSchedule(1.0, 0.0, 0.0)
    random.seed(0)
    found = stage.agent.decide(0.99)
    random.seed(0)
    assert found == decide(0.0)


# --- the budget of trainings from scratch -----------------------------------------------------------------------------


def test_scratch_trains_a_fresh_network_for_each() -> None:
    """Each architecture begins with weights and an Adam of its own and trains so many epochs; after the last it is
    measured. The rate is a fifth after five epochs, and starts again."""
    stage = scratch(samples=2, scratch_epochs=7)
    assert stage.epochs == 14
    networks: list[nn.Module] = []
    rates, reports = [], []
    for epoch in range(14):
        stage.advance()
        if epoch % 7 == 0:
            networks.append(stage.network)
        assert stage.network is networks[-1]
        optimizer = stage.optimizer
        assert isinstance(optimizer, torch.optim.Adam)
        rates.append(optimizer.param_groups[0]["lr"])
        reports.append(stage.report)
        # One batch of eight images per epoch, counted anew for each architecture.
        assert {int(state["step"]) for state in optimizer.state.values()} == {epoch % 7 + 1}
        assert len(stage.agent.learner.memory) == (epoch + 1) // 7
    assert networks[0] is not networks[1]
    assert rates == pytest.approx([1e-3] * 5 + [2e-4] * 2 + [1e-3] * 5 + [2e-4] * 2, rel=1e-12)
    assert [report.accuracy is not None for report in reports] == [epoch % 7 == 6 for epoch in range(14)]
    assert [value for _, value in stage.agent.learner.memory] == [reports[6].accuracy, reports[13].accuracy]
    assert all(report.loss is not None for report in reports)
    images, labels = stage.score_images.gather(torch.arange(9))
    with torch.no_grad():
        right = stage.network.eval()(images).argmax(dim=1) == labels
    assert reports[13].accuracy == float(right.double().mean())


@pytest.mark.parametrize(("samples", "epochs", "expected"), [(2, None, 2), (None, None, 3), (None, 1, 1), (2, 1, 2)])
def test_scratch_passes(samples: int | None, epochs: int | None, expected: int) -> None:
    """As many architectures as asked for, or as the schedule has epochs; the second half is scored once for each,
    after a batch of seven of the first that recalibrates."""
    options = BlockwiseOptions(budget="scratch", samples=samples, epochs=epochs, scratch_epochs=2, batch_size=7)
    train, evaluate = estimate_passes(options, SCHEDULE, len(IMAGES))
    assert (train, evaluate) == (expected * 2 * 8, expected * (7 + 9))
    stage = scratch(samples=samples, epochs=epochs, batch_size=7)
    stage.run()
    assert stage.epochs == 2 * expected and len(stage.agent.learner.memory) == expected
    assert stage.image_passes == train + evaluate


# --- as stages --------------------------------------------------------------------------------------------------------


def equal(one: tuple[Any, dict[str, Tensor]], other: tuple[Any, dict[str, Tensor]]) -> bool:
    return bool(one[0] == other[0]) and same(one[1], other[1])
