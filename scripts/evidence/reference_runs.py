"""What ContinualAI/continual-learning-baselines states, and our runs by the same schedules."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import Field, PositiveFloat

from scripts.evidence.runs import EVIDENCE, records
from scripts.evidence.sweeps import FOLDER, sweep
from seu_bench.config.options import Frozen
from seu_bench.config.run import Request
from seu_bench.config.streams import Scenario
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.statistics import summarize
from seu_bench.sweeps.spec import SweepSpec

SOURCE: Final = Path(__file__).with_name("reference_numbers.toml")
#: The set of records.
SET: Final = "reference_numbers"
#: Plain training by the same schedule, which tells whether the strategy does anything there.
PLAIN: Final = "naive"
#: After the last task, over all test images, as theirs; ``acc`` is the mean over tasks.
ACCURACY: Final = METRICS["image_acc"]


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
    differs: tuple[str, ...] = ()


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
        found = summarize([ACCURACY(record) for record in self.runs])
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
