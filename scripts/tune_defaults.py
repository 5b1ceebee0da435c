"""Tune the strategies of the evidence by a protocol, for the tuned files that benchmarks name as its defaults.

    python scripts/tune_defaults.py quick split_cifar100,pmnist,split_fashion ewc,naive,seu+random+all_new

Each strategy is tuned over its own grid, on the first tasks of two seeds that no published run has. Where the best
value of a number is the least or the greatest one tried, the next one beyond it is tried as well, up to three times.
Other protocols than `quick` begin with its choices, on one seed. What was tuned before is not made again. Trials lie
in `results/tuning`; the files, in `benchmarks/tuned`, are committed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seu_bench
from seu_bench.config.tuned import TunedFile
from seu_bench.plugin.registry import Registry
from seu_bench.sweeps.tuning.space import Choices, parse_dimension

ROOT = Path(__file__).resolve().parent.parent
#: In the order of their importance.
STRATEGIES = [
    "ewc",
    "naive",
    "linear",
    "independent",
    "pnn",
    "ltg",
    "seu",
    "seu+random+all_new",
    "hat",
    "packnet",
    "pathnet",
    "den",
    "rcl",
    "si",
    "mas",
    "lwf",
    "rwalk",
    "replay",
    "er_ace",
    "agem",
    "gem",
    "cumulative",
    "joint",
    "gdumb",
    "cwr",
    "mir",
]
#: Seeds of the first protocol's tuning, and of others, which begin with its choice.
SEEDS, FIRST = ("100-101", "100"), "quick"
#: Tasks that strategies are tuned on: half of the stream, for what is overwritten adds up from task to task. On three
#: of the ten of `pmnist` a penalty five times too strong looks best; on five it is the best of the whole stream.
TASKS = {"pmnist": 5}
#: Tasks for all other benchmarks, and for strategies that overwrite nothing.
FEW_TASKS, FROZEN = 3, {"linear", "independent", "pnn", "ltg", "rcl", "seu"}
#: Strategies whose tasks share the room of one network, and the tasks that they are tuned on: where few tasks are
#: learned, the best share to prune is too small for the rest of the stream. Of five tasks four are the most.
CONFINED, MOST_TASKS = {"hat", "packnet", "pathnet"}, 4
#: Learning rates that every grid begins with, and how often an option's values may be extended.
LEARNING_RATES, EXTENSIONS = (0.025, 0.08), 3
#: Grids that differ from the strategy's own. Weights of SEU's first epochs are chosen by networks whose BatchNorm
#: statistics lag behind, so that the last ones are tried as well.
SPACES: dict[str, dict[str, tuple[Any, ...]]] = {
    "seu": {"restore": ("best_valid", "last")},
    "ltg": {"size_penalty": (0.0, 0.01)},
    "pathnet": {"generations": (2, 4, 20), "active": (2, 3)},
    "rcl": {"unit_penalty": (0.0001,), "finish": ("keep", "train")},
}
#: Strategies that train by Adam, with learning rates of their own grid.
ADAM = {"den"}
#: Options that mean the same for any value beyond those of their grid, or have none there.
BOUNDED = {"active", "batch_size_mem", "generations", "memory_strength", "prune_fraction", "size_penalty"}


def first_space(strategy: str, known: TunedFile | None) -> dict[str, tuple[Any, ...]]:
    """The values that a strategy's tuning begins with.

    Where another protocol's tuning is ``known``, these are its choice and, of each number, the next one below it.
    """
    if known is not None:
        return {key: near(known, key) for key in known.options}
    grid = Registry().strategies.find(strategy).factory.options.tuning_grid
    own = {key: tuple(values) for key, values in grid.items()}
    rates = {} if strategy in ADAM else {"learning_rate": LEARNING_RATES}
    return own | SPACES.get(strategy, {}) | rates


def number_of_tasks(strategy: str, benchmark: str) -> int:
    """The tasks that a strategy is tuned on."""
    if strategy in CONFINED:
        return TASKS.get(benchmark, MOST_TASKS)
    return FEW_TASKS if strategy in FROZEN else TASKS.get(benchmark, FEW_TASKS)


def near(known: TunedFile, key: str) -> tuple[Any, ...]:
    """What was chosen for an option and, of a number that may be extended, the next lower value that was tried."""
    chosen, tried = known.options[key], parse_dimension(known.space[key])
    values = sorted(tried.values) if isinstance(tried, Choices) and not isinstance(chosen, str | bool) else []
    if key in BOUNDED or len(values) < 2:
        return (chosen,)
    place = values.index(chosen)
    return tuple(values[max(0, place - 1) : max(0, place - 1) + 2])


def beyond(values: tuple[Any, ...], chosen: Any) -> float | None:
    """The next value beyond the chosen one, in the ratio of the outer two; ``None``: it is not at an end."""
    if len(values) < 2 or any(isinstance(value, str | bool) or value <= 0 for value in values):
        return None
    ordered = sorted(values)
    if chosen == ordered[0]:
        return float(f"{ordered[0] ** 2 / ordered[1]:.1g}")
    if chosen == ordered[-1]:
        return float(f"{ordered[-1] ** 2 / ordered[-2]:.1g}")
    return None


def extended(space: Mapping[str, tuple[Any, ...]], chosen: Mapping[str, Any], room: dict[str, int]) -> dict[str, Any]:
    """The space with one more value of every number that was chosen at an end and may still be extended."""
    result = dict(space)
    for key, values in space.items():
        more = None if key in BOUNDED else beyond(values, chosen[key])
        if more is not None and room.setdefault(key, EXTENSIONS) > 0:
            room[key] -= 1
            result[key] = tuple(sorted((*values, more)))
    return result


def tune_one(configuration: str, benchmark: str, protocol: str, jobs: int) -> TunedFile | None:
    """Tune ``strategy`` or ``strategy+searcher+creator`` until its choice is inside of what was tried."""
    strategy, *components = configuration.split("+")
    searcher, creator = components or (None, None)
    output = ROOT / "benchmarks" / "tuned"
    path = output / f"{benchmark}-{FIRST}-{'-'.join(configuration.split('+'))}.toml"
    known = TunedFile.read(path) if protocol != FIRST and path.is_file() else None
    space, room = first_space(strategy, known), dict[str, int]()
    while True:
        result = seu_bench.tune(
            strategy=strategy,
            searcher=searcher,
            creator=creator,
            benchmark=benchmark,
            protocol=protocol,
            method=f"first-tasks:{number_of_tasks(strategy, benchmark)}",
            seeds=SEEDS[known is not None],
            space=space,
            jobs=jobs,
            results=ROOT / "results" / "tuning",
            output=output,
            replace=True,
        )
        if result.file is None or (wider := extended(space, result.file.options, room)) == space:
            return result.file
        space = wider


if __name__ == "__main__":
    _, PROTOCOL, BENCHMARKS, *CHOSEN = sys.argv
    for STRATEGY in CHOSEN[0].split(",") if CHOSEN else STRATEGIES:
        for BENCHMARK in BENCHMARKS.split(","):
            FILE = tune_one(STRATEGY, BENCHMARK, PROTOCOL, jobs=int(os.environ.get("JOBS", "2")))
            print(BENCHMARK, STRATEGY, FILE and (FILE.score, dict(FILE.options), FILE.cost.runs), flush=True)
