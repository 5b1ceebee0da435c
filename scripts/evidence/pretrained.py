"""docs/evidence/pretrained.md: class-incremental streams on a pretrained network that stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Final, TypeAlias

from scripts.evidence.comparing import Compared, compare_rows
from scripts.evidence.formatting import NOTHING, change, methods_table, names, template
from scripts.evidence.runs import EVIDENCE, ROOT, records
from scripts.evidence.sweeps import FOLDER, sweep
from scripts.evidence.tables import verdicts
from scripts.evidence.tuning import DEFAULTS
from seu_bench.config.tuned import TunedFile
from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import Row
from seu_bench.results.record import Record

PAGE: Final = ROOT / "docs" / "evidence" / "pretrained.md"
PICTURES: Final = ROOT / "docs" / "pictures"
#: Average incremental accuracy against memory, and accuracy by step.
MEMORY, STEPS = "pretrained_memory.svg", "pretrained_steps.svg"
SET: Final = "pretrained"
COLUMNS: Final = (
    "acc", "avg_incremental_acc", "forgetting", "memory_bytes", "memory_added_bytes", "train_flops", "train_seconds",
)  # fmt: skip
SWEEPS: Final = tuple(sorted(path.stem for path in (ROOT / FOLDER).glob("pretrained_*.toml")))
LAYERS: Final = "stream.input.layers"
#: Options that a row's name tells where they are not these, the defaults.
_DEFAULTS: Final[Mapping[str, object]] = {"distance": "euclidean", "shrinkage": 0.01}
OURS, SIMPLE, ADAPTERS, MEANS = "seu_adapt", "ranpac", "ease", "nearest_mean"
#: On the layers that ours reads by default.
SAME: Final = "ranpac (layers 0-7)"
RIVALS: Final = (SIMPLE, SAME, "slda (shrinkage=auto)", "slda (layers 0-7, shrinkage=auto)", ADAPTERS, "slca")
#: Closed forms, which need no gradient.
CLOSED: Final = (MEANS, "slda", SIMPLE)
COMPARED: Final = ("acc", "avg_incremental_acc")
#: The protocol of all images, which has a table and no place in figures.
WHOLE: Final = "paper"
#: How much more accurate ours was to be than ranpac and ease.
GOAL: Final = 0.01
#: Rows of the figures, each strategy with its colour and marker; references are dashed.
_STYLES: Final[Mapping[str, tuple[str, str]]] = {
    "nearest_mean": ("#999933", "v"), "slda": ("#117733", "^"), "ranpac": ("#332288", "s"), "ease": ("#cc6677", "P"),
    "slca": ("#aa4499", "X"), "seu_adapt": ("#000000", "*"), "icarl": ("#88ccee", "<"), "er_ace": ("#44aa99", ">"),
    "replay": ("#ddcc77", "D"), "derpp": ("#882255", "p"), "ewc": ("#777777", "h"), "naive": ("#bbbbbb", "o"),
    "linear": ("#bbbbbb", "d"), "joint": ("#ee8866", "H"),
}  # fmt: skip
Rows: TypeAlias = Mapping[str, Row]


def name_of(record: Record) -> str:
    """The strategy, and what was given to it."""
    layers = record.benchmark_overrides.get(LAYERS)
    told = ["layers " + "-".join(map(str, sorted({layers[0], layers[-1]})))] if layers else []
    options = record.options
    told += [f"{key}={options[key]}" for key, usual in _DEFAULTS.items() if options.get(key, usual) != usual]
    return f"{record.strategy} ({', '.join(told)})" if told else record.strategy


def _name(benchmark: str, protocol: str | None) -> str:
    return f"{benchmark}, {WHOLE}" if protocol == WHOLE else benchmark


def read_streams(folder: Path = EVIDENCE) -> dict[str, dict[str, Row]]:
    """Rows by stream, those of most classes first, and by name, by accuracy, references last; other layers have a
    leaderboard of their own."""
    found: dict[str, list[Row]] = {}
    for board in read_leaderboards(folder / SET).boards if (folder / SET).is_dir() else ():
        found.setdefault(_name(board.benchmark, board.protocol), []).extend(board.rows)
    classes = {name: rows[0].record.task_classes for name, rows in found.items()}
    streams = sorted(found, key=lambda name: (-sum(classes[name]), len(classes[name]), name))
    return {
        stream: {
            name_of(row.record): row
            for row in sorted(found[stream], key=lambda row: (row.reference is not None, -(row.mean("acc") or 0)))
        }
        for stream in streams
    }


def compare(streams: Mapping[str, Rows]) -> dict[str, list[Compared]]:
    """Ours beside its rivals, and the layers that ranpac reads, on all streams; each metric one family."""
    pairs = [*((OURS, it) for it in RIVALS), (SAME, SIMPLE)]
    return compare_rows(streams, pairs, COMPARED)


def findings(stream: str, rows: Rows, found: Mapping[str, list[Compared]]) -> Iterator[str]:
    """What a table says, in sentences that its numbers make."""
    accuracies = {name: 100 * value for name, row in rows.items() if (value := row.mean("acc")) is not None}
    learners = {name: value for name, value in accuracies.items() if rows[name].reference is None}
    told = {(it.pair.one, it.pair.other): it for it in found["acc"] if it.pair.benchmark == stream}
    told = {pair: it for pair, it in told.items() if it.difference.verdict != "too few seeds"}
    closed = [it for it in accuracies if rows[it].record.strategy in CLOSED and "layer" not in it]
    if closed and learners:
        best, simple = max(learners, key=learners.__getitem__), max(closed, key=accuracies.__getitem__)
        yield (
            f"The most accurate is `{best}` with {learners[best]:.1f} %; of the closed forms on the last layer, which "
            f"need no gradient, `{simple}` with {accuracies[simple]:.1f} %."
        )
        below = [it for it in learners if learners[it] < accuracies.get(MEANS, 0) and it not in closed]
        if below:
            yield f"Below `{MEANS}`, a mean for each class ({accuracies[MEANS]:.1f} %): {names(below)}."
    if (gained := told.get((SAME, SIMPLE))) is not None and (own := told.get((OURS, SAME))) is not None:
        yield f"What `{OURS}` reads brings `{SIMPLE}` {_words(gained)}; `{OURS}` less `{SAME}` is {_words(own)}."
    sides = {side: [other for (one, other), it in told.items() if one == OURS and it.side == side] for side in _SIDES}
    if any(sides.values()):
        parts = [f"{words} {names(sides[side])}" for side, words in _SIDES.items() if sides[side]]
        yield f"`{OURS}` is {'; '.join(parts)}."
        goals = [told.get((OURS, it)) for it in (SIMPLE, ADAPTERS)]
        if all(goals):
            missed = [it.pair.other for it in goals if it and not (it.side == "above" and it.mean >= GOAL)]
            ours, theirs = (rows[it].mean("memory_bytes") or 0.0 for it in (OURS, ADAPTERS))
            faults = [f"it is not for {names(missed)}"] if missed else []
            faults += [f"it keeps {ours / 1e6:.1f} MB, `{ADAPTERS}` {theirs / 1e6:.1f}"] if ours >= theirs else []
            yield (
                f"The goal, {change(GOAL, 'acc')} on `{SIMPLE}` and `{ADAPTERS}` at least, significantly, in less "
                f"memory than `{ADAPTERS}`, is {'**missed**: ' + '; '.join(faults) if faults else 'met'}."
            )


_SIDES: Final = {"above": "above", "not told": "not to be told from", "below": "below"}


def _words(found: Compared) -> str:
    return f"{found.words} ({found.difference.verdict})"


def pending(streams: Mapping[str, Rows]) -> Iterator[tuple[str, int, int]]:
    """Sweeps with runs that have no published record: the file, how many there are at least, and of how many."""
    for file in SWEEPS:
        spec = sweep(file)
        layers = next((value for key, value in spec.options.items() if LAYERS in key), ())
        there, wanted = 0, len(spec.strategy) * len(spec.benchmark) * len(spec.seeds) * max(len(layers), 1)
        for strategy, stream in product(spec.strategy, (_name(Path(it).stem, spec.protocol) for it in spec.benchmark)):
            rows = [it for it in streams.get(stream, {}).values() if it.record.strategy == strategy]
            own = [
                it.runs.keys() & spec.seeds for it in rows if (LAYERS in it.record.benchmark_overrides) == bool(layers)
            ]
            there += sum(map(len, own)) if layers else len(set.intersection(*own)) if own else 0
        if there < wanted:
            yield file, there, wanted


def tunings(streams: Mapping[str, Rows]) -> list[str]:
    """Commands that made the tuned files of the streams."""
    found: dict[tuple[str, ...], list[str]] = {}
    for path in sorted(DEFAULTS.glob("*.toml")):
        file = TunedFile.read(path)
        if file.benchmark in streams:
            place = file.benchmark, file.method, ",".join(map(str, file.seeds))
            found.setdefault(place, []).append(file.strategy)
    return [
        f"for strategy in {' '.join(strategies)}; do seu-bench tune --strategy $strategy --benchmark {benchmark} "
        f"--method {method} --seeds {seeds} --id {benchmark}-quick-$strategy; done"
        for (benchmark, method, seeds), strategies in found.items()
    ]


def per_class(record: Record) -> list[int]:
    """Images of each class that train, validate and test."""
    return [sum(it) // sum(record.task_classes) for it in zip(*record.task_images, strict=True)]


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    streams = read_streams(folder)
    found = compare(streams)
    encoders = {it.record.encoder for rows in streams.values() for it in rows.values() if it.record.encoder}
    return template("pretrained.md.jinja").render(
        encoders=[
            f"{it.name} ({it.network}, trained on {it.pretrained_on}; {it.bytes / 1e6:.1f} MB)" for it in encoders
        ],
        streams=streams,
        images={_name(it.benchmark, it.protocol): per_class(it) for it in records(folder / SET)},
        steps=lambda rows: next(iter(rows.values())).record.task_classes,
        table=lambda rows: methods_table(rows, COLUMNS),
        findings=lambda stream: [*findings(stream, streams[stream], found)],
        verdicts=verdicts(found) if found["acc"] else NOTHING,
        pictures=(f"../pictures/{MEMORY}", f"../pictures/{STEPS}"),
        tunings=tunings(streams),
        commands=[f"seu-bench sweep {FOLDER}/{file}.toml" for file in SWEEPS],
        pending=[*pending(streams)],
        folder=FOLDER,
        ours=OURS,
    )


def by_step(row: Row) -> list[float]:
    """Mean accuracy (%) over the tasks so far, by step, mean over seeds."""
    rows = [
        [100 * sum(it or 0.0 for it in row) / (place + 1) for place, row in enumerate(run.accuracy_matrix)]
        for run in row.runs.values()
    ]
    return [sum(it) / len(rows) for it in zip(*rows, strict=True)]


def draw(folder: Path = EVIDENCE) -> None:
    """Average incremental accuracy against memory, and accuracy by step; a panel for each stream."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot, ticker

    streams = {name: rows for name, rows in read_streams(folder).items() if WHOLE not in name}
    shown = dict.fromkeys(name for rows in streams.values() for name in rows)
    with matplotlib.rc_context({"svg.hashsalt": "seu-bench", "svg.fonttype": "none", "font.size": 9}):
        for picture in (MEMORY, STEPS):
            size = (max(4.6 * len(streams), 7), 4.4)
            figure, axes = pyplot.subplots(1, len(streams), figsize=size, layout="constrained", squeeze=False)
            for axis, (stream, rows) in zip(axes.flat, streams.items(), strict=True):
                for name, row in ((it, rows[it]) for it in shown if it in rows):
                    color, marker = _STYLES.get(row.record.strategy, ("#000000", "."))
                    look = {"color": color, "marker": marker, "label": name}
                    look |= {"markerfacecolor": "none"} if name != row.record.strategy else {}
                    if picture == STEPS:
                        if row.mean("avg_incremental_acc") is not None:
                            values = by_step(row)
                            axis.plot(range(1, len(values) + 1), values, markersize=3, linewidth=1, **look)
                    elif found := row.summary("avg_incremental_acc"):
                        memory = (row.mean("memory_added_bytes") or 0) / 1e6
                        spread = None if found.high is None else 100 * (found.high - found.mean)
                        axis.errorbar(memory, 100 * found.mean, spread, linestyle="", capsize=2, **look)
                classes = next(iter(rows.values())).record.task_classes
                axis.set_title(f"{stream}\n{len(classes)} steps, {sum(classes)} classes", fontsize=9)
                if picture == STEPS:
                    axis.set(xlabel="step", ylabel="accuracy on all classes so far (%)")
                else:
                    axis.set(xlabel="memory added to the network (MB)", ylabel="average incremental accuracy (%)")
                    axis.set(xscale="log")
                    axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
                    axis.xaxis.set_major_formatter("{x:g}")
                    axis.xaxis.set_minor_formatter("")
            handles = {
                label: it for axis in axes.flat for it, label in zip(*axis.get_legend_handles_labels(), strict=True)
            }
            figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
            figure.savefig(PICTURES / picture, metadata={"Date": None})
            pyplot.close(figure)
