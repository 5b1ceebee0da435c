"""Corrections to the page's earlier edition: what it said, and what holds now, both from records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from scripts.evidence.comparing import Compared, against, family
from scripts.evidence.evidence import BEFORE, COMPONENTS, PROTOCOLS, Evidence
from scripts.evidence.formatting import NOTHING, mean, ratio
from scripts.evidence.runs import CONTROL, PAPER, SEU, Group, named
from scripts.evidence.searching import by_mdl, last_accuracies, share_of_first
from seu_bench.results.statistics.power import LEVEL, detectable_effect

NOW: Final = PROTOCOLS[0]
#: Where nothing was run yet that could correct something.
UNKNOWN: Final = "Not measured again yet."
#: Bytes of a parameter; what keeps half as much again keeps more than its network.
BYTES: Final = 4
MORE: Final = 1.5


@dataclass(frozen=True)
class Correction:
    """One correction.

    Attributes:
        title: what it is about.
        earlier: what the earlier edition did or said.
        now: what holds now.
    """

    title: str
    earlier: str
    now: str


def corrections(evidence: Evidence) -> list[Correction]:
    """All of them, in the order of the page."""
    return [make(evidence) for make in _ALL]


def linear_row(evidence: Evidence) -> Correction:
    leaders = [_leader(group, "mixed_score") for group in evidence.sets[BEFORE]]
    earlier = (
        f"SEU had the highest mixed score on {leaders.count(SEU)} of {len(leaders)} benchmarks (`quick`). No table had "
        "a linear classifier per task."
    )
    lines = [
        f"`{each.pair.benchmark}` {each.words} ({each.difference.verdict}), at "
        f"{ratio(each.pair.ours.mean('params_total'), each.pair.theirs.mean('params_total'))} the parameters"
        for each in evidence.compared(NOW, "mixed_score")
        if (each.pair.one, each.pair.other) == (SEU, "linear")
    ]
    told = "It is in every table. SEU's mixed score less that of `linear`: " + "; ".join(lines) + "."
    return Correction("The linear row was missing", earlier, told if lines else UNKNOWN)


def networks(evidence: Evidence) -> Correction:
    def learned(name: str, row: str) -> str:
        found = [(group.benchmark, group.rows[row]) for group in evidence.sets[name] if row in group.rows]
        return "; ".join(f"`{benchmark}` {mean(each, 'learning_acc')}" for benchmark, each in found)

    earlier = (
        "Nothing said whether the networks of short protocols learn more than the pixels alone tell. Accuracy (%) of "
        f"`naive` on a task right after learning it: {learned(BEFORE, 'naive')}."
    )
    told = (
        f"`naive` {learned(NOW, 'naive')}; `linear` {learned(NOW, 'linear')}. "
        "[All learners](#is-every-learner-above-the-linear-row)."
    )
    measured = all(learned(NOW, row) for row in ("naive", "linear"))
    return Correction("What the networks learn", earlier, told if measured else UNKNOWN)


def search_at_chance(evidence: Evidence) -> Correction:
    earlier = (
        "It compared searches that had measured nothing: a sampled network was scored by BatchNorm statistics that "
        f"were still initial. Mean accuracy in the MDL search's last epoch: {last_accuracies(evidence, BEFORE)}."
    )
    now = last_accuracies(evidence, NOW)
    told = f"The statistics are estimated anew before a sampled network is scored: {now}." if now else UNKNOWN
    return Correction("The search was scored at chance", earlier, told)


def ties(evidence: Evidence) -> Correction:
    before = evidence.records(BEFORE)
    drawn = share_of_first(record for record in before if record.searcher == "random")
    earlier = (
        "Equal candidates went to the first one, max pooling, which has no parameters: it was "
        f"{share_of_first(by_mdl(before))} of the operations that the MDL search chose, and {drawn} of those drawn at "
        f"random. {_beside_random(evidence, BEFORE)}"
    )
    now = share_of_first(by_mdl(evidence.records(NOW)))
    told = f"Ties are broken at random; max pooling is {now} of what it chooses. {_beside_random(evidence, COMPONENTS)}"
    return Correction("Ties went to max pooling", earlier, told.strip() if now != NOTHING else UNKNOWN)


def _beside_random(evidence: Evidence, name: str) -> str:
    """Size of SEU beside that of a random search with the same creator."""
    control = named(SEU, "random")
    lines = [
        f"On `{group.benchmark}` SEU has "
        f"{ratio(group.rows[SEU].mean('params_total'), group.rows[control].mean('params_total'))} the parameters "
        "that it has with random search."
        for group in evidence.sets[name]
        if {SEU, control} <= group.rows.keys()
    ]
    return " ".join(lines)


def best_pair(evidence: Evidence) -> Correction:
    before = next((group for group in evidence.sets[BEFORE] if len(_pairs(group)) > 1), None)
    earlier = f"By mixed score the best searcher and creator were {_best(before)} ({_where(before)})." if before else ""
    again = next(iter(evidence.sets[COMPONENTS]), None)
    if before is None or again is None:
        return Correction("The best pair", earlier, UNKNOWN)
    then = _leader(before, "mixed_score", _pairs(before))
    now = f"It is now {_best(again)}"
    if then in again.rows and then != _leader(again, "mixed_score", _pairs(again)):
        now += f"; `{then}` has {mean(again.rows[then], 'mixed_score')}"
    return Correction("The best pair", earlier, f"{now} ({_where(again)}).")


def ewc_lambda(evidence: Evidence) -> Correction:
    earlier = (
        "EWC had the paper's lambda, which was chosen for 50 epochs, and on a short schedule holds so tight that later "
        f"tasks are not learned. Accuracy of `ewc` less `naive`: {_ewc(evidence, BEFORE)}."
    )
    now = _ewc(evidence, NOW)
    chosen = "was chosen on validation images for each benchmark" if was_tuned(evidence, "ewc") else "is not tuned yet"
    told = f"Lambda {chosen}: {now}." if now else UNKNOWN
    return Correction("EWC's lambda", earlier, told)


def was_tuned(evidence: Evidence, name: str) -> bool:
    """Whether tuning chose options of a row wherever it is."""
    rows = [group.rows[name] for group in evidence.sets[NOW] if name in group.rows]
    return bool(rows) and all(row.record.tuned for row in rows)


def few_seeds(evidence: Evidence) -> Correction:
    earlier = (
        f"Comparisons were tested each by itself. {_power(evidence, BEFORE)} SEU's mixed score was significantly above "
        f"that of the paper's other strategies in {_counts(evidence, BEFORE, 'mixed_score')}, its accuracy in "
        f"{_counts(evidence, BEFORE, 'acc')}."
    )
    told = (
        f"{_power(evidence, NOW)} Of the same comparisons stand: mixed score {_counts(evidence, NOW, 'mixed_score')}, "
        f"accuracy {_counts(evidence, NOW, 'acc')}."
    )
    return Correction("Few seeds, no correction", earlier, told if evidence.sets[NOW] else UNKNOWN)


def _power(evidence: Evidence, name: str) -> str:
    seeds = max((row.seeds for group in evidence.sets[name] for row in group.rows.values()), default=0)
    return (
        f"With {seeds} seeds a difference must be {detectable_effect(seeds) or math.nan:.1f} deviations to be found "
        "with 80 % power, before any correction."
    )


def memory(evidence: Evidence) -> Correction:
    earlier = "Size was the number of parameters: kept images, importances, anchors and teachers counted nothing."
    found: dict[str, list[float]] = {}
    for group in evidence.sets[NOW]:
        for name, row in group.rows.items():
            kept, parameters = row.mean("memory_bytes"), row.mean("params_total")
            if kept and parameters and kept > MORE * BYTES * parameters:
                found.setdefault(name, []).append(kept / (BYTES * parameters))
    lines = [f"`{name}` {_span(shares)}" for name, shares in sorted(found.items())]
    measured = any(row.mean("memory_bytes") for group in evidence.sets[NOW] for row in group.rows.values())
    told = "Memory counts all that is kept, beside the parameters. More than half as much again as their network keep: "
    return Correction(
        "Size without memory", earlier, told + (", ".join(lines) or "none") + "." if measured else UNKNOWN
    )


def random_cells(evidence: Evidence) -> Correction:
    earlier = "SEU stood beside other networks alone: what cells bring, and what search and reuse, was not told apart."
    lines = [
        f"`{each.pair.benchmark}` {each.words} ({each.difference.verdict}), "
        f"{ratio(each.pair.ours.mean('params_total'), each.pair.theirs.mean('params_total'))} the parameters"
        for each in evidence.compared(NOW, "acc")
        if (each.pair.one, each.pair.other) == (SEU, CONTROL)
    ]
    told = "SEU less random cells that are all new, in accuracy: " + "; ".join(lines) + "."
    return Correction("SEU beside random cells", earlier, told if lines else UNKNOWN)


def compute(evidence: Evidence) -> Correction:
    def times(name: str, metric: str) -> str:
        pairs = [group.rows for group in evidence.sets[name] if {SEU, "naive"} <= group.rows.keys()]
        found = [(rows[SEU].mean(metric), rows["naive"].mean(metric)) for rows in pairs]
        shares = [ours / theirs for ours, theirs in found if ours and theirs]
        return _span(shares) if shares else ""

    earlier = (
        f"Equal epochs were called equal expense. SEU took {times(BEFORE, 'image_passes')} the image passes of `naive` "
        f"and {times(BEFORE, 'train_cpu_seconds')} its processor time."
    )
    now = times(NOW, "train_flops")
    told = f"A column counts the arithmetic: SEU takes {now} that of `naive`." if now else UNKNOWN
    return Correction("Computation", earlier, told)


def ranking(_evidence: Evidence) -> Correction:
    return Correction(
        "The ranking",
        "Leaderboards were ordered by mixed score, and `joint`, no lifelong learner, could be first, with a star.",
        "Rows that see more than one task at a time, and those that learn each task by itself, are references and not "
        "ranked; accuracy, forgetting, memory and arithmetic stand side by side.",
    )


def defaults(evidence: Evidence) -> Correction:
    earlier = (
        "`si` with its default penalty did next to nothing, `rwalk` trained in evaluation mode, the teacher of `lwf` "
        "kept its dropout. The page did not show them, the leaderboards did."
    )
    lines = [f"`{name}`: {told}" for name in ("si", "rwalk", "lwf") if (told := _beside(evidence, NOW, name, "naive"))]
    chosen = "mended and tuned" if all(was_tuned(evidence, name) for name in ("si", "rwalk", "lwf")) else "mended"
    told = f"They are {chosen}. Accuracy less that of `naive`, of " + "; of ".join(lines) + "."
    return Correction("Defaults that misled", earlier, told if lines else UNKNOWN)


_ALL: Final[tuple[Callable[[Evidence], Correction], ...]] = (
    linear_row, networks, search_at_chance, ties, best_pair, random_cells, ewc_lambda, defaults, few_seeds, memory,
    compute, ranking,
)  # fmt: skip


def _span(shares: Sequence[float]) -> str:
    """Least and most of several ratios."""
    least, most = f"{min(shares):.3g}", f"{max(shares):.3g}"
    return f"{least} times" if least == most else f"{least} to {most} times"


def _leader(group: Group, metric: str, among: Iterable[str] | None = None) -> str:
    found = {name: group.rows[name].mean(metric) or 0 for name in (group.rows if among is None else among)}
    own = {name: value for name, value in found.items() if among is not None or name in (SEU, *PAPER)}
    return max(own, key=lambda name: own[name])


def _pairs(group: Group) -> list[str]:
    return [name for name, row in group.rows.items() if row.record.strategy == SEU]


def _best(group: Group) -> str:
    name = _leader(group, "mixed_score", _pairs(group))
    return f"`{name}` with {mean(group.rows[name], 'mixed_score')}"


def _where(group: Group) -> str:
    return f"`{group.benchmark}`, `{group.protocol}`"


def _ewc(evidence: Evidence, name: str) -> str:
    """EWC beside plain training, with its lambda and the share of steps that were clipped."""
    clipped: dict[str, list[float]] = {}
    for record in evidence.records(name):
        shares = [stage.clipped_share for stage in record.stages if record.strategy == "ewc"]
        clipped.setdefault(record.benchmark, []).extend(share for share in shares if share is not None)
    return "; ".join(
        f"`{each.pair.benchmark}` {each.words} ({each.difference.verdict}), lambda "
        f"{each.pair.ours.record.options.get('ewc_lambda', math.nan):,g}"
        + (f", {100 * math.fsum(found) / len(found):.0f} % of steps clipped" if found else "")
        for each in _family(evidence, name, "ewc", "naive")
        for found in [clipped.get(each.pair.benchmark, [])]
    )


def _beside(evidence: Evidence, name: str, one: str, other: str) -> str:
    """Difference in accuracy by benchmark, with the verdict within these comparisons."""
    found = _family(evidence, name, one, other)
    return "; ".join(f"`{each.pair.benchmark}` {each.words} ({each.difference.verdict})" for each in found)


def _family(evidence: Evidence, name: str, one: str, other: str) -> list[Compared]:
    return family([pair for group in evidence.sets[name] for pair in against(group, [other], one)], "acc")


def _counts(evidence: Evidence, name: str, metric: str) -> str:
    """Count the comparisons with the paper's other strategies that are significant, by itself and corrected."""
    found: Sequence[Compared] = family(
        [pair for group in evidence.sets[name] for pair in against(group, PAPER)], metric
    )
    alone = [each for each in found if (each.difference.p_value or 0) < LEVEL and each.mean > 0]
    return f"{len(alone)} of {len(found)} ({sum(each.side == 'above' for each in found)} after Holm's correction)"
