"""docs/evidence/inheritance.md: our searcher and creator beside the paper's by equal protocols, and an ablation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Final

from scripts.evidence.comparing import Compared, Pair, family
from scripts.evidence.formatting import NOTHING, change, heading, mean, names, ratio, table
from scripts.evidence.rendering import template
from scripts.evidence.runs import EVIDENCE, PAPER, ROOT, SEU, named, records
from scripts.evidence.sweeps import FOLDER, sweep
from scripts.evidence.tables import front
from seu_bench.results.leaderboard.boards import Row
from seu_bench.results.leaderboard.building import read_leaderboards
from seu_bench.results.record import Record
from seu_bench.sweeps.spec import SweepSpec

PAGE: Final = ROOT / "docs" / "evidence" / "inheritance.md"
PICTURES: Final = ROOT / "docs" / "pictures"
#: The sets of records: the contest, beside those of the page on the paper, and the ablation.
SET, ABLATION = "inheritance", "inheritance_ablation"
BESIDE: Final = ("quick", "half_day", "components")
PROTOCOLS: Final = ("quick", "half_day")
BENCHMARKS: Final = ("split_fashion", "split_cifar100", "pmnist")
#: Names of rows: ours, and what is trivial beside it.
OURS: Final = "seu: inherit, inherit, width 0.5"
TRIVIAL: Final = "seu: random, all_new, width 0.5"
#: The rows of the contest, in order.
ROWS: Final = (
    OURS, TRIVIAL, SEU, "seu: mdl, mdl, width 0.5", "seu: mdl, frugal", "seu: random, frugal", "seu: random, all_new",
    *PAPER, "linear", "independent",
)  # fmt: skip
#: Stages that choose, whose cost is compared.
CHOOSING: Final = ("search", "creation")
#: The goal: points of accuracy that may be lost, and shares of parameters and of the cost of choosing.
MOST_LOST, MOST_SIZE, MOST_COST = 0.005, 0.5, 0.1
SWEEPS: Final = tuple(sorted(path.stem for path in (ROOT / FOLDER).glob("inheritance_*.toml")))
#: Options that the sweeps differ in, and what they are where a sweep says nothing.
_AXES: Final[Mapping[str, object]] = {
    "width": 1.0, "adaptation": "none", "creator.shared": 0, "creator.copies": True, "creator.relation": "ridge",
}  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Cost of searches and creations of a run, mean over seeds: image passes, and CPU seconds if measured."""

    passes: float
    seconds: float | None


@dataclass(frozen=True)
class Goal:
    """Our row beside the paper's on one benchmark by one protocol.

    Attributes:
        accuracy: ours less theirs, over common seeds.
        size, passes, seconds: ours as a share of theirs; ``None``: not measured.
    """

    benchmark: str
    protocol: str
    seeds: int
    accuracy: float
    size: float
    passes: float
    seconds: float | None

    @property
    def is_met(self) -> bool:
        """Whether all parts are."""
        cost = max(self.passes, self.seconds or 0.0)
        return self.accuracy >= -MOST_LOST and self.size <= MOST_SIZE and cost <= MOST_COST


def name_of(record: Record) -> str:
    """The configuration of a run, its width included where it is not the protocol's."""
    if record.strategy != SEU:
        return record.strategy
    searcher, creator = record.searcher or "mdl", record.creator or "mdl"
    width = record.options.get("width", 1)
    if width == 1:
        return named(SEU, searcher, creator)
    return f"{SEU}: {searcher}, {creator}, width {width:g}"


def contests(folder: Path = EVIDENCE) -> dict[tuple[str, str], dict[str, Row]]:
    """Rows by protocol and benchmark, in the order of :data:`ROWS`; those that were not run are left out."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for name in (*BESIDE, SET):
        for board in read_leaderboards(folder / name).boards if (folder / name).is_dir() else ():
            rows = found.setdefault((board.protocol, board.benchmark), {})
            for row in board.rows:
                rows.setdefault(name_of(row.record), row)
    return {
        place: {name: found[place][name] for name in ROWS if name in found[place]}
        for protocol in PROTOCOLS
        for benchmark in BENCHMARKS
        if OURS in found.get(place := (protocol, benchmark), {})
    }


@cache
def _whole() -> Mapping[str, Record]:
    """Records by run id; those of leaderboards have no stages."""
    return {record.run_id: record for name in (*BESIDE, SET) for record in records(EVIDENCE / name)}


def cost_of(row: Row) -> Cost | None:
    """What searches and creations cost; ``None``: the strategy has none."""
    stages = [
        [stage for stage in _whole()[run.run_id].stages if stage.name in CHOOSING]
        for run in row.runs.values()
        if run.run_id in _whole()
    ]
    if row.record.strategy != SEU or not stages:
        return None
    seconds = [stage.cpu_seconds for run in stages for stage in run]
    measured = [value for value in seconds if value is not None]
    passes = sum(stage.image_passes for run in stages for stage in run)
    return Cost(passes / len(stages), sum(measured) / len(stages) if len(measured) == len(seconds) else None)


def goal_of(protocol: str, benchmark: str, rows: Mapping[str, Row]) -> Goal | None:
    """The goal's numbers; ``None`` without both rows and a common seed."""
    if SEU not in rows or OURS not in rows:
        return None
    ours, theirs = rows[OURS], rows[SEU]
    accuracies = [(ours.values("acc"), theirs.values("acc"))]
    common = sorted(accuracies[0][0].keys() & accuracies[0][1].keys())
    one, other = cost_of(ours), cost_of(theirs)
    sizes = ours.mean("params_total"), theirs.mean("params_total")
    if not common or one is None or other is None or not sizes[0] or not sizes[1]:
        return None
    lost = sum(accuracies[0][0][seed] - accuracies[0][1][seed] for seed in common) / len(common)
    seconds = one.seconds / other.seconds if one.seconds is not None and other.seconds else None
    return Goal(benchmark, protocol, len(common), lost, sizes[0] / sizes[1], one.passes / other.passes, seconds)


def goal_table(goals: Iterable[Goal]) -> str:
    """A line for each benchmark and protocol."""
    lines = [
        (
            f"`{goal.benchmark}`",
            f"`{goal.protocol}`",
            str(goal.seeds),
            change(goal.accuracy, "acc").removesuffix(" points"),
            f"{goal.size:.2f}",
            f"{goal.passes:.4f}",
            NOTHING if goal.seconds is None else f"{goal.seconds:.4f}",
            "yes" if goal.is_met else "no",
        )
        for goal in goals
    ]
    headings = ["benchmark", "protocol", "seeds", "accuracy (points)", "parameters (times)", "choosing: passes (times)"]
    return table([*headings, "choosing: CPU (times)", "met"], lines, texts=2)


def compared(found: Mapping[tuple[str, str], Mapping[str, Row]], metric: str) -> dict[tuple[str, str, str], Compared]:
    """Our row against every other one in a metric, those of one protocol corrected for one another."""
    told: dict[tuple[str, str, str], Compared] = {}
    for protocol in PROTOCOLS:
        pairs = [
            Pair(benchmark, OURS, other, rows[OURS], row)
            for (which, benchmark), rows in found.items()
            for other, row in rows.items()
            if which == protocol and other != OURS
        ]
        told |= {(protocol, each.pair.benchmark, each.pair.other): each for each in family(pairs, metric)}
    return told


def contest_table(
    place: tuple[str, str], rows: Mapping[str, Row], told: Mapping[str, Mapping[tuple[str, str, str], Compared]]
) -> str:
    """A row for each configuration; the front of accuracy against parameters is in bold."""
    best = front(rows, "params_total")
    lines = []
    for name, row in rows.items():
        cost = cost_of(row)
        sides = [told[metric].get((*place, name)) for metric in ("acc", "mixed_score")]
        lines.append(
            (
                f"**`{name}`**" if name in best else f"`{name}`",
                str(row.seeds),
                *[mean(row, column) for column in ("acc", "params_total", "mixed_score")],
                NOTHING if cost is None else f"{cost.passes:,.0f}",
                NOTHING if cost is None or cost.seconds is None else f"{cost.seconds:,.1f}",
                *[NOTHING if each is None else f"{each.words}, {each.difference.verdict}" for each in sides],
            )
        )
    columns = [heading(column) for column in ("acc", "params_total", "mixed_score")]
    headings = ["configuration", "seeds", *columns, "choosing: image passes", "choosing: CPU seconds"]
    return table([*headings, "ours less it: accuracy", "ours less it: mixed score"], lines)


def findings(rows: Mapping[str, Row]) -> Iterator[str]:
    """What a table says, in sentences that its numbers make."""
    best = front(rows, "params_total")
    yield f"On the front of accuracy against parameters, the smallest first: {names(best)}."
    if OURS not in best:
        ours = rows[OURS]
        better = [
            name
            for name, row in rows.items()
            if (row.mean("acc") or 0) >= (ours.mean("acc") or 0)
            and (row.mean("params_total") or 0) <= (ours.mean("params_total") or 0)
            and name != OURS
        ]
        yield f"Ours is not on it: as accurate or more with no more parameters are {names(better)}."
    if TRIVIAL in rows:
        size = ratio(rows[OURS].mean("params_total"), rows[TRIVIAL].mean("params_total"))
        yield f"Ours has {size} the parameters of the trivial row, whose cells are drawn anew for each task."


def ablation(folder: Path = EVIDENCE) -> str:
    """Accuracy on withheld validation images and parameters, by configuration and benchmark; empty: not run."""
    found: dict[str, dict[str, list[Record]]] = {}
    for record in records(folder / ABLATION):
        found.setdefault(_configuration(record), {}).setdefault(record.benchmark, []).append(record)
    places = sorted({place for rows in found.values() for place in rows}, reverse=True)
    lines = []
    for name, rows in sorted(found.items()):
        cells = []
        for place in places:
            runs = rows.get(place, [])
            accuracies = [value for run in runs if (value := run.metrics["acc"]) is not None]
            cells.append(f"{100 * sum(accuracies) / len(accuracies):.2f}" if accuracies else NOTHING)
            sizes = [run.params_total[-1] for run in runs]
            cells.append(f"{sum(sizes) / len(sizes) / 1000:.1f}" if runs else NOTHING)
        lines.append((name, str(max(map(len, rows.values()))), *cells))
    headings = ["configuration", "seeds"]
    for place in places:
        headings += [f"`{place}`: accuracy (%)", "parameters (k)"]
    return table(headings, lines) if lines else ""


def _configuration(record: Record) -> str:
    """What was changed, in the words of the options."""
    chosen = record.creator_options or {}
    parts = [f"`{record.creator}`", f"width {record.options.get('width', 1):g}"]
    if chosen.get("shared"):
        parts.append(f"shared {chosen['shared']}")
        parts += ["norms"] * (record.options.get("adaptation") == "norms")
    if chosen.get("copies") is False:
        parts.append("no copies")
    if chosen.get("relation", "ridge") != "ridge":
        parts.append(str(chosen["relation"]))
    return ", ".join(parts)


def pending(folder: Path = EVIDENCE) -> Iterator[tuple[str, int, int]]:
    """Sweeps that have fewer published records than runs: the file, how many there are, and of how many."""
    there = {name: records(folder / name) for name in (SET, ABLATION)}
    for file in SWEEPS:
        spec = sweep(file)
        axes = (spec.searcher or (), spec.creator or (), spec.benchmark, spec.seeds, *spec.options.values())
        wanted = prod(map(len, axes))
        found = sum(_is_of(record, spec) for record in there[Path(spec.results or "").name])
        if found < wanted:
            yield file, found, wanted


def _is_of(record: Record, spec: SweepSpec) -> bool:
    """Whether a run is one of a sweep's, as far as this page's sweeps differ."""
    options = {**record.options, **{f"creator.{key}": value for key, value in (record.creator_options or {}).items()}}
    return (
        record.searcher in (spec.searcher or ())
        and record.creator in (spec.creator or ())
        and record.benchmark in [Path(benchmark).stem for benchmark in spec.benchmark]
        and record.protocol == spec.protocol
        and record.seed in spec.seeds
        and all(options.get(key, default) in spec.options.get(key, (default,)) for key, default in _AXES.items())
    )


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    found = contests(folder)
    told = {metric: compared(found, metric) for metric in ("acc", "mixed_score")}
    goals = [goal for place, rows in found.items() if (goal := goal_of(*place, rows)) is not None]
    return template("inheritance.md.jinja").render(
        contests=found,
        goals=goals,
        goal_table=goal_table(goals),
        protocols=PROTOCOLS,
        contest=lambda place: contest_table(place, found[place], told),
        findings=findings,
        pictures={protocol: f"../pictures/{picture(protocol).name}" for protocol in PROTOCOLS},
        drawn=[protocol for protocol in PROTOCOLS if picture(protocol).exists()],
        ablation=ablation(folder),
        commands=[f"seu-bench sweep {FOLDER}/{file}.toml" for file in SWEEPS],
        pending=list(pending(folder)),
        folder=FOLDER,
        most_lost=f"{100 * MOST_LOST:g}",
        most_size=f"{MOST_SIZE:g}",
        most_cost=f"{MOST_COST:g}",
    )


def picture(protocol: str) -> Path:
    """The figure of a protocol's contests."""
    return PICTURES / f"inheritance_{protocol}.svg"


def draw(folder: Path = EVIDENCE) -> None:
    """Accuracy against parameters, a panel for each benchmark, with the front of all other rows."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    found = contests(folder)
    for protocol in PROTOCOLS:
        panels = {benchmark: rows for (which, benchmark), rows in found.items() if which == protocol}
        if not panels:
            continue
        with matplotlib.rc_context({"svg.hashsalt": "seu-bench", "svg.fonttype": "none", "font.size": 9}):
            figure, axes = pyplot.subplots(
                1, len(panels), figsize=(4.2 * len(panels), 3.4), layout="constrained", squeeze=False
            )
            for axis, (benchmark, rows) in zip(axes[0], panels.items(), strict=True):
                places = {
                    name: (row.mean("params_total") or 0.0, 100 * (row.mean("acc") or 0.0))
                    for name, row in rows.items()
                }
                for name, (size, accuracy) in places.items():
                    color = "#ee6677" if name == OURS else "#4477aa" if name.startswith(SEU) else "#888888"
                    axis.plot(size, accuracy, "o", color=color)
                    label = name.removeprefix(f"{SEU}: ")
                    axis.annotate(label, (size, accuracy), (3, 3), textcoords="offset points", fontsize=6)
                others = front({name: row for name, row in rows.items() if name != OURS}, "params_total")
                axis.step(
                    *zip(*[places[name] for name in others], strict=True), where="post", color="#bbbbbb", zorder=0
                )
                axis.set(xscale="log", xlabel="parameters", ylabel="accuracy (%)", title=benchmark)
            figure.savefig(picture(protocol), metadata={"Date": None})
            pyplot.close(figure)
