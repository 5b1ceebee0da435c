"""Cost estimate of MNTDP: what a candidate takes is exact; how many modules stay, and how many bodies the prior asks,
are ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate
from typing import Self

import torch
from torch import nn

from seu_bench.config import Schedule
from seu_bench.data import TaskPlan
from seu_bench.models import count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    PassFlops,
    StageCost,
    StrategyContext,
    checked_options,
    evaluation_passes,
    on_meta,
    pass_flops,
    task_macs,
)
from seu_bench_mntdp import MntdpOptions
from seu_bench_mntdp.model import ModularResNet
from seu_bench_mntdp.strategy import empty_network


@dataclass(frozen=True)
class _Images:
    """Images of a task that its candidates train on, and that they are compared by."""

    train: int
    valid: int

    @classmethod
    def of(cls, task: TaskPlan, *, halves: bool) -> Self:
        """Those of a task; with ``halves`` half of the training images stand for validation images that lack."""
        if task.num_valid or not halves:
            return cls(task.num_train, task.num_valid)
        return cls(max(1, task.num_train // 2), max(1, task.num_train - task.num_train // 2))


def mntdp_cost(context: StrategyContext) -> Cost:
    """At most every task makes all of its modules; at least a head alone, or nothing where a head of as many classes is
    there."""
    classes = context.plan.classes_per_task
    network = on_meta(lambda: grown(empty_network(context)))
    macs = task_macs(network, context.plan)
    tasks = range(len(classes))
    whole, heads = [network.task_module(task) for task in tasks], [network.head(task) for task in tasks]
    reusable = [network.shares_heads and width in classes[:task] for task, width in enumerate(classes)]
    least = [nn.ModuleList([whole[0]] if task == 0 else [] if reusable[task] else [heads[task]]) for task in tasks]
    stages = (*_stages(context), *evaluation_passes(context.plan))
    sizes = [
        tuple(accumulate(map(count, modules)))
        for count in (count_parameters, state_bytes)
        for modules in (whole, least)
    ]
    return Cost(sizes[0], sizes[1], macs, macs, stages, sizes[2], sizes[3])


def grown(network: ModularResNet) -> ModularResNet:
    """The network after tasks that reuse nothing."""
    for _ in network.classes_per_task:
        network.add_new()
    return network


@dataclass(frozen=True)
class _Operations:
    """Operations per image, for tasks of one number of classes.

    Attributes:
        candidates: by the number of modules that are reused, from none to all.
        body: of a path without its head, forward.
    """

    candidates: tuple[PassFlops, ...]
    body: int

    @classmethod
    def of(cls, context: StrategyContext, classes: int) -> Self:
        """Count them on a network of two such tasks."""
        first = replace(context.plan.tasks[0], num_classes=classes)
        plan = replace(context.plan, tasks=(first, first), scenario="task")  # where a head may be reused
        network = on_meta(lambda: empty_network(replace(context, plan=plan)))
        with torch.device("meta"):
            network.add_new()
            found = []
            for reused in range(network.places + 1):
                network.try_path((*network.paths[0][:reused], *(None,) * (network.places - reused)))
                network.train()
                found.append(pass_flops(partial(network.forward_single_task, task_label=1), plan))
        return cls(tuple(found), pass_flops(partial(network.features, task=0), plan).evaluate)


def _stages(context: StrategyContext) -> Iterator[StageCost]:
    options, plan = checked_options(context, MntdpOptions), context.plan
    counted = cache(partial(_Operations.of, context))
    for index, task in enumerate(plan.tasks):
        operations, images = counted(task.num_classes), _Images.of(task, halves=index > 0)
        training = partial(_training, index, images, options.applied_to(context.protocol.training), options)
        if index == 0:
            yield training("training", operations.candidates[0])
            continue
        *new, reused = operations.candidates
        # There may be a single body that all tasks share, or one for each, whose heads may fit or not.
        asked, body = min(options.prior_images, images.train) + images.valid, operations.body
        heads = images.valid * (reused.evaluate - body)
        yield StageCost("prior", index, 0, index * asked, index * (asked * body + heads), asked * body)
        if options.variant == "d":
            for number, candidate in enumerate(new):
                yield training(f"prefix {number}", candidate)
            widths = plan.classes_per_task[: index + 1]
            passes = images.valid if plan.scenario != "class" and task.num_classes in widths[:-1] else 0
            least = passes if len({*widths}) == 1 else 0
            yield StageCost(f"prefix {len(new)}", index, 0, passes, passes * reused.evaluate, least * reused.evaluate)
        else:
            searched = options.applied_to(context.protocol.training).epochs * images.train
            yield StageCost("search", index, searched, 0, searched * new[0].train, searched * reused.evaluate)
            # The path that was found may be any; one without new modules is measured, and no more.
            yield replace(training("training", new[0]), flops_min=images.valid * reused.evaluate)


def _training(
    task: int, images: _Images, schedule: Schedule, options: MntdpOptions, name: str, flops: PassFlops
) -> StageCost:
    """The training of a candidate, which is measured after each epoch, or after the last."""
    selects = options.restore == "best_valid"

    def operations(epochs: int) -> int:
        return epochs * images.train * flops.train + (epochs if selects else 1) * images.valid * flops.evaluate

    epochs = fewest = schedule.epochs
    if options.patience is not None and selects and images.valid:
        fewest = min(epochs, 1 + math.ceil(options.patience / math.ceil(images.train / schedule.batch_size)))
    evaluated = (epochs if selects else 1) * images.valid
    return StageCost(name, task, epochs * images.train, evaluated, operations(epochs), operations(fewest))
