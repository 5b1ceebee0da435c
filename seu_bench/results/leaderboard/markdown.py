"""A leaderboard as text for a reader: cells with units and marks, and the Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from seu_bench.metrics import points_for_size
from seu_bench.results.leaderboard.boards import COMPARED, FEW_SEEDS, Leaderboard, Row, Standing, mean_and_deviation
from seu_bench.results.leaderboard.ordering import SIZES
from seu_bench.results.leaderboard.tuned_rows import HEADINGS, MEANING, TUNED, tuning_cells, tuning_notes
from seu_bench.results.metric import Metric
from seu_bench.results.scenarios import definition
from seu_bench.results.statistics.differences import FEWEST_PAIRS
from seu_bench.results.statistics.power import LEVEL
from seu_bench.results.statistics.samples import SampleSummary
from seu_bench.utils.text import escape_markdown, printable

#: Before the rank of a row on the front.
FRONT: Final = "● "
#: In place of the rank of a reference.
REFERENCE: Final = "○ "
#: Marks before the values of compared columns.
MARKS: Final[Mapping[Standing | None, str]] = {"best": "* ", "not significant": "≈ ", "too few seeds": "? "}
LEGEND: Final = (
    f"{MARKS['best']}the highest mean of its column; {MARKS['not significant']}not significantly different from that "
    f"one: paired t-test over the seeds that both have, Holm's correction over the rows of the column, p >= {LEVEL}; "
    f"{MARKS['too few seeds']}too few seeds: fewer than {FEWEST_PAIRS} in common; no mark: significantly different, or "
    "a reference"
)


def cells(board: Leaderboard, metrics: Sequence[str] | None = None, most: int | None = None) -> list[list[str]]:
    """Rows of text: rank, configuration, seeds, mean ± standard deviation of the metrics; not escaped."""
    shown = [
        [rank_cell(row), row.configuration + (TUNED if row.tunings else ""), seeds_cell(board, row)]
        + [mean_and_deviation(board.columns[name], row.summary(name)) for name in metrics or board.columns]
        for row in board.first(most)
    ]
    for place, name in enumerate(metrics or board.columns, start=3):
        standings = dict(zip(board.rows, board.standings(name), strict=True)) if name in COMPARED else {}
        for row, texts in zip(board.first(most), shown, strict=True):
            texts[place] = MARKS.get(standings.get(row), "") + texts[place]
    return shown


def intervals(board: Leaderboard, metrics: Sequence[str] | None = None, most: int | None = None) -> list[list[str]]:
    """Rows of text: rank, configuration, 95 % confidence intervals of the means; not escaped."""
    return [
        [rank_cell(row), row.configuration]
        + [_interval(board.columns[name], row.summary(name)) for name in metrics or board.columns]
        for row in board.first(most)
    ]


def notes(board: Leaderboard) -> list[str]:
    """How rows were run, what scenario and order mean, what the mixed score favours, what marks are, and which rows a
    view has."""
    first = [*board.conditions, *([] if board.scenario == "task" else [definition(board.scenario)])]
    if board.unranked is not None:
        order = f"not ranked: {board.unranked}. Rows are in the order of accuracy, and none is compared with another"
        return [*first, order, *_references(board), *tuning_notes(board), *stated(board), *board.views]
    size, memory = SIZES[board.size], next(iter(SIZES))
    order = (
        f"ranks are by mean accuracy; {FRONT.strip()} on the front of accuracy against {size}: no other row is "
        "as accurate and smaller, or as small and more accurate"
    )
    if board.size != memory:
        unknown = sum(row.mean(memory) is None for row in board.rows)
        order += f". Memory was not measured for {count(unknown, 'row')}: {size} stand for it"
    marks = [*_favours(board), LEGEND, *stated(board), *board.views]
    return [*first, order, *_references(board), *tuning_notes(board), *marks]


def stated(board: Leaderboard) -> Iterator[str]:
    """What nobody can measure again of a shared leaderboard's rows."""
    rows = [row for row in board.rows if row.record.submitter is not None]
    if rows:
        yield "submitted rows: times, peak memory, environment, tuning and accuracies between tasks are as stated"
    if without := [row.configuration for row in rows if any(run.weights_sha256 is None for run in row.runs.values())]:
        yield f"without models, so that all accuracies are stated: {named(without)}"


def exclusions(what: str, runs: Mapping[str, Sequence[str]]) -> list[str]:
    """A line for each reason that names its runs; reasons without runs have none."""
    return [
        f"{count(len(names), 'record')} {what}: {printable(reason)} ({named(names)})"
        for reason, names in sorted(runs.items())
        if names
    ]


def named(names: Sequence[str]) -> str:
    """The first names and how many more there are, on one line."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(map(printable, names[:5]))}{more}"


def count(number: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def to_markdown(board: Leaderboard) -> str:
    """The leaderboard as a Markdown page; whatever comes from records is escaped."""
    lines = [
        escape_markdown(f"data fingerprint: {board.data_fingerprint}"),
        f"{count(board.records, 'record')}, {count(len(board.rows), 'configuration')}",
        *map(escape_markdown, notes(board)),
        "mean ± standard deviation (n - 1) over seeds; `-` where it was not measured for every seed",
    ]
    if board.fingerprints > 1:
        lines.append(
            f"there are records of this benchmark, version and protocol on {board.fingerprints} different data "
            "fingerprints: they are not comparable, so each has a leaderboard of its own; the one with the most "
            "records has the plain file name, the others have the beginning of the fingerprint appended"
        )
    headings = [escape_markdown(board.heading(name)) for name in board.columns]
    rows, learners = cells(board), len(board.rows) - len(board.references)
    columns = ["rank", "configuration", "seeds", *headings]
    sections = [
        f"# {escape_markdown(board.title)}",
        _items(lines),
        _table(columns, rows[:learners]),
        *(["## References", _table(columns, rows[learners:])] if board.references else []),
        *_tuning(board),
        "## Confidence intervals",
        "95 % confidence interval of the mean by Student's t with n - 1 degrees of freedom; `-` for one seed.",
        _table(["rank", "configuration", *headings], intervals(board)),
        "## Definitions",
        _items(
            f"{heading}: {escape_markdown(metric.summary)}"
            for heading, metric in zip(headings, board.columns.values(), strict=True)
        ),
        "## Excluded",
        _items(escape_markdown(line) for line in board.excluded or ("nothing",)),
    ]
    return "\n\n".join(sections) + "\n"


def _tuning(board: Leaderboard) -> Iterator[str]:
    """The section on tuning, where rows were tuned."""
    if found := tuning_cells(board.rows):
        yield from ("## Tuning", MEANING, _table(HEADINGS, found))


def rank_cell(row: Row) -> str:
    """The rank of a row behind the mark of the front; the mark of a reference; ``-``: not ranked."""
    if row.reference is not None:
        return REFERENCE.strip()
    return (FRONT if row.on_front else "") + str(row.rank or "-")


def seeds_cell(board: Leaderboard, row: Row) -> str:
    """The number of seeds of a row, marked where it lacks some that most rows have."""
    return f"{row.seeds}{FEW_SEEDS if board.lacks_seeds(row) else ''}"


def _references(board: Leaderboard) -> Iterator[str]:
    """What each reference is, and which are missing."""
    if board.references:
        names = "; ".join(f"{row.configuration}: {row.reference}" for row in board.references)
        yield f"{REFERENCE}references, which come last and are not ranked: {names}"
    if board.missing is not None:
        yield f"references that are missing here: {', '.join(board.missing.names)}; make them: {board.missing.command}"


def _favours(board: Leaderboard) -> Iterator[str]:
    """What ten times the parameters must bring for the same mixed score, at the first row that has both."""
    for row in board.rows if "mixed_score" in board.columns else ():
        accuracy, size = row.mean("acc"), row.mean("params_total")
        if accuracy is not None and size is not None and 0 <= accuracy <= 1 and 0 < size < 2**63:
            points = points_for_size(100 * accuracy, size)
            yield (
                f"the mixed score favours small models: one with ten times the {size:,.0f} parameters of the first row "
                f"must be {points:.1f} points more accurate than its {100 * accuracy:.1f} % for the same score"
            )
            return


def _items(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _interval(metric: Metric, found: SampleSummary | None) -> str:
    if found is None or found.low is None or found.high is None:
        return "-"
    return f"{metric.format_cell(found.low)} to {metric.format_cell(found.high)}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown in columns of even width; configurations to the left, all else to the right."""
    columns = []
    for heading, *texts in zip(headings, *rows, strict=True):
        cells = [heading, *map(escape_markdown, texts)]
        width, left = max(3, *map(len, cells)), heading == "configuration"
        first, *others = [cell.ljust(width) if left else cell.rjust(width) for cell in cells]
        rule = "-" * (width - 1)
        columns.append([first, f":{rule}" if left else f"{rule}:", *others])
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))
