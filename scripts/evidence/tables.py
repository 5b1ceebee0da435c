"""Tables of one group or set: the contest, the comparisons, equal parameters, the linear row, average ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final

import numpy as np
from scipy.stats import bootstrap  # type: ignore[attr-defined]

from scripts.evidence.comparing import Compared
from scripts.evidence.evidence import PARAMETERS, PROTOCOLS, Evidence
from scripts.evidence.formatting import NOTHING, change, heading, mean, table
from scripts.evidence.runs import SEU, Group
from seu_bench.results.leaderboard import SIZES, Row, not_dominated, rank_rows, size_axis
from seu_bench.results.record_metrics import known_metric
from seu_bench.results.statistics import FEWEST_PAIRS, RankComparison, compare_ranks, on_common_seeds

#: Columns of the contest; those that no row has are left out.
COLUMNS: Final = (
    "acc", "forgetting", "params_total", "memory_bytes", "train_flops", "mixed_score", "mixed_score_memory",
)  # fmt: skip
#: Columns of tuning, where a row was tuned.
TUNING: Final = ("tuned by", "tuning (runs' image passes)")
#: SEU is compared with the others in these; the first with interval and effect size.
COMPARED: Final = ("acc", "mixed_score", "mixed_score_memory")


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
    if group.references:
        headings[0] = "reference, not ranked"
        text += "\n\n" + table(headings, [cells(*item) for item in group.references.items()])
    return text


def _tuning(row: Row) -> tuple[str, str]:
    """How options were chosen, and the images passed forward for that, in multiples of those of a run."""
    found = row.record.tuned
    passes = row.mean("image_passes")
    if found is None:
        return NOTHING, NOTHING
    return found.method, f"{found.image_passes / passes:,.1f}" if passes else f"{found.image_passes:,}"


def comparisons(evidence: Evidence, name: str, benchmark: str) -> str:
    """SEU less every other row, with interval, effect size and verdict."""
    found = {
        metric: {each.pair.other: each for each in evidence.compared(name, metric) if _is_seus(each, benchmark)}
        for metric in COMPARED
    }
    measured = [metric for metric, there in found.items() if there]
    if not measured:
        return ""
    headings = ["SEU less", "accuracy (points)", "95 % bootstrap", "Hedges' g", "p (Holm)", "verdict"]
    headings += [f"{heading(metric)}: difference, verdict" for metric in measured if metric != "acc"]
    rows = [
        (f"`{other}`", *_in_full(each), *[_short(found[metric].get(other)) for metric in measured if metric != "acc"])
        for other, each in sorted(found["acc"].items(), key=lambda item: item[1].mean)
    ]
    return table(headings, rows)


def _is_seus(found: Compared, benchmark: str) -> bool:
    return found.pair.benchmark == benchmark and found.pair.one == SEU


def _in_full(found: Compared) -> Iterator[str]:
    difference = found.difference
    bounds = _bootstrap([*difference.by_seed.values()])
    shown = known_metric(found.metric).format_cell
    yield change(found.mean, found.metric).removesuffix(" points")
    yield NOTHING if bounds is None else f"{shown(bounds[0])} to {shown(bounds[1])}"
    yield NOTHING if difference.hedges_g is None else f"{difference.hedges_g:+.2f}"
    yield NOTHING if difference.p_holm is None else f"{difference.p_holm:.3g}"
    yield difference.verdict


def _bootstrap(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % percentile interval of the mean; with three pairs it covers about three quarters, so it decides nothing."""
    if len(values) < FEWEST_PAIRS:
        return None
    if len(set(values)) == 1:
        return values[0], values[0]
    rng = np.random.default_rng(0)
    found = bootstrap((values,), np.mean, n_resamples=9999, method="percentile", rng=rng).confidence_interval
    return float(found.low), float(found.high)


def _short(found: Compared | None) -> str:
    return NOTHING if found is None else f"{change(found.mean, found.metric)}, {found.difference.verdict}"


def equal_parameters(evidence: Evidence) -> str:
    """Each strategy as the protocol has it, and with the parameters of SEU; empty where that was not run."""
    rows = []
    told = {(each.pair.benchmark, each.pair.other): each for each in evidence.compared(PARAMETERS, "acc")}
    for group in evidence.sets[PARAMETERS]:
        plain = evidence.group(PROTOCOLS[0], group.benchmark)
        for name, row in group.rows.items():
            of_protocol = plain.rows.get(name) if plain else None
            cells = [mean(one, metric) for one in (of_protocol, row) for metric in ("params_total", "acc")]
            difference = _short(told.get((group.benchmark, name)))
            rows.append((f"`{group.benchmark}`", f"`{name}`", str(row.seeds), *cells, difference))
    headings = (
        "benchmark", "strategy", "seeds", "equal protocol: parameters (M)", "accuracy (%)",
        "equal parameters: parameters (M)", "accuracy (%)", "SEU less it, equal parameters",
    )  # fmt: skip
    return table(headings, rows, texts=2) if rows else ""


def verdicts(found: Mapping[str, Sequence[Compared]]) -> str:
    """A row for each pair: differences and verdicts, by metric."""
    lines = []
    for of_pair in zip(*found.values(), strict=True):
        pair = of_pair[0].pair
        told = [f"{each.words}, {each.difference.verdict}" for each in of_pair]
        lines.append((f"`{pair.benchmark}`", f"`{pair.one}` less `{pair.other}`", *told))
    return table(["benchmark", "difference", *map(heading, found)], lines, texts=2)


def linear_row(evidence: Evidence, name: str) -> str:
    """Whether each learner's mean is above that of the linear row; ``?`` where the seeds do not tell."""
    metrics = ("learning_acc", "acc")
    found = {
        (each.pair.one, each.pair.benchmark, metric): each
        for metric in metrics
        for each in evidence.beside_linear(name, metric)
    }
    benchmarks = list(dict.fromkeys(benchmark for _, benchmark, _ in found))
    places = [(benchmark, metric) for benchmark in benchmarks for metric in metrics]
    headings = ["strategy", *[f"`{benchmark}`: {_WHEN[metric]}" for benchmark, metric in places]]
    rows = [
        (f"`{one}`", *[_yes(found.get((one, *place))) for place in places])
        for one in dict.fromkeys(one for one, _, _ in found)
    ]
    return table(headings, rows) if rows else ""


_WHEN: Final = {"learning_acc": "when learned", "acc": "at the end"}


def _yes(found: Compared | None) -> str:
    if found is None:
        return NOTHING
    return ("yes" if found.mean > 0 else "no") + (" ?" if found.side == "not told" else "")


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
