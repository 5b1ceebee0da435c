"""The two budgets: an epoch on weights that all architectures share, or a training of its own for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from seu_bench.training import EpochReport, Forward, Stage, evaluate, set_rate
from seu_bench.utils import RandomState
from seu_bench_blockwise import BlockwiseOptions
from seu_bench_blockwise.learning import Agent
from seu_bench_kit import (
    Genotype,
    SampledStage,
    SearchTask,
    genotype_network,
    proxy_network,
    recalibrate,
    sample_of,
    train_epoch,
)


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


#: The learning rate is multiplied by this after every so many epochs.
DECAY, EVERY = 0.2, 5


class ScratchSearch(Stage[Genotype]):
    """The search of one task. An epoch of the stage is one of the present architecture's training."""

    def __init__(self, options: BlockwiseOptions, task: SearchTask) -> None:
        self.schedule = options.applied_to(task.schedule)
        self.options = options
        self.search_task = task
        samples = options.samples or self.schedule.epochs
        super().__init__("search", task.task, samples * options.scratch_epochs, task.seed, task.device)
        self.train_images, self.score_images = task.images.halves()
        self.agent = Agent(options, task, self.schedule)
        self.decisions: tuple[int, ...] = ()

    def run_epoch(self) -> EpochReport:
        """Train the present architecture; after its last epoch measure it and learn."""
        place = self.epoch % self.options.scratch_epochs
        if place == 0:
            self._begin(self.agent.decide(self.epoch / self.epochs))
        set_rate(self.optimizer, self.options.scratch_learning_rate * DECAY ** (place // EVERY))
        self.network.train()
        loss = train_epoch(
            self.network,
            list(self.network.parameters()),
            self.optimizer,
            self.train_images,
            self.schedule,
            self.count_images,
        )
        if place < self.options.scratch_epochs - 1:
            return EpochReport(loss)
        self.network.eval()
        limit, batch_size = self.options.recalibration_images, self.schedule.batch_size
        recalibrate(self.network, self.network, self.train_images, limit, batch_size, self.count_images)
        accuracy, _ = evaluate(self.network, self.score_images, batch_size, self.count_images)
        self.rewarded(accuracy, self.score_images)
        self.agent.learn(self.decisions, accuracy)
        return EpochReport(loss, accuracy)

    def result(self) -> Genotype:
        """The architecture chosen."""
        return self.agent.result()

    def get_extra_state(self) -> dict[str, Any]:
        """Q-values, and the architecture in training with its weights and optimiser."""
        state: dict[str, Any] = {"agent": self.agent.learner.state_dict(), "decisions": list(self.decisions)}
        if self.decisions:
            state |= {"weights": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        return state

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.agent.learner.load_state_dict(state["agent"])
        if state["decisions"]:
            with RandomState(0, self.device).active():  # what is drawn is overwritten at once
                self._begin(tuple(state["decisions"]))
            self.network.load_state_dict(state["weights"])
            self.optimizer.load_state_dict(state["optimizer"])

    def _begin(self, decisions: tuple[int, ...]) -> None:
        self.decisions = decisions
        self.network = genotype_network(self.search_task, self.schedule, self.agent.genotype(decisions))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.options.scratch_learning_rate)
