"""The questions, answered from records: a table and sentences each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pandas
import torch

from scripts.evidence.formatting import counted, difference, mean, number, table
from scripts.evidence.runs import EVIDENCE, PUBLISHED, chosen, finished, reused_share
from seu_bench_seu.mdl import MultinomialTables, Normalisation

#: Where the rule is followed without any training: for how many epochs, for how many candidates, how often.
_EPOCHS, _OPERATIONS, _REPETITIONS = 100, 8, 200


@dataclass(frozen=True)
class Answer:
    """Answer of the records to one question.

    Attributes:
        table: of Markdown.
        sentences: comparisons, one line each.
    """

    table: str
    sentences: list[str] = field(default_factory=list)


def asked() -> pandas.DataFrame:
    """The runs that were made for the questions."""
    return finished(EVIDENCE / "questions")


def is_search_worth_it(runs: pandas.DataFrame) -> Answer:
    """Searchers against the random one, with each creator."""
    digits = finished(PUBLISHED / "searchers")
    both = pandas.concat([plain(runs), plain(digits[digits["benchmark"] != "split_fashion"])], ignore_index=True)
    rows, sentences, pairs = [], [], []
    for (benchmark, creator), here in _groups(both, "benchmark", "creator"):
        control = chosen(here, searcher="random")
        if not len(control):
            continue
        for (searcher,), found in _groups(here, "searcher"):
            cells = [mean(found[metric], metric) for metric in ("acc", "params_total", "mixed_score")]
            rows.append((f"`{benchmark}`", f"`{searcher}`", f"`{creator}`", str(len(found)), *cells))
        found = chosen(here, searcher="mdl")
        if len(found):
            pairs.append((found, control))
            sentences.append(
                f"`{benchmark}`, creator `{creator}`: `mdl` against `random` in mixed score "
                f"{difference(found, control, 'mixed_score')}; in accuracy {difference(found, control, 'acc')}; "
                f"in parameters {difference(found, control, 'params_total')}."
            )
    if pairs:
        summary = "; ".join(
            f"{name}: {counted(pairs, metric)}"
            for name, metric in (("mixed score", "mixed_score"), ("accuracy", "acc"), ("parameters", "params_total"))
        )
        sentences.insert(
            0, f"`mdl` against `random` in {len(pairs)} comparisons of one benchmark and creator: {summary}."
        )
    headings = ("benchmark", "searcher", "creator", "seeds", "accuracy", "parameters", "mixed score")
    return _answer(headings, rows, sentences, texts=3)


def how_much_is_reused(runs: pandas.DataFrame) -> Answer:
    """Units reused, by what their epoch records start from."""
    rows, sides = [], {}
    for start in (0, 10, 30):
        found = configured(runs, creator_options__epochs=40, creator_options__old_unit_epochs=start)
        found = chosen(found, creator_options__normalisation="sum")
        if len(found):
            sides[start] = found.assign(reused=reused_share(found))
            metrics = ("reused", "acc", "params_total", "mixed_score")
            rows.append((str(start), str(len(found)), *(mean(sides[start][metric], metric) for metric in metrics)))
    sentences = [
        f"{start} against {least} epochs: units reused {difference(found, sides[least], 'reused')}; "
        f"accuracy {difference(found, sides[least], 'acc')}; "
        f"mixed score {difference(found, sides[least], 'mixed_score')}."
        for least, start, found in _against_first(sides)
    ]
    headings = ("old units start at", "seeds", "places that reuse a unit", "accuracy", "parameters", "mixed score")
    return _answer(headings, rows, sentences)


def what_softmax_does(runs: pandas.DataFrame) -> Answer:
    """Both normalisations, in the search and in the creation."""
    settings: dict[str, dict[str, Any]] = {
        "search": {"searcher_options__epochs": 40},
        "creation": {"creator_options__epochs": 40, "creator_options__old_unit_epochs": 30},
    }
    rows, sentences = [], []
    for stage, options in settings.items():
        sides = {}
        for rule in ("sum", "softmax"):
            part = "searcher_options" if stage == "search" else "creator_options"
            found = chosen(configured(runs, **options), **{f"{part}__normalisation": rule})
            if len(found):
                sides[rule] = found.assign(reused=reused_share(found))
                metrics = ("acc", "params_total", "mixed_score", "reused")
                rows.append((stage, rule, str(len(found)), *(mean(sides[rule][metric], metric) for metric in metrics)))
        if len(sides) == 2:
            compared = ("acc", "params_total", "mixed_score", "reused")
            text = "; ".join(
                f"{name} {difference(sides['softmax'], sides['sum'], metric)}"
                for name, metric in zip(("accuracy", "parameters", "mixed score", "reuse"), compared, strict=True)
            )
            sentences.append(f"softmax against sum in the {stage}: {text}.")
    headings = ("stage", "normalisation", "seeds", "accuracy", "parameters", "mixed score", "places that reuse a unit")
    return _answer(headings, rows, sentences, texts=2)


def what_frozen_statistics_cost(runs: pandas.DataFrame) -> Answer:
    """BatchNorm's statistics of reused units: those of their first task, or of each task."""
    rows, sentences = [], []
    for creator in ("mdl", "reuse_first"):
        sides = {}
        for kind in ("frozen", "per_task"):
            found = _unchanged(_computed_with(kind, chosen(runs, searcher="mdl", creator=creator)))
            if len(found):
                sides[kind] = found.assign(reused=reused_share(found))
                cells = [mean(sides[kind][metric], metric) for metric in ("acc", "reused", "mixed_score")]
                rows.append((f"`{creator}`", f"`{kind}`", str(len(found)), *cells))
        if len(sides) == 2:
            text = difference(sides["per_task"], sides["frozen"], "acc")
            sentences.append(f"`{creator}`: `per_task` against `frozen` in accuracy {text}.")
    headings = ("creator", "statistics", "seeds", "accuracy", "places that reuse a unit", "mixed score")
    return _answer(headings, rows, sentences, texts=2)


def what_pays_most(runs: pandas.DataFrame) -> Answer:
    """Mixed score against processor time, for each pair of searcher and creator."""
    rows, points = [], {}
    for (searcher, creator), found in _groups(plain(runs), "searcher", "creator"):
        seconds = found["train_cpu_seconds"]
        if seconds.isna().any():
            continue
        ratio = found["mixed_score"] / (seconds / 60)
        points[f"`{searcher}` with `{creator}`"] = (float(seconds.mean()), float(found["mixed_score"].mean()))
        cells = (mean(found["mixed_score"], "mixed_score"), mean(seconds, "train_cpu_seconds"))
        row = (f"`{searcher}`", f"`{creator}`", str(len(found)), mean(found["acc"], "acc"), *cells)
        rows.append((ratio.mean(), (*row, mean(ratio, "score_per_cpu_minute"))))
    headings = (
        "searcher",
        "creator",
        "seeds",
        "accuracy",
        "mixed score",
        "processor time",
        "mixed score per processor minute",
    )
    front = [
        f"{name}: mixed score {number(score, 'mixed_score')} for {number(seconds, 'train_cpu_seconds')}"
        for name, (seconds, score) in sorted(points.items(), key=lambda item: item[1])
        if not any(s <= seconds and m >= score and (s, m) != (seconds, score) for s, m in points.values())
    ]
    return _answer(headings, [row for _, row in sorted(rows, key=lambda pair: -pair[0])], front, texts=2)


@cache
def without_training(normalisation: Normalisation) -> tuple[float, float]:
    """The rule by itself: eight candidates, of which one measures 0.9 and the others 0.5 whenever they are sampled.

    Returns:
        The probability of the good one after 100 epochs, and the share of repetitions in which it is the most
        probable; means over 200 repetitions.
    """
    probability, found = 0.0, 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(_REPETITIONS):
            tables = MultinomialTables([_OPERATIONS], alpha=0.01, scope="sampled", normalisation=normalisation)
            for _ in range(_EPOCHS):
                sampled = tables.sample()
                tables.learn(sampled, 0.9 if sampled == [0] else 0.5)
            probability += float(tables.probabilities[0][0]) / _REPETITIONS
            found += int(tables.probabilities[0].argmax() == 0)
    return probability, found / _REPETITIONS


def plain(runs: pandas.DataFrame) -> pandas.DataFrame:
    """SEU as the protocol has it, but for searcher and creator."""
    return _unchanged(_computed_with("frozen", chosen(runs, strategy="seu"))) if len(runs) else runs


def configured(runs: pandas.DataFrame, **options: Any) -> pandas.DataFrame:
    """SEU with the paper's searcher and creator, and these options."""
    return _computed_with("frozen", chosen(runs, strategy="seu", searcher="mdl", creator="mdl", **options))


def _computed_with(statistics: str, runs: pandas.DataFrame) -> pandas.DataFrame:
    """Records from before there was the option have none: their statistics are frozen."""
    if "options.statistics" not in runs:
        return runs if statistics == "frozen" else runs.iloc[:0]
    return runs[runs["options.statistics"].fillna("frozen") == statistics]


def _unchanged(runs: pandas.DataFrame) -> pandas.DataFrame:
    """Select runs without an option that these questions vary."""
    options = ("searcher_options__epochs", "creator_options__epochs", "creator_options__old_unit_epochs")
    runs = chosen(runs, **dict.fromkeys(options))
    for part in ("searcher_options", "creator_options"):
        rule = runs.get(f"{part}.normalisation")
        if rule is not None:
            runs = runs[rule.isna() | (rule == "sum")]
    return runs


def _answer(headings: Sequence[str], rows: Sequence[Sequence[str]], sentences: list[str], texts: int = 1) -> Answer:
    return Answer(table(headings, rows, texts) if rows else "Not measured.", sentences)


def _groups(runs: pandas.DataFrame, *columns: str) -> Iterator[tuple[tuple[str, ...], pandas.DataFrame]]:
    if len(runs):
        for names, found in runs.groupby(list(columns)):
            yield tuple(str(name) for name in names), found


def _against_first(sides: dict[int, pandas.DataFrame]) -> Iterator[tuple[int, int, pandas.DataFrame]]:
    least = min(sides, default=0)
    yield from ((least, start, found) for start, found in sides.items() if start != least)
