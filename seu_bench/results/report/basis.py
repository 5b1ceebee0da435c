"""What figures rest on, for their captions: benchmark, protocol, scenario, seeds, deviations, and whose options were
tuned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from seu_bench.results.report.summary import Configuration
from seu_bench.results.scenarios import with_scenario
from seu_bench.results.statistics import FEWEST_PAIRS
from seu_bench.utils.text import printable

#: Configurations that a sentence names.
_MOST_NAMED = 12


def basis(configurations: Sequence[Configuration], *, single_seed: bool = False) -> str:
    """Say in sentences what a figure rests on.

    Args:
        configurations: those drawn, references included.
        single_seed: whether it shows the lowest seed of them alone.

    Returns:
        Benchmark, protocol and scenario, numbers of seeds, which of them are few, and which configurations were tuned;
        begins with a blank.
    """
    if not configurations:
        return ""
    run = configurations[0].example
    protocol = with_scenario(f"protocol {printable(run.protocol)}", run.scenario)
    place = f"Benchmark {printable(run.benchmark)}, version {run.benchmark_version}, {protocol}"
    seeds = f"seed {run.seed}" if single_seed else seed_counts([len(each.runs) for each in configurations])
    few = [each.label for each in configurations if len(each.runs) < FEWEST_PAIRS]
    said = [f"{place}, {seeds}", *([] if single_seed or not few else [_few(few, len(configurations))])]
    if not all(run.may_be_ranked for each in configurations for run in each.runs):
        said.append("Some of these runs are never ranked: they are of smoke, of synthetic data, or were limited")
    return "".join(f" {text}." for text in [*said, _tuned(configurations)])


def seed_counts(counts: Sequence[int]) -> str:
    """``10 seeds each``, or how many configurations have how many: ``10 seeds (2 of 8 configurations: 5)``."""
    by_count = Counter(counts)
    (usual, _), *others = sorted(by_count.items(), key=lambda item: (-item[1], -item[0]))
    unit = "seed" if usual == 1 else "seeds"
    if not others:
        return f"{usual} {unit}{' each' if len(counts) > 1 else ''}"
    rest = ", ".join(f"{number} of {len(counts)} configurations: {count}" for count, number in sorted(others))
    return f"{usual} {unit} ({rest})"


def _few(labels: Sequence[str], count: int) -> str:
    """A warning of too few seeds."""
    whose = "" if len(labels) == count else f" for {_listed(labels)}"
    return f"Fewer than {FEWEST_PAIRS} seeds{whose}: too few to tell a difference from chance"


def _tuned(configurations: Sequence[Configuration]) -> str:
    """Whose hyper-parameters were tuned."""
    tuned = [each.label for each in configurations if all(run.tuned is not None for run in each.runs)]
    if not tuned:
        return "Hyper-parameters were not tuned"
    if len(tuned) == len(configurations):
        return "Hyper-parameters were tuned" + (" for each configuration" if len(tuned) > 1 else "")
    return f"Hyper-parameters were tuned for {_listed(tuned)}, not for the others"


def _listed(labels: Sequence[str]) -> str:
    named = ", ".join(labels[:_MOST_NAMED])
    return named if len(labels) <= _MOST_NAMED else f"{named} and {len(labels) - _MOST_NAMED} more"
