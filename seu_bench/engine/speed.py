"""Seconds that a run will take on this machine: its first batches are computed, and its operations do the rest."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

from seu_bench.config.protocol import ProtocolSpec
from seu_bench.engine.resolve import ResolvedRun
from seu_bench.training.interfaces import Cost, StageCost
from seu_bench.training.rehearsal import stand_ins
from seu_bench.utils.hardware import computing_with, free_host_memory
from seu_bench.utils.rehearsing import rehearsing
from seu_bench.utils.seeding import RandomState

#: Seconds for which each stage of the first task is computed, at least one batch.
LIMIT: Final = 0.5
#: Images of a batch, at most: larger ones take as long per image.
_BATCH: Final = 32
#: Weights, gradients, momentum and best weights, for whose bytes there has to be room.
_COPIES: Final = 4
#: Images of noise that are computed on.
_IMAGES: Final = 64


@dataclass(frozen=True)
class Speed:
    """How fast this machine computes the stages of a strategy.

    Attributes:
        seconds, flops, images: of what was computed, by stage.
    """

    seconds: dict[str, float]
    flops: dict[str, int]
    images: dict[str, int]

    def predict(self, cost: Cost) -> float:
        """Return the seconds that learning a stream will take, at most where its cost is a bound."""
        return sum(self._stage(stage) for stage in cost.stages if stage.name != "evaluation")

    def _stage(self, stage: StageCost) -> float:
        # A stage that the first task does not have is about as fast as all others together.
        names = [stage.name] if self.flops.get(stage.name) or self.images.get(stage.name) else list(self.seconds)
        seconds, flops, images = (
            sum(found.get(name, 0) for name in names) for found in (self.seconds, self.flops, self.images)
        )
        if stage.flops and flops:
            return seconds * stage.flops / flops
        return seconds * stage.image_passes / images if images else 0.0


def measure_speed(run: ResolvedRun, cost: Cost, device: str = "cpu") -> Speed | None:
    """Compute the first batches of each stage of the first task, on noise.

    Args:
        run: whose strategy computes.
        cost: of the run, by whose parameters it is known whether there is memory for it.
        device: on which it computes.

    Returns:
        The speed; ``None``: the strategy does not learn from noise, passes none of its images in stages, or takes more
        memory than is free.
    """
    plan = run.plan()
    if _COPIES * 4 * cost.params_total[0] > free_host_memory():
        return None
    with RandomState(0).active(), computing_with(run.spec.threads):
        context = replace(run.context(plan, device), restores=True, protocol=_with_small_batches(run.spec.protocol))
        strategy = run.strategy.build(context)
        streams = stand_ins(plan, _IMAGES).avalanche().streams
        experience = streams["train"] if getattr(strategy, "whole_stream", False) else streams["train"][0]
        with rehearsing(lambda: getattr(strategy, "memory_sizes", None)) as rehearsal:
            rehearsal.limit = LIMIT
            with contextlib.suppress(Exception):  # what was computed before counts
                strategy.train(experience, eval_streams=[streams["valid"][:1]])
    seconds, flops, images = defaultdict[str, float](float), defaultdict[str, int](int), defaultdict[str, int](int)
    for stage, took, (passed, operations) in rehearsal.turns:
        seconds[stage] += took
        flops[stage] += operations
        images[stage] += passed
    return Speed(dict(seconds), dict(flops), dict(images)) if any(images.values()) else None


def _with_small_batches(protocol: ProtocolSpec) -> ProtocolSpec:
    """A protocol whose stages have batches of :data:`_BATCH` images at most."""
    stages = {name: getattr(protocol, name) for name in ("training", "search", "creation")}
    small = {name: it.model_copy(update={"batch_size": min(it.batch_size, _BATCH)}) for name, it in stages.items()}
    return protocol.model_copy(update=small)
