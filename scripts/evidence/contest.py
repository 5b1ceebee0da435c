"""docs/evidence/contest.md: methods on the same network, and at equal memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scripts.evidence.formatting import NOTHING, heading, mean, table, template
from scripts.evidence.questions import Pool, read_pool, told
from scripts.evidence.runs import CONTROL, EVIDENCE, ROOT, SEU
from scripts.evidence.sweeps import FOLDER, pending
from scripts.evidence.tables import NULL, null_cells
from seu_bench.results.leaderboard import Row

PAGE: Final = ROOT / "docs" / "evidence" / "contest.md"
PICTURE: Final = ROOT / "docs" / "pictures" / "contest_memory.svg"
SET: Final = "contest"
SWEEPS: Final = tuple(sorted(path.stem for path in (ROOT / FOLDER).glob("contest_*.toml")))
#: Protocol and benchmark of the contest, and where else the convolutions were compared.
PLACE: Final = ("quick", "split_cifar100")
ELSEWHERE: Final = (("half_day", "split_cifar100"), ("quick", "split_fashion"))
#: Networks, in words.
NETWORKS: Final = {
    "conv4": "four 3x3 convolutions of 16 with batch normalisation",
    "cells:3": "three cells of 8 channels, drawn once from SEU's search space",
}
#: What stands beside them: what is trivial, and SEU by the paper's search, by ours, and by none.
BESIDE: Final = (
    "linear", SEU, CONTROL, "seu: inherit, inherit, width 0.5", "seu: random, all_new, width 0.5",
    "seu: mdl, mdl, width 0.5",
)  # fmt: skip
COLUMNS: Final = (
    "acc", "learning_acc", "forgetting", "params_total", "memory_bytes", "train_flops", "mixed_score",
    "mixed_score_above_chance",
)  # fmt: skip
#: Bytes that a method may keep.
BUDGETS: Final = (0.5e6, 1e6, 2e6, 5e6, 20e6)

Rows = Mapping[str, Row]


def read_rows(pool: Pool, place: tuple[str, str] = PLACE) -> dict[str, Row]:
    """Rows of a protocol and benchmark by name, those of the most accurate first."""
    rows = {name: Row(0, name, runs) for name, runs in pool.get(place, {}).items()}
    return dict(sorted(rows.items(), key=lambda item: -(item[1].mean("acc") or 0)))


def same_network(rows: Rows, network: str) -> str:
    """The methods on one network by accuracy, then what stands beside them, and the null model."""
    shown = [name for name in rows if f"{name}, width".partition(", width")[0].endswith(f" on {network}")]
    if not shown:
        return ""
    lines = [(f"`{name}`", str(rows[name].seeds), *_cells(rows[name])) for name in shown]
    beside = [(f"`{name}`", str(rows[name].seeds), *_cells(rows[name])) for name in BESIDE if name in rows]
    headings = ("row", "seeds", *map(heading, COLUMNS))
    return table(headings, [*lines, *beside, (NULL, *null_cells(rows[shown[0]], COLUMNS))])


def _cells(row: Row) -> Iterator[str]:
    for column in COLUMNS:
        yield mean(row, column, interval=column not in ("params_total", "memory_bytes", "train_flops"))


def _kept(row: Row) -> float:
    return row.mean("memory_bytes") or 0


def families(rows: Rows) -> dict[str, list[Row]]:
    """Configurations of each method on the convolutions, and of SEU, the least memory first."""
    found: dict[str, list[Row]] = {}
    for name, row in rows.items():
        if " on conv4" in name:
            found.setdefault(name.partition(" on ")[0], []).append(row)
        elif name in BESIDE:
            found.setdefault(name.partition(", width")[0].removesuffix(": mdl, mdl"), []).append(row)
    return {name: sorted(found[name], key=_kept) for name in sorted(found)}


def leader(rows: Rows) -> str:
    """The most accurate of what keeps no more than SEU, and SEU."""
    least = (name for name, row in rows.items() if 0 < _kept(row) <= _kept(rows[SEU]))
    return ", ".join(
        f"`{name}` {mean(rows[name], 'acc')} % with {_kept(rows[name]) / 1e6:.2f} MB" for name in (next(least), SEU)
    )


def equal_memory(rows: Rows) -> str:
    """Of each method the largest configuration that a budget has room for."""
    lines = []
    for name, configurations in families(rows).items():
        cells = []
        for budget in BUDGETS:
            fitting = [row for row in configurations if 0 < _kept(row) <= budget]
            cells.append(mean(fitting[-1], "acc") if fitting else NOTHING)
        lines.append((f"`{name}`", *cells))
    return table(("method", *(f"{budget / 1e6:g} MB" for budget in BUDGETS)), lines)


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    pool = read_pool(folder)
    rows = read_rows(pool)
    elsewhere = {" by ".join(reversed(place)): same_network(read_rows(pool, place), "conv4") for place in ELSEWHERE}
    return template("contest.md.jinja").render(
        networks={network: text for network in NETWORKS if (text := same_network(rows, network))},
        elsewhere={place: text for place, text in elsewhere.items() if text},
        words=NETWORKS,
        leader=leader(rows) if SEU in rows else "",
        memory=equal_memory(rows),
        questions=told("contest", folder),
        picture=f"../pictures/{PICTURE.name}",
        pending=pending(SWEEPS, folder),
        folder=FOLDER,
        commands=[f"seu-bench sweep {FOLDER}/{file}.toml" for file in SWEEPS],
    )


def draw(folder: Path = EVIDENCE) -> None:
    """Accuracy against memory, a curve for each method, with 95 % intervals."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    found = families(read_rows(read_pool(folder)))
    with matplotlib.rc_context({"svg.hashsalt": "seu-bench", "svg.fonttype": "none", "font.size": 9}):
        figure, axis = pyplot.subplots(figsize=(7.5, 5), layout="constrained")
        for place, (name, rows) in enumerate(found.items()):
            told = [(_kept(row), row.summary("acc")) for row in rows]
            points = [(size / 1e6, 100 * it.mean, 100 * (it.mean - (it.low or it.mean))) for size, it in told if it]
            sizes, heights, errors = zip(*points, strict=True)
            look: dict[str, Any] = {
                "color": pyplot.get_cmap("tab20")(place % 20),
                "marker": "osv^D<>PXpd*h"[place % 13],
                "label": name,
                "capsize": 2,
            }
            axis.errorbar(sizes, heights, errors, linestyle=":" if name.startswith("seu") else "-", **look)
        axis.set(xlabel="memory kept (MB)", ylabel="accuracy after the last task (%)", xscale="log")
        axis.xaxis.set(major_formatter="{x:g}", minor_formatter="")
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        figure.savefig(PICTURE, metadata={"Date": None})
        pyplot.close(figure)
