"""The heavy half: imported when a search begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from random_walk import RandomWalkOptions
from seu_bench.training import Forward
from seu_bench_kit import SampledStage, SearchTask, proxy_network


class RandomWalk(SampledStage[Any, Any]):
    """Each epoch tries a neighbour of the best architecture so far, on the weights of a proxy network that all share.

    ``SampledStage`` trains the sample on the first half of the task's training images and measures it on the second.
    """

    def __init__(self, options: RandomWalkOptions, task: SearchTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__(
            "search", task.task, schedule, task.images, task.seed, task.device, options.recalibration_images
        )
        self.options = options
        self.space = task.space
        with self.randomness.active():  # what is drawn here hangs on the seed, too
            self.network = proxy_network(task, schedule)
            self.best = self.space.random_genotype()
        self.accuracy = 0.0
        self.prepare(self.network)

    def sample(self) -> Any:
        """The first epoch tries the start itself."""
        return self.best if self.epoch == 0 else self.neighbour(self.best)

    def forward_of(self, sampled: Any) -> Forward:
        """The proxy network with the operations of the sample."""
        return self.network.sample_function(self.space.sample_of(sampled))

    def learn(self, sampled: Any, accuracy: float, loss: float) -> None:
        """Go there, unless it is worse."""
        if accuracy >= self.accuracy:
            self.best, self.accuracy = sampled, accuracy

    def result(self) -> Any:
        """Current genotype of the walk."""
        return self.best

    def neighbour(self, genotype: Any) -> Any:
        """Mutate it a few times."""
        for _ in range(self.options.mutations):
            genotype = self.space.mutate(genotype)
        return genotype

    def get_extra_state(self) -> dict[str, Any]:
        """Weights and optimiser, which the base holds, and where the walk stands."""
        return {**super().get_extra_state(), "best": self.best.to_dict(), "accuracy": self.accuracy}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what ``get_extra_state`` returned."""
        super().set_extra_state(state)
        self.best = self.space.from_dict(state["best"])
        self.accuracy = state["accuracy"]
