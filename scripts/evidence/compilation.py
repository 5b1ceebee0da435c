"""docs/evidence/compilation.md: SEU with compiled units beside the same seeds without."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Final, cast

from scripts.evidence.formatting import change, table
from scripts.evidence.rendering import template
from scripts.evidence.runs import EVIDENCE, ROOT, SEU, records, short_name
from seu_bench.results.record import Record

PAGE: Final = ROOT / "docs" / "evidence" / "compilation.md"
#: The sets of eager and of compiled runs, made on one machine. The sweeps that make them have their names.
EAGER: Final = "compiled_eager"
COMPILED: Final = "compiled"
SETS: Final = (EAGER, COMPILED)
_STAGE: Final = "training"

Pair = tuple[Record, Record]


def pairs(folder: Path = EVIDENCE) -> dict[str, list[Pair]]:
    """Eager and compiled runs of one seed, by benchmark, in the order of seeds."""
    eager = {record.run_id: record for record in records(folder / EAGER) if short_name(record) == SEU}
    found: dict[str, list[Pair]] = {}
    for record in sorted(records(folder / COMPILED), key=lambda record: (record.benchmark, record.seed)):
        if record.run_id in eager:
            found.setdefault(record.benchmark, []).append((eager[record.run_id], record))
    return found


def rendered(folder: Path = EVIDENCE) -> str:
    """The page."""
    found = pairs(folder)
    return template("compilation.md.jinja").render(
        table=_table(found), verdicts=_verdicts(found), sweeps=SETS, machines=_machines(found)
    )


def _table(found: dict[str, list[Pair]]) -> str:
    rows = [
        (
            f"`{name}`",
            str(pair[0].seed),
            *(f"{100 * _accuracy(each):.2f}" for each in pair),
            f"{_times(*pair):.1f}",
        )
        for name, runs in found.items()
        for pair in runs
    ]
    headings = ("benchmark", "seed", "acc, eager (%)", "acc, compiled (%)", "training, compiled / eager (times)")
    return table(headings, rows)


def _verdicts(found: dict[str, list[Pair]]) -> list[str]:
    """Difference of means beside the spread over seeds: neither set has more right to say what that is."""
    said = []
    for benchmark, runs in found.items():
        if len(runs) < 2:
            said.append(f"`{benchmark}`: one seed, from which no spread is known.")
            continue
        eager, compiled = ([_accuracy(pair[at]) for pair in runs] for at in (0, 1))
        difference, deviations = fmean(compiled) - fmean(eager), [stdev(eager), stdev(compiled)]
        spread = sqrt(fmean(deviation**2 for deviation in deviations))
        said.append(
            f"`{benchmark}`, {len(runs)} seeds: {change(difference, 'acc')} compiled, "
            f"{'within' if abs(difference) <= spread else '**beyond**'} the standard deviation over seeds, "
            f"{100 * spread:.2f} points (eager {100 * deviations[0]:.2f}, compiled {100 * deviations[1]:.2f}). "
            f"Training takes {median(_times(*pair) for pair in runs):.1f} times the seconds."
        )
    return said


def _machines(found: dict[str, list[Pair]]) -> str:
    """Devices that the runs were made on."""
    devices = {each.environment.device for runs in found.values() for pair in runs for each in pair}
    return "; ".join(sorted(devices))


def _accuracy(record: Record) -> float:
    """Of a finished run, which has one."""
    return cast(float, record.metrics["acc"])


def _times(eager: Record, compiled: Record) -> float:
    """Seconds of training, compilation included, as a multiple."""
    seconds = [sum(stage.seconds for stage in each.stages if stage.name == _STAGE) for each in (eager, compiled)]
    return seconds[1] / seconds[0]
