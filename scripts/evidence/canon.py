"""docs/evidence/canon.md: the methods that reviewers ask for, on CIFAR-100 with and without task labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from scripts.evidence.comparing import Compared, compare_rows
from scripts.evidence.formatting import NOTHING, methods_table, names, template
from scripts.evidence.runs import EVIDENCE, ROOT, SEU, named, short_name
from scripts.evidence.sweeps import FOLDER, pending
from scripts.evidence.tables import verdicts
from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import Row

PAGE: Final = ROOT / "docs" / "evidence" / "canon.md"
PICTURE: Final = ROOT / "docs" / "pictures" / "canon_memory.svg"
SET: Final = "canon"
SWEEPS: Final = tuple(sorted(path.stem for path in (ROOT / FOLDER).glob("canon_*.toml")))
COLUMNS: Final = (
    "acc", "avg_incremental_acc", "learning_acc", "forgetting", "memory_bytes", "mask_bits", "train_flops",
    "train_seconds",
)  # fmt: skip
#: What a reader of the field expects at both ends: all images at once above the network that grows, above the others.
BOUND, GROWN, PLAIN, MEANS = "joint", "der", "naive", "nearest_mean"
BASELINES: Final = {
    MEANS: "the means of classes of pixels, without a network",
    "linear": "a linear classifier of pixels for each task",
    "independent": "a network for each task, all kept",
    "independent on cells:3": "a network of drawn cells for each task, all kept",
}
#: SEU by the paper's searcher and creator, and by ours.
OURS: Final = (SEU, named(SEU, "inherit", "inherit"))
Rows: TypeAlias = Mapping[str, Row]


def read_streams(folder: Path = EVIDENCE) -> dict[str, dict[str, Row]]:
    """Rows by stream, those without task labels first, and by name, by accuracy, references last."""
    boards = read_leaderboards(folder / SET).boards if (folder / SET).is_dir() else ()
    streams: dict[str, dict[str, Row]] = {}
    for board in sorted(boards, key=lambda it: (it.rows[0].record.scenario, len(it.rows[0].record.task_names))):
        rows = sorted(board.rows, key=lambda row: (row.reference is not None, -(row.mean("acc") or 0)))
        title = f"{board.benchmark}, {len(rows[0].record.task_names)} tasks, {board.protocol}"
        streams[title] = {_named(short_name(row.record), row.record.options.get("backbone")): row for row in rows}
    return streams


def _named(method: str, network: str | None) -> str:
    """The name of a row: on cells with their number, otherwise the network is the stream's."""
    return f"{method} on {network}" if network and network.startswith("cells") else method


def table_of(rows: Rows) -> str:
    """A row for each method; columns that none has are left out."""
    return methods_table(rows, [it for it in COLUMNS if any(row.mean(it) is not None for row in rows.values())])


def compare(streams: Mapping[str, Rows]) -> dict[str, list[Compared]]:
    """The order that is expected, or SEU beside its rivals; each stream one family."""
    found = list[Compared]()
    for stream, rows in streams.items():
        others = [it for it in rows if it not in (BOUND, GROWN, PLAIN, MEANS, *OURS)]
        pairs = [(BOUND, GROWN), *((GROWN, it) for it in others), *((it, PLAIN) for it in others if GROWN in rows)]
        pairs += [(ours, it) for ours in OURS for it in (*others, PLAIN)]
        found += compare_rows({stream: rows}, pairs, ("acc",))["acc"]
    return {"acc": found}


def findings(rows: Rows) -> Iterator[str]:
    """What a table says, in sentences that its numbers make."""
    accuracies = {name: 100 * value for name, row in rows.items() if (value := row.mean("acc")) is not None}
    order = sorted(accuracies, key=accuracies.__getitem__, reverse=True)
    yield "By accuracy (%): " + ", ".join(f"`{name}` {accuracies[name]:.1f}" for name in order) + "."
    if accuracies.keys() >= {BOUND, GROWN, PLAIN}:
        others = [it for it in order if rows[it].reference is None and it not in (GROWN, PLAIN)]
        faults = [f"{names([it])} is above `{GROWN}`" for it in others if accuracies[it] > accuracies[GROWN]]
        faults += [f"{names([it])} is below `{PLAIN}`" for it in others if accuracies[it] < accuracies[PLAIN]]
        faults += [f"`{GROWN}` is above `{BOUND}`"] if accuracies[GROWN] > accuracies[BOUND] else []
        told = "; ".join(faults) if faults else "it is so"
        yield f"The field's order is `{BOUND}` above `{GROWN}` above the others above `{PLAIN}`: {told}."
    for simple in (it for it in BASELINES if it in accuracies):
        below = [it for it in order if accuracies[it] < accuracies[simple] and it not in BASELINES]
        yield f"Below {BASELINES[simple]} ({accuracies[simple]:.1f} %): {names(below) if below else 'none'}."
    dead = {name: seeds for name, row in rows.items() if name != MEANS and (seeds := dead_seeds(row))}
    told = "; ".join(f"`{name}`, seeds {', '.join(map(str, seeds))}" for name, seeds in dead.items())
    yield f"Networks that learned some task no better than the most frequent class: {told or 'none'}."


def dead_seeds(row: Row) -> list[int]:
    """Seeds of which a task was answered no better, right after it was learned, than by one of its classes alone."""
    found = []
    for seed, run in row.runs.items():
        matrix, classes = run.accuracy_matrix, [len(it) for it in run.task_labels or ()] or run.task_classes
        own = [line[place] if place < len(line) else None for place, line in enumerate(matrix)]
        if any(it is not None and it <= 1 / of for it, of in zip(own, classes, strict=False)):
            found.append(seed)
    return found


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    streams = read_streams(folder)
    found = compare(streams)
    return template("canon.md.jinja").render(
        streams=streams,
        table=table_of,
        findings=findings,
        verdicts=verdicts(found) if found["acc"] else NOTHING,
        picture=f"../pictures/{PICTURE.name}",
        commands=[f"seu-bench sweep {FOLDER}/{file}.toml" for file in SWEEPS],
        pending=pending(SWEEPS, folder),
        folder=FOLDER,
    )


def draw(folder: Path = EVIDENCE) -> None:
    """Accuracy against memory; a panel for each stream."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    if not (streams := read_streams(folder)):
        return
    shown = dict.fromkeys(name for rows in streams.values() for name in rows)
    markers = dict(zip(shown, "osv^D<>PXpd*" * 3, strict=False))
    colors = {name: f"C{place % 10}" for place, name in enumerate(shown)}
    with matplotlib.rc_context({"svg.hashsalt": "seu-bench", "svg.fonttype": "none", "font.size": 9}):
        size = (max(4.6 * len(streams), 7), 4.6)
        figure, axes = pyplot.subplots(1, len(streams), figsize=size, layout="constrained", squeeze=False)
        for axis, (stream, rows) in zip(axes.flat, streams.items(), strict=False):
            for name, row in rows.items():
                if (found := row.summary("acc")) and (memory := row.mean("memory_bytes")):
                    spread = None if found.high is None else 100 * (found.high - found.mean)
                    look = {"color": colors[name], "marker": markers[name], "label": name}
                    look |= {"markerfacecolor": "none"} if row.reference is not None else {}
                    axis.errorbar(memory / 1e6, 100 * found.mean, spread, linestyle="", capsize=2, **look)
            axis.set(title=stream, xlabel="memory kept (MB)", ylabel="accuracy after the last task (%)", xscale="log")
            axis.xaxis.set(major_formatter="{x:g}", minor_formatter="")
        handles = {label: it for axis in axes.flat for it, label in zip(*axis.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
        figure.savefig(PICTURE, metadata={"Date": None})
        pyplot.close(figure)
