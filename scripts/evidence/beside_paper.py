"""Our strategies beside the paper's numbers, with what differs in the same row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pandas

from scripts.evidence.formatting import difference, mean, number, table
from scripts.evidence.runs import STRATEGIES, chosen
from seu_bench.config.run import Request
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.plugin.registry import Registry
from seu_bench.results.report.paper import printed

HEADINGS = (
    "strategy",
    "what differs from the published setting",
    "seeds",
    "accuracy",
    "forgetting",
    "parameters",
    "mixed score",
    "paper: accuracy",
    "parameters",
    "mixed score",
)


def groups(runs: pandas.DataFrame) -> list[tuple[str, str]]:
    """Benchmarks and protocols that there are runs of."""
    return (
        sorted({(str(b), str(p)) for b, p in zip(runs["benchmark"], runs["protocol"], strict=True)})
        if len(runs)
        else []
    )


def strategies_table(runs: pandas.DataFrame, benchmark: str, protocol: str) -> str:
    """One row per strategy, the best mixed score first."""
    rows = []
    for strategy in STRATEGIES:
        found = chosen(runs, benchmark=benchmark, protocol=protocol, strategy=strategy)
        if not len(found):
            continue
        theirs = printed(benchmark).get(strategy)
        beside = ("-", "-", "-")
        if theirs:
            beside = (f"{theirs['acc']:.2f} %", f"{theirs['params'] * 1e6:,.0f}", f"{theirs['score']:.3f}")
        ours = [mean(found[metric], metric) for metric in ("acc", "forgetting", "params_total", "mixed_score")]
        seeds = ", ".join(str(seed) for seed in sorted(found["seed"]))
        differs = "; ".join(differences(found.iloc[0]))
        rows.append((found["mixed_score"].mean(), (f"`{strategy}`", differs, seeds, *ours, *beside)))
    return table(HEADINGS, [row for _, row in sorted(rows, key=lambda pair: -pair[0])], texts=3)


def differences(run: pandas.Series[Any]) -> Iterator[str]:
    """List what a run's protocol has less of than the published one, as far as it concerns the strategy."""
    published = _published(str(run["benchmark"]))
    theirs, ours = published.spec.protocol.model_dump(), run["protocol_settings"]
    images, all_images = run["task_images"][0][0], published.plan().tasks[0].num_train
    if images != all_images:
        yield f"{images:,} of {all_images:,} training images per task"
    stages = {"training": "epochs", "search": "epochs of search"}
    if run["strategy"] == "seu":
        stages["creation"] = "epochs of creation"
    elif run["strategy"] != "ltg":
        del stages["search"]
    if run["strategy"] == "ltg":
        # Its search is as long as its training, unless an option says otherwise.
        stages = {"training": "epochs, and of search"}
    for stage, name in stages.items():
        if ours[stage]["epochs"] != theirs[stage]["epochs"]:
            yield f"{ours[stage]['epochs']} of {theirs[stage]['epochs']} {name}"
    sizes = {"cells": "cells", "channels": "channels"} if run["strategy"] == "seu" else {"width": "of the width"}
    for size, name in sizes.items():
        ours_size, theirs_size = ours["model"][size], theirs["model"][size]
        if ours_size != theirs_size:
            yield f"{ours_size:g} {name}" if size == "width" else f"{ours_size} of {theirs_size} {name}"
    ours_batch, theirs_batch = ours["training"]["batch_size"], theirs["training"]["batch_size"]
    if ours_batch != theirs_batch:
        yield f"batches of {ours_batch}, not {theirs_batch}"


@cache
def _published(benchmark: str) -> ResolvedRun:
    return resolve(Registry(), Request(strategy="seu", benchmark=benchmark, protocol="paper"))


def forgetting_of_seu(runs: pandas.DataFrame) -> str:
    """Count the runs in which SEU forgot nothing."""
    ours = chosen(runs, strategy="seu")
    exact = int((ours["forgetting"] == 0).sum())
    worst = number(float(ours["forgetting"].max()), "forgetting")
    return f"exactly 0 in {exact} of {len(ours)} runs" + ("" if exact == len(ours) else f", at the most {worst}")


def score_of_seu(runs: pandas.DataFrame, benchmark: str, protocol: str) -> Iterator[str]:
    """SEU's mixed score against every other strategy's."""
    here = chosen(runs, benchmark=benchmark, protocol=protocol)
    ours = chosen(here, strategy="seu")
    for strategy in STRATEGIES:
        other = chosen(here, strategy=strategy)
        if strategy == "seu" or not len(other) or not len(ours):
            continue
        above = ours["mixed_score"].mean() > other["mixed_score"].mean()
        yield f"{'above' if above else '**not above**'} `{strategy}`: {difference(ours, other, 'mixed_score')}"


def most_accurate(runs: pandas.DataFrame, benchmark: str, protocol: str) -> str:
    """The strategy of the highest mean accuracy, and SEU beside it where that is another one."""
    here = chosen(runs, benchmark=benchmark, protocol=protocol)
    means = here[here["strategy"].isin(STRATEGIES)].groupby("strategy")["acc"].mean()
    best = str(means.idxmax())
    found = chosen(here, strategy=best)
    if best == "seu" or "seu" not in means:
        return f"`{best}`, {mean(found['acc'], 'acc')}"
    beside = difference(chosen(here, strategy="seu"), found, "acc")
    return f"`{best}`, {mean(found['acc'], 'acc')}; SEU beside it {beside}"


def order(runs: pandas.DataFrame, benchmark: str, protocol: str) -> tuple[str, str]:
    """Strategies by mixed score, the best first: ours, and the paper's (``-`` where it has none)."""
    here = chosen(runs, benchmark=benchmark, protocol=protocol)
    scores = here[here["strategy"].isin(STRATEGIES)].groupby("strategy")["mixed_score"].mean()
    theirs = printed(benchmark)
    ranked = sorted(theirs, key=lambda strategy: -float(theirs[strategy]["score"]))
    return ", ".join(scores.sort_values(ascending=False).index), ", ".join(ranked) or "-"
