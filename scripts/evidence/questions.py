"""Declared questions and their answers: each question of questions.toml is a family of tests by itself."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from scipy.special import stdtr

from scripts.evidence.formatting import NOTHING, change, table
from scripts.evidence.runs import EVIDENCE, SEU, named, records
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import known_metric
from seu_bench.results.statistics import FEWEST_PAIRS, LEVEL, holm, summarize

SOURCE: Final = Path(__file__).with_suffix(".toml")
#: Sets whose runs answer, those of one protocol and benchmark together.
SETS: Final = ("quick", "half_day", "components", "inheritance", "contest")
#: Memories and networks that the name of a row does not say: those that every protocol has.
_USUAL_IMAGES: Final = 200
_USUAL_NETWORKS: Final = (None, "alexnet", "mlp", "linear")

#: By protocol, benchmark and name of the row, records by seed.
Pool: TypeAlias = Mapping[tuple[str, str], Mapping[str, Mapping[int, Record]]]
Kind: TypeAlias = Literal["difference", "not worse", "equivalent"]


@dataclass(frozen=True)
class Question:
    """A row beside others in a metric, on streams by protocol and benchmark.

    Attributes:
        declared: when it was asked.
        margin: by which ``one`` may be worse, or the two may differ.
    """

    id: str
    page: str
    declared: datetime
    asks: str
    kind: Kind
    one: str
    others: Sequence[str]
    where: Sequence[tuple[str, str]]
    metric: str = "acc"
    margin: float = 0.0


@dataclass(frozen=True)
class Answer:
    """One comparison of a question; ``None``: too few seeds in common.

    Attributes:
        low, high: 95 % confidence interval of the mean difference, by Student's t.
        p_holm: corrected for the comparisons of the question.
        was_known: whether a run was made before the question was declared.
    """

    place: tuple[str, str]
    other: str
    seeds: int
    mean: float
    low: float | None
    high: float | None
    p_holm: float | None
    verdict: str
    was_known: bool


def read_questions(page: str, source: Path = SOURCE) -> list[Question]:
    """Read the questions of a page, in order."""
    found = tomllib.loads(source.read_text(encoding="utf-8"))["questions"]
    given = [{**each, "where": [tuple(place) for place in each["where"]]} for each in found]
    return [Question(**each) for each in given if each["page"] == page]


def row_name(record: Record) -> str:
    """Strategy or components, network, width and memory of a run, where they are not the usual ones."""
    options: Mapping[str, Any] = record.options
    width, network = options.get("width"), options.get("backbone")
    if record.strategy == SEU:
        name = named(SEU, record.searcher or "mdl", record.creator or "mdl")
        narrow = "" if width in (None, 1) else f", width {width:g}"
        if narrow and ":" not in name:
            name = f"{SEU}: mdl, mdl"
        chosen = record.creator_options or {}
        name += narrow + (", no copies" if chosen.get("copies") is False else "")
        return name + (", probe" if chosen.get("probe") else "")
    if network in _USUAL_NETWORKS:
        return record.strategy
    name, usual = f"{record.strategy} on {network}", 0.2222 if str(network).startswith("cells") else 0.25
    images = options.get("memory")
    name += "" if width == usual else f", width {width:g}"
    return name + ("" if images in (None, _USUAL_IMAGES) else f", {images} images")


@cache
def read_pool(folder: Path = EVIDENCE) -> Pool:
    """Read the records of all sets.

    Raises:
        ValueError: two runs of a seed have one name: nothing is averaged over configurations.
    """
    pool: dict[tuple[str, str], dict[str, dict[int, Record]]] = {}
    for name in SETS:
        for record in records(folder / name):
            rows = pool.setdefault((record.protocol, record.benchmark), {})
            runs = rows.setdefault(row_name(record), {})
            if runs.setdefault(record.seed, record).run_id != record.run_id:
                raise ValueError(f"{name}: more than one run of seed {record.seed} is called {row_name(record)!r}")
    return pool


def answers(question: Question, pool: Pool) -> list[Answer]:
    """Compare on the seeds that both rows have, corrected by Holm for the comparisons of the question."""
    found = []
    for place in question.where:
        rows = pool.get(place, {})
        ours = rows.get(question.one, {})
        for other in question.others:
            pairs = [(ours[seed], run) for seed, run in sorted(rows.get(other, {}).items()) if seed in ours]
            values = [[run.metrics.get(question.metric) for run in pair] for pair in pairs]
            differences = [one - its for one, its in values if one is not None and its is not None]
            if differences:
                known = any(datetime.fromisoformat(run.started) < question.declared for pair in pairs for run in pair)
                found.append((place, other, differences, known))
    p_values = [p_value(question.kind, question.margin, differences) for _, _, differences, _ in found]
    tested = [at for at, p in enumerate(p_values) if p is not None]
    corrected = dict(zip(tested, holm([p for p in p_values if p is not None]), strict=True))
    told = []
    for at, (place, other, differences, known) in enumerate(found):
        own = summarize(differences)
        mean, low, high = (getattr(own, part, None) for part in ("mean", "low", "high"))
        verdict = judge(question, mean or 0.0, high, corrected.get(at))
        told.append(Answer(place, other, len(differences), mean or 0.0, low, high, corrected.get(at), verdict, known))
    return told


def p_value(kind: Kind, margin: float, differences: Sequence[float]) -> float | None:
    """Return the p value of a paired t-test: two-sided, one-sided by a margin, or the larger of two one-sided ones;
    ``None`` for too few pairs."""
    own = summarize(differences)
    if own is None or own.std is None or own.number < FEWEST_PAIRS:
        return None
    mean, error, freedom = own.mean, own.std / math.sqrt(own.number), own.number - 1

    def beyond(bound: float, sign: int = 1) -> float:
        """Of the hypothesis that the mean is not above ``bound``; with ``sign`` -1, that it is not below."""
        far = sign * (mean - bound)
        if error == 0:
            return 0.0 if far > 0 else 1.0 if far < 0 else 0.5
        return float(stdtr(freedom, -far / error))

    if kind == "difference":
        return 2 * min(beyond(0.0), beyond(0.0, -1))
    worse = beyond(-margin)
    return worse if kind == "not worse" else max(worse, beyond(margin, -1))


def judge(question: Question, mean: float, high: float | None, p_holm: float | None) -> str:
    """Say what the test says, and no more."""
    if p_holm is None:
        return "too few seeds"
    if question.kind == "difference":
        return "not told" if p_holm >= LEVEL else "above" if mean > 0 else "below"
    if p_holm < LEVEL:
        return "shown"
    return "worse" if high is not None and high < -question.margin else "not shown"


def summary(question: Question, found: Sequence[Answer]) -> str:
    """Count the verdicts, and what was not run."""
    verdicts = sorted(each.verdict for each in found)
    missing = len(question.where) * len(question.others) - len(found)
    counts = {verdict: verdicts.count(verdict) for verdict in verdicts} | ({"not run": missing} if missing else {})
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def answer_table(question: Question, found: Iterable[Answer]) -> str:
    """A row for each comparison, with its interval."""
    shown = known_metric(question.metric).format_cell
    rows = [
        (
            f"`{each.place[1]}`, `{each.place[0]}`",
            f"`{each.other}`",
            str(each.seeds) + ("" if each.was_known else " *"),
            change(each.mean, question.metric).removesuffix(" points"),
            NOTHING if each.low is None or each.high is None else f"{shown(each.low)} to {shown(each.high)}",
            NOTHING if each.p_holm is None else f"{each.p_holm:.3g}",
            each.verdict,
        )
        for each in found
    ]
    return table(("stream", "less", "seeds", "difference", "95 % interval", "p (Holm)", "verdict"), rows, texts=2)


def told(page: str, folder: Path = EVIDENCE) -> list[dict[str, Any]]:
    """The questions of a page as its template shows them: the question, what counts, and the table of answers."""
    pool = read_pool(folder)
    lines = []
    for question in read_questions(page):
        found = answers(question, pool)
        lines.append(
            {
                "asks": question.asks,
                "one": question.one,
                "rule": question.kind + (f" by {100 * question.margin:g} points" if question.margin else ""),
                "metric": question.metric,
                "summary": summary(question, found),
                "table": answer_table(question, found) if found else "",
            }
        )
    return lines
