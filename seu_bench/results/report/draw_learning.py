"""Learning curves: loss and accuracy of each epoch of each stage, where records have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from seu_bench.results.record import Record, StageRecord
from seu_bench.results.report.canvas import legend_below, panels, whole_numbers
from seu_bench.results.report.picture import Configuration, Picture, sentences, short, style
from seu_bench.results.report.summary import SeedSummary, over_seeds, task_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        from matplotlib.lines import Line2D

        columns = len(stages)
        figure, axes = panels(2 * columns, columns, (2.9, 1.9), shared=False)
        for (kind, of_tasks), upper, lower in zip(stages.items(), axes[:columns], axes[columns:], strict=True):
            epochs = max(len(loss.mean) for loss, _ in of_tasks.values())
            for task in shown:
                if task in of_tasks:
                    for panel, summary in zip((upper, lower), of_tasks[task], strict=True):
                        _curve(panel, summary, task)
            upper.set_title(short(kind, 30))
            lower.set_xlabel("epoch")
            lower.set_xlim(*((0.95, epochs + 0.05) if epochs > 1 else (0.5, 1.5)))
            if epochs > 1:
                whole_numbers(lower.xaxis)
            else:
                lower.set_xticks([1])
        axes[0].set_ylabel("loss (per image)")
        axes[columns].set_ylabel("accuracy (%)")
        labels = [short(names[task], 26, 1) if 0 <= task < len(names) else f"task {task}" for task in shown]
        looks = [style(task) for task in shown]
        handles = [
            Line2D([], [], label=label, color=look.color, linestyle=look.line)
            for label, look in zip(labels, looks, strict=True)
        ]
        legend_below(figure, handles, 4 if max(map(len, labels)) < 16 else 3)
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


def _stages(runs: tuple[Record, ...]) -> dict[str, dict[int, tuple[SeedSummary, SeedSummary]]]:
    """Loss, and accuracy in percent, over epochs, by kind of stage and task."""
    found: dict[str, dict[int, list[StageRecord]]] = {}
    for run in runs:
        for stage in run.stages:
            if 0 < max(len(stage.losses), len(stage.accuracies)) <= MOST_EPOCHS:
                found.setdefault(stage.name, {}).setdefault(stage.task, []).append(stage)
    complete = {
        kind: {task: _summaries(stages) for task, stages in sorted(found[kind].items()) if len(stages) == len(runs)}
        for kind in _in_order(runs, found)[:MOST_STAGES]
    }
    return {kind: of_tasks for kind, of_tasks in complete.items() if of_tasks}


def _in_order(runs: tuple[Record, ...], kinds: Iterable[str]) -> list[str]:
    """Kinds of stages as a task has them; not each task has all: the first one may lack some."""
    by_task: dict[tuple[int, int], list[str]] = {}
    for number, run in enumerate(runs):
        for stage in run.stages:
            by_task.setdefault((number, stage.task), []).append(stage.name)
    fullest = max(by_task.values(), key=len, default=[])
    return sorted(kinds, key=lambda kind: fullest.index(kind) if kind in fullest else len(fullest))


def _summaries(stages: list[StageRecord]) -> tuple[SeedSummary, SeedSummary]:
    epochs = max(max(len(stage.losses), len(stage.accuracies)) for stage in stages)
    values = np.full((2, len(stages), epochs), np.nan)
    for row, stage in enumerate(stages):
        for place, measured in enumerate((stage.losses, stage.accuracies)):
            values[place, row, : len(measured)] = [np.nan if value is None else value for value in measured]
    return over_seeds(values[0]), over_seeds(100 * values[1])


def _curve(axes: Axes, summary: SeedSummary, task: int) -> None:
    look = style(task)
    epochs = np.arange(1, len(summary.mean) + 1)
    marker = look.marker if len(epochs) == 1 else ""
    axes.plot(epochs, summary.mean, color=look.color, linestyle=look.line, marker=marker, linewidth=1.5)
    if np.isfinite(summary.std).any():
        axes.fill_between(epochs, *summary.band, color=look.color, alpha=0.12, linewidth=0)
