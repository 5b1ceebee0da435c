"""The controller: draws the numbers of units that layers get, and learns from the reward (Xu & Zhu 2018).

Its sizes, learning rules and first weights are those of the published code, but for the LSTM's first weights, which are
torch's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from seu_bench.training.state import get_state, set_state

#: Numbers that each of the two layers of the LSTM computes.
HIDDEN: Final = 100


def policy_loss(log_probabilities: Tensor, units: Sequence[int], advantage: float) -> Tensor:
    """The loss whose gradient is REINFORCE's, for one trial.

    Args:
        log_probabilities: ``[layers, choices]``.
        units: what was drawn for each layer.
        advantage: reward above the baseline.
    """
    drawn = torch.tensor(units, dtype=torch.long, device=log_probabilities.device)
    return -advantage * log_probabilities.gather(1, drawn[:, None]).sum()


class Policy(nn.Module):
    """An LSTM of two layers that goes through the network's layers one by one.

    It is given the state first, then the probabilities of the layer before: not what was drawn from them, so that the
    layers are drawn independently of each other.

    Args:
        layers: to decide about.
        choices: numbers of units to choose from, 0 to ``choices - 1``.
    """

    def __init__(self, layers: int, choices: int) -> None:
        super().__init__()
        self.layers = layers
        # Cells, not nn.LSTM: a device computes that one by kernels of its own, whose operations cannot be counted.
        self.cells = nn.ModuleList([nn.LSTMCell(choices, HIDDEN), nn.LSTMCell(HIDDEN, HIDDEN)])
        self.output = nn.Linear(HIDDEN, choices)
        # At first all choices are nearly as likely.
        nn.init.normal_(self.output.weight, std=0.01)
        nn.init.zeros_(self.output.bias)

    def forward(self, state: Tensor) -> Tensor:
        """Logarithms of probabilities ``[layers, choices]``, for a state ``[choices]``."""
        given = state[None]
        memory: list[Any] = [None] * len(self.cells)
        found = []
        for _ in range(self.layers):
            hidden = given
            for index, cell in enumerate(self.cells):
                memory[index] = cell(hidden, memory[index])
                hidden = memory[index][0]
            found.append(torch.log_softmax(self.output(hidden), dim=1))
            given = found[-1].exp()
        return torch.cat(found)


class Controller:
    """A policy, and the baseline of its reward: a linear function of the state, which stays the same for a task.

    It is computed on the CPU, so that what is drawn does not depend on the device.

    Args:
        layers: to decide about.
        choices: numbers of units to choose from, 0 to ``choices - 1``.
        learning_rate: Adam's, of the policy.
        baseline_learning_rate: Adam's, of the baseline.

    Attributes:
        state: ``[choices]``, drawn from U[0, 1).
    """

    def __init__(
        self, layers: int, choices: int, learning_rate: float = 1e-3, baseline_learning_rate: float = 5e-3
    ) -> None:
        self.state = torch.rand(choices)
        self.policy = Policy(layers, choices)
        self.baseline = nn.Linear(choices, 1)
        nn.init.zeros_(self.baseline.weight)
        nn.init.zeros_(self.baseline.bias)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=learning_rate)
        self.baseline_optimizer = torch.optim.Adam(self.baseline.parameters(), lr=baseline_learning_rate)

    def draw(self) -> tuple[int, ...]:
        """Units for each layer, by torch's global generator."""
        with torch.no_grad(), _in_float32():
            probabilities = self.policy(self.state).exp()
        return tuple(torch.multinomial(probabilities, 1).flatten().tolist())

    def learn(self, units: Sequence[int], reward: float) -> float:
        """A step of the baseline towards the reward, and one of the policy."""
        with torch.enable_grad(), _in_float32():
            expected = self.baseline(self.state[None]).squeeze()
            advantage = reward - float(expected.detach())
            _step(self.baseline_optimizer, (expected - reward).square())
            _step(self.optimizer, policy_loss(self.policy(self.state), units, advantage))
        return advantage

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        return {name: get_state(value) for name, value in vars(self).items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name in vars(self):
            set_state(self, name, state[name])


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _in_float32() -> torch.autocast:
    """Whatever the run's precision: it is no part of what is learned."""
    return torch.autocast("cpu", enabled=False)
