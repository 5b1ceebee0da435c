"""The SEU paper's own results, beside ours where benchmark and protocol are the paper's."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from operator import methodcaller
from typing import Any, Final, NamedTuple, TypeAlias

from seu_bench.results.report.canvas import styles_of
from seu_bench.results.report.summary import Configuration, Published, SeedSummary

#: Benchmark, version and protocol.
Place: TypeAlias = tuple[str, int, str]
#: Tasks of the paper's streams; another version of a benchmark is another benchmark.
_TASKS: Final[dict[Place, int]] = {
    ("split_cifar10", 1, "paper"): 5,
    ("split_cifar100", 1, "paper"): 5,
    ("pmnist", 1, "paper"): 10,
    ("mixture", 1, "paper"): 5,
}
#: Of each quantity of the table: its name, the metric of records, the factor to the paper's unit, decimals.
_QUANTITIES: Final = {
    "acc": ("accuracy (%)", "acc", 100.0, 2),
    "params": ("parameters (M)", "params_total", 1e-6, 2),
    "score": ("mixed score", "mixed_score", 1.0, 3),
}


class Beside(NamedTuple):
    """One number of the paper as it is printed beside ours, mean and deviation, and ours less the paper's.

    ``-`` stands where there is no configuration of ours, and where it was not measured.
    """

    method: str
    configuration: str
    what: str
    printed: str
    ours: str
    difference: str


class _Number(NamedTuple):
    what: str
    printed: float
    ours: Callable[[Configuration], SeedSummary]
    decimals: int = 2


def document() -> dict[str, Any]:
    """The paper's ``source``, the ``names`` of its methods by our strategies, and its numbers."""
    return tomllib.loads((files("seu_bench.results.report") / "paper.toml").read_text(encoding="utf-8"))


def published_points(place: Place) -> list[Published]:
    """The paper's table of a benchmark as points of a figure; empty where it has none."""
    if place not in _TASKS:
        return []
    names, table = document()["names"], printed(place[0])
    return [
        Published(names[strategy], values["acc"], values["params"] * 1e6, style)
        for (strategy, values), style in zip(table.items(), styles_of(list(table)), strict=True)
    ]


def printed(benchmark: str) -> dict[str, dict[str, float]]:
    """The paper's table of a benchmark as it is printed, by strategy: ``acc`` in percent, ``params`` in millions,
    ``score``; empty where the paper has none."""
    table: dict[str, dict[str, float]] = document()["table"].get(benchmark, {})
    return table


def beside_ours(place: Place, configurations: Sequence[Configuration]) -> dict[str, list[Beside]]:
    """Rows with every number of the paper of a benchmark, by the place in the paper that they are from.

    Of ``configurations`` of the same strategy, those with changes of the benchmark are not the paper's, and not
    compared.
    """
    if place not in _TASKS:
        return {}
    names = document()["names"]
    comparable = [
        each
        for each in configurations
        if not each.example.benchmark_overrides
        and (each.example.precision, each.example.threads) == ("float32", 1)
        and each.tasks == _TASKS[place]
    ]
    tables: dict[str, list[Beside]] = {}
    for source, strategy, numbers in _numbers(place[0]):
        for configuration in [each for each in comparable if each.example.strategy == strategy] or (None,):
            rows = [_beside(names[strategy], configuration, number) for number in numbers]
            tables.setdefault(source, []).extend(rows)
    return tables


def _numbers(benchmark: str) -> Iterator[tuple[str, str, list[_Number]]]:
    """Numbers by place in the paper and strategy: those of the table, then those of the text."""
    found = document()
    for strategy, values in printed(benchmark).items():
        numbers = [
            _Number(what, values[key], methodcaller("metric", name, factor), decimals)
            for key, (what, name, factor, decimals) in _QUANTITIES.items()
        ]
        yield found["table"]["place"], strategy, numbers
    for text in found["text"]:
        if text["benchmark"] == benchmark:
            yield text["place"], text["strategy"], [_accuracy(**value) for value in text["values"]]


def _accuracy(task: int | str, after: int, acc: float) -> _Number:
    """Accuracy given in the paper's text, of one task or of the average."""
    if task == "average":
        return _Number(f"average accuracy after task {after} (%)", acc, lambda ours: ours.averages[after])
    return _Number(f"accuracy on task {task} after task {after} (%)", acc, lambda ours: ours.accuracies[after, task])


def _beside(method: str, configuration: Configuration | None, number: _Number) -> Beside:
    title, ours, difference = "-", "-", "-"
    if configuration is not None:
        title, summary = configuration.title, number.ours(configuration)
        if math.isfinite(float(summary.mean)):
            ours = summary.text("", number.decimals)
            difference = f"{float(summary.mean) - number.printed:+,.{number.decimals}f}"
    return Beside(method, title, number.what, f"{number.printed:,.{number.decimals}f}", ours, difference)
