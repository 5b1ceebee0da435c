"""Q-learning as both budgets use it: decide, learn from an accuracy, choose in the end."""

from __future__ import annotations

from collections.abc import Sequence

from seu_bench.config import SearchSchedule
from seu_bench.search_space import Genotype
from seu_bench.training import SearchTask
from seu_bench_blockwise import BlockwiseOptions
from seu_bench_blockwise.decisions import decision_sizes, decoded
from seu_bench_blockwise.qlearning import EpsilonSchedule, QLearner
from seu_bench_blockwise.reward import reward


class Agent:
    """The learner of one search."""

    def __init__(self, options: BlockwiseOptions, task: SearchTask, schedule: SearchSchedule) -> None:
        self.options = options
        self.task = task
        self.schedule = schedule
        self.epsilon = EpsilonSchedule(options.epsilon_first, options.epsilon_last, options.explore)
        self.learner = QLearner(
            decision_sizes(task.space),
            rate=options.q_learning_rate,
            discount=options.discount,
            initial=options.initial_value,
        )

    def decide(self, progress: float) -> tuple[int, ...]:
        """An architecture to try after the share ``progress`` of the search."""
        return self.learner.decide(self.epsilon.at(progress))

    def genotype(self, decisions: Sequence[int]) -> Genotype:
        """What decisions stand for."""
        return decoded(self.task.space, decisions)

    def learn(self, decisions: Sequence[int], accuracy: float) -> None:
        """Learn from the accuracy that an architecture reached, and from remembered ones."""
        value = reward(self.options, self.task, self.schedule, self.genotype(decisions), accuracy)
        self.learner.remember(decisions, value, self.options.replay)

    def result(self) -> Genotype:
        """The architecture of the best reward, or the one that the Q-values lead to."""
        greedy = self.options.choose == "greedy"
        return self.genotype(self.learner.decide(0.0) if greedy else self.learner.best)
