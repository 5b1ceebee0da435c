"""The strategies that the paper's SEU stands among, beside the paper's own: what they reach, keep and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from scripts.evidence.beside_paper import differences
from scripts.evidence.evidence import PROTOCOLS, Evidence
from scripts.evidence.formatting import NOTHING, heading, mean, ratio, table
from scripts.evidence.runs import PAPER, RELATIVES, SEU, Group
from seu_bench.results.leaderboard import Row
from seu_bench.results.record import Record
from seu_bench.results.statistics import summarize

#: The strategy whose costs the others' are given as multiples of.
PLAIN: Final = "naive"
#: The set of hard attention with its published perceptron, and its columns.
PERCEPTRON: Final = "hat_mlp"
_METRICS: Final = ("acc", "learning_acc", "forgetting", "params_total")
#: Why no number that was published of a strategy can stand beside ours: what it was measured on. Known from abstracts
#: and published code; the texts of the papers were not at hand.
ELSEWHERE: Final[Mapping[str, str]] = {
    "hat": "published on eight data sets in ten orders, and on permuted MNIST with weights that training images "
    "select; the convolutions there are of 4x4, 3x3 and 2x2",
    "packnet": "published on networks that were trained on ImageNet before, as errors on fine-grained data sets that "
    "cannot be had here",
    "pathnet": "published for reinforcement learning and for pairs of tasks, as time to learn the second; the code "
    "that is followed here is HAT's, on its eight data sets",
    "den": "published as mean area under ROC curves, no accuracy, on another network and other splits",
    "rcl": "published on networks of two layers, permuted and mixed MNIST, and CIFAR-100 in ten tasks; trained by Adam",
}

#: What each of them must beat to be worth its name.
TRIVIAL: Final[Mapping[str, str]] = {
    "linear": "no continual (lifelong) learner: a linear classifier for each task; nothing is published of it",
    "independent": "no continual (lifelong) learner: a network of its own for each task; nothing is published of it",
}


def table_of(evidence: Evidence) -> str:
    """Accuracy and forgetting of each strategy on each benchmark, with why published numbers are others; empty where
    none of the relatives was run."""
    groups = _groups(evidence)
    if not groups:
        return ""
    headings = ["strategy", "what published numbers are of, and ours are not", "seeds"]
    headings += [f"`{group.benchmark}`: {what}" for group in groups for what in ("accuracy (%)", "forgetting (%)")]
    rows = []
    for name in (SEU, *PAPER, *RELATIVES, *TRIVIAL):
        found = [group.rows.get(name) for group in groups]
        there = [row for row in found if row is not None]
        if there:
            numbers = [mean(row, metric) for row in found for metric in ("acc", "forgetting")]
            seeds = sorted({row.seeds for row in there})
            rows.append((f"`{name}`", not_comparable(name, [row.record for row in there]), _range(seeds), *numbers))
    return table(headings, rows, texts=2)


def images(evidence: Evidence) -> str:
    """What all rows have less of, by benchmark."""
    found = [
        f"`{group.benchmark}` {next(differences(next(iter(group.rows.values())).record))}"
        for group in _groups(evidence)
    ]
    return ", ".join(text.removesuffix(" training images per task") for text in found)


def not_comparable(name: str, runs: Sequence[Record]) -> str:
    """Say why no published number can stand beside those of runs: another setting, and less of it in all of them."""
    if name in TRIVIAL:
        return TRIVIAL[name]
    if name in ELSEWHERE:
        training, model = (runs[0].protocol_settings[part] for part in ("training", "model"))
        here = f"{training['epochs']} epochs, batches of {training['batch_size']}, {model['width']:g} of the width"
        return f"{ELSEWHERE[name]}; here {here}"
    first, *others = ([*differences(run)] for run in runs)
    less = "; ".join(each for each in first if all(each in other for other in others))
    return f"the paper's setting: {less}"


def _groups(evidence: Evidence) -> list[Group]:
    """The benchmarks on which some relative was run."""
    return [group for group in evidence.sets[PROTOCOLS[0]] if any(name in group.rows for name in RELATIVES)]


def sizes(group: Group) -> str:
    """What each strategy keeps and costs on one benchmark, the smallest first; empty where no relative was run."""
    if not any(name in group.rows for name in RELATIVES):
        return ""
    plain = group.rows.get(PLAIN)
    rows = [
        (
            f"`{name}`",
            mean(group.rows[name], "params_total"),
            _bits(group.rows[name]),
            mean(group.rows[name], "memory_bytes"),
            *[_multiple(group.rows[name], plain, metric) for metric in ("image_passes", "train_flops")],
        )
        for name in sorted(
            (name for name in (SEU, *PAPER, *RELATIVES) if name in group.rows),
            key=lambda name: group.rows[name].mean("memory_bytes") or 0,
        )
    ]
    headings = ["strategy", heading("params_total"), "masks (bits)", heading("memory_bytes")]
    headings += [f"image passes / `{PLAIN}`", f"training operations / `{PLAIN}`"]
    return table(headings, rows)


def _bits(row: Row) -> str:
    bits = row.mean("mask_bits")
    return NOTHING if bits is None else f"{bits:,.0f}"


def _multiple(row: Row, plain: Row | None, metric: str) -> str:
    return NOTHING if plain is None else ratio(row.mean(metric), plain.mean(metric)).removesuffix(" times")


def _range(seeds: list[int]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def gated_perceptron(evidence: Evidence) -> dict[str, str]:
    """Hard attention with its published perceptron on permuted MNIST, beside what it must beat.

    Returns:
        The ``setting`` in words and the ``table``; empty where it was not run.
    """
    runs: dict[tuple[str, float | None], dict[int, Record]] = {}
    for record in evidence.records(PERCEPTRON):
        runs.setdefault((record.strategy, _width(record)), {})[record.seed] = record
    if not runs:
        return {}
    found = {place: Row(0, place[0], by_seed) for place, by_seed in runs.items()}
    order = sorted(found.items(), key=lambda item: (-(item[0][1] or 0), -(item[1].mean("acc") or 0)))
    rows = [
        (
            f"`{name}`",
            NOTHING if width is None else f"{width:g}",
            str(row.seeds),
            *[mean(row, metric) for metric in _METRICS],
            _minutes(row),
        )
        for (name, width), row in order
    ]
    headings = ("strategy", "width", "seeds", *map(heading, _METRICS), "minutes of a run, one core")
    some = order[0][1].record
    chosen = {key: value for key, value in some.options.items() if value is not None}
    settings = {**some.protocol_settings["training"], **chosen}
    setting = (
        f"{len(some.task_images)} tasks of {some.task_images[0][0]:,} training images each, "
        f"{settings['epochs']} epochs, batches of {settings['batch_size']}"
    )
    return {"setting": setting, "table": table(headings, rows)}


def _width(record: Record) -> float | None:
    """The factor of the hidden layers' width; ``None``: there are none."""
    if "backbone" not in record.options:
        return None
    return float(record.options.get("width") or record.protocol_settings["model"]["width"])


def _minutes(row: Row) -> str:
    summary = summarize([record.seconds for record in row.runs.values()])
    return NOTHING if summary is None else f"{summary.mean / 60:.1f}"
