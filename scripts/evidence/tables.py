"""Tables of one group or set: the contest, verdicts, average ranks; and the row of the null model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from scripts.evidence.comparing import Compared
from scripts.evidence.evidence import Evidence
from scripts.evidence.formatting import NOTHING, heading, mean, table
from scripts.evidence.runs import Group
from seu_bench.metrics import chance_acc, mixed_score
from seu_bench.results.leaderboard import SIZES, Row, not_dominated, rank_rows, size_axis
from seu_bench.results.record_metrics import known_metric
from seu_bench.results.statistics import RankComparison, compare_ranks, on_common_seeds

#: Columns of the contest; those that no row has are left out.
COLUMNS: Final = (
    "acc", "forgetting", "params_total", "memory_bytes", "train_flops", "mixed_score", "mixed_score_memory",
    "mixed_score_above_chance",
)  # fmt: skip
#: Columns of tuning, where a row was tuned.
TUNING: Final = ("tuned by", "tuning (runs' image passes)")
#: The row of a constant answer, which has no parameters.
NULL: Final = "null model: a guess"


def front(rows: Mapping[str, Row], cost: str | None = None) -> list[str]:
    """Rows that no other one beats in both mean accuracy and cost, the cheapest first; by default the cost is size."""
    axis = cost or size_axis([*rows.values()])
    found = set(not_dominated([*rows.values()], ("acc", axis)))
    return sorted((name for name, row in rows.items() if row in found), key=lambda name: rows[name].mean(axis) or 0)


def size_in_words(group: Group) -> str:
    """The size of a group's front: memory, or parameters where a record has no memory."""
    return SIZES[size_axis([*group.rows.values()])]


def contest(group: Group) -> str:
    """The learners by mean accuracy, those on the front in bold; then the references, which are not ranked."""
    columns = [name for name in COLUMNS if any(row.mean(name) is not None for row in group.rows.values())]
    best = front(group.learners)
    any_tuned = any(row.record.tuned for row in group.rows.values())

    def cells(name: str, row: Row) -> tuple[str, ...]:
        shown = f"**`{name}`**" if name in best else f"`{name}`"
        return (shown, str(row.seeds), *[mean(row, column) for column in columns], *(_tuning(row) if any_tuned else ()))

    ranked = sorted(group.learners.items(), key=lambda item: -(item[1].mean("acc") or 0))
    ranks = rank_rows(group.learners.values())
    headings = ["strategy", "seeds", *map(heading, columns), *(TUNING if any_tuned else ())]
    rows = [(str(ranks.get(row) or NOTHING), *cells(name, row)) for name, row in ranked]
    text = table(["rank", *headings], rows, texts=2)
    headings[0] = "reference, not ranked"
    null = (NULL, *null_cells(next(iter(group.rows.values())), columns), *(NOTHING,) * (len(TUNING) * any_tuned))
    return f"{text}\n\n{table(headings, [*(cells(*item) for item in group.references.items()), null])}"


def null_cells(row: Row, columns: Sequence[str]) -> list[str]:
    """What a guess has in these columns on the stream of a row, after its number of seeds, which is none."""
    chance = chance_acc(row.record.task_classes, row.record.scenario)
    if chance is None:
        return [NOTHING] * (len(columns) + 1)
    own = {
        "acc": chance,
        "mixed_score": mixed_score(100 * chance, 0),
        "mixed_score_memory": mixed_score(100 * chance, 0),
    }
    own |= {"params_total": 0, "memory_bytes": 0, "mixed_score_above_chance": 0.0}
    return [NOTHING, *(known_metric(it).format_cell(own[it]) if it in own else NOTHING for it in columns)]


def _tuning(row: Row) -> tuple[str, str]:
    """How options were chosen, and the images passed forward for that, in multiples of those of a run."""
    found = row.record.tuned
    passes = row.mean("image_passes")
    if found is None:
        return NOTHING, NOTHING
    return found.method, f"{found.image_passes / passes:,.1f}" if passes else f"{found.image_passes:,}"


def verdicts(found: Mapping[str, Sequence[Compared]]) -> str:
    """A row for each pair: differences and verdicts, by metric."""
    lines = []
    for of_pair in zip(*found.values(), strict=True):
        pair = of_pair[0].pair
        told = [f"{each.words}, {each.difference.verdict}" for each in of_pair]
        lines.append((f"`{pair.benchmark}`", f"`{pair.one}` less `{pair.other}`", *told))
    return table(["benchmark", "difference", *map(heading, found)], lines, texts=2)


def average_ranks(evidence: Evidence, name: str, metric: str = "acc") -> tuple[RankComparison, str] | None:
    """Average ranks of the learners that are on all benchmarks, on the seeds that they have in common there, beside the
    best of them; ``None``: too few are."""
    values: dict[str, dict[str, dict[int, float]]] = {}
    for group in evidence.sets[name]:
        measured = {each: row.values(metric) for each, row in group.learners.items() if row.mean(metric) is not None}
        values[group.benchmark] = on_common_seeds(measured)
    common = [each for each in next(iter(values.values()), {}) if all(each in there for there in values.values())]
    if len(values) < 2 or len(common) < 2:
        return None
    found = compare_ranks(
        {place: {each: fmean(there[each].values()) for each in common} for place, there in values.items()}
    )
    rows = [
        (
            f"`{row.configuration}`",
            *[f"{row.ranks[place]:g}" for place in found.benchmarks],
            f"{row.average_rank:.2f}",
            NOTHING if row.p_holm is None else f"{row.p_holm:.3g}",
            row.verdict or "the best",
        )
        for row in found.rows
    ]
    headings = (
        "strategy",
        *[f"`{place}`" for place in found.benchmarks],
        "average rank",
        "p (Holm)",
        "beside the best",
    )
    return found, table(headings, rows)
