"""Synthetic textures and tiny streams of them: learned in a fraction of a second, and not by guessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import torch
from torch import nn

from seu_bench.config.benchmark import BenchmarkSource, BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.streams import InputKind
from seu_bench.data.dataset import DatasetInfo, DatasetSource, DatasetState, RawDataset, RawSplit
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.errors import SpecError
from seu_bench.hookspecs import hookimpl
from seu_bench.models.encoder import Encoder, EncoderInfo
from seu_bench.plugin.registration import Register
from seu_bench.training.interfaces import EncoderFactory
from seu_bench.utils.seeding import RandomState


def raw_split(labels: Sequence[int], channels: int, size: int, seed: int) -> RawSplit:
    """Return textures: stripes across or along, whose brightness tells classes apart, with some noise."""
    classes = np.asarray(labels, dtype=np.int64)
    column = classes[:, None, None, None]
    stripes = np.arange(size) % 2 * 60.0
    pixels = np.random.default_rng(seed).normal(0, 12, (len(labels), channels, size, size))
    pixels += 30 + 40 * (column % 4) + np.where(column % 2 == 1, stripes[:, None], stripes)
    return RawSplit(np.clip(pixels, 0, 255).astype(np.uint8), classes)


def raw_dataset(
    train: Sequence[int], test: Sequence[int], *, channels: int = 1, size: int = 8, seed: int = 0, name: str = "tiny"
) -> RawDataset:
    """Return a data set with these numbers of images per class."""
    generator = np.random.default_rng(seed)
    learned, tested = (
        raw_split(generator.permutation(np.repeat(np.arange(len(counts)), counts)).tolist(), channels, size, seed + at)
        for at, counts in enumerate((train, test))
    )
    info = DatasetInfo(name, channels, size, size, len(train), sum(train), sum(test), tuple(train), tuple(test))
    return RawDataset(info, learned, tested)


def class_split(groups: Sequence[Sequence[int]], dataset: str = "tiny", validation: float = 0.25) -> dict[str, Any]:
    """Return ``[stream]`` of a benchmark: these classes in this order, a share of the training images held out."""
    return {
        "kind": "classes",
        "dataset": dataset,
        "groups": groups,
        "order": "fixed",
        "validation": validation,
        "input": {"mean": [0.5], "std": [0.25]},
    }


def benchmark(
    stream: Mapping[str, Any], name: str = "tiny", protocol: Mapping[str, Any] | None = None
) -> BenchmarkSpec:
    """Return a benchmark of one stream with one protocol, ``paper``."""
    return BenchmarkSpec.model_validate({"name": name, "stream": stream, "protocols": {"paper": protocol or {}}})


def alone(images: TaskImages) -> TaskImages:
    """Return the same images in a store whose others, of other tasks, validation and tests, are NaN."""
    known = _in_memory(images)
    store = torch.full_like(known, torch.nan)
    store[images.rows] = known[images.rows]
    return replace(images, store=store)


def poison(images: TaskImages) -> None:
    """Replace images by NaN: whatever learns from one of them becomes NaN."""
    _in_memory(images)[images.rows] = torch.nan


def _in_memory(images: TaskImages) -> torch.Tensor:
    if not isinstance(images.store, torch.Tensor):
        raise TypeError("images of a file cannot be changed")
    return images.store


# ------------------------------------------------------------------ the contract's benchmarks, as a plugin offers them

#: So short that a strategy on a fixed network learns a task in a tenth of a second.
PROTOCOL: Final[Mapping[str, Any]] = {
    "ranked": False,
    "training": {"epochs": 10, "batch_size": 8, "learning_rate": 0.05},
    "search": {"epochs": 1, "batch_size": 8, "cells": 3, "channels": 2},
    "creation": {"epochs": 1, "batch_size": 8},
    "model": {"cells": 3, "channels": 4, "width": 0.125},
}


@dataclass(frozen=True)
class TinyData:
    """Textures as a source of data: ``train`` images of each class, validation included, and ``test`` of every one.

    Of other kinds than images, pixels are features, or their brightness tells which of 16 tokens they are.
    """

    name: str
    train: tuple[int, ...]
    test: int
    kind: InputKind = "image"
    summary = "made-up textures, 8x8 grey"

    def info(self, root: Path | None) -> DatasetInfo:
        return self.load(root).info

    def state(self, root: Path | None) -> DatasetState:
        return DatasetState("embedded")

    def load(self, root: Path | None) -> RawDataset:
        """Generate the images, equal at every call."""
        data = raw_dataset(self.train, [self.test] * len(self.train), name=self.name)
        return data if self.kind == "image" else self._flatten(data)

    def fetch(self, root: Path) -> None:
        """Do nothing: the images are generated."""

    def _flatten(self, data: RawDataset) -> RawDataset:
        tokens, splits = self.kind == "tokens", list[RawSplit]()
        for split in (data.train, data.test):
            rows = split.images.reshape(len(split), -1)
            splits.append(RawSplit(rows // 16 if tokens else (rows / 255).astype(np.float32), split.labels))
        info = replace(data.info, channels=rows.shape[1], height=1, width=1, kind=self.kind)
        return RawDataset(replace(info, vocabulary=16) if tokens else info, splits[0], splits[1])


@dataclass(frozen=True)
class TinyBenchmark:
    """Tasks, each of a group of classes, as a source of a benchmark."""

    data: TinyData
    groups: tuple[tuple[int, ...], ...]
    validation: float = 0.25
    summary = "tasks of made-up textures"

    def load(self, overrides: Mapping[str, Any] | None = None, protocol: str | None = None) -> BenchmarkSpec:
        """The benchmark; what the contract measures depends on its keys, of which only the scenario, the encoder and by
        which images it is normalised can be replaced."""
        name, given = self.data.name, dict(overrides or {})
        scenario = given.pop("stream.scenario", "task")
        keys = [key for key in ("normalise", "encoder") if f"stream.input.{key}" in given]
        own = {key: given.pop(f"stream.input.{key}") for key in keys}
        if given:
            raise SpecError(
                f"benchmark {name!r} is fixed: {', '.join(given)} cannot be replaced",
                remedy="remove the options that begin with benchmark., but benchmark.stream.scenario, "
                "benchmark.stream.input.encoder and benchmark.stream.input.normalise",
            )
        stream = class_split(self.groups, name, self.validation) | {"scenario": scenario}
        if own:
            stream["input"] = own
        elif self.data.kind != "image":
            del stream["input"]
        return benchmark(stream, name, PROTOCOL)


#: By name: to be learned; for looking at what is used and stored; and shapes that surprise.
TINY: Final[Mapping[str, TinyBenchmark]] = (
    {
        name: TinyBenchmark(TinyData(name, train, test), groups)
        for name, groups, train, test in (
            ("tiny_pairs", ((0, 1), (2, 3)), (32,) * 4, 50),
            ("tiny_two", ((0, 1), (2, 3)), (10,) * 4, 10),
            ("tiny_three", ((0, 1), (2, 3), (4, 5)), (10,) * 6, 10),
            ("tiny_single", ((0, 1),), (10,) * 2, 4),
            ("tiny_unequal", ((0, 1), (2, 3, 4, 5), (6, 7, 8)), (8,) * 9, 4),
            ("tiny_lopsided", ((0, 1), (2, 3)), (17, 1, 1, 17), 4),
        )
    }
    | {"tiny_all": TinyBenchmark(TinyData("tiny_all", (10,) * 4, 10), ((0, 1), (2, 3)), validation=0.0)}
    | {
        f"tiny_{kind}": TinyBenchmark(TinyData(f"tiny_{kind}", (10,) * 4, 10, kind), ((0, 1), (2, 3)))
        for kind in get_args(InputKind)[1:]
    }
)


def stream_of(benchmark: str) -> TaskStream:
    """Build one of :data:`TINY`, e.g. ``tiny_two``: tasks of made-up images, the same at every call."""
    tiny = TINY[benchmark]
    return build_stream(tiny.load(), lambda _: tiny.data.load(None), ImageLimits(), 0)


class TinyEncoder:
    """A network of three convolutions, its weights drawn from one seed, for methods that take an encoder."""

    summary = "three convolutions, not trained"

    def info(self) -> EncoderInfo:
        half, widths = (0.5, 0.5, 0.5), (8, 12, 16)
        return EncoderInfo("tiny", "tiny", "0" * 16, "nothing", "MIT", "seu_bench.testing", half, half, 8, widths)

    def load(self) -> Encoder:
        """Draw the weights, the same at every call."""
        with RandomState(0).active():
            sizes = zip((3, 8, 12), self.info().widths, (1, 2, 1), strict=True)
            layers = [nn.Sequential(nn.Conv2d(*it[:2], 3, it[2], padding=1), nn.ReLU()) for it in sizes]
        return Encoder(self.info(), layers, lambda maps: maps.mean(dim=(2, 3)))


class TinyStreams:
    """The plugin that offers :data:`TINY` and :class:`TinyEncoder`. It is registered by hand, where a contract runs,
    and never installed."""

    @hookimpl
    def register_datasets(self, register: Register[DatasetSource]) -> None:
        for name, tiny in TINY.items():
            register(name, tiny.data)

    @hookimpl
    def register_benchmarks(self, register: Register[BenchmarkSource]) -> None:
        for name, tiny in TINY.items():
            register(name, tiny)

    @hookimpl
    def register_encoders(self, register: Register[EncoderFactory]) -> None:
        register("tiny", TinyEncoder())
