"""Ratios of raw speeds on this machine: memory formats, and bfloat16 against float32."""

from __future__ import annotations

from collections.abc import Callable

import torch

from scripts.perf.comparison import Result, Size, Table
from scripts.perf.plain import default_format
from scripts.perf.steps import CLASSES, Scale, Step, naive_training, seu_training
from scripts.perf.timing import interleaved, median, ratio
from seu_bench_kit import GENOTYPES, SearchSpace
from seu_bench_seu.super_model import SuperModel


def measure(_: str, size: Size) -> Result:
    """All pairs, each measured side by side."""
    torch.manual_seed(0)
    rounds = size.count(5, 1)
    scales = [Scale(0.125, 3, 2, 8, 16)] if size.quick else [Scale(1, 3, 8, 64, 28), Scale(1, 5, 16, 64, 32)]
    rows = []
    pairs: dict[str, tuple[str, Step, str, Step]] = {}
    for scale in scales:
        size_text = f"C={scale.channels}, L={scale.cells}, {scale.pixels} px, batch {scale.batch}"
        for name, step in (("training", seu_training(scale)), ("evaluation", _evaluation(scale))):
            pairs[f"seu, {name}, {size_text}"] = ("default format", _patched(step), "channels last", step)
    for name, make in (("naive", naive_training), ("seu", seu_training)):
        step = make(scales[-1])
        pairs[f"{name}, training"] = ("float32", step, "bfloat16", _in_bfloat16(step))
    for what, (base, before, other, after) in pairs.items():
        taken = interleaved({base: before, other: after}, rounds)
        rows.append(
            [what, base, 1000 * median(taken, base), other, 1000 * median(taken, other), ratio(taken, base, other)]
        )
    columns = ("step", "before", "ms", "after", "ms", "times faster")
    return Result({"rounds": rounds}, {}, (Table("Steps", columns, rows, columns[-1]),))


def _evaluation(scale: Scale) -> Step:
    model = SuperModel(3, CLASSES, scale.cells, scale.channels, SearchSpace())
    model.expand(GENOTYPES["darts_v1"], 0)
    model.keep(0, [0] * len(model.layers))
    model.eval()
    images = torch.randn(scale.batch, 3, scale.pixels, scale.pixels)

    def step() -> None:
        with torch.no_grad():
            model.forward_single_task(images, 0)

    return step


def _patched(step: Step) -> Step:
    def made() -> None:
        with default_format():
            step()

    return made


def _in_bfloat16(step: Step) -> Callable[[], None]:
    def made() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            step()

    return made
