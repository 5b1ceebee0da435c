"""Contract of strategies that never change what earlier tasks are computed by."""

from __future__ import annotations

import torch

from seu_bench.metrics import forgetting
from seu_bench.testing.contract import StrategyContract
from seu_bench.testing.trial import Trial, require


class FrozenGrowthContract(StrategyContract):
    """For strategies that never change what an earlier task is computed by: forgetting is exactly nothing."""

    def test_earlier_outputs_keep_their_bits(self, trial: Trial) -> None:
        """Logits of a learned task are bit-identical after every later task, and so are its accuracies."""
        learner = trial.learner("tiny_three")
        logits: list[torch.Tensor] = []
        for task in range(learner.tasks):
            learner.learn(task)
            logits.append(learner.logits(task))
            for earlier, before in enumerate(logits[:-1]):
                require(
                    torch.equal(learner.logits(earlier), before),
                    f"learning task {task} changed the logits of task {earlier}: freeze what it is computed by, "
                    "batch normalisation's running statistics too",
                )
        rows = learner.matrix.result()
        for task in range(learner.tasks):
            column = [rows[later][task] for later in range(task, learner.tasks)]
            require(len(set(column)) == 1, f"column {task} of the accuracy matrix is {column} from the diagonal on")
        require(forgetting(rows) == 0.0, f"forgetting is {forgetting(rows)}")
