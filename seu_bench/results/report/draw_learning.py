"""Learning curves: loss and accuracy of each epoch of each stage, where records have them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from seu_bench.results.record import Record, StageRecord
from seu_bench.results.report.canvas import legend_below, line_and_band, panels, whole_ticks
from seu_bench.results.report.picture import Configuration, Picture, sentences, short, style
from seu_bench.results.report.summary import SeedSummary, over_seeds, task_names

#: Tasks with a line each, kinds of stages with a column each, epochs with a point each.
MOST_TASKS, MOST_STAGES, MOST_EPOCHS = 10, 4, 5000


def learning_curves(configuration: Configuration) -> Picture | None:
    """Loss and accuracy over the epochs of each kind of stage, a line for each task; ``None``: no record has any."""
    stages = _stages(configuration.runs)
    if not stages:
        return None
    names = task_names(configuration.runs)
    tasks = sorted({task for of_tasks in stages.values() for task in of_tasks})
    shown = tasks[:MOST_TASKS]

    def draw() -> Figure:
        columns = len(stages)
        figure, axes = panels(2 * columns, columns, (2.9, 1.9), shared=False)
        looks: dict[int, dict[str, Any]] = {
            task: {"color": style(task).color, "linestyle": style(task).line} for task in shown
        }
        for (kind, of_tasks), upper, lower in zip(stages.items(), axes[:columns], axes[columns:], strict=True):
            epochs = max(len(loss.mean) for loss, _ in of_tasks.values())
            for task, look in looks.items():
                for panel, summary in zip((upper, lower), of_tasks.get(task, ()), strict=False):
                    marker = style(task).marker if len(summary.mean) == 1 else ""
                    line_and_band(panel, 1, summary, 0.12, marker=marker, linewidth=1.5, **look)
            upper.set_title(short(kind, 30))
            lower.set_xlabel("epoch")
            if epochs > 1:
                lower.set_xlim(0.95, epochs + 0.05)
                whole_ticks(lower.xaxis)
            else:
                lower.set_xlim(0.5, 1.5)
                lower.set_xticks([1])
        axes[0].set_ylabel("loss (per image)")
        axes[columns].set_ylabel("accuracy (%)")
        labels = {task: short(names[task], 26, 1) if 0 <= task < len(names) else f"task {task}" for task in shown}
        keys = [Line2D([], [], label=labels[task], **look) for task, look in looks.items()]
        legend_below(figure, keys, 4 if max(map(len, labels.values())) < 16 else 3)
        return figure

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
        f"learning-curves-{configuration.rank}",
        f"Learning curves: {configuration.label}",
        f"Each epoch of each stage, on the images that it learns from, never on test images; means over "
        f"{configuration.seeds}, bands one standard deviation.{some}",
        "Loss and accuracy over epochs. " + sentences(texts),
        draw,
    )


def _stages(runs: Sequence[Record]) -> dict[str, dict[int, tuple[SeedSummary, SeedSummary]]]:
    """Loss, and accuracy in percent, over epochs, by kind of stage and task."""
    found: defaultdict[str, defaultdict[int, list[StageRecord]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for stage in run.stages:
            if 0 < max(len(stage.losses), len(stage.accuracies)) <= MOST_EPOCHS:
                found[stage.name][stage.task].append(stage)
    complete = {
        kind: {task: _summaries(stages) for task, stages in sorted(found[kind].items()) if len(stages) == len(runs)}
        for kind in _in_order(runs, found)[:MOST_STAGES]
    }
    return {kind: of_tasks for kind, of_tasks in complete.items() if of_tasks}


def _in_order(runs: Sequence[Record], kinds: Iterable[str]) -> list[str]:
    """Kinds of stages as a task has them; not each task has all: the first one may lack some."""
    by_task: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for number, run in enumerate(runs):
        for stage in run.stages:
            by_task[number, stage.task].append(stage.name)
    fullest = max(by_task.values(), key=len, default=[])
    return sorted(kinds, key=lambda kind: fullest.index(kind) if kind in fullest else len(fullest))


def _summaries(stages: Sequence[StageRecord]) -> tuple[SeedSummary, SeedSummary]:
    epochs = max(max(len(stage.losses), len(stage.accuracies)) for stage in stages)
    values = np.full((2, len(stages), epochs), np.nan)
    for row, stage in enumerate(stages):
        for place, measured in enumerate((stage.losses, stage.accuracies)):
            values[place, row, : len(measured)] = np.array(measured, dtype=float)
    return over_seeds(values[0]), over_seeds(100 * values[1])
