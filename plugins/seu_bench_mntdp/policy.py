"""The distribution over paths that MNTDP-S learns: one softmax per place, by REINFORCE with a mean baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class PathPolicy:
    """Draws for each place, independently of the others, one of its options, and learns from rewards.

    The loss of a draw is ``-(reward - baseline) * sum over places of log p(its option)`` (R. J. Williams, "Simple
    Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning", Machine Learning 8, 1992);
    the baseline is the mean of the rewards before it, so that the first reward teaches nothing. Logits begin at 0.

    Args:
        options: number of options of each place, 1 or more.
        learning_rate: of Adam on the logits.
    """

    def __init__(self, options: Sequence[int], learning_rate: float) -> None:
        self.logits = [torch.zeros(count, requires_grad=True) for count in options]
        self.optimizer = torch.optim.Adam(self.logits, lr=learning_rate)
        self.rewards = 0
        self.baseline = 0.0

    def draw(self) -> list[int]:
        """One option of each place, by torch's global generator."""
        return [int(torch.multinomial(probabilities, 1)) for probabilities in self.probabilities]

    def learn(self, drawn: Sequence[int], reward: float) -> None:
        """A step by the reward of what was drawn."""
        advantage = reward - self.baseline if self.rewards else 0.0
        with torch.enable_grad(), torch.autocast("cpu", enabled=False):
            chosen = [torch.log_softmax(logits, 0)[at] for logits, at in zip(self.logits, drawn, strict=True)]
            loss = -advantage * torch.stack(chosen).sum()
            self.optimizer.zero_grad()
            loss.backward()
        self.optimizer.step()
        self.rewards += 1
        self.baseline += (reward - self.baseline) / self.rewards

    @property
    def probabilities(self) -> list[Tensor]:
        """Of the options of each place."""
        return [torch.softmax(logits.detach(), 0) for logits in self.logits]

    def most_probable(self) -> list[int]:
        """The most probable option of each place; of equal ones the first."""
        return [max(range(len(shares)), key=lambda at: (float(shares[at]), -at)) for shares in self.probabilities]

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        return {
            "logits": [logits.detach().clone() for logits in self.logits],
            "optimizer": self.optimizer.state_dict(),
            "rewards": self.rewards,
            "baseline": self.baseline,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        with torch.no_grad():
            for logits, saved in zip(self.logits, state["logits"], strict=True):
                logits.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.rewards, self.baseline = state["rewards"], state["baseline"]
