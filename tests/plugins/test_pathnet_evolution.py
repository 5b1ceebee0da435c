"""PathNet's tournament against fitnesses made by hand: who wins, what mutates and how often, how epochs are divided."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from scipy.stats import binom

from seu_bench_pathnet.network import Path, Tournament, Turn, mutated, turns

#: Probability that a count lies outside the bounds of a test.
RARE = 1e-6


def within(count: int, trials: int, probability: float) -> bool:
    """Whether a binomial count is no rare one."""
    return bool(binom.ppf(RARE, trials, probability) <= count <= binom.isf(RARE, trials, probability))


def loss_of(path: Path, best: Path, modules: int) -> int:
    """Steps around the circle of modules from a path to the best one, index by index."""
    pairs = [(a, b) for layer, other in zip(path, best, strict=True) for a, b in zip(layer, other, strict=True)]
    return sum(min((a - b) % modules, (b - a) % modules) for a, b in pairs)


def evolved(seed: int, generations: int, best: Path, modules: int = 8) -> list[tuple[list[Path], int, float]]:
    """Paths, champion and its loss as of each generation of a tournament whose fitness is known."""
    torch.manual_seed(seed)
    tournament = Tournament.drawn(len(best), modules, len(best[0]))
    history = []
    for _ in range(generations):
        for contender in (0, 1):
            tournament.offer(contender, loss_of(tournament.paths[contender], best, modules))
        history.append((list(tournament.paths), tournament.champion, tournament.loss))
        tournament.breed(modules)
    return history


@pytest.mark.parametrize("seed", range(6))
def test_finds_the_known_best_path(seed: int) -> None:
    """Losses never rise, the champion is the path that has them, and in the end it is the best path there is."""
    best: Path = ((1, 6), (3, 0), (5, 5))
    history = evolved(seed, 600, best)
    assert history[-1][2] == 0 and history[-1][0][history[-1][1]] == best
    for (_, _, before), (paths, champion, loss) in pairwise(history):
        assert loss <= before
        assert loss == loss_of(paths[champion], best, 8)
        assert loss == min(before, *(loss_of(path, best, 8) for path in paths))


def test_mutation_statistics() -> None:
    """Of 15 indices each is drawn with probability 1/15 and then moved by each of five steps with 1/5."""
    path: Path = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11), (12, 13, 15))
    torch.manual_seed(0)
    copies = 4000
    children = torch.tensor([mutated(path, 16) for _ in range(copies)])
    moves = (children - torch.tensor(path) + 8) % 16 - 8
    found = {step: int((moves == step).sum()) for step in (-2, -1, 1, 2)}
    assert sum(found.values()) + int((moves == 0).sum()) == copies * 15
    assert all(within(count, copies * 15, 1 / 75) for count in found.values()), found
    changed = (moves != 0).flatten(1)
    assert all(within(int(column.sum()), copies, 4 / 75) for column in changed.T)
    # Independently of each other: none moves in (71/75)^15 of all paths.
    assert within(int((~changed.any(dim=1)).sum()), copies, (71 / 75) ** 15)


def test_offers() -> None:
    """The lowest wins, of equal ones the first, and what is no number never does."""
    tournament = Tournament((((0,),), ((1,),)))
    assert not tournament.offer(1, math.nan) and (tournament.champion, tournament.loss) == (0, math.inf)
    assert tournament.offer(1, 0.5) and not tournament.offer(0, 0.5) and not tournament.offer(0, math.inf)
    assert (tournament.champion, tournament.loss) == (1, 0.5)
    assert tournament.offer(0, 0.25) and tournament.champion == 0
    tournament.forget()
    assert tournament.champion == 0 and tournament.offer(1, 0.75) and tournament.champion == 1


@pytest.mark.parametrize(("epochs", "generations"), [(1, 20), (8, 20), (20, 20), (50, 20), (8, 3), (7, 1), (200, 20)])
def test_epochs_are_divided(epochs: int, generations: int) -> None:
    """Each path is trained for all epochs, in generations that differ by one epoch at most, one after the other."""
    found = turns(epochs, generations)
    assert len(found) == 2 * epochs
    for contender in (0, 1):
        own = [turn for turn in found if turn.contender == contender]
        assert [turn.epoch for turn in own] == list(range(epochs))
        starts = [turn.epoch for turn in own if turn.begins]
        ends = [turn.epoch for turn in own if turn.ends]
        assert len(starts) == len(ends) == min(epochs, generations)
        lengths = {end + 1 - start for start, end in zip(starts, ends, strict=True)}
        assert max(lengths) - min(lengths) <= 1
    assert [turn.contender for turn in found if turn.begins] == [0, 1] * min(epochs, generations)
    assert all(before.ends == after.begins for before, after in pairwise(found))


def test_turns_by_hand() -> None:
    assert turns(3, 2) == (
        Turn(0, 0, begins=True, ends=True),
        Turn(1, 0, begins=True, ends=True),
        Turn(0, 1, begins=True, ends=False),
        Turn(0, 2, begins=False, ends=True),
        Turn(1, 1, begins=True, ends=False),
        Turn(1, 2, begins=False, ends=True),
    )
