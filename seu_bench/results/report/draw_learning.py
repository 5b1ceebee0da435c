"""Learning curves: what each stage measured in each epoch, where records have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from seu_bench.results.record import Record, StageRecord
from seu_bench.results.report.canvas import Margins, legend_below, legend_height, panels, whole_numbers
from seu_bench.results.report.picture import Configuration, Picture, over, sentences
from seu_bench.results.report.styles import short, style
from seu_bench.results.report.summary import SampleSummary, over_seeds, said, task_names

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

        kinds = list(stages)
        labels = [_name(names, task) for task in shown]
        below = legend_height(labels, 3)
        figure, axes = panels(2 * len(kinds), len(kinds), (2.7, 1.6), Margins(down=0.2), below, shared=False)
        for column, kind in enumerate(kinds):
            epochs = max(len(loss.mean) for loss, _ in stages[kind].values())
            for task in shown:
                if task in stages[kind]:
                    loss, accuracy = stages[kind][task]
                    _curve(axes[column], loss, task)
                    _curve(axes[len(kinds) + column], accuracy, task)
            axes[column].set_title(short(kind, 30))
            axes[len(kinds) + column].set_xlabel("epoch")
            axes[len(kinds) + column].set_xlim(*((0.95, epochs + 0.05) if epochs > 1 else (0.5, 1.5)))
            if epochs > 1:
                whole_numbers(axes[len(kinds) + column].xaxis)
            else:
                axes[len(kinds) + column].set_xticks([1])
        axes[0].set_ylabel("loss (per image)")
        axes[len(kinds)].set_ylabel("accuracy (%)")
        handles = [
            Line2D([], [], color=style(task).color, linestyle=style(task).line, label=_name(names, task))
            for task in shown
        ]
        legend_below(figure, handles, 4)
        return figure

    said_of = []
    for kind, of_tasks in stages.items():
        ends = [
            f"task {task} ends at loss {said(loss[-1], '', 3)} and accuracy {said(accuracy[-1])}"
            for task, (loss, accuracy) in of_tasks.items()
            if task in shown
        ]
        said_of.append(f"{kind}: {', '.join(ends)}")
    left = "" if len(shown) == len(tasks) else f" The first {len(shown)} of {len(tasks)} tasks are drawn."
    return Picture(
        f"learning-curves-{configuration.rank}",
        f"Learning curves: {configuration.label}",
        f"What each stage measured in each epoch on the images that it learns from, never on test images; means over "
        f"{over(configuration)}, bands one standard deviation.{left}",
        "Loss and accuracy over epochs. " + sentences(said_of),
        draw,
    )


def _stages(runs: tuple[Record, ...]) -> dict[str, dict[int, tuple[SampleSummary, SampleSummary]]]:
    """Loss, and accuracy in percent, over epochs, by kind of stage and task."""
    found: dict[str, dict[int, list[StageRecord]]] = {}
    for run in runs:
        for stage in run.stages:
            if 0 < max(len(stage.losses), len(stage.accuracies)) <= MOST_EPOCHS:
                found.setdefault(stage.name, {}).setdefault(stage.task, []).append(stage)
    whole = {
        kind: {task: _spreads(stages) for task, stages in sorted(found[kind].items()) if len(stages) == len(runs)}
        for kind in _in_order(runs, found)[:MOST_STAGES]
    }
    return {kind: of_tasks for kind, of_tasks in whole.items() if of_tasks}


def _in_order(runs: tuple[Record, ...], kinds: Iterable[str]) -> list[str]:
    """Kinds of stages as a task has them; not each task has all, such as the first one of SEU no creation."""
    by_task: dict[tuple[int, int], list[str]] = {}
    for number, run in enumerate(runs):
        for stage in run.stages:
            by_task.setdefault((number, stage.task), []).append(stage.name)
    fullest = max(by_task.values(), key=len, default=[])
    return sorted(kinds, key=lambda kind: fullest.index(kind) if kind in fullest else len(fullest))


def _spreads(stages: list[StageRecord]) -> tuple[SampleSummary, SampleSummary]:
    epochs = max(max(len(stage.losses), len(stage.accuracies)) for stage in stages)
    values = np.full((2, len(stages), epochs), np.nan)
    for row, stage in enumerate(stages):
        for place, measured in enumerate((stage.losses, stage.accuracies)):
            values[place, row, : len(measured)] = [np.nan if value is None else value for value in measured]
    return over_seeds(values[0]), over_seeds(100 * values[1])


def _curve(axes: Axes, spread: SampleSummary, task: int) -> None:
    look = style(task)
    epochs = np.arange(1, len(spread.mean) + 1)
    marker = look.marker if len(epochs) == 1 else ""
    axes.plot(epochs, spread.mean, color=look.color, linestyle=look.line, marker=marker, linewidth=1.5)
    if np.isfinite(spread.deviation).any():
        low, high = spread.band
        axes.fill_between(epochs, low, high, color=look.color, alpha=0.12, linewidth=0)


def _name(names: list[str], task: int) -> str:
    return short(names[task], 26, 1) if 0 <= task < len(names) else f"task {task}"
