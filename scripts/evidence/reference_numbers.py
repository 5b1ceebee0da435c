"""Numbers that ContinualAI/continual-learning-baselines states, beside ours by the same schedules."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import Field, PositiveFloat

from scripts.evidence.formatting import NOTHING, table
from scripts.evidence.rendering import template
from scripts.evidence.runs import EVIDENCE, ROOT, records
from scripts.evidence.sweeps import FOLDER, sweep
from seu_bench.config.options import Frozen
from seu_bench.config.run import Request
from seu_bench.config.streams import Scenario
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import known_metric
from seu_bench.results.statistics.samples import summarize
from seu_bench.sweeps.spec import SweepSpec

PAGE: Final = ROOT / "docs" / "evidence" / "reference_numbers.md"
SOURCE: Final = Path(__file__).with_suffix(".toml")
#: The sets of records: runs by their schedules, and learning rates tried on validation images.
SET: Final = "reference_numbers"
RATES: Final = "reference_rates"
#: Plain training by the same schedule, which tells whether the strategy does anything there.
PLAIN: Final = "naive"


class Number(Frozen):
    """A number that can be reached here.

    Attributes:
        sweep: stem of the sweep's file.
        theirs: accuracy after the last task, in [0, 1].
        tolerance: by which theirs may be missed in their test.
        paper: of the paper that theirs is compared with there; empty: none is named.
        files: that say so, from the top of the repository.
        schedule: theirs.
        differs: what ours has that theirs has not.
    """

    sweep: str
    setting: str
    strategy: str
    theirs: float = Field(gt=0, lt=1)
    tolerance: PositiveFloat
    paper: str = ""
    files: tuple[str, ...] = Field(min_length=1)
    schedule: str
    differs: tuple[str, ...] = Field(min_length=1)


class Elsewhere(Frozen):
    """A number that cannot, or that takes too long.

    Attributes:
        sweep: stem of the file of a sweep that would tell; empty: there is none.
        why: it is not among the numbers.
    """

    setting: str
    scenario: Scenario
    strategy: str
    theirs: float = Field(gt=0, lt=1)
    files: tuple[str, ...] = Field(min_length=1)
    schedule: str
    why: str
    sweep: str = ""


class Source(Frozen):
    """The file ``reference_numbers.toml``.

    Attributes:
        readme, targets: commits of the README and of the table of targets.
    """

    repository: str
    readme: str = Field(pattern="^[0-9a-f]{40}$")
    targets: str = Field(pattern="^[0-9a-f]{40}$")
    numbers: tuple[Number, ...]
    elsewhere: tuple[Elsewhere, ...]


@dataclass(frozen=True)
class Beside:
    """A number of theirs with our runs.

    Attributes:
        runs: ours, by seed.
        plain: plain training by the same schedule, by seed.
    """

    number: Number
    spec: SweepSpec
    scenario: Scenario
    runs: tuple[Record, ...]
    plain: tuple[Record, ...]

    @property
    def difference(self) -> float | None:
        """Our mean less theirs; ``None`` without runs."""
        found = summarize([accuracy(record) for record in self.runs])
        return None if found is None else found.mean - self.number.theirs

    @property
    def verdict(self) -> str:
        """``within`` the tolerance, ``above`` or ``below`` it; ``not run``."""
        found = self.difference
        if found is None:
            return "not run"
        # Theirs is given in hundredths, and the tolerance is one of what is stated.
        return "within" if round(abs(found), 6) <= self.number.tolerance else "above" if found > 0 else "below"

    @property
    def missing(self) -> tuple[int, ...]:
        """Seeds of the sweep without a record."""
        return tuple(sorted({*self.spec.seeds} - {record.seed for record in self.runs}))

    @property
    def command(self) -> str:
        """The command of the sweep."""
        return command(self.number.sweep)


def accuracy(record: Record) -> float:
    """The accuracy after the last task as theirs averages it, over all test images; ``acc`` is the mean over tasks."""
    images = [test for _, _, test in record.task_images]
    return sum(
        count * (of_task or 0.0) for count, of_task in zip(images, record.accuracy_matrix[-1], strict=True)
    ) / sum(images)


def command(file: str) -> str:
    """The command of a sweep."""
    return f"seu-bench sweep {FOLDER}/{file}.toml"


def read_source(path: Path = SOURCE) -> Source:
    """Read what they state."""
    return Source.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))


def beside(source: Source, folder: Path = EVIDENCE) -> list[Beside]:
    """Each number with the runs of its sweep: those of the files as they are now, and no earlier ones."""
    there = {record.run_id: record for record in records(folder / SET)}
    found = []
    for number in source.numbers:
        spec = sweep(number.sweep)
        runs, plain = (
            tuple(there[run_id] for run_id in run_ids(spec, name) if run_id in there)
            for name in (number.strategy, PLAIN)
        )
        scenario = resolved(spec, number.strategy).spec.benchmark.stream.scenario
        found.append(Beside(number, spec, scenario, runs, plain))
    return found


def run_ids(spec: SweepSpec, strategy: str) -> list[str]:
    """The runs of a strategy in a sweep over seeds, in their order."""
    return [resolved(spec, strategy, seed).spec.run_id for seed in spec.seeds]


@cache
def _registry() -> Registry:
    return Registry()


def resolved(spec: SweepSpec, strategy: str, seed: int | None = None) -> ResolvedRun:
    """The run of a strategy in a sweep of one value for each option; of its first seed unless another is given."""
    return resolve(
        _registry(),
        Request(
            strategy=strategy,
            benchmark=spec.benchmark[0],
            protocol=spec.protocol,
            seed=spec.seeds[0] if seed is None else seed,
            first_tasks=spec.first_tasks,
            evaluation=spec.evaluation,
            options={key: value for key, (value, *_) in spec.axes.items()},
        ),
    )


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
        rates=rates_table(records(folder / RATES)),
        rates_command=command("reference_rates_split"),
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


def rates_table(runs: Sequence[Record]) -> str:
    """Accuracy on withheld validation images by learning rate; empty where none was tried."""
    found: dict[tuple[str, str, float], list[Record]] = {}
    for record in runs:
        rate = record.options["learning_rate"]
        found.setdefault((record.benchmark, record.strategy, rate), []).append(record)
    rows = [
        (f"`{benchmark}`", f"`{strategy}`", f"{rate:g}", str(len(each)), _mean(each))
        for (benchmark, strategy, rate), each in sorted(found.items())
    ]
    headings = ("stream", "strategy", "learning rate", "seeds", "accuracy on withheld validation images (%)")
    return table(headings, rows, texts=2) if rows else ""


def _mean(runs: Sequence[Record]) -> str:
    found = summarize([accuracy(record) for record in runs])
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
