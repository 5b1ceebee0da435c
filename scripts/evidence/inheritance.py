"""docs/evidence/inheritance.md: our searcher and creator beside the paper's by equal protocols, and an ablation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from scripts.evidence.formatting import NOTHING, heading, mean, names, ratio, table, template
from scripts.evidence.questions import Pool, answers, read_pool, read_questions, told
from scripts.evidence.runs import EVIDENCE, PAPER, ROOT, SEU, records
from scripts.evidence.sweeps import FOLDER, pending
from scripts.evidence.tables import front
from seu_bench.results.leaderboard import Row
from seu_bench.results.record import Record

PAGE: Final = ROOT / "docs" / "evidence" / "inheritance.md"
PICTURES: Final = ROOT / "docs" / "pictures"
#: The set of records; that of the ablation.
SET: Final = "inheritance"
ABLATION: Final = "inheritance_ablation"
PROTOCOLS: Final = ("quick", "half_day")
BENCHMARKS: Final = ("split_fashion", "split_cifar100", "pmnist")
#: Streams on which the figure has no panel: those whose last task has been there before, and a part of CIFAR-10.
OTHERS: Final = ("transfer_part_s_minus", "transfer_part_s_plus", "transfer_part_s_out", "split_cifar10_part")
#: Points above random cells of the same width that were the goal, on how many of how many streams; the questions.
GOAL: Final = (
    0.02, 4, 6, {"copies are": ("inherit-width", "inherit-transfer"), "copies with a probe": ("probe-width",)},
)  # fmt: skip
#: Names of rows: ours, and what is trivial beside it; the rows of the contest, in order.
OURS: Final = "seu: inherit, inherit, width 0.5"
PROBED: Final = f"{OURS}, probe"
TRIVIAL: Final = "seu: random, all_new, width 0.5"
ROWS: Final = (
    OURS, PROBED, f"{OURS}, no copies", TRIVIAL, "seu: mdl, mdl, width 0.5", "seu: mdl, frugal, width 0.5",
    SEU, "seu: mdl, frugal", "seu: random, frugal", "seu: random, all_new", *PAPER, "linear", "independent",
)  # fmt: skip
COLUMNS: Final = ("acc", "params_total", "mixed_score", "mixed_score_above_chance")
#: Protocol and benchmark.
Place: TypeAlias = tuple[str, str]
SWEEPS: Final = tuple(sorted(path.stem for path in (ROOT / FOLDER).glob("inheritance_*.toml")))
#: Markers of the figure, by the order of rows.
_MARKERS: Final = "*1ov^<>sdPXDhp8H"


def read_contests(pool: Pool) -> dict[Place, dict[str, Row]]:
    """Rows by protocol and benchmark, in the order of :data:`ROWS`; benchmarks without our row are left out."""
    places = [(protocol, benchmark) for protocol in PROTOCOLS for benchmark in (*BENCHMARKS, *OTHERS)]
    found = {place: pool.get(place, {}) for place in places}
    return {
        place: {name: Row(0, name, rows[name]) for name in ROWS if name in rows}
        for place, rows in found.items()
        if OURS in rows or PROBED in rows
    }


def goal(pool: Pool) -> str:
    """What became of the goal, in a sentence that its numbers make."""
    points, wanted, streams, methods = GOAL
    told, most, questions = list[str](), 0, {it.id: it for it in read_questions("inheritance")}
    for method, asked in methods.items():
        found = [it for name in asked for it in answers(questions[name], pool) if it.other == TRIVIAL]
        reached = [it.place[1] for it in found if it.verdict == "above" and it.mean >= points]
        named = f" ({names(reached)})" if reached else ""
        told.append(f"{method} on {len(reached) or 'none'} of {len(found)}{named}")
        most = max(most, len(reached))
    return (
        f"The goal was to be above random cells of the same width, all new, by {100 * points:g} points on {wanted} of "
        f"{streams} streams, corrected. It is {'' if most >= wanted else 'not '}reached: {', '.join(told)}."
    )


def choosing(row: Row) -> tuple[str, str]:
    """What searches and creations of a run cost: image passes, and CPU seconds if measured."""
    runs = row.runs.values()
    stages = [stage for run in runs for stage in run.stages if stage.name in ("search", "creation")]
    if row.record.strategy != SEU:
        return NOTHING, NOTHING
    seconds = [stage.cpu_seconds for stage in stages if stage.cpu_seconds is not None]
    shown = f"{sum(seconds) / len(runs):,.1f}" if len(seconds) == len(stages) else NOTHING
    return f"{sum(stage.image_passes for stage in stages) / len(runs):,.0f}", shown


def contest_table(rows: Mapping[str, Row]) -> str:
    """A row for each configuration; the front of accuracy against parameters is in bold."""
    best = front(rows, "params_total")
    lines = [
        (
            f"**`{name}`**" if name in best else f"`{name}`",
            str(row.seeds),
            *[mean(row, column) for column in COLUMNS],
            *choosing(row),
        )
        for name, row in rows.items()
    ]
    headings = ("configuration", "seeds", *map(heading, COLUMNS))
    return table([*headings, "choosing: image passes", "choosing: CPU seconds"], lines)


def findings(rows: Mapping[str, Row]) -> Iterator[str]:
    """What a table says, in sentences that its numbers make."""
    best = front(rows, "params_total")
    yield f"On the front of accuracy against parameters, the smallest first: {names(best)}."
    name = OURS if OURS in rows else PROBED
    ours = rows[name]
    if name not in best:
        better = [
            other
            for other, row in rows.items()
            if (row.mean("acc") or 0) >= (ours.mean("acc") or 0)
            and (row.mean("params_total") or 0) <= (ours.mean("params_total") or 0)
            and other != name
        ]
        yield f"Ours is not on it: as accurate or more with no more parameters are {names(better)}."
    if TRIVIAL in rows:
        size = ratio(ours.mean("params_total"), rows[TRIVIAL].mean("params_total"))
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
    if chosen.get("copies") is False:
        parts.append("no copies")
    if chosen.get("relation", "ridge") != "ridge":
        parts.append(str(chosen["relation"]))
    return ", ".join(parts)


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    return template("inheritance.md.jinja").render(
        contests=read_contests(read_pool(folder)),
        questions=told("inheritance", folder),
        goal=goal(read_pool(folder)),
        contest=contest_table,
        findings=findings,
        pictures={protocol: f"../pictures/{picture(protocol).name}" for protocol in PROTOCOLS},
        drawn=[protocol for protocol in PROTOCOLS if picture(protocol).exists()],
        ablation=ablation(folder),
        commands=[f"seu-bench sweep {FOLDER}/{file}.toml" for file in SWEEPS],
        pending=pending(SWEEPS, folder),
        folder=FOLDER,
    )


def picture(protocol: str) -> Path:
    """The figure of a protocol's contests."""
    return PICTURES / f"inheritance_{protocol}.svg"


def draw(folder: Path = EVIDENCE) -> None:
    """Accuracy against parameters, a panel for each benchmark, with the front of all other rows."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    found = read_contests(read_pool(folder))
    for protocol in PROTOCOLS:
        places = {benchmark: rows for (which, benchmark), rows in found.items() if which == protocol}
        panels = {benchmark: rows for benchmark, rows in places.items() if benchmark in BENCHMARKS}
        if not panels:
            continue
        with matplotlib.rc_context({"svg.hashsalt": "seu-bench", "svg.fonttype": "none", "font.size": 9}):
            size = (4.2 * len(panels), 4.2)
            figure, axes = pyplot.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
            shown: dict[str, Any] = {}
            for axis, (benchmark, rows) in zip(axes[0], panels.items(), strict=True):
                points = {
                    name: (row.mean("params_total") or 0.0, 100 * (row.mean("acc") or 0.0))
                    for name, row in rows.items()
                }
                others = front({name: row for name, row in rows.items() if name != OURS}, "params_total")
                axis.step(
                    *zip(*[points[name] for name in others], strict=True), where="post", color="#bbbbbb", zorder=0
                )
                for name, place in points.items():
                    (shown[name],) = axis.plot(*place, _MARKERS[ROWS.index(name)], color=_color(name), markersize=6)
                axis.set(xscale="log", xlabel="parameters", ylabel="accuracy (%)", title=benchmark)
            names_shown = [name for name in ROWS if name in shown]
            handles = [shown[name] for name in names_shown]
            figure.legend(handles, names_shown, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
            figure.savefig(picture(protocol), metadata={"Date": None})
            pyplot.close(figure)


def _color(name: str) -> str:
    """Ours, SEU's other rows, those beside SEU."""
    return "#ee6677" if name == OURS else "#4477aa" if name.startswith(SEU) else "#888888"
