"""The figure of what is confused in the class-incremental scenario: tasks of images, and tasks of their answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from seu_bench.results.report.basis import basis
from seu_bench.results.report.canvas import Picture
from seu_bench.results.report.draw_comparing import squares
from seu_bench.results.report.layout import PAGE, Layout
from seu_bench.results.report.summary import Configuration, describe

#: Tasks of which the figure's numbers are a table; more columns are none that anybody reads.
_MOST_COLUMNS = 10


def task_confusions(configurations: Sequence[Configuration]) -> Picture | None:
    """The share of each task's images that are answered with a class of each task, a panel for each configuration.

    ``None`` where it was counted for no configuration, as in all scenarios but the class-incremental one.
    """
    counted = [each for each in configurations if np.isfinite(each.answers.mean).any()]
    if not counted:
        return None

    def draw(layout: Layout = PAGE) -> Figure:
        labels = "answered as task", "images of task", "answers (%)"
        return squares(
            [each.named(layout) for each in counted], [each.answers.mean for each in counted], labels, layout
        )

    def in_words(each: Configuration) -> str:
        own = ", ".join(each.answers[task, task].text("") for task in range(min(each.tasks, 10)))
        text = f"answers that are a class of the image's own task, {own}"
        others = each.answers.mean.copy()
        np.fill_diagonal(others, np.nan)
        if not np.isfinite(others).any():
            return text
        row, task = (int(place) for place in np.unravel_index(np.nanargmax(others), others.shape))
        return f"{text}; most often confused, images of task {row} with task {task}, {each.answers[row, task].text()}"

    tasks = max(each.tasks for each in counted)
    rows = [
        (each.title, str(row), *each.answers[row].cells(), *["-"] * (tasks - each.tasks))
        for each in counted
        for row in range(each.tasks)
        if np.isfinite(each.answers.mean[row]).any()
    ]
    headings = ("configuration (%)", "images of task", *[f"class of task {task}" for task in range(tasks)])
    return Picture(
        "task-confusion",
        "Confusion between tasks",
        "To which task the answers to a task's images belong, after the last task: shares of the images, mean over "
        f"seeds. Off the diagonal images were taken for another task's.{basis(counted)}",
        "Heat maps of the share of each task's test images, in percent, that are answered with a class of each task. "
        + describe(counted, in_words),
        draw,
        [headings, *rows] if tasks <= _MOST_COLUMNS else (),
    )
