"""Leaderboards as Markdown, LaTeX and CSV, and what marks and rows mean; whatever comes from records is escaped."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from seu_bench._version import __version__
from seu_bench.metrics import chance_acc, mixed_score
from seu_bench.results.labels import as_mapping, definition
from seu_bench.results.leaderboard import (
    FRONT,
    REFERENCE,
    SIZES,
    TUNED,
    Leaderboard,
    Standing,
    count,
    join_names,
    mean_and_deviation,
)
from seu_bench.results.metric import Metric
from seu_bench.results.names import bibtex_entries, display_benchmark
from seu_bench.results.record import Record
from seu_bench.results.statistics import FEWEST_PAIRS, LEVEL, SampleSummary
from seu_bench.utils.text import escape_latex, escape_markdown, printable, spreadsheet_cell

_LEGEND: Final = (
    "{} the highest mean of its column; {} not significantly different from that one: paired t-test over the seeds "
    f"that both have, Holm's correction over the rows of the column, p >= {LEVEL}; ? too few seeds: fewer than "
    f"{FEWEST_PAIRS} in common with it; else significantly different, or a reference"
)
#: Methods of tuning that use what no continual learner has, and what that is.
_UNFAIR: Final = {"whole-stream": "validation images of all tasks before the last one is learned"}
#: Key and entry of this software, as in CITATION.cff.
_KEY: Final = "seubench"
_SOFTWARE: Final = f"""@misc{{{_KEY},
  title  = {{seu-bench: a benchmark harness for lifelong learning}},
  author = {{{{seu-bench contributors}}}},
  note   = {{Software, version {__version__}}}
}}"""
#: Letters of a configuration that a line of a page has room for beside numbers.
_WIDEST: Final = 24


def intervals(board: Leaderboard, metrics: Iterable[str], most: int | None = None) -> list[list[str]]:
    """Return rows of text as :meth:`Leaderboard.cells`: rank, configuration, 95 % confidence intervals of the means."""
    rows = [texts[:2] for texts in board.cells((), most)]
    for name in metrics:
        shown = board.columns[name].format_cell
        for row, texts in zip(board.first(most), rows, strict=True):
            low, high = (getattr(row.summary(name), end, None) for end in ("low", "high"))
            texts.append("-" if low is None or high is None else f"{shown(low)} to {shown(high)}")
    return rows


def notes(board: Leaderboard, best: str = "*", alike: str = "≈") -> Iterator[str]:
    """Yield how rows were run, what scenario, order and marks mean, and which rows a view has; not escaped.

    ``best`` and ``alike`` are the marks of the best row and of those that do not differ from it significantly.
    """
    yield from board.settings
    if board.pretrained is not None:
        yield f"pretrained: {board.pretrained}"
    if board.scenario != "task":
        yield definition(board.scenario)
    if board.unranked is not None:
        yield f"not ranked: {board.unranked}. Rows are in the order of accuracy, and none is compared with another"
    else:
        size, unknown = SIZES[board.size], sum(row.mean("memory_bytes") is None for row in board.rows)
        stands = f" (memory was not measured for {count(unknown, 'row')})" if board.size != "memory_bytes" else ""
        yield f"ranks are by mean accuracy; {FRONT}Pareto-optimal in accuracy and {size}{stands}"
        yield _LEGEND.format(best, alike)
    chance = chance_acc(board.rows[0].record.task_classes, board.scenario) if board.rows else None
    if chance is not None:
        score = f"{100 * chance:.2f} %, mixed score {mixed_score(100 * chance, 0):.4f}, above chance 0"
        yield f"null model, a guess without parameters: accuracy {score}"
    if board.references:
        names = "; ".join(f"{row.configuration}: {row.reference}" for row in board.references)
        yield f"{REFERENCE}references, which come last and are not ranked: {names}"
    if board.missing is not None:
        yield f"references that are missing here: {', '.join(board.missing.names)}; make them: {board.missing.command}"
    if any(row.tunings for row in board.rows):
        yield (
            f"{TUNED.strip()} hyper-parameters chosen by seu-bench tune on other seeds, without test images; what that "
            "took is in no other cost"
        )
    for method, what in _UNFAIR.items():
        rows = [row.configuration for row in board.rows if any(tuning.method == method for tuning in row.tunings)]
        if rows:
            yield f"tuned by {method}, which uses {what}: {', '.join(rows)}"
    submitted = [row for row in board.rows if row.record.submitter is not None]
    if submitted:
        yield "submitted rows: times, peak memory, environment, tuning and accuracies between tasks are as stated"
    if without := [row.configuration for row in submitted if any(not it.weights_sha256 for it in row.runs.values())]:
        yield f"without models, so that all accuracies are stated: {join_names(without)}"
    yield from board.views


def to_csv(boards: Iterable[Leaderboard]) -> str:
    """Return the tables of leaderboards as one CSV text; what was not measured is blank. Empty where there is no row.

    There is a column ``scenario`` only where one is not ``task``.
    """
    rows = [row for board in boards for row in board.table()]
    names = dict.fromkeys(name for row in rows for name in row)
    if all(row["scenario"] == "task" for row in rows):
        names.pop("scenario", None)
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: spreadsheet_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def to_markdown(board: Leaderboard) -> str:
    """Return the leaderboard as a Markdown page."""
    lines = [
        f"data fingerprint: {board.data_fingerprint}",
        f"{count(board.records, 'record')}, {count(len(board.rows), 'configuration')}",
        *notes(board),
        "mean ± standard deviation (n - 1) over seeds; - where it was not measured for every seed",
    ]
    headings = [board.heading(name) for name in board.columns]
    rows, columns, learners = board.cells(), ["rank", "configuration", "seeds", *headings], len(board.learners)
    sections = [
        f"# {escape_markdown(board.title)}",
        _items(lines),
        _table(columns, rows[:learners]),
        *(["## References", _table(columns, rows[learners:])] if board.references else []),
        "## Confidence intervals",
        "95 % confidence interval of the mean by Student's t with n - 1 degrees of freedom; `-` for one seed.",
        _table(["rank", "configuration", *headings], intervals(board, board.columns)),
        "## Definitions",
        _items(f"{board.heading(name)}: {metric.summary}" for name, metric in board.columns.items()),
        "## Excluded",
        _items(board.excluded or ("nothing",)),
    ]
    return "\n\n".join(sections) + "\n"


def _items(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = []
    for heading, *texts in zip(headings, *rows, strict=True):
        column = [escape_markdown(text) for text in (heading, *texts)]
        width, left = max(3, *map(len, column)), heading == "configuration"
        first, *others = [cell.ljust(width) if left else cell.rjust(width) for cell in column]
        rule = "-" * (width - 1)
        columns.append([first, f":{rule}" if left else f"{rule}:", *others])
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))


def usual_columns(board: Leaderboard) -> list[str]:
    """Return the columns that a page has room for, as far as they are there: accuracy, forgetting, size and compute."""
    return [name for name in ("acc", "forgetting", board.size, "train_flops") if name in board.columns]


def to_latex(board: Leaderboard, columns: Sequence[str] | None = None) -> str:
    """Return a leaderboard as a floating table of LaTeX with caption, label and notes, names as papers write them.

    Args:
        board: all rows of it are in the table, references below a rule; the best mean of a compared column is bold, one
            that does not differ from it significantly is underlined.
        columns: ids of metrics among ``board.columns``; :func:`usual_columns` by default.

    Returns:
        Lines to ``\\input`` in a document that loads ``booktabs``, and has the entries of :func:`to_bibtex`.

    Example:
        ``Path("table.tex").write_text(to_latex(read_leaderboards(Path("results")).boards[0]))``
    """
    names, board = list(columns) if columns is not None else usual_columns(board), board.with_display_names()
    seeds, tuned = {row.seeds for row in board.rows}, {bool(row.tunings) for row in board.rows}
    is_wide, learners = any(len(row.configuration) > _WIDEST for row in board.rows), len(board.learners)
    body = [[escape_latex(cell) for cell in row][: 3 if len(seeds) > 1 else 2] for row in board.cells(())]
    for row, texts in zip(board.rows, body, strict=True):
        texts[1] += _cite("strategies", row.record.strategy, board)
        texts[1] = rf"\raggedright {texts[1]}" if is_wide else texts[1]
    for name in names:
        for row, texts, standing in zip(board.rows, body, board.standings(name), strict=True):
            texts.append(_latex_value(board.columns[name], row.summary(name), standing))
    first = ["rank", "method", *(["seeds"] if len(seeds) > 1 else [])]
    headings = [*first, *[_latex_heading(board.heading(name)) for name in names]]
    alignment = "r" + (r"p{0.28\linewidth}" if is_wide else "l") + "r" * (len(first) - 2)
    said = [
        escape_latex(f"{text[0].upper()}{text[1:]}.")
        for text in notes(replace(board, missing=None), "bold:", "underlined:")
    ]
    settings = said[: len(board.settings)]
    caption = " ".join([*_caption(board, seeds, tuned), *settings])
    parts = filter(None, (body[:learners], body[learners:]))
    lines = [
        f"% {printable(board.title)}; data {printable(board.data_fingerprint)}",
        r"% needs \usepackage{booktabs}, and the entries that seu-bench leaderboard --format bibtex prints",
        r"\begin{table}",
        r"  \centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"  \caption{{{caption}}}",
        rf"  \label{{tab:{re.sub('[^A-Za-z0-9-]', '-', board.name)}}}",
        rf"  \begin{{tabular}}{{{alignment}{'r' * len(names)}}}",
        r"  \toprule",
        _latex_line(headings),
        *[line for part in parts for line in (r"  \midrule", *map(_latex_line, part))],
        r"  \bottomrule",
        r"  \end{tabular}",
        r"  \par\smallskip",
        rf"  \begin{{minipage}}{{\linewidth}}\footnotesize {' '.join(said[len(settings) :])}\end{{minipage}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def to_bibtex(boards: Iterable[Leaderboard]) -> str:
    """Return the BibTeX entries of what :func:`to_latex` cites: methods, benchmarks and this software."""
    found = bibtex_entries(_SOFTWARE)
    for board in boards:
        names = [("benchmarks", board.benchmark), *(("strategies", row.record.strategy) for row in board.rows)]
        for kind, name in names:
            found |= _entries(kind, name, board)
    return "\n\n".join(found.values()) + "\n"


def _entries(kind: str, name: str, board: Leaderboard) -> dict[str, str]:
    is_own = kind == "benchmarks" and any(row.record.benchmark_file for row in board.rows)
    entry = None if is_own else board.installed.get(kind, {}).get(name)
    return bibtex_entries(entry.citation) if entry is not None else {}


def _cite(kind: str, name: str, board: Leaderboard) -> str:
    keys = ",".join(_entries(kind, name, board))
    return rf"~\cite{{{keys}}}" if keys else ""


def _caption(board: Leaderboard, seeds: Collection[int], tuned: Collection[bool]) -> Iterator[str]:
    """The setting in sentences of LaTeX: benchmark, scenario, protocol, seeds, whether anything was tuned."""
    record = board.rows[0].record if board.rows else None
    title = display_benchmark(record, board.installed) if record else board.benchmark
    place = f"protocol {board.protocol}" if board.scenario != "task" else f"task-incremental, protocol {board.protocol}"
    place += f" ({budget})" if record and (budget := _budget(record)) else ""
    place += f", {board.tasks} tasks" if board.tasks is not None and "tasks" not in title else ""
    place += f", NOT RANKED ({board.unranked})" if board.unranked is not None else ""
    cited = _cite("benchmarks", board.benchmark, board)
    yield rf"{escape_latex(title)}{cited}, {escape_latex(place)}, by seu-bench~\cite{{{_KEY}}}."
    if max(seeds, default=1) > 1:
        number = f"{next(iter(seeds))} seeds" if len(seeds) == 1 else "seeds"
        yield rf"Mean $\pm$ standard deviation over {number}."
    else:
        yield "One seed."
    if True not in tuned:
        yield "Hyper-parameters were not tuned."
    elif False not in tuned:
        yield "Hyper-parameters of every row were tuned."


def _budget(record: Record) -> str:
    """What the protocol of a record allows, in words."""
    images, training = (as_mapping(record.protocol_settings.get(section)) for section in ("images", "training"))
    found = {
        "training images a task": images.get("train"),
        "epochs": training.get("epochs"),
        "images a batch": training.get("batch_size"),
    }
    return ", ".join(f"{value:,} {what}" for what, value in found.items() if isinstance(value, int))


def _latex_line(texts: Sequence[str]) -> str:
    return rf"  {' & '.join(texts)} \\"


def _latex_value(metric: Metric, found: SampleSummary | None, standing: Standing | None) -> str:
    """As a formula, in which a comma would be followed by a blank."""
    if found is None:
        return "--"
    mean, *deviation = mean_and_deviation(metric, found).replace(",", "{,}").split(" ± ")
    marks = {
        "best": rf"\mathbf{{{mean}}}",
        "not significant": rf"\underline{{{mean}}}",
        "too few seeds": f"{mean}^{{?}}",
    }
    return "$" + r" \pm ".join([marks.get(str(standing), mean), *deviation]) + "$"


def _latex_heading(text: str) -> str:
    name, bracket, unit = text.rpartition(" (")
    if not bracket:
        return escape_latex(text)
    return rf"\shortstack[r]{{{escape_latex(name)} \\ ({escape_latex(unit)}}}"
