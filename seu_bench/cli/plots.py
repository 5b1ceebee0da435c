"""A run's accuracies drawn in the terminal: a heat map of the accuracy matrix and a line plot, in plain characters.

Every number is written as well, so that nothing is told by colour alone; where the output is no terminal, or has no
colours, the same is there without them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from seu_bench.cli.tables import literal
from seu_bench.metrics import avg_acc_curve
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import whole_matrix

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

#: Columns of a plot, with its axis; a terminal has 80.
WIDTH: Final = 78
#: Rows of the line plot: ten steps, so that every second one is a whole percent.
HEIGHT: Final = 11
#: Characters of a heat map's cell.
_CELL: Final = 5
#: Characters of a task's name beside a heat map.
_NAME: Final = 16
#: Background from 0 to 100 %: anchors of matplotlib's map cividis, which readers see alike who see colours otherwise.
_COLOURS: Final = ("#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838")
#: From this anchor on, black letters are easier to read than white ones.
_LIGHT: Final = 3
_AVERAGE, _LEARNED, _BOTH, _BETWEEN = "*", "o", "@", "."


def accuracy_plots(record: Record) -> RenderableType:
    """Which run it is, then :func:`heat_map` and :func:`line_plot`."""
    from rich.console import Group

    title = f"{record.benchmark}, protocol {record.protocol}: {record.strategy}, seed {record.seed}, {record.status}"
    return Group(literal(record.run_id), literal(title), "", heat_map(record), "", line_plot(record))


def heat_map(record: Record) -> RenderableType:
    """The accuracy matrix in percent, a row after each task learned; lighter is better, ``-`` was not measured.

    Tasks that do not fit beside each other go below.
    """
    from rich.console import Group
    from rich.text import Text

    matrix = whole_matrix(record)
    if not _measured(matrix):
        return "no accuracy was measured"
    abreast = (WIDTH - _NAME) // _CELL
    tasks = max(len(matrix), *[len(row) for row in matrix])
    parts: list[RenderableType] = ["accuracy (%) on task ..., after learning ..."]
    for first in range(0, tasks, abreast):
        columns = range(first, min(first + abreast, tasks))
        parts.append(" " * _NAME + "".join(f"{task:>{_CELL}}" for task in columns))
        for row, values in enumerate(matrix):
            name = record.task_names[row] if row < len(record.task_names) else ""
            line = Text(no_wrap=True, overflow="crop")
            line.append_text(_fitted(f"{row} {name}", _NAME))
            for task in columns:
                line.append_text(_cell(values[task] if task < len(values) else None))
            parts.append(line)
    return Group(*parts)


def line_plot(record: Record) -> RenderableType:
    """Over the sequence: mean accuracy of the tasks learned so far, and of each task right after learning it."""
    from rich.console import Group
    from rich.text import Text

    matrix = whole_matrix(record)
    average = _points(avg_acc_curve(matrix))
    learned = _points([row[task] if task < len(row) else None for task, row in enumerate(matrix)])
    if not average and not learned:
        return "there is no accuracy of learned tasks to plot"
    limits = _limits([*average.values(), *learned.values()])
    lines = [
        f"accuracy (%) after learning ...; {_AVERAGE}: mean of the tasks learned so far,",
        f"{_LEARNED}: of the task just learned, {_BOTH}: both",
    ]
    room = WIDTH - 10  # the axis, and the last task's number
    step = max(1, min(6, room // len(matrix)))
    abreast = room // step
    for first in range(0, len(matrix), abreast):
        last = min(first + abreast, len(matrix))
        lines += _plot_lines(average, learned, limits, range(first, last), step)
    return Group(*[Text(line, no_wrap=True) for line in lines])


def _plot_lines(
    average: Mapping[int, float], learned: Mapping[int, float], limits: tuple[float, float], tasks: range, step: int
) -> list[str]:
    """Lines of characters, the highest accuracy first, with an axis at the left and one below."""
    lowest, highest = limits

    def height(value: float) -> int:
        return round((value - lowest) / (highest - lowest) * (HEIGHT - 1))

    grid = [[" "] * (step * len(tasks)) for _ in range(HEIGHT)]
    for task in tasks:
        if task + 1 in tasks and task in average and task + 1 in average:
            for part in range(1, step):
                value = average[task] + (average[task + 1] - average[task]) * part / step
                grid[height(value)][(task - tasks.start) * step + part] = _BETWEEN
    for task in tasks:
        column = (task - tasks.start) * step
        if task in learned:
            grid[height(learned[task])][column] = _LEARNED
        if task in average:
            both = task in learned and height(learned[task]) == height(average[task])
            grid[height(average[task])][column] = _BOTH if both else _AVERAGE
    lines = []
    for row in reversed(range(HEIGHT)):
        value = 100 * (lowest + (highest - lowest) * row / (HEIGHT - 1))
        axis = f"{value:6.0f} |" if row % 2 == 0 else " " * 6 + " |"
        lines.append((axis + "".join(grid[row])).rstrip())
    labels = [" "] * (step * len(tasks) + 4)
    for task in tasks:
        # Where the steps are narrower than a number, only every so many have one.
        if (task - tasks.start) % math.ceil((len(str(tasks.stop)) + 1) / step) == 0:
            start = (task - tasks.start) * step
            labels[start : start + len(str(task))] = str(task)
    return [*lines, " " * 7 + "+" + "-" * (step * len(tasks)), (" " * 8 + "".join(labels)).rstrip()]


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """The axis: from a whole tenth below to one above, inside [0, 1] where the values are."""
    lowest, highest = math.floor(10 * min(values)) / 10, math.ceil(10 * max(values)) / 10
    if lowest < highest:
        return lowest, highest
    return (highest - 0.1, highest) if highest > 0 else (0.0, 0.1)


def _points(values: Sequence[float | None]) -> dict[int, float]:
    """What was measured, by task; a stranger's record may hold any number, of which accuracies alone are drawn."""
    return {task: value for task, value in enumerate(values) if value is not None and 0 <= value <= 1}


def _measured(matrix: Sequence[Sequence[float | None]]) -> bool:
    return any(value is not None for row in matrix for value in row)


def _cell(value: float | None) -> Text:
    from rich.text import Text

    if value is None or not 0 <= value <= 1:
        text = "-" if value is None or math.isnan(value) else "?"
        return Text(f"{text:>{_CELL - 1}} ")
    anchor = round(value * (len(_COLOURS) - 1))
    letters = "#000000" if anchor >= _LIGHT else "#ffffff"
    return Text(f"{100 * value:>{_CELL - 1}.0f} ", style=f"{letters} on {_COLOURS[anchor]}")


def _fitted(text: str, width: int) -> Text:
    """``text`` in exactly so many columns of a terminal."""
    fitted = literal(text)
    fitted.truncate(width - 1, overflow="ellipsis")
    fitted.pad_right(width - fitted.cell_len)
    return fitted
