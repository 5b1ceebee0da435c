"""The contract of every strategy, on this one, and what it alone does: pytest test_derpp.py."""

from __future__ import annotations

import torch
from derpp.reservoir import Reservoir

from seu_bench.testing import StrategyContract


class TestDarkReplay(StrategyContract):
    """Every test is inherited."""

    strategy = "derpp"
    options = {"backbone": "mlp", "memory": 20, "batch_size_mem": 8}


def test_reservoir_is_a_uniform_sample() -> None:
    """Of 40 images shown to a memory of 10 each stays with probability 1/4."""
    torch.manual_seed(0)
    kept = torch.zeros(40)
    for _ in range(400):
        memory = Reservoir(10, (1, 1, 1), 2, torch.device("cpu"))
        for first in range(0, 40, 8):
            labels = torch.arange(first, first + 8)
            memory.add(torch.zeros(8, 1, 1, 1), labels, 0, torch.zeros(8, 2))
        assert len(memory.labels.unique()) == len(memory) == 10
        kept[memory.labels] += 1
    # 400 draws with p = 1/4 have a standard deviation of 8.7; the largest of 40 stays within 4.5 of them.
    assert (kept - 100).abs().max() < 39


def test_state_is_a_copy_of_what_is_there() -> None:
    """A memory that is not full has a small state, and another memory continues from it."""
    memory = Reservoir(4, (1, 1, 1), 2, torch.device("cpu"))
    memory.add(torch.ones(3, 1, 1, 1), torch.tensor([0, 1, 1]), 2, torch.ones(3, 2))
    state = memory.state_dict()
    assert [len(state[name]) for name in ("images", "labels", "tasks", "logits")] == [3] * 4
    memory.labels.zero_()
    second = Reservoir(4, (1, 1, 1), 2, torch.device("cpu"))
    second.load_state_dict(state)
    assert (len(second), second.labels.tolist(), second.tasks.tolist()) == (3, [0, 1, 1, 0], [2, 2, 2, 0])


def test_narrower_logits_are_padded() -> None:
    """What an earlier image left in a place is gone."""
    memory = Reservoir(1, (1, 1, 1), 3, torch.device("cpu"))
    memory.add(torch.ones(1, 1, 1, 1), torch.tensor([2]), 0, torch.ones(1, 3))
    memory.seen = 0
    memory.add(torch.ones(1, 1, 1, 1), torch.tensor([1]), 1, torch.full((1, 2), 5.0))
    assert memory.logits.tolist() == [[5.0, 5.0, 0.0]]
    assert memory.draw(4)[2].tolist() == [1]
