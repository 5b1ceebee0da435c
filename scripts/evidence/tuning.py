"""How strategies were tuned: what was chosen, and EWC's lambda by the part of the stream that it was tuned on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scripts.evidence.formatting import table
from scripts.evidence.runs import ROOT
from seu_bench.config.options import format_option
from seu_bench.config.tuned import TunedFile

#: Tunings of EWC's lambda alone, by several methods; and those that benchmarks name as defaults.
METHODS: Final = ROOT / "results" / "published" / "tuning"
DEFAULTS: Final = ROOT / "benchmarks" / "tuned"


def chosen(folder: Path = DEFAULTS) -> str:
    """What was chosen for each strategy of each protocol and benchmark."""
    rows = [
        (
            f"`{file.benchmark}`, `{file.protocol}`",
            f"`{file.configuration}`",
            ", ".join(f"`{key}={format_option(value)}`" for key, value in file.options.items()),
            f"{100 * file.score:.2f}",
            file.method,
            f"{file.cost.runs}",
        )
        for file in _files(folder)
    ]
    headings = ("benchmark, protocol", "strategy", "chosen", "validation accuracy (%)", "method", "runs")
    return table(headings, rows, texts=3) if rows else ""


def by_method(folder: Path = METHODS) -> str:
    """Validation accuracy of each lambda by method, the best of each in bold."""
    files = sorted(_files(folder), key=lambda file: (file.benchmark, file.method))
    values = sorted({trial.options["ewc_lambda"] for file in files for trial in file.trials})
    rows = [
        (
            f"`{file.benchmark}`",
            file.method,
            *(_score(file, value) for value in values),
        )
        for file in files
    ]
    return table(("benchmark", "method", *map(format_option, values)), rows, texts=2) if rows else ""


def _score(file: TunedFile, value: float) -> str:
    scores = [trial.score for trial in file.trials if trial.options["ewc_lambda"] == value]
    if not scores or scores[0] is None:
        return "-"
    return f"**{100 * scores[0]:.2f}**" if scores[0] == file.score else f"{100 * scores[0]:.2f}"


def _files(folder: Path) -> Sequence[TunedFile]:
    return [TunedFile.read(path) for path in sorted(folder.glob("*.toml"))]
