"""What searches measured and chose, from the stages and genotypes of records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from scripts.evidence.evidence import Evidence
from scripts.evidence.formatting import NOTHING
from scripts.evidence.runs import SEU, short_name
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import SEARCH

#: The operation that has the smallest number, so that ties used to go to it.
FIRST: Final = "max_pool_3x3"


def by_mdl(found: Iterable[Record]) -> Iterator[Record]:
    return (record for record in found if short_name(record) == SEU)


def last_accuracies(evidence: Evidence, name: str) -> str:
    """Accuracy of sampled networks in the last epoch of the MDL search, and chance, by benchmark."""
    by_benchmark: dict[str, list[tuple[float, float]]] = {}
    for record in by_mdl(evidence.records(name)):
        for stage in record.stages:
            last = stage.accuracies[-1] if stage.name == SEARCH and stage.accuracies else None
            if last is not None:
                by_benchmark.setdefault(record.benchmark, []).append((last, 1 / record.task_classes[stage.task]))
    return "; ".join(
        f"`{benchmark}` {100 * math.fsum(a for a, _ in found) / len(found):.0f} %, "
        f"chance {100 * math.fsum(c for _, c in found) / len(found):.0f} %"
        for benchmark, found in sorted(by_benchmark.items())
    )


def share_of_first(found: Iterable[Record]) -> str:
    """Share of max pooling among the operations of all units found."""
    operations = Counter(
        operation
        for record in found
        for unit in record.genotypes or ()
        for kind in ("normal", "reduction")
        for _, _, operation in (unit or {}).get(kind, ())
    )
    return f"{100 * operations[FIRST] / operations.total():.0f} %" if operations else NOTHING
