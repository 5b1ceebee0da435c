"""Comparison of two runs: scores and costs of each task, metrics, and the settings that are not the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from seu_bench.config.options import flattened
from seu_bench.errors import RequestError
from seu_bench.metrics import entry, task_forgetting
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import EVALUATION, METRICS, complete_matrix, in_order, measured_rows
from seu_bench.results.scenarios import adjective, other_overrides

#: Measures of each task, with their units.
MEASURES: Final[dict[str, str]] = {
    "final": "accuracy after the last task, in [0, 1]: R[T-1,j]",
    "learned": "accuracy right after learning the task, in [0, 1]: R[j,j]",
    "forgetting": "max_{l<T-1} R[l,j] - R[T-1,j], in [-1, 1]; none of the task that was learned last",
    "parameters": "parameters stored after learning the task",
    "memory": "bytes of all that is kept after learning the task",
    "seconds": "wall-clock seconds of the task's stages but evaluation",
}

#: The same measurement of both runs; ``None``: not measured.
Pair: TypeAlias = tuple[float | None, float | None]


@dataclass(frozen=True)
class TaskComparison:
    """One task of both runs: the benchmark's own index, and values by the keys of :data:`MEASURES`."""

    task: int
    name: str
    values: Mapping[str, Pair]


@dataclass(frozen=True)
class Comparison:
    """Two runs of one benchmark.

    Attributes:
        tasks: in the order in which the first run learned them.
        metrics: of the runs, by id.
        settings: those that differ, by name; ``None`` where a run has no such setting, or left it to the protocol.
        same_order: whether both learned the tasks in the same order.
    """

    one: Record
    other: Record
    tasks: tuple[TaskComparison, ...]
    metrics: Mapping[str, Pair]
    settings: Mapping[str, tuple[str | None, str | None]]
    same_order: bool

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON; each measurement with the second run's less the first's."""
        return {
            "runs": [self.one.run_id, self.other.run_id],
            "same_order": self.same_order,
            "tasks": [
                {"task": task.task, "name": task.name}
                | {key: [*pair, difference(pair)] for key, pair in task.values.items()}
                for task in self.tasks
            ],
            "metrics": {key: [*pair, difference(pair)] for key, pair in self.metrics.items()},
            "settings": {key: list(pair) for key, pair in self.settings.items()},
        }


def compare(one: Record, other: Record, metrics: Mapping[str, Metric] = METRICS) -> Comparison:
    """Compare two runs of one benchmark.

    Args:
        one, other: their records; differences are those of the second to the first.
        metrics: those known, in the order of the comparison.

    Returns:
        The comparison.

    Raises:
        RequestError: they are of different benchmarks, versions, scenarios, protocols or data, or otherwise of
            different tasks; all of it is named.
    """
    if faults := _incomparable(one, other):
        raise RequestError(
            "these runs are not comparable: " + "; ".join(faults),
            where=f"{one.run_id} and {other.run_id}",
            remedy="compare runs of one benchmark, version, scenario, protocol and data",
        )
    mine, its = _by_task(one), _by_task(other)
    names = dict(zip(one.task_order, one.task_names, strict=False))
    tasks = [
        TaskComparison(task, names.get(task, str(task)), {key: (mine[task][key], its[task][key]) for key in MEASURES})
        for task in one.task_order
    ]
    known = in_order([*one.metrics, *other.metrics], metrics)
    pairs = {key: (_finite(one.metrics.get(key)), _finite(other.metrics.get(key))) for key in known}
    measured = {key: pair for key, pair in pairs.items() if pair != (None, None)}
    ours, theirs = _flat_settings(one), _flat_settings(other)
    settings = {key: (ours.get(key), theirs.get(key)) for key in ours | theirs if ours.get(key) != theirs.get(key)}
    return Comparison(one, other, tuple(tasks), measured, settings, one.task_order == other.task_order)


def difference(pair: Pair) -> float | None:
    """The second less the first; ``None`` if one of them was not measured."""
    first, second = pair
    return None if first is None or second is None else second - first


def _incomparable(one: Record, other: Record) -> list[str]:
    facts = {
        "benchmark": (one.benchmark, other.benchmark),
        "benchmark version": (one.benchmark_version, other.benchmark_version),
        "protocol": (one.protocol, other.protocol),
        "synthetic data": (one.synthetic, other.synthetic),
        "limit of images": (one.limit, other.limit),
        "data fingerprint": (one.data_fingerprint, other.data_fingerprint),
        "tasks": (sorted(one.task_order), sorted(other.task_order)),
    }
    if one.scenario != other.scenario:
        del facts["data fingerprint"]  # which is of the stream as well: it differs in any case
    faults = [f"{name} {mine!r} and {its!r}"[:300] for name, (mine, its) in facts.items() if mine != its]
    if one.scenario != other.scenario:
        both = f"one is {adjective(one.scenario)} and the other {adjective(other.scenario)}"
        faults.insert(0, f"{both}: accuracies answer different questions")
    if not faults and not one.data_fingerprint:
        faults.append("neither has a data fingerprint")
    if not faults and (not one.task_order or len(set(one.task_order)) < len(one.task_order)):
        faults.append("they do not say which tasks they learned")
    return faults


def _by_task(record: Record) -> dict[int, dict[str, float | None]]:
    """Metrics of each task, by the benchmark's own index."""
    matrix = complete_matrix(record)
    falls = task_forgetting(matrix)
    last = len(record.task_order) - 1
    # Sizes are measured when accuracies are: a run that is evaluated once has them of the last task only.
    sizes, memory = (
        dict(zip(measured_rows(record), values, strict=False)) for values in (record.params_total, record.memory_bytes)
    )
    found: dict[int, dict[str, float | None]] = {}
    for position, task in enumerate(record.task_order):
        stages = [stage.seconds for stage in record.stages if stage.task == position and stage.name != EVALUATION]
        found[task] = {
            "final": entry(matrix, last, position),
            "learned": entry(matrix, position, position),
            "forgetting": falls[position] if position < last else None,
            "parameters": sizes.get(position),
            "memory": memory.get(position),
            "seconds": math.fsum(stages) if stages else None,
        }
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _flat_settings(record: Record) -> dict[str, str]:
    """The settings of a run and its environment, each as text; without those left to the protocol."""
    document = record.model_dump(mode="json")
    del document["environment"]["threads"]  # the run's own are what decides
    named = (
        *("strategy", "searcher", "creator", "seed", "precision", "threads", "attach"),
        *("status", "task_order", "options", "environment"),
    )
    sections = {
        "searcher": record.searcher_options,
        "creator": record.creator_options,
        "benchmark": other_overrides(record),
        "protocol": record.protocol_settings,
    }
    sections["code"] = {f"{it.kind} {it.name}": str(it) for it in record.code}
    sections["earlier code"] = {f"{it.kind} {it.name}": str(it) for it in record.earlier_code}
    found = [*flattened({name: document[name] for name in named}), *flattened(sections)]
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found if value is not None}
