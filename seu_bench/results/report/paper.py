"""The SEU paper's own results, beside ours where benchmark and protocol are the paper's."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from seu_bench.results.report.draw_size import Published
from seu_bench.results.report.picture import Configuration
from seu_bench.results.report.styles import styles_of
from seu_bench.results.report.summary import SampleSummary, accuracies, average_accuracy, metric, number_of_tasks, said

PROTOCOL: Final = "paper"
#: Versions of benchmarks that are the paper's; another version is another benchmark.
_VERSION: Final = 1
#: What the paper's streams have.
_TASKS: Final = {"split_cifar10": 5, "split_cifar100": 5, "pmnist": 10, "mixture": 5}
#: Of each quantity of the table: its name, the metric of records, the factor to the paper's unit, decimals.
_QUANTITIES: Final = {
    "acc": ("accuracy (%)", "acc", 100.0, 2),
    "params": ("parameters (M)", "params_total", 1e-6, 2),
    "score": ("mixed score", "mixed_score", 1.0, 3),
}


@dataclass(frozen=True)
class Beside:
    """One number of the paper beside ours.

    Attributes:
        what: which number.
        method: as the paper calls it.
        configuration: ours, as the leaderboard calls it; ``-`` where there is none.
        printed: the paper's, as it is printed.
        ours: mean and deviation over seeds; ``-`` where it was not measured.
        difference: ours less the paper's; ``-`` where ours was not measured.
        place: where it stands in the paper.
    """

    what: str
    method: str
    configuration: str
    printed: str
    ours: str
    difference: str
    place: str


def source() -> str:
    """The paper."""
    return str(_document()["source"])


def is_the_papers(benchmark: str, version: int, protocol: str) -> bool:
    """Whether the paper has results for it."""
    return protocol == PROTOCOL and version == _VERSION and benchmark in _TASKS


def published_points(benchmark: str, version: int, protocol: str) -> list[Published]:
    """The paper's table of a benchmark as points of a figure; empty where it has none."""
    if not is_the_papers(benchmark, version, protocol):
        return []
    document = _document()
    table = document["table"][benchmark]
    styles = styles_of(list(table))
    return [
        Published(document["names"][strategy], values["acc"], values["params"] * 1e6, style)
        for (strategy, values), style in zip(table.items(), styles, strict=True)
    ]


def printed(benchmark: str) -> dict[str, dict[str, float]]:
    """The paper's table of a benchmark as it is printed, by strategy: ``acc`` in percent, ``params`` in millions,
    ``score``; empty where the paper has none."""
    table: dict[str, dict[str, float]] = _document()["table"].get(benchmark, {})
    return table


def beside_ours(benchmark: str, version: int, protocol: str, configurations: Sequence[Configuration]) -> list[Beside]:
    """Every number of the paper of a benchmark beside those of our configurations of the same strategy.

    Args:
        configurations: those with changes of the benchmark are not the paper's, and not compared.
    """
    if not is_the_papers(benchmark, version, protocol):
        return []
    document = _document()
    ours: dict[str, list[Configuration]] = {}
    for own in configurations:
        if _is_comparable(own, benchmark):
            ours.setdefault(own.example.strategy, []).append(own)
    rows = []
    for strategy, values in document["table"][benchmark].items():
        for configuration in _or_none(ours.get(strategy)):
            for key, (what, name, factor, decimals) in _QUANTITIES.items():
                spread = metric(configuration.runs, name, factor) if configuration else None
                method = document["names"][strategy]
                rows.append(
                    _beside(what, method, configuration, values[key], spread, decimals, document["table"]["place"])
                )
    for text in document["text"]:
        if text["benchmark"] == benchmark:
            for configuration in _or_none(ours.get(text["strategy"])):
                rows += [
                    _beside(
                        _called(value),
                        document["names"][text["strategy"]],
                        configuration,
                        value["acc"],
                        _measured(configuration, value),
                        2,
                        text["place"],
                    )
                    for value in text["values"]
                ]
    return rows


def _or_none(configurations: list[Configuration] | None) -> Sequence[Configuration | None]:
    """One row without ours where there is none of ours."""
    return configurations or (None,)


def _is_comparable(configuration: Configuration, benchmark: str) -> bool:
    run = configuration.example
    return not run.benchmark_overrides and run.precision == "float32" and number_of_tasks(run) == _TASKS[benchmark]


def _called(value: dict[str, Any]) -> str:
    if value["task"] == "average":
        return f"average accuracy after task {value['after']} (%)"
    return f"accuracy on task {value['task']} after task {value['after']} (%)"


def _measured(configuration: Configuration | None, value: dict[str, Any]) -> SampleSummary | None:
    if configuration is None:
        return None
    if value["task"] == "average":
        return average_accuracy(configuration.runs)[value["after"]]
    return accuracies(configuration.runs)[value["after"], value["task"]]


def _beside(
    what: str,
    method: str,
    configuration: Configuration | None,
    printed: float,
    spread: SampleSummary | None,
    decimals: int,
    place: str,
) -> Beside:
    ours = difference = "-"
    if spread is not None and math.isfinite(float(spread.mean)):
        ours = said(spread, "", decimals)
        difference = f"{float(spread.mean) - printed:+,.{decimals}f}"
    title = configuration.title if configuration else "-"
    return Beside(what, method, title, f"{printed:,.{decimals}f}", ours, difference, place)


def _document() -> dict[str, Any]:
    return tomllib.loads((files("seu_bench.results.report") / "paper.toml").read_text(encoding="utf-8"))
