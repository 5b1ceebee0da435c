"""What is asked for, what it resolves to and how it is computed: validated values. No torch here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, SupportsIndex, TypeAlias, cast, get_args

from pydantic import Field, NonNegativeInt, PositiveInt

from seu_bench.config.benchmark import (
    BenchmarkSpec,
)
from seu_bench.config.options import Frozen
from seu_bench.config.protocol import (
    ProtocolSpec,
)
from seu_bench.errors import OptionError

#: What learning computes in: float32; float32 with outputs of frozen layers kept in bfloat16; bfloat16 by autocast.
Precision: TypeAlias = Literal["float32", "bf16-features", "bf16"]


@dataclass(frozen=True)
class ComputeConfig:
    """How a strategy's stages compute.

    Attributes:
        precision: evaluation is in float32 in any case.
        feature_cache: bytes, at most, for outputs of frozen layers on a task's images; ``None``: half of what is free
            when the task begins; 0: none.
        compile: whether units are compiled for their training.
    """

    precision: Precision = "float32"
    feature_cache: int | None = None
    compile: bool = False


@dataclass(frozen=True)
class Execution:
    """How a run is made; nothing here decides what comes out.

    Attributes:
        results: folder of records.
        data_root: folder of data sets; ``None``: the default one.
        device: ``auto``, ``cpu``, ``cuda``, ...
        restart: begin anew, even if the run is finished or could be gone on with.
        checkpoint_every: seconds between two checkpoints at least, 0: after every epoch; ``None``: as often as takes
            no more than 2 % of the time.
        keep_weights: whether a finished run keeps its model.
        feature_cache: bytes, at most, for outputs of frozen layers on a task's images; ``None``: half of what is free.
        compile: whether SEU's units are compiled for their training.
    """

    results: Path = Path("results")
    data_root: Path | None = None
    device: str = "auto"
    restart: bool = False
    checkpoint_every: float | None = None
    keep_weights: bool = True
    feature_cache: int | None = None
    compile: bool = False


@dataclass(frozen=True)
class Request:
    """What a user asks for; the command line and :func:`seu_bench.run` both make one.

    Attributes:
        benchmark: a name, or the path of a TOML file.
        protocol: ``None``: the benchmark's default.
        options: by key, e.g. ``{"epochs": 3, "searcher.alpha": 0.1, "benchmark.stream.validation": 0.1}``.
        limit: at most so many images per task and split.
        synthetic: replace every data set by made-up images of the same shape.
        precision: what learning computes in; accuracies are measured in float32.
    """

    strategy: str = "seu"
    benchmark: str = "split_digits"
    searcher: str | None = None
    creator: str | None = None
    protocol: str | None = None
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    synthetic: bool = False
    precision: Precision = "float32"


def checked_seed(seed: object) -> int:
    """``seed`` as a number from 0 to 2**32 - 1, which is what NumPy's generator takes.

    Raises:
        OptionError: it is none.
    """
    # bool is a number to Python, but True is nobody's seed; NumPy's integers are fine.
    number = int(seed) if isinstance(seed, SupportsIndex) and not isinstance(seed, bool) else -1
    if not 0 <= number < 2**32:
        raise OptionError(f"the seed is {seed!r}", where="seed", remedy="give a whole number from 0 to 4294967295")
    return number


def _checked_limit(limit: object) -> int | None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 4):
        raise OptionError(f"the limit is {limit!r}", where="limit", remedy="give a whole number of images, at least 4")
    return limit


def _checked_precision(precision: object) -> Precision:
    if precision not in get_args(Precision):
        known = ", ".join(get_args(Precision))
        raise OptionError(f"the precision is {precision!r}", where="precision", remedy=f"give one of: {known}")
    return cast(Precision, precision)


class RunSpec(Frozen):
    """Everything that decides a run, resolved and validated."""

    strategy: str
    benchmark: BenchmarkSpec
    protocol_name: str
    searcher: str | None = None
    creator: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    searcher_options: dict[str, Any] = Field(default_factory=dict)
    creator_options: dict[str, Any] = Field(default_factory=dict)
    seed: NonNegativeInt = 0
    limit: PositiveInt | None = None
    synthetic: bool = False
    precision: Precision = "float32"
    local_data: dict[str, str] = Field(default_factory=dict, description="checksums of the user's own data files")

    @property
    def protocol(self) -> ProtocolSpec:
        """The protocol that is learned by."""
        return self.benchmark.protocols[self.protocol_name]

    @property
    def run_id(self) -> str:
        """A readable slug and a hash of what determines the result (not of the device, folders or versions)."""
        # Left out at its default, like options: ids of before it was there stay what they are.
        left_out = {"benchmark"} | ({"precision"} if self.precision == "float32" else set())
        decisive = self.model_dump(mode="json", exclude=left_out) | {
            "benchmark": self.benchmark.identity(),
            # Options by strategy, searcher and creator are among this run's own, where they concern it.
            "protocol": self.protocol.model_dump(
                mode="json", exclude={"summary", "ranked", "strategies", "searchers", "creators"}
            ),
        }
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:10]
        parts = [self.benchmark.name, self.protocol_name, self.strategy]
        parts += [part for part in (self.searcher, self.creator) if part and part != "mdl"]
        parts += [f"limit{self.limit}"] if self.limit else []
        parts += ["synthetic"] if self.synthetic else []
        parts += [self.precision] if self.precision != "float32" else []
        slug = "-".join(parts)[:150]  # the name of a folder; the hash tells apart what is cut off
        return f"{slug}-seed{self.seed}-{digest}"
