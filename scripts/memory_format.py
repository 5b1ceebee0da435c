"""What channels-last memory buys a super model on this machine: ratios of speeds measured side by side.

    python scripts/memory_format.py [--rounds 5]

Prints, for a small and a larger super model, how many times faster training and evaluation are with channels
innermost than with PyTorch's default layout.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from seu_bench.search_space import GENOTYPES, SearchSpace
from seu_bench_seu.super_model import SuperModel

#: Initial channels, cells, images per batch, pixels.
SIZES = ((8, 3, 64, 28), (16, 4, 64, 32))


def forward_in(layout: torch.memory_format, model: SuperModel, images: Tensor) -> Tensor:
    """The super model's forward pass with images in a memory format of our choice."""
    older = newer = model.unit(0, 0)(images.contiguous(memory_format=layout))
    for layer in range(1, len(model.layers)):
        older, newer = newer, model.unit(layer, 0)(older, newer)
    logits: Tensor = model.heads[0](newer.mean(dim=(2, 3)))
    return logits


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    torch.manual_seed(0)
    for channels, cells, batch, pixels in SIZES:
        model = SuperModel(3, [10], cells, channels, SearchSpace())
        model.expand(GENOTYPES["darts_v1"], 0)
        images, labels = torch.randn(batch, 3, pixels, pixels), torch.randint(0, 10, (batch,))

        def train(
            layout: torch.memory_format, model: SuperModel = model, x: Tensor = images, y: Tensor = labels
        ) -> None:
            model.zero_grad()
            nn.functional.cross_entropy(forward_in(layout, model, x), y).backward()

        def evaluate(layout: torch.memory_format, model: SuperModel = model, x: Tensor = images) -> None:
            with torch.no_grad():
                forward_in(layout, model, x)

        for name, work in (("training", train), ("evaluation", evaluate)):
            model.train(name == "training")
            ratios = []
            for round_ in range(rounds + 1):
                default = seconds(lambda work=work: work(torch.contiguous_format))  # type: ignore[misc]
                innermost = seconds(lambda work=work: work(torch.channels_last))  # type: ignore[misc]
                if round_:  # the first round warms up
                    ratios.append(default / innermost)
            print(f"C={channels}, L={cells}, {pixels} px, {name}: {statistics.median(ratios):.2f} times faster")


if __name__ == "__main__":
    main()
