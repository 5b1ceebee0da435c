"""Where a run is, for who asks from another process; its time, forecast from the first batches of each stage; its costs
beside those that were forecast."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from rich.progress import Progress

from seu_bench.errors import ResultsError
from seu_bench.results.record import Integer, Measurement
from seu_bench.utils.files import write_atomic
from seu_bench.utils.reading import read_file

if TYPE_CHECKING:
    from seu_bench.engine.resolve import ResolvedRun
    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import Cost, StageCost
    from seu_bench.training.stage import StageProgress

PROGRESS_NAME: Final = "progress.json"
#: Seconds between two writes within a stage; bytes that the file may have.
_INTERVAL, _LARGEST = 1.0, 2**20
#: Share by which a forecast may be wrong.
TOLERANCE: Final = 0.05
#: To measure speed: seconds of each stage, at least one batch; images of a batch, at most; images of noise.
_LIMIT, _BATCH, _IMAGES = 0.5, 32, 64
#: Weights, gradients, momentum and best weights, for whose bytes there has to be room.
_COPIES: Final = 4


class RunProgress(BaseModel):
    """Where a run is: 0-based task, its stage, epochs done and of the stage, and seconds left (``None``: not known)."""

    task: Integer
    stage: str
    epoch: Integer
    epochs: Integer
    remaining: Measurement | None = None


class ProgressFile:
    """Writes where a run is, at once where a stage begins and else once a second. Nothing is computed from it."""

    def __init__(self, folder: Path, record: Record, cost: Cost, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock, self._written = folder / PROGRESS_NAME, clock, 0.0
        self._stage: tuple[int, str] | None = None
        self._passed = sum(stage.image_passes for stage in record.stages)
        self._bars = Progress(disable=True, get_time=clock, speed_estimate_period=3600)
        self._run = self._bars.add_task("run", total=cost.all_passes, completed=self._passed)

    def __call__(self, progress: StageProgress) -> None:
        """Take note of a report, and write it if that is due."""
        passed = self._passed + progress.image_passes
        self._passed = passed if progress.done else self._passed
        self._bars.update(self._run, completed=passed)
        stage = (progress.task, progress.stage)
        if stage != self._stage or self._clock() - self._written >= _INTERVAL:
            self._stage, self._written = stage, self._clock()
            where = {name: getattr(progress, name) for name in ("task", "stage", "epoch", "epochs")}
            # A disk that is full says so when the record is written.
            with contextlib.suppress(ResultsError, ValueError):
                found = RunProgress(**where, remaining=self._bars.tasks[0].time_remaining)
                write_atomic(self._path, found.model_dump_json(), durable=False)


def read_progress(folder: Path) -> RunProgress | None:
    """Read the progress in a run's folder; ``None``: there is none, or it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return RunProgress.model_validate_json(read_file(folder / PROGRESS_NAME, _LARGEST))
    return None


def differences(cost: Cost, stages: Iterable[Any], tolerance: float = TOLERANCE) -> list[str]:
    """List each stage of a task in a record whose image passes or operations are more than was forecast, or less than
    was forecast exactly, by more than a share of it."""
    planned, counted = defaultdict[tuple[int, str], list[Any]](list), defaultdict[tuple[int, str], list[Any]](list)
    for found, each in ((planned, cost.stages), (counted, stages)):
        for stage in each:
            found[stage.task, stage.name].append(stage)
    told = []
    for task, name in sorted({*planned, *counted}):
        plan, made = planned[task, name], counted[task, name]
        exact = [it for it in plan if it.flops is not None and it.flops == it.flops_min]
        kinds = [("image passes", *(sum(it.image_passes for it in each) for each in (made, exact, plan)))]
        took, most = (sum(it.flops or 0 for it in each) for each in (made, plan))
        if took and most:
            kinds.append(("operations", took, sum(it.flops_min or 0 for it in plan), most))
        for kind, value, least, largest in kinds:
            if name != "evaluation" and not least * (1 - tolerance) <= value <= largest * (1 + tolerance):
                wanted = f"{largest:,}" if least == largest else f"{least:,} to {largest:,}"
                told.append(f"stage {name!r} of task {task}: {value:,} {kind}, and {wanted} were forecast")
    return told


@dataclass(frozen=True)
class Speed:
    """How fast this machine computes a strategy: seconds, operations and images of what was computed, by stage."""

    measured: dict[str, tuple[float, int, int]]

    def predict(self, cost: Cost) -> float:
        """Return the seconds that learning a stream will take, at most where its cost is a bound."""
        return sum(self._predict_stage(stage) for stage in cost.stages if stage.name != "evaluation")

    def _predict_stage(self, stage: StageCost) -> float:
        # A stage that the first task does not have is about as fast as all others together.
        own = self.measured.get(stage.name, (0.0, 0, 0))
        found = [own] if any(own[1:]) else list(self.measured.values())
        seconds: float = sum(it[0] for it in found)
        flops, images = (sum(it[place] for it in found) for place in (1, 2))
        if stage.flops and flops:
            return seconds * stage.flops / flops
        return seconds * stage.image_passes / images if images else 0.0


def measure_speed(run: ResolvedRun, cost: Cost, device: str = "cpu") -> Speed | None:
    """Measure the speed of the first batches of each stage of a run's first task, on noise.

    ``None``: the strategy does not learn from noise, passes none of its images in stages, or takes more memory than is
    free, by its cost.
    """
    from seu_bench.training.rehearsal import stand_ins
    from seu_bench.utils.hardware import computing_with, free_host_memory
    from seu_bench.utils.rehearsing import rehearsal_mode
    from seu_bench.utils.seeding import RandomState

    if _COPIES * 4 * cost.params_total[0] > free_host_memory():
        return None
    plan, protocol = run.plan(), run.spec.protocol
    stages = {name: getattr(protocol, name) for name in ("training", "search", "creation")}
    small = {name: it.model_copy(update={"batch_size": min(it.batch_size, _BATCH)}) for name, it in stages.items()}
    context = replace(run.context(plan, device), restores=True, protocol=protocol.model_copy(update=small))
    with RandomState(0).active(), computing_with(run.spec.threads):
        strategy = run.strategy.build(context)
        streams = stand_ins(plan, _IMAGES).avalanche().streams
        experience = streams["train"] if getattr(strategy, "whole_stream", False) else streams["train"][0]
        with rehearsal_mode(lambda: getattr(strategy, "memory_sizes", None)) as rehearsal:
            rehearsal.limit = _LIMIT
            with contextlib.suppress(Exception):  # what was computed before counts
                strategy.train(experience, eval_streams=[streams["valid"][:1]])
    measured: dict[str, tuple[float, int, int]] = {}
    for stage, took, (passed, operations) in rehearsal.turns:
        seconds, flops, images = measured.get(stage, (0.0, 0, 0))
        measured[stage] = seconds + took, flops + operations, images + passed
    return Speed(measured) if any(images for _, _, images in measured.values()) else None
