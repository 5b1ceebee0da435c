"""The figure of a configuration's learning: loss and accuracy over the epochs of each stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from seu_bench.results.record import Record, StageRecord
from seu_bench.results.report.basis import basis
from seu_bench.results.report.canvas import Picture, panels, short, style, whole_ticks, with_legend
from seu_bench.results.report.layout import PAGE, Layout
from seu_bench.results.report.summary import Configuration, SeedSummary, over_seeds, sentences, task_name

#: Tasks with a line each, kinds of stages with a column each, epochs with a point each.
MOST_LINES, MOST_STAGES, MOST_EPOCHS = 10, 4, 5000
#: Inches of a stage's column at the least; labels of its rows.
_LEAST_STAGE: Final = 1.6
_LOSS, _ACCURACY = "loss (per image)", "accuracy (%)"


def learning_curves(configuration: Configuration) -> Picture | None:
    """Loss and accuracy over the epochs of each kind of stage, a line for each task; ``None``: no record has any."""
    stages = _stages(configuration.runs)
    if not stages:
        return None
    tasks = sorted({task for of_tasks in stages.values() for task in of_tasks})
    shown = tasks[:MOST_LINES]

    def draw(layout: Layout = PAGE) -> Figure:
        columns = len(stages)
        look: dict[str, Any] = {"layout": layout, "keep": True}
        if layout.width is None or layout.width / columns >= _LEAST_STAGE:  # loss above accuracy, a column per stage
            titles = [*stages, *[""] * columns]
            figure, axes = panels(titles, columns, (2.9, 1.9), "epoch", _LOSS, share=("col", "row"), **look)
            losses, accuracies = axes[:columns], axes[columns:]
            accuracies[0].set_ylabel(_ACCURACY)
        else:  # beside each other, a row per stage
            titles = [title for kind in stages for title in (kind, "")]
            figure, axes = panels(titles, 2, (2.9, 2.1), "epoch", _LOSS, share=("row", "col"), **look)
            losses, accuracies = axes[::2], axes[1::2]
            for panel in accuracies:
                panel.set_ylabel(_ACCURACY)
        for of_tasks, upper, lower in zip(stages.values(), losses, accuracies, strict=True):
            epochs = max(len(loss.mean) for loss, _ in of_tasks.values())
            for task in [task for task in shown if task in of_tasks]:
                of_task = style(task)
                for panel, summary in zip((upper, lower), of_tasks[task], strict=True):
                    marker = of_task.marker if len(summary.mean) == 1 else ""
                    summary.draw(panel, 1, 0.12, color=of_task.color, linestyle=of_task.line, marker=marker)
            if epochs > 1:
                lower.set_xlim(0.95, epochs + 0.05)
                whole_ticks(lower.xaxis)
            else:
                lower.set_xlim(0.5, 1.5)
                lower.set_xticks([1])
        labels = [short(task_name(configuration.runs, task), 26, 1) for task in shown]
        looks = zip(labels, map(style, shown), strict=True)
        keys = [Line2D([], [], label=label, color=look.color, linestyle=look.line) for label, look in looks]
        return with_legend(figure, keys, 4 if max(map(len, labels)) < 16 else 3)

    texts = []
    for kind, of_tasks in stages.items():
        ends = [
            f"task {task} ends at loss {loss[-1].text('', 3)} and accuracy {accuracy[-1].text()}"
            for task, (loss, accuracy) in of_tasks.items()
            if task in shown
        ]
        texts.append(f"{kind}: {', '.join(ends)}")
    some = "" if len(shown) == len(tasks) else f" The first {len(shown)} of {len(tasks)} tasks are drawn."
    return Picture(
        f"learning-curves-{configuration.number}",
        f"Learning curves: {configuration.label}",
        f"Each epoch of each stage, on the images that it learns from, never on test images; means over "
        f"{configuration.seeds}, bands one standard deviation (n - 1).{some}{basis([configuration])}"
        f"{_at_chance(configuration.runs)}",
        "Loss and accuracy over epochs. " + sentences(texts),
        draw,
    )


def _at_chance(runs: Sequence[Record]) -> str:
    """A sentence on the rewards of each kind of stage that guesses would have reached; empty: nobody measured any."""
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for stage in (stage for run in runs for stage in run.stages):
        if stage.chance_share is not None:
            shares[stage.name].append(100 * stage.chance_share)
    said = ", ".join(f"{np.mean(values):.0f}% in {kind}" for kind, values in shares.items())
    return f" Rewards that guessing would reach: {said}." if said else ""


def _stages(runs: Sequence[Record]) -> dict[str, dict[int, tuple[SeedSummary, SeedSummary]]]:
    """Loss, and accuracy in percent, over epochs, by kind of stage and task."""
    found: defaultdict[str, defaultdict[int, list[StageRecord]]] = defaultdict(lambda: defaultdict(list))
    kinds: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for number, run in enumerate(runs):
        for stage in run.stages:
            kinds[number, stage.task].append(stage.name)
            if 0 < max(len(stage.losses), len(stage.accuracies)) <= MOST_EPOCHS:
                found[stage.name][stage.task].append(stage)
    # Kinds come as a task has them; not each task has all: the first one may lack some.
    fullest = max(kinds.values(), key=len, default=[])
    order = sorted(found, key=lambda kind: fullest.index(kind) if kind in fullest else len(fullest))
    complete = {
        kind: {task: _summaries(stages) for task, stages in sorted(found[kind].items()) if len(stages) == len(runs)}
        for kind in order[:MOST_STAGES]
    }
    return {kind: of_tasks for kind, of_tasks in complete.items() if of_tasks}


def _summaries(stages: Sequence[StageRecord]) -> tuple[SeedSummary, SeedSummary]:
    epochs = max(max(len(stage.losses), len(stage.accuracies)) for stage in stages)
    values = np.full((2, len(stages), epochs), np.nan)
    for row, stage in enumerate(stages):
        for place, measured in enumerate((stage.losses, stage.accuracies)):
            values[place, row, : len(measured)] = np.array(measured, dtype=float)
    return over_seeds(values[0]), over_seeds(100 * values[1])
