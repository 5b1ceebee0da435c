"""Cost of deep generative replay: exact."""

from __future__ import annotations

import torch

from seu_bench.config import Schedule
from seu_bench.data import batch_bounds
from seu_bench.models import FlopCounter, count_parameters, counted_as, state_bytes
from seu_bench.training import (
    Cost,
    PassFlops,
    StageCost,
    StrategyContext,
    checked_options,
    evaluation_passes,
    fixed_cost,
    on_meta,
    task_flops,
    task_macs,
)
from seu_bench_dgr import DgrOptions
from seu_bench_dgr.generators import ImageGenerator, Sources
from seu_bench_dgr.model import Scholar, make_scholar


def dgr_cost(context: StrategyContext) -> Cost:
    """Exact: a training with replay and the generator's steps for each task; nothing is kept but the scholar."""
    options, plan = checked_options(context, DgrOptions), context.plan
    model: Scholar = on_meta(lambda: make_scholar(context))
    schedule = options.applied_to(context.protocol.training)
    flops = task_flops(model, plan, one_path=True)
    made = _making(model.generator)
    stages: list[StageCost] = []
    for task in range(len(plan.tasks)):
        stages.append(_training(context, schedule, flops, made, task))
        stages.append(_generator(context, schedule, model.generator, task))
    macs = task_macs(model, plan, one_path=True)
    return fixed_cost(count_parameters(model), macs, [*stages, *evaluation_passes(plan)], state_bytes(model))


def _training(
    context: StrategyContext, schedule: Schedule, flops: tuple[PassFlops, ...], made: int, task: int
) -> StageCost:
    """The solver's: one batch is counted, and the others are reckoned by their images, as the stage does."""
    options, count = checked_options(context, DgrOptions), context.plan.tasks[task].num_train
    sizes = [stop - start for start, stop in batch_bounds(count, schedule.batch_size, join=True)]
    replays = [options.replayed_beside(size) if task else 0 for size in sizes]
    passes = [size + 3 * replayed for size, replayed in zip(sizes, replays, strict=True)]
    first = sizes[0] * flops[task].train
    if task:
        first += replays[0] * (flops[task].train + flops[task - 1].evaluate + made)
    total = schedule.epochs * sum(first * images // passes[0] for images in passes)
    trained, labelled = schedule.epochs * (count + sum(replays)), schedule.epochs * 2 * sum(replays)
    return StageCost("training", task, trained, labelled, total, total)


def _generator(context: StrategyContext, schedule: Schedule, generator: ImageGenerator, task: int) -> StageCost:
    """The generator's: one step is taken on the meta device, and all take as much."""
    options, size = checked_options(context, DgrOptions), min(schedule.batch_size, context.plan.tasks[task].num_train)
    replayed = options.replayed_beside(size)
    shape = generator.shape
    trainer = generator.trainer(1.0)
    sources = Sources(
        lambda: torch.zeros((size, *shape), device="meta"),
        (lambda _: torch.zeros((replayed, *shape), device="meta")) if task else None,
    )
    with counted_as(lambda: 0), FlopCounter() as counter:
        trainer.step(sources)
    # Of those that the old generator makes, the making is not among the step's operations here.
    batches = options.critic_steps if options.generator == "wgan_gp" else 1
    making = batches * replayed * _making(generator) if task else 0
    steps = options.generator_iterations
    flops = steps * (counter.flops + making)
    evaluated = steps * batches * replayed if task else 0
    return StageCost("generator", task, steps * trainer.passes - evaluated, evaluated, flops, flops)


def _making(generator: ImageGenerator) -> int:
    """Operations that an image takes to make."""
    with torch.no_grad(), counted_as(lambda: 0), FlopCounter() as counter:
        generator.pixels(2)
    return counter.flops // 2
