"""docs/evidence/reproduction.md: the template filled from records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import jinja2

from scripts.evidence import beside_paper, claims, tables
from scripts.evidence.components import components_table
from scripts.evidence.corrections import corrections
from scripts.evidence.evidence import COMPONENTS, PARAMETERS, PROTOCOLS, Evidence, read_evidence
from scripts.evidence.formatting import bullets, names, table
from scripts.evidence.runs import EVIDENCE, ROOT, SWEEPS, Group, sweep_files
from seu_bench.results.record_metrics import known_metric

PAGE: Final = ROOT / "docs" / "evidence" / "reproduction.md"
#: Kinds of figures of the report that the page shows, with their titles.
KINDS: Final = {
    "accuracy-memory": "Accuracy against memory",
    "accuracy-parameters": "Accuracy against parameters",
    "average-accuracy": "Average accuracy of the tasks learned",
}
#: As many configurations as a figure can draw.
CONFIGURATIONS: Final = 24
#: What sweeps of a prefix make: the set, and what it is for.
PARTS: Final = {
    "quick_1": ("quick", "the paper's strategies, `linear` and `independent`, by `quick`"),
    "quick_2": ("quick", "SEU's control, by `quick`"),
    "quick_3": ("quick", "Avalanche's strategies, by `quick`"),
    "quick_4": (PARAMETERS, "strategies with as many parameters as SEU"),
    "quick_5": (COMPONENTS, "searchers and creators"),
    "quick_6": (COMPONENTS, "the searcher `darts`"),
    "half_day_1": ("half_day", "the paper's strategies, `linear` and `independent`, by `half_day`"),
    "half_day_2": ("half_day", "SEU's control, by `half_day`"),
    "half_day_3": ("half_day", "Avalanche's strategies, by `half_day`"),
}


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    evidence = read_evidence(folder)
    found = claims.findings(evidence)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Markdown, of our own records
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("reproduction.md.jinja").render(
        statuses={
            title: [each for each in found if each.status == status] for status, title in claims.STATUSES.items()
        },
        corrections=corrections(evidence),
        protocols={name: evidence.sets[name] for name in PROTOCOLS if evidence.sets[name]},
        contest=tables.contest,
        front=lambda group: names(tables.front(group.learners)),
        comparisons=lambda name, group: tables.comparisons(evidence, name, group.benchmark),
        beside_paper=beside_paper.beside_paper,
        order=beside_paper.order,
        figures=figures,
        ranks={name: tables.average_ranks(evidence, name) for name in PROTOCOLS},
        parameters=tables.equal_parameters(evidence),
        linear={name: tables.linear_row(evidence, name) for name in PROTOCOLS},
        components=components_table(evidence),
        search=bullets(_search(evidence)),
        cheapest=names(name for group in evidence.sets[COMPONENTS] for name in tables.front(group.rows, "train_flops")),
        probes=probes(evidence),
        pending=pending(evidence),
        minutes=_minutes(evidence),
        sweeps=SWEEPS,
    )


def figures(name: str, group: Group) -> list[tuple[str, str]]:
    """Title and place, from the page's folder, of the figures of a group that there are."""
    found = []
    for kind, title in KINDS.items():
        path = EVIDENCE / "figures" / name / f"{group.benchmark}-v1-{group.protocol}-{kind}.png"
        if path.is_file():
            found.append((title, f"../../{path.relative_to(ROOT).as_posix()}"))
    return found


def pending(evidence: Evidence) -> list[tuple[str, str]]:
    """What has no record yet, and the command that makes it: sets, and sweeps of a set that left no row."""
    return [
        (title, f"seu-bench sweep {file}")
        for prefix, (name, title) in PARTS.items()
        for file in sweep_files(prefix)
        if not _begun(evidence.sets[name], prefix)
    ]


#: A row by which the sweeps of a set are told apart.
_TOLD: Final = {"_2": "seu: random, all_new", "_3": "replay", "_6": "seu: darts, mdl"}


def _begun(there: Sequence[Group], prefix: str) -> bool:
    row = next((row for end, row in _TOLD.items() if prefix.endswith(end)), None)
    return any(row is None or row in group.rows for group in there)


def _search(evidence: Evidence) -> list[str]:
    lines = []
    for metric in ("acc", "params_total", "mixed_score"):
        name = {"acc": "accuracy", "params_total": "parameters", "mixed_score": "mixed score"}[metric]
        for each in evidence.compared(COMPONENTS, metric):
            pair = f"`{each.pair.one}` beside `{each.pair.other}`"
            lines.append(f"{pair}, {name}: {each.words} ({each.difference.verdict})")
    return lines


def _minutes(evidence: Evidence) -> dict[str, float] | None:
    """Of all quick runs together, and from the start of the first to the end of the last."""
    found = [record for record in evidence.records(PROTOCOLS[0]) if record.started and record.seconds is not None]
    if not found:
        return None
    started = [datetime.fromisoformat(record.started) for record in found]
    spent = [record.seconds or 0.0 for record in found]
    ended = max(start + timedelta(seconds=seconds) for start, seconds in zip(started, spent, strict=True))
    return {"runs": len(found), "all": sum(spent) / 60, "whole": (ended - min(started)).total_seconds() / 60}


def probes(evidence: Evidence) -> str:
    """Plain training on whole data sets."""
    rows = [
        (
            f"`{record.benchmark}`",
            f"`{record.options['backbone']}`",
            f"{record.task_images[0][0]:,}",
            str(record.protocol_settings["training"]["epochs"]),
            f"{record.task_images[0][2]:,}",
            known_metric("acc").format_cell(record.metrics["acc"] or 0.0),
        )
        for record in sorted(
            evidence.records("probes"), key=lambda record: (record.benchmark, record.options["backbone"] != "linear")
        )
    ]
    headings = ("data set", "network", "training images", "epochs", "test images", "test accuracy (%)")
    return table(headings, rows, texts=2) if rows else ""
