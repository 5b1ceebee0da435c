"""docs/evidence/reproduction.md: the template filled from records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from scripts.evidence import beside_paper, relatives, tables, tuning
from scripts.evidence.components import components_table
from scripts.evidence.evidence import COMPONENTS, PROTOCOLS, SCHEDULE, Evidence, read_evidence
from scripts.evidence.formatting import names, table, template
from scripts.evidence.questions import told
from scripts.evidence.runs import EVIDENCE, ROOT, Group
from scripts.evidence.sweeps import FILES, FOLDER, pending
from seu_bench.results.record_metrics import known_metric

PAGE: Final = ROOT / "docs" / "evidence" / "reproduction.md"
#: Kinds of figures of the report that the page shows, with their titles.
KINDS: Final = {
    "accuracy-memory": "Accuracy against memory",
    "average-accuracy": "Average accuracy of the tasks learned",
}
#: The same over several benchmarks.
OVER_BENCHMARKS: Final = {"average-ranks": "Average ranks over the benchmarks"}
#: As many configurations as a figure can draw.
CONFIGURATIONS: Final = 24


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    evidence = read_evidence(folder)
    return template("reproduction.md.jinja").render(
        questions=told("reproduction", folder),
        protocols={name: evidence.sets[name] for name in PROTOCOLS if evidence.sets[name]},
        contest=tables.contest,
        front=lambda group: names(tables.front(group.learners)),
        size=tables.size_in_words,
        beside_paper=beside_paper.beside_paper,
        order=beside_paper.order,
        figures=figures,
        diagrams=diagrams,
        ranks={name: tables.average_ranks(evidence, name) for name in PROTOCOLS},
        relatives=relatives.table_of(evidence),
        relatives_images=relatives.images(evidence),
        relatives_sizes={group.benchmark: relatives.sizes(group) for group in evidence.sets[PROTOCOLS[0]]},
        perceptron=relatives.gated_perceptron(evidence),
        components=components_table(evidence),
        cheapest=names(name for group in evidence.sets[COMPONENTS] for name in tables.front(group.rows, "train_flops")),
        lambdas=tuning.by_method(),
        tuned=tuning.chosen(),
        probes=probes(evidence),
        pending=pending(FILES, folder),
        titles=FILES,
        schedule=evidence.sets[SCHEDULE],
        schedule_costs=schedule_costs(evidence),
        minutes=_minutes(evidence),
        sweeps=FOLDER,
    )


def figures(name: str, group: Group) -> list[tuple[str, str]]:
    """Title and place, from the page's folder, of the figures of a group that there are."""
    return _found(name, f"{group.benchmark}-v{group.version}-{group.protocol}", KINDS)


def diagrams(name: str) -> list[tuple[str, str]]:
    """The same over all benchmarks of a set."""
    return _found(name, f"over-benchmarks-{name}", OVER_BENCHMARKS)


def _found(name: str, beginning: str, kinds: Mapping[str, str]) -> list[tuple[str, str]]:
    places = {title: EVIDENCE / "figures" / name / f"{beginning}-{kind}.svg" for kind, title in kinds.items()}
    return [(title, f"../../{path.relative_to(ROOT).as_posix()}") for title, path in places.items() if path.is_file()]


def _minutes(evidence: Evidence) -> dict[str, float] | None:
    """Of all quick runs together, and from the start of the first to the end of the last."""
    found = [record for record in evidence.records(PROTOCOLS[0]) if record.started and record.seconds is not None]
    if not found:
        return None
    started = [datetime.fromisoformat(record.started) for record in found]
    spent = [record.seconds or 0.0 for record in found]
    ended = max(start + timedelta(seconds=seconds) for start, seconds in zip(started, spent, strict=True))
    return {"runs": len(found), "all": sum(spent) / 60, "whole": (ended - min(started)).total_seconds() / 60}


def schedule_costs(evidence: Evidence) -> str:
    """Device, time and memory of each run by the paper's schedule."""
    rows = []
    for it in sorted(evidence.records(SCHEDULE), key=lambda record: (record.strategy, record.seed)):
        passes, peak = sum(stage.image_passes for stage in it.stages), it.metrics["peak_memory_bytes"]
        place = (f"`{it.strategy}`", str(it.seed), it.environment.device)
        rows.append((*place, f"{it.seconds:.0f}", f"{passes:,}", f"{(peak or 0) / 1e9:.1f}"))
    return table(("strategy", "seed", "device", "seconds", "image passes", "peak on the device (GB)"), rows, texts=1)


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
