"""The page of numbers that ContinualAI/continual-learning-baselines states, beside ours by the same schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from scripts.evidence.formatting import NOTHING, table, template
from scripts.evidence.reference_runs import (
    ACCURACY,
    PLAIN,
    Beside,
    Elsewhere,
    beside,
    command,
    read_source,
    resolved,
)
from scripts.evidence.runs import EVIDENCE, ROOT
from scripts.evidence.sweeps import sweep
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import known_metric
from seu_bench.results.statistics import summarize

PAGE: Final = ROOT / "docs" / "evidence" / "reference_numbers.md"


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    source = read_source()
    found = beside(source, folder)
    return template("reference_numbers.md.jinja").render(
        source=source,
        found=found,
        counted=counted(found),
        table=numbers_table(found),
        settings=[(each, *setting(each)) for each in found],
        pending=[each for each in found if each.missing],
        elsewhere=elsewhere_table(source.elsewhere),
        longer=longer(source.elsewhere),
    )


def counted(found: Sequence[Beside]) -> str:
    """Say how many numbers are reached."""
    by_verdict = {verdict: [each for each in found if each.verdict == verdict] for verdict in VERDICTS}
    parts = [f"{len(each)} {VERDICTS[verdict]}" for verdict, each in by_verdict.items() if each]
    return f"Of {len(found)} numbers " + ", ".join(parts)


VERDICTS: Final[Mapping[str, str]] = {
    "within": "are reached within the tolerance",
    "above": "are exceeded by more than it",
    "below": "are missed by more than it",
    "not run": "were not run",
}


def numbers_table(found: Sequence[Beside]) -> str:
    """Setting, theirs, ours, tolerance."""
    headings = (
        "setting", "scenario", "strategy", "verdict", "theirs (%)", "tolerance (points)", "ours (%)", "seeds",
        "ours less theirs (points)", f"ours, `{PLAIN}` (%)", "the paper's, as they quote it (%)",
    )  # fmt: skip
    rows = [
        (
            each.number.setting,
            each.scenario,
            f"`{each.number.strategy}`",
            each.verdict,
            _percent(each.number.theirs),
            _percent(each.number.tolerance),
            _mean(each.runs),
            str(len(each.runs)),
            NOTHING if each.difference is None else f"{100 * each.difference:+.2f}",
            _mean(each.plain),
            _paper(each.number.paper),
        )
        for each in found
    ]
    return table(headings, rows, texts=4)


def setting(found: Beside) -> tuple[str, str]:
    """What our runs were made with, and their ids."""
    ids = ", ".join(f"`{record.run_id}`" for record in found.runs)
    return "; ".join(_minutes(found.runs)), ids


def _minutes(runs: Sequence[Record]) -> Iterator[str]:
    learned = summarize([record.metrics.get("learning_acc") for record in runs])
    forgotten = summarize([record.metrics.get("forgetting") for record in runs])
    if learned is not None and forgotten is not None:
        shown = known_metric("acc").format_cell
        yield f"{shown(learned.mean)} % right after each task, forgetting {shown(forgotten.mean)} %"
    seconds = summarize([record.metrics.get("train_cpu_seconds") for record in runs])
    if seconds is not None:
        yield f"{seconds.mean / 60:.1f} processor minutes of training per run"


def elsewhere_table(found: Sequence[Elsewhere]) -> str:
    """Setting, theirs, the schedule that it would take, and why it is not among the numbers."""
    headings = ("setting", "scenario", "strategy", "theirs (%)", "the schedule", "why not here", "files")
    rows = [
        (
            each.setting,
            each.scenario,
            each.strategy,
            _percent(each.theirs),
            each.schedule,
            each.why,
            ", ".join(each.files),
        )
        for each in found
    ]
    return table(headings, rows, texts=len(headings))


@cache
def longer(found: tuple[Elsewhere, ...]) -> str:
    """Commands of those that would only take long, and what they cost."""
    rows = []
    for each in found:
        if each.sweep:
            run = resolved(sweep(each.sweep), each.strategy)
            cost = run.cost(run.context(run.plan()))
            operations = NOTHING if cost.train_flops is None else f"{cost.train_flops / 1e15:,.2f}"
            rows.append(
                (each.setting, f"`{each.strategy}`", f"`{command(each.sweep)}`", f"{cost.image_passes:,}", operations)
            )
    headings = ("setting", "strategy", "command", "image passes", "operations of training (10^15)")
    return table(headings, rows, texts=3)


def _mean(runs: Sequence[Record]) -> str:
    found = summarize([ACCURACY(record) for record in runs])
    if found is None:
        return NOTHING
    return _exact(found.mean) + (f" ± {_exact(found.std)}" if found.std is not None else "")


def _exact(value: float) -> str:
    return f"{100 * value:.2f}"


def _percent(value: float) -> str:
    return f"{100 * value:g}"


def _paper(text: str) -> str:
    """A number of [0, 1] in percent, and what follows it."""
    number, comma, rest = text.partition(",")
    return f"{_percent(float(number))}{comma}{rest}" if number else NOTHING
