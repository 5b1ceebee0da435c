"""A run's time, forecast from the first batches of each stage; its costs beside those that were forecast."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from seu_bench.engine.resolve import ResolvedRun
    from seu_bench.training.interfaces import Cost, StageCost

#: Share by which a forecast may be wrong.
TOLERANCE: Final = 0.05
#: To measure speed: seconds of each stage, at least one batch; images of a batch, at most; images of noise.
_LIMIT, _BATCH, _IMAGES = 0.5, 32, 64
#: Weights, gradients, momentum and best weights, for whose bytes there has to be room.
_COPIES: Final = 4


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
