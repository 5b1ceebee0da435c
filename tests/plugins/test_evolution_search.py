"""Evolution: the predictor, who has mutants, who dies, and what is found of noisy scores."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.components import search_task
from support.tiny import all_threads, one_thread

from seu_bench_evolution import EvolutionOptions
from seu_bench_evolution.searcher import PENALTY, EvolutionSearch, predict
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.dense import DenseSpace
from seu_bench_kit.mbconv import MBConvSpace
from seu_bench_kit.search_space import SearchSpace

setup_module, teardown_module = one_thread, all_threads


def search(space: SearchSpace, epochs: int = 30, seed: int = 0, **options: Any) -> EvolutionSearch:
    return EvolutionSearch(EvolutionOptions(epochs=epochs, **options), search_task(seed, space))


def play(stage: EvolutionSearch, reward: Callable[[list[int]], float]) -> Any:
    """The search without networks: what is sampled is scored by a function of its decisions."""
    with stage.randomness.active():
        for _ in range(stage.epochs):
            sampled = stage.sample()
            stage.learn(sampled, reward(sampled), 0.0)
        return stage.result()


def test_predictor_is_ridge_regression() -> None:
    """Least squares with a row for each penalised weight, and an intercept that is not penalised."""
    generator, sizes = np.random.default_rng(0), (2, 3, 1, 4)
    tried, asked = (generator.integers(0, sizes, (count, 4)) for count in (9, 5))
    scores = generator.normal(size=9)

    def rows(decisions: Any) -> Any:
        """An intercept, and a column for each option."""
        hot = [decisions[:, [place]] == np.arange(size) for place, size in enumerate(sizes)]
        return np.hstack([np.ones((len(decisions), 1)), *hot])

    penalised = np.sqrt(PENALTY) * np.eye(11)[1:]
    weights = np.linalg.lstsq(np.vstack([rows(tried), penalised]), np.append(scores, np.zeros(10)), rcond=None)[0]
    found = predict(sizes, tried.tolist(), scores.tolist(), asked.tolist())
    np.testing.assert_allclose(found, rows(asked) @ weights, rtol=1e-10)


@pytest.mark.parametrize("population", [1, 4])
def test_oldest_dies(population: int) -> None:
    """After a population at random, each is a mutant of the best among the newest, however good older ones were."""
    stage = search(MBConvSpace(), population=population, tournament=200, mutants=1)
    play(stage, lambda _: 1.0 - len(stage.tried) / 100)  # the older, the better
    distances = [sum(map(int.__ne__, *pair)) for pair in zip(stage.tried[population:], stage.tried, strict=False)]
    assert distances == [1] * 26 if population == 4 else [1] * 29


def test_predictor_chooses_among_mutants() -> None:
    """Of many mutants the one is tried that has the option that scored; of one mutant there is no choice."""
    for mutants, all_have in ((200, True), (1, False)):
        stage = search(DenseSpace(), epochs=2, mutants=mutants)
        stage.tried, stage.scores = [[0, 0], [0, 1], [0, 2], [1, 0], [2, 0]] * 2, [0.1, 0.1, 0.9, 0.1, 0.1] * 2
        with stage.randomness.active():
            seen = [stage.sample() for _ in range(30)]
        assert all(decisions[1] == 2 for decisions in seen) == all_have


def test_result_is_not_the_luckiest() -> None:
    """A high score that others of the same decisions do not confirm is not the result."""
    stage = search(DenseSpace())
    stage.tried = [[0, 0]] * 6 + [[1, 1]] * 6
    stage.scores = [0.9, 0.1, 0.1, 0.1, 0.1, 0.1] + [0.6] * 6
    assert stage.result() == stage.space.decode([1, 1])


@pytest.mark.parametrize("space", [pytest.param(CellSpace(), marks=pytest.mark.long), MBConvSpace()])
def test_finds_better_ones_than_random_draws(space: SearchSpace) -> None:
    """Of a reward with noise, by as many architectures: what evolution results in is worth more than the random one of
    the highest score, on average over rewards, and for nearly all of them."""
    gains = []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        worth = [generator.normal(size=size) for size in space.decisions]
        noise = np.sqrt(len(worth))  # as large as the rewards' deviation

        def value(decisions: Any, worth: Any = worth) -> float:
            return sum(float(row[choice]) for row, choice in zip(worth, decisions, strict=True))

        found = play(search(space, 60, seed), lambda it: value(it) + noise * generator.normal())  # noqa: B023
        below = random.Random(seed).randrange
        drawn = [value(space.encode(space.random_genotype(below))) for _ in range(60)]
        luckiest = int(np.argmax([it + noise * generator.normal() for it in drawn]))
        gains.append((value(space.encode(found)) - drawn[luckiest]) / noise)
    assert np.mean(gains) > 0.3 and sum(gain > 0 for gain in gains) >= 6
