"""Our strategies beside the paper's numbers, with what differs in the same row."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from scripts.evidence.formatting import mean, names, table
from scripts.evidence.runs import PAPER, SEU, Group
from seu_bench.config.run import Request
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record

HEADINGS = (
    "strategy", "what differs from the published setting", "accuracy (%)", "parameters (M)", "mixed score",
    "paper: accuracy (%)", "parameters (M)", "mixed score",
)  # fmt: skip


def printed(benchmark: str) -> dict[str, dict[str, float]]:
    """The paper's table of a benchmark by strategy: ``acc`` in percent, ``params`` in millions, ``score``."""
    text = Path(__file__).with_name("paper.toml").read_text(encoding="utf-8")
    table: dict[str, dict[str, float]] = tomllib.loads(text).get(benchmark, {})
    return table


def beside_paper(group: Group) -> str:
    """One row per strategy, the highest accuracy first; empty where the paper has no numbers."""
    theirs = printed(group.benchmark)
    rows = []
    for name in (SEU, *PAPER):
        if name not in group.rows or name not in theirs:
            continue
        row, its = group.rows[name], theirs[name]
        ours = [mean(row, metric) for metric in ("acc", "params_total", "mixed_score")]
        beside = (f"{its['acc']:.2f}", f"{its['params']:,.2f}", f"{its['score']:.3f}")
        differs = "; ".join(differences(row.record)) or "nothing"
        rows.append((row.mean("acc") or 0, (f"`{name}`", differs, *ours, *beside)))
    return table(HEADINGS, [row for _, row in sorted(rows, key=lambda pair: -pair[0])], texts=2) if rows else ""


def differences(run: Record) -> Iterator[str]:
    """List what a run's protocol has less of than the published one, as far as it concerns the strategy."""
    published = _published(run.benchmark)
    theirs, ours = published.spec.protocol.model_dump(), run.protocol_settings
    all_images = published.plan().tasks[0].num_train
    images = ours["images"]["train"] or all_images
    if images < all_images:
        yield f"{images:,} of {all_images:,} training images per task"
    stages = {"training": "epochs", "search": "epochs of search"}
    if run.strategy == SEU:
        stages["creation"] = "epochs of creation"
    elif run.strategy != "ltg":
        del stages["search"]
    if run.strategy == "ltg":
        # Its search is as long as its training, unless an option says otherwise.
        stages = {"training": "epochs, and of search"}
    for stage, name in stages.items():
        if ours[stage]["epochs"] != theirs[stage]["epochs"]:
            yield f"{ours[stage]['epochs']} of {theirs[stage]['epochs']} {name}"
    sizes = {"cells": "cells", "channels": "channels"} if run.strategy == SEU else {"width": "of the width"}
    for size, name in sizes.items():
        ours_size, theirs_size = ours["model"][size], theirs["model"][size]
        if ours_size != theirs_size:
            yield f"{ours_size:g} {name}" if size == "width" else f"{ours_size} of {theirs_size} {name}"
    ours_batch, theirs_batch = ours["training"]["batch_size"], theirs["training"]["batch_size"]
    if ours_batch != theirs_batch:
        yield f"batches of {ours_batch}, not {theirs_batch}"


@cache
def _published(benchmark: str) -> ResolvedRun:
    return resolve(Registry(), Request(strategy=SEU, benchmark=benchmark, protocol="paper"))


def order(group: Group) -> tuple[str, str]:
    """Strategies by mixed score, the best first: ours, and the paper's; empty where it has none."""
    theirs = printed(group.benchmark)
    ours = {name: group.rows[name].mean("mixed_score") or 0 for name in (SEU, *PAPER) if name in group.rows}
    return (
        names(sorted(ours, key=lambda name: -ours[name])),
        names(sorted(theirs, key=lambda name: -float(theirs[name]["score"]))),
    )
