"""The benchmarks that come with seu-bench: one TOML file each, and the data sets that they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seu_bench import hookimpl
from seu_bench.config import BenchmarkFile

from .datasets import DATASETS

if TYPE_CHECKING:
    from seu_bench.config import BenchmarkSource
    from seu_bench.data import DatasetSource
    from seu_bench.plugin import Register


@hookimpl
def register_datasets(register: Register[DatasetSource]) -> None:
    """Offer every set of :data:`DATASETS`."""
    for name, source in DATASETS.items():
        register(name, source)


@hookimpl
def register_benchmarks(register: Register[BenchmarkSource]) -> None:
    """Offer every TOML file beside this one, by its name without the ending."""
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        register(path.stem, BenchmarkFile(path))
