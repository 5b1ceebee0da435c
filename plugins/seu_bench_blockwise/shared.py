"""The budget ``shared``: each epoch tries one architecture on the weights of a proxy network that all share, at the
cost of the MDL searcher."""

from __future__ import annotations

from seu_bench.training import Forward
from seu_bench_blockwise import BlockwiseOptions
from seu_bench_blockwise.agent import Agent
from seu_bench_kit import Genotype, SampledStage, SearchTask, proxy_network, sample_of


class SharedSearch(SampledStage[tuple[int, ...], Genotype]):
    """The search of one task: fresh proxy network, fresh Q-values."""

    state_attributes = (*SampledStage.state_attributes, "learner")

    def __init__(self, options: BlockwiseOptions, task: SearchTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__(
            "search", task.task, schedule, task.images, task.seed, task.device, options.recalibration_images
        )
        self.agent = Agent(options, task, schedule)
        self.learner = self.agent.learner
        with self.randomness.active():
            self.network = proxy_network(task, schedule)
        self.prepare(self.network)

    def sample(self) -> tuple[int, ...]:
        """Decisions by the Q-values, or at random."""
        return self.agent.decide(self.epoch / self.epochs)

    def forward_of(self, sampled: tuple[int, ...]) -> Forward:
        """The proxy network with the edges of the architecture; the others carry nothing."""
        return self.network.sampled(sample_of(self.agent.genotype(sampled)))

    def set_mode(self, training: bool) -> None:
        """Switch the proxy network."""
        self.network.train(training)

    def learn(self, sampled: tuple[int, ...], accuracy: float, loss: float) -> None:
        """The Q-values learn from the reward."""
        self.agent.learn(sampled, accuracy)

    def result(self) -> Genotype:
        """The architecture chosen."""
        return self.agent.result()
