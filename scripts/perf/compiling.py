"""Speed-up of torch.compile on a network of SEU's units, and its cost."""

from __future__ import annotations

import torch

from scripts.perf.comparison import Result, Size, Table
from scripts.perf.steps import CLASSES, Scale, batch, training_step
from scripts.perf.timing import interleaved, median, ratio, seconds
from seu_bench_kit import GENOTYPES, GenotypeNetwork, SearchSpace


def measure(_: str, size: Size) -> Result:
    """A training step, compiled and not."""
    torch.manual_seed(0)
    scale = Scale(1, 3, 4, 16, 16) if size.quick else Scale(1, 4, 16, 64, 32)
    network = GenotypeNetwork(GENOTYPES["darts_v1"], 3, CLASSES[0], scale.cells, scale.channels, SearchSpace()).train()
    weights = list(network.parameters())
    images = batch(scale)
    eager = training_step(network, weights, *images)
    compiled = training_step(torch.compile(network), weights, *images)
    spent = seconds(compiled)
    rounds = size.count(7, 1)
    taken = interleaved({"eager": eager, "compiled": compiled}, rounds)
    gained = median(taken, "eager") - median(taken, "compiled")
    return Result(
        {"rounds": rounds, **vars(scale)},
        {
            "compile_seconds": spent,
            "speed": ratio(taken, "eager", "compiled"),
            "steps_to_pay": spent / gained if gained > 0 else None,
        },
        (
            Table(
                "Steps",
                ("way", "ms", "times faster", "s to compile", "steps until it pays"),
                [
                    ["eager", 1000 * median(taken, "eager"), 1.0, None, None],
                    [
                        "compiled",
                        1000 * median(taken, "compiled"),
                        ratio(taken, "eager", "compiled"),
                        spent,
                        spent / gained if gained > 0 else None,
                    ],
                ],
                "times faster",
            ),
        ),
    )
