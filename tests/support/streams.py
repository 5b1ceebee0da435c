"""Benchmarks on tiny data sets, and the streams that they make."""

from __future__ import annotations

from typing import Any

import torch
from support.tiny import benchmark

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.data.dataset import RawDataset
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream

ALL = ImageLimits()
UNCHANGED = {"mean": [0.0], "std": [1.0]}


def everything(images: TaskImages) -> tuple[torch.Tensor, torch.Tensor]:
    return images.gather(torch.arange(len(images)))


def classes_spec(**stream: Any) -> BenchmarkSpec:
    return benchmark({"kind": "classes", "dataset": "tiny", "input": UNCHANGED, **stream})


def permuted_spec(**stream: Any) -> BenchmarkSpec:
    return benchmark({"kind": "permutation", "dataset": "tiny", "input": UNCHANGED, **stream})


def made(spec: BenchmarkSpec, data: RawDataset, seed: int = 0, limits: ImageLimits = ALL) -> TaskStream:
    return build_stream(spec, lambda _: data, limits, seed)
