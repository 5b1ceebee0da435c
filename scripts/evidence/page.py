"""docs/evidence/reproduction.md: the template filled from records."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pandas

from scripts.evidence import answers, beside_paper, elsewhere
from scripts.evidence.formatting import mean, table
from scripts.evidence.runs import EVIDENCE, ROOT, chosen, finished

PAGE = ROOT / "docs" / "evidence" / "reproduction.md"
#: Kinds of figures of the report that the page shows, with their titles.
KINDS = {
    "accuracy-parameters": "Accuracy against parameters",
    "average-accuracy": "Average accuracy of the tasks learned",
    "original-retained": "Original against retained accuracy",
}
#: Folders of records that hold the five strategies, called by their protocols.
SWEEPS = ("quick", "half_day")
#: The quick part, made on another machine.
ELSEWHERE = "quick_elsewhere"
#: Which kinds of each folder.
FIGURES = {**dict.fromkeys(SWEEPS, tuple(KINDS)), "questions": ("accuracy-parameters",)}
#: As many as a figure can draw.
CONFIGURATIONS = 24


def rendered() -> str:
    """The page as the published records have it."""
    five = pandas.concat([finished(EVIDENCE / name) for name in SWEEPS], ignore_index=True)
    asked = answers.asked()
    quick, again = chosen(five, protocol="quick"), finished(EVIDENCE / ELSEWHERE)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Markdown, of our own records
        keep_trailing_newline=True,
    )
    return environment.get_template("reproduction.md.jinja").render(
        groups=beside_paper.groups(five),
        strategies_table=lambda *group: beside_paper.strategies_table(five, *group),
        score_of_seu=lambda *group: list(beside_paper.score_of_seu(five, *group)),
        most_accurate=lambda *group: beside_paper.most_accurate(five, *group),
        order=lambda *group: beside_paper.order(five, *group),
        forgetting_of_seu=beside_paper.forgetting_of_seu(pandas.concat([five, again, asked], ignore_index=True)),
        has_half_day="half_day" in set(five["protocol"]),
        quick=_minutes(quick),
        figures=_figures,
        elsewhere=_elsewhere(quick, again),
        search=answers.is_search_worth_it(asked),
        reuse=answers.how_much_is_reused(asked),
        softmax=answers.what_softmax_does(asked),
        rule={"sum": answers.without_training("sum"), "softmax": answers.without_training("softmax")},
        statistics=answers.what_frozen_statistics_cost(asked),
        pay=answers.what_pays_most(asked),
        probes=_probes(),
    )


def _figures(name: str, benchmark: str, protocol: str) -> list[tuple[str, str]]:
    """Title and place, from the page's folder, of the figures of a folder of records that there are."""
    found = []
    for kind in FIGURES[name]:
        path = EVIDENCE / "figures" / name / f"{benchmark}-v1-{protocol}-{kind}.png"
        if path.is_file():
            found.append((KINDS[kind], f"../../{path.relative_to(ROOT).as_posix()}"))
    return found


def _minutes(runs: pandas.DataFrame) -> dict[str, float]:
    """Of all cells together, and from the start of the first to the end of the last."""
    started = pandas.to_datetime(runs["started"])
    ended = started + pandas.to_timedelta(runs["seconds"], unit="s")
    return {"cells": float(runs["seconds"].sum()) / 60, "whole": (ended.max() - started.min()).total_seconds() / 60}


def _elsewhere(here: pandas.DataFrame, there: pandas.DataFrame) -> dict[str, str]:
    if not len(there):
        return {}
    return {
        "table": elsewhere.beside_each_other(here, there),
        "apart": elsewhere.significant(here, there),
        "ours": elsewhere.seu_against_others(here),
        "theirs": elsewhere.seu_against_others(there),
    }


def _probes() -> str:
    runs = finished(EVIDENCE / "probes")
    if not len(runs):
        return ""
    rows = []
    for benchmark in sorted(set(runs["benchmark"])):
        for backbone in ("linear", "alexnet"):
            found = chosen(runs, benchmark=benchmark, options__backbone=backbone)
            for _, run in found.iterrows():
                training, _, test = run["task_images"][0]
                epochs = str(run["protocol_settings"]["training"]["epochs"])
                acc = mean([run["acc"]], "acc")
                rows.append((f"`{benchmark}`", f"`{backbone}`", f"{training:,}", epochs, f"{test:,}", acc))
    headings = ("data set", "network", "training images", "epochs", "test images", "test accuracy")
    return table(headings, rows, texts=2)
