"""What an architecture is worth to the search."""

from __future__ import annotations

import math

from seu_bench.config import SearchSchedule
from seu_bench.models import count_macs
from seu_bench.search_space import INPUTS, NODES, OPERATIONS, Genotype
from seu_bench.training import SearchTask, genotype_network, on_meta
from seu_bench_blockwise import BlockwiseOptions


def reward(
    options: BlockwiseOptions, task: SearchTask, schedule: SearchSchedule, genotype: Genotype, accuracy: float
) -> float:
    """Accuracy, less what size costs: ``accuracy - mu log(MACs / 1e6) - rho log(density)`` (BlockQNN, equation 5, with
    multiply-accumulates in place of operations; both terms are off by default)."""
    value = accuracy
    if options.mac_weight:
        value -= options.mac_weight * math.log(unit_macs(task, schedule, genotype) / 1e6)
    if options.density_weight:
        value -= options.density_weight * math.log(density(genotype))
    return value


def density(genotype: Genotype) -> float:
    """Edges that carry something per node, inputs included, over both forms."""
    carrying = [edge for edge in (*genotype.normal, *genotype.reduction) if edge.operation != OPERATIONS[0]]
    return max(len(carrying), 1) / (2 * (INPUTS + NODES))


def unit_macs(task: SearchTask, schedule: SearchSchedule, genotype: Genotype) -> int:
    """Multiply-accumulates per image of the genotype's network at the proxy's size."""
    import dataclasses

    import torch

    meta = dataclasses.replace(task, device=torch.device("meta"))
    network = on_meta(lambda: genotype_network(meta, schedule, genotype)).eval()
    shape = (task.images.channels, *task.images.store.shape[2:])
    return count_macs(network, (shape[0], shape[1], shape[2]), torch.device("meta"))
