"""WSN (H. Kang et al., "Forget-free Continual Learning with Winning Subnetworks", ICML 2022)."""

from __future__ import annotations

from torch import nn

from seu_bench.training import TaskData
from seu_bench.utils.seeding import RandomState
from seu_bench_methods.masked import ScoredMethod, ScoreOptions, draw_scores


class Wsn(ScoredMethod):
    """Winning subnetworks: a task trains weights and their scores, and keeps the weights that score best (Kang et al.
    2022).

    Masks may share weights. Those in the mask of an earlier task are used and never changed, so nothing is forgotten;
    scores go on from task to task.
    """

    name = "wsn"
    title = "WSN"
    citation = "seu_bench_kit:kang2022forget"

    class Options(ScoreOptions):
        """Options of winning subnetworks."""

    def setup(self) -> None:
        """Draw the scores, which all tasks train."""
        super().setup()
        with RandomState(self.seed_for("scores", 0), self.device).active():
            self.scores = draw_scores(self.model.weights()).to(self.device)

    def scores_of(self, task: TaskData) -> nn.ParameterList:
        """Those that the task before left."""
        return self.scores
