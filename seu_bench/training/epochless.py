"""Stage without epochs: only its result counts."""

from __future__ import annotations

import torch

from seu_bench.training.stage import EpochReport, Result, Stage


class EpochlessStage(Stage[Result]):
    """Base class of stages that compute nothing but their result, from the stage's own random state.

    Args:
        name: ``search``, ``creation``, ...
        task: 0-based index of the task.
        seed: seed of all randomness in the stage.
        device: device to compute on.
    """

    def __init__(self, name: str, task: int, seed: int, device: torch.device) -> None:
        super().__init__(name, task, 0, seed, device)

    def run_epoch(self) -> EpochReport:
        """Never called: there are no epochs."""
        return EpochReport()
