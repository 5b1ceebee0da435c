"""A watcher that stops a run."""

from __future__ import annotations

from seu_bench import hookimpl
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption
from seu_bench.training.stage import StageProgress


class Stopping:
    """Stops a run when a stage of a task has had an epoch; ``seen`` are the tasks that learned."""

    def __init__(self, task: int) -> None:
        self.task, self.stop, self.seen = task, StopRequest(), set[int]()

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        if progress.stage != "evaluation":
            self.seen.add(progress.task)
            if progress.task == self.task and progress.epoch == 1:
                self.stop.ask(Interruption("stopped by the test", 143))
