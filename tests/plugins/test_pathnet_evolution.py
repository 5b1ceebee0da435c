"""PathNet's tournament against fitnesses made by hand: who wins, what mutates and how often, how epochs are divided."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
import torch
from scipy.stats import binom

from seu_bench_pathnet.network import Path, Tournament, Turn, distinct, drawn_path, mutated, turns

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


def test_the_winner_overwrites_the_other() -> None:
    """After a generation the champion's path is as it was, and the other is at most two steps from it at each index."""
    best: Path = ((1, 6, 2), (3, 0, 4))
    for (paths, champion, _), (following, _, _) in pairwise(evolved(0, 200, best)):
        assert following[champion] == paths[champion]
        child, parent = (torch.tensor(each) for each in (following[1 - champion], paths[champion]))
        assert set(((child - parent) % 8).flatten().tolist()) <= {0, 1, 2, 6, 7}


def test_the_seed_decides() -> None:
    """Equal seeds evolve equal paths, others do not."""
    best: Path = ((1, 6), (3, 0))
    assert evolved(3, 20, best) == evolved(3, 20, best)
    assert evolved(3, 20, best) != evolved(4, 20, best)


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


def test_a_mutation_goes_around() -> None:
    """From the first module to the last and back."""
    torch.manual_seed(0)
    seen = {mutated(((0,),), 16)[0][0] for _ in range(200)}
    assert seen == {14, 15, 0, 1, 2}
    assert {mutated(((1,),), 3)[0][0] for _ in range(200)} == {0, 1, 2}


def test_first_paths() -> None:
    """Different modules in each layer, all equally likely."""
    torch.manual_seed(0)
    paths = [drawn_path(2, 6, 3) for _ in range(2000)]
    assert all(len(set(layer)) == 3 for path in paths for layer in path)
    for layer in (0, 1):
        counts = [sum(module in path[layer] for path in paths) for module in range(6)]
        assert sum(counts) == 6000 and all(within(count, 2000, 1 / 2) for count in counts), counts


def test_offers() -> None:
    """The lowest wins, of equal ones the first, and what is no number never does."""
    tournament = Tournament((((0,),), ((1,),)))
    assert not tournament.offer(1, math.nan) and (tournament.champion, tournament.loss) == (0, math.inf)
    assert tournament.offer(1, 0.5) and not tournament.offer(0, 0.5) and not tournament.offer(0, math.inf)
    assert (tournament.champion, tournament.loss) == (1, 0.5)
    assert tournament.offer(0, 0.25) and tournament.champion == 0
    tournament.forget()
    assert tournament.champion == 0 and tournament.offer(1, 0.75) and tournament.champion == 1


def test_state() -> None:
    """Plain values that a file can hold, from which another goes on."""
    torch.manual_seed(0)
    tournament, other = Tournament.drawn(2, 5, 3), Tournament.drawn(2, 5, 3)
    tournament.offer(1, 0.5)
    other.load_state_dict(json.loads(json.dumps(tournament.state_dict())))
    assert vars(other) == vars(tournament)


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


def test_distinct() -> None:
    assert distinct(((3, 1, 3), (2, 2, 2), (0, 2, 1))) == ((1, 3), (2,), (0, 1, 2))
