"""What stands and what does not: claims as data, each judged by the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from scripts.evidence.comparing import Compared, Side
from scripts.evidence.evidence import COMPONENTS, PARAMETERS, PROTOCOLS, Evidence
from scripts.evidence.formatting import names
from scripts.evidence.runs import CONTROL, PAPER, PAPERS, RELATIVES, SEU, kind, named
from scripts.evidence.tables import front

Status: TypeAlias = Literal["stands", "stands in part", "does not stand", "not told", "not measured"]
#: Headings, in the order of the page.
STATUSES: Final[dict[Status, str]] = {
    "stands": "What stands",
    "stands in part": "What stands in part",
    "does not stand": "What does not stand",
    "not told": "What the seeds do not tell",
}
#: The same in a sentence, of one claim and of several.
_COUNTED: Final[dict[Status, tuple[str, str]]] = {
    "stands": ("stands", "stand"),
    "stands in part": ("stands in part", "stand in part"),
    "does not stand": ("does not stand", "do not stand"),
    "not told": ("is not told by the seeds", "are not told by the seeds"),
    "not measured": ("was not measured", "were not measured"),
}
#: A row that a claim is about: by name, or all learners but SEU and the paper's.
OTHERS: Final = "*"


@dataclass(frozen=True)
class Claim:
    """A claim about a row and others.

    Args:
        text: the claim, as a sentence without its end.
        metric: in which they are compared.
        side: where the row must be for the claim to hold.
        others: the rows that it is compared with; :data:`OTHERS` for the learners that are not the paper's.
        one: the row.
        where: the set whose comparisons decide; by the sets of :data:`PROTOCOLS` each is looked at.
    """

    text: str
    metric: str
    side: Side
    others: tuple[str, ...]
    one: str | tuple[str, ...] = SEU
    where: str = PROTOCOLS[0]


@dataclass(frozen=True)
class Finding:
    """A claim with what the records say of it."""

    status: Status
    text: str
    detail: str


_MDL, _RANDOM = ((named(SEU, searcher), named(SEU, searcher, "frugal")) for searcher in (PAPERS, "random"))
_ALL_NEW = named(SEU, PAPERS, "all_new")

CLAIMS: Final = (
    Claim("SEU is more accurate than the paper's other strategies", "acc", "above", PAPER),
    Claim("SEU is more accurate than the other learners, of Avalanche", "acc", "above", (OTHERS,)),
    Claim("SEU is more accurate than a linear classifier per task", "acc", "above", ("linear",)),
    Claim("SEU has the higher mixed score beside the paper's other strategies", "mixed_score", "above", PAPER),
    Claim("SEU has a higher mixed score than a linear classifier per task", "mixed_score", "above", ("linear",)),
    Claim(
        "SEU has a higher mixed score than a linear classifier per task, where size is all memory that is kept",
        "mixed_score_memory",
        "above",
        ("linear",),
    ),
    Claim("SEU keeps less memory than the paper's other strategies", "memory_bytes", "below", PAPER),
    Claim("SEU keeps less memory than the other learners, of Avalanche", "memory_bytes", "below", (OTHERS,)),
    Claim("SEU is more accurate than a network of its own for each task", "acc", "above", ("independent",)),
    Claim("SEU is smaller than a network of its own for each task", "params_total", "below", ("independent",)),
    Claim("Search and reuse make SEU more accurate than random cells that are all new", "acc", "above", (CONTROL,)),
    Claim("Search and reuse make SEU smaller than random cells that are all new", "params_total", "below", (CONTROL,)),
    Claim(
        "Search and reuse give SEU a higher mixed score than random cells that are all new",
        "mixed_score",
        "above",
        (CONTROL,),
    ),
    Claim(
        "SEU takes no more arithmetic to train, its search included, than the paper's other strategies",
        "train_flops",
        "below",
        PAPER,
    ),
    Claim(
        "With as many parameters SEU is more accurate than the others",
        "acc",
        "above",
        (*PAPER, OTHERS),
        where=PARAMETERS,
    ),
    Claim("EWC is more accurate than plain training", "acc", "above", ("naive",), "ewc"),
    Claim("EWC forgets less than plain training", "forgetting", "below", ("naive",), "ewc"),
    Claim(
        "SEU is more accurate than other architecture-based methods, which mask, route or grow",
        "acc",
        "above",
        RELATIVES,
    ),
    Claim("SEU keeps less memory than other architecture-based methods", "memory_bytes", "below", RELATIVES),
    Claim("SEU has a higher mixed score than other architecture-based methods", "mixed_score", "above", RELATIVES),
    Claim(
        "Other architecture-based methods are more accurate than plain training", "acc", "above", ("naive",), RELATIVES
    ),
    Claim(
        "Other architecture-based methods forget less than plain training", "forgetting", "below", ("naive",), RELATIVES
    ),
    Claim(
        "Other architecture-based methods are more accurate than a linear classifier per task",
        "acc",
        "above",
        ("linear",),
        RELATIVES,
    ),
    Claim("The MDL search is more accurate than random search", "acc", "above", _RANDOM, _MDL, COMPONENTS),
    Claim(
        "The MDL search has a higher mixed score than random search",
        "mixed_score",
        "above",
        _RANDOM,
        _MDL,
        COMPONENTS,
    ),
    Claim(
        "Units that are all new make SEU larger than chosen ones", "params_total", "above", (SEU,), _ALL_NEW, COMPONENTS
    ),
    Claim(
        "Units that are all new make SEU more accurate than chosen ones", "acc", "above", (SEU,), _ALL_NEW, COMPONENTS
    ),
)


def findings(evidence: Evidence) -> list[Finding]:
    """Judge every claim of the page."""
    own: tuple[Callable[[Evidence], Finding], ...] = (nothing_forgotten, on_the_front, above_linear)
    return [*[check(evidence) for check in own], *[judged(evidence, claim) for claim in CLAIMS]]


def counted(found: Sequence[Finding]) -> str:
    """Say how many claims there are and how many of each status."""
    numbers = {name: sum(each.status == name for each in found) for name in _COUNTED}
    told = [f"{number} {_COUNTED[name][number > 1]}" for name, number in numbers.items() if number]
    return f"Of {len(found)} claims " + ", ".join(told)


def judged(evidence: Evidence, claim: Claim) -> Finding:
    """Judge a claim by the set that it names, and say what the longer protocol says of it.

    Where only the longer one was run, that one judges.
    """
    order = PROTOCOLS if claim.where in PROTOCOLS else (claim.where,)
    told = [(name, found) for name in order if (found := chosen(evidence, claim, name))]
    if not told:
        return Finding("not measured", claim.text, "")
    (first, found), *others = told
    details = [("" if first == claim.where else f"by `{first}` ") + detail(found, claim.side)]
    details += [f"By `{name}`: {summary(again, claim.side)}" for name, again in others]
    return Finding(status(found, claim.side), claim.text, ". ".join(details))


def chosen(evidence: Evidence, claim: Claim, where: str) -> list[Compared]:
    """Choose the comparisons of a set that a claim is about, out of the family that they are corrected in."""
    ones = (claim.one,) if isinstance(claim.one, str) else claim.one
    return [
        found
        for found in evidence.compared(where, claim.metric)
        if found.pair.one in ones
        and (
            found.pair.other in claim.others
            or (OTHERS in claim.others and kind(found.pair.other, found.pair.theirs) == "other")
        )
    ]


def status(found: Sequence[Compared], side: Side) -> Status:
    """Judge a claim: it stands where every comparison is significant on the side that it says."""
    sides = [each.side for each in found]
    if not sides:
        return "not measured"
    if all(each == side for each in sides):
        return "stands"
    if side in sides:
        return "stands in part"
    return "not told" if set(sides) == {"not told"} else "does not stand"


def summary(found: Sequence[Compared], side: Side) -> str:
    """Count the comparisons that are on the side of the claim, on the other one, and not told."""
    opposite = sum(each.side not in (side, "not told") for each in found)
    told = f", {opposite} the other way round" if opposite else ""
    return f"{sum(each.side == side for each in found)} of {len(found)}{told}"


def detail(found: Sequence[Compared], side: Side) -> str:
    """Say by benchmark how many comparisons are on the side of the claim, and name the others."""
    return "; ".join(_of_benchmark(benchmark, here, side) for benchmark, here in _by_benchmark(found))


def _of_benchmark(benchmark: str, found: Sequence[Compared], side: Side) -> str:
    if len(found) == 1:
        (only,) = found
        told = "" if only.side != "not told" else f", {only.difference.verdict}"
        return f"`{benchmark}` {only.words}{told}"
    # Of a claim about several rows beside one the rows are named, else what they stand beside.
    of_rows = len({each.pair.other for each in found}) == 1
    opposite = [_name(each, of_rows) for each in found if each.side not in (side, "not told")]
    untold = [_name(each, of_rows) for each in found if each.side == "not told"]
    held = len(found) - len(opposite) - len(untold)
    parts = [f"{'the other way round' if of_rows else _other_way[side]} {names(opposite)}"] if opposite else []
    parts += [f"not told {'of' if of_rows else 'beside'} {names(untold)}"] if untold else []
    return f"`{benchmark}` {held} of {len(found)}" + (f" ({'; '.join(parts)})" if parts else "")


def _name(found: Compared, of_row: bool) -> str:
    return found.pair.one if of_row else found.pair.other


_other_way: Final = {"above": "below", "below": "above", "not told": "beside"}


def _by_benchmark(found: Sequence[Compared]) -> Iterator[tuple[str, list[Compared]]]:
    for benchmark in dict.fromkeys(each.pair.benchmark for each in found):
        yield benchmark, [each for each in found if each.pair.benchmark == benchmark]


def nothing_forgotten(evidence: Evidence) -> Finding:
    """SEU's forgetting is 0, not nearly 0, in every run."""
    ours = {
        record.run_id: record.metrics.get("forgetting")
        for name in (*PROTOCOLS, COMPONENTS)
        for group in evidence.sets[name]
        for row in group.rows.values()
        for record in row.runs.values()
        if record.strategy == SEU
    }
    exact = sum(value == 0 for value in ours.values())
    found: Status = "not measured" if not ours else "stands" if exact == len(ours) else "does not stand"
    return Finding(found, "SEU forgets exactly nothing", f"{exact} of {len(ours)} runs" if ours else "")


def on_the_front(evidence: Evidence) -> Finding:
    """No other learner has a higher mean accuracy in less memory."""
    fronts = {group.benchmark: front(group.learners) for group in evidence.sets[PROTOCOLS[0]]}
    told = {benchmark: SEU in found for benchmark, found in fronts.items() if found}
    text = "No other learner is both more accurate and smaller than SEU, in the means"
    held = sum(told.values())
    found: Status = (
        "not measured"
        if not told
        else "stands"
        if held == len(told)
        else "stands in part"
        if held
        else "does not stand"
    )
    return Finding(found, text, "; ".join(f"`{name}` {'yes' if yes else 'no'}" for name, yes in told.items()))


def above_linear(evidence: Evidence) -> Finding:
    """Every learner learns its tasks better than a linear classifier does."""
    found = evidence.beside_linear(PROTOCOLS[0], "learning_acc")
    return Finding(
        status(found, "above"),
        "Every learner is more accurate than a linear classifier right after learning a task",
        "; ".join(_linear_of(benchmark, here) for benchmark, here in _by_benchmark(found)),
    )


def _linear_of(benchmark: str, found: Sequence[Compared]) -> str:
    others = [each.pair.one for each in found if each.side != "above"]
    return f"`{benchmark}` {len(found) - len(others)} of {len(found)}" + (f" (not {names(others)})" if others else "")
