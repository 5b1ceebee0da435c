"""Training once on the whole stream."""

from __future__ import annotations

from typing import Any

from seu_bench.results import REFERENCE_ROWS
from seu_bench_methods.cumulative import Cumulative


class Joint(Cumulative):
    """Trains once on the whole stream: the upper reference, no continual (lifelong) learner."""

    name = "joint"
    title = "joint training"
    reference = REFERENCE_ROWS["joint"]
    whole_stream = True

    def train(self, experiences: Any, eval_streams: Any = None, **kwargs: Any) -> Any:
        """Learn the last task, with the images of all tasks."""
        *earlier, last = experiences
        self.clock.train_exp_counter = len(earlier)
        return super().train(last, eval_streams, **kwargs)
