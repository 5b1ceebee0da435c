"""Figures as files: chosen by name, drawn once each, in a folder of their own or as the one file that a paper takes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from seu_bench.config.commands import command
from seu_bench.errors import OptionError, ResultsError
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report.canvas import Picture
from seu_bench.results.report.draw_ranks import RankSection
from seu_bench.results.report.layout import PAGE, Layout
from seu_bench.results.report.rendering import FORMATS, RenderedFigure, render
from seu_bench.results.report.sections import Limits, Section, read_sections
from seu_bench.utils.files import check_output, refuse_link, write_atomic, write_output
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.progress import tracked
from seu_bench.utils.text import escape_markdown, printable

#: File beside figures that has their captions.
CAPTIONS: Final = "captions.md"
#: More figures than any results folder has.
EVERY: Final = 10**6
#: Names of figures that an error lists.
_MOST_LISTED: Final = 40


@dataclass(frozen=True)
class FigureFiles:
    """Figures written without a page.

    Attributes:
        figures: what was drawn.
        paths: its files, and that of the captions.
        notes: what was not drawn, and why, one line for each reason.
    """

    figures: tuple[RenderedFigure, ...]
    paths: tuple[Path, ...]
    notes: tuple[str, ...]


def write_figures(
    results: Path,
    output: Path,
    names: Sequence[str] = (),
    benchmark: str | None = None,
    protocol: str | None = None,
    limits: Limits | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    *,
    layout: Layout = PAGE,
    unranked: bool = False,
) -> FigureFiles:
    """Write figures of a results folder without the report's page.

    Args:
        results: the results folder.
        output: a file that ends in ``.pdf``, ``.svg`` or ``.png``, for one figure; otherwise a folder, where each
            figure is written in all three formats, with a file of captions.
        names: which figures, as :func:`chosen` has them; all by default.
        benchmark, protocol: only groups of these.
        limits: how much is drawn.
        metrics: those known, e.g. of the plugins installed.
        layout: width and font.
        unranked: whether those of finished runs that are never ranked are drawn, too.

    Returns:
        The figures and their files.

    Raises:
        ResultsError: there are no records, none of ``benchmark`` and ``protocol``, no such figure, or nothing can be
            written there.
        OptionError: one file for several figures.

    Example:
        >>> layout = Layout(3.25)
        >>> write_figures(Path("results"), Path("a.pdf"), ["average-accuracy"], layout=layout)  # doctest: +SKIP
    """
    limits = limits or Limits()
    form = output.suffix.lower().removeprefix(".")
    if form in FORMATS:
        check_output(output)
    else:
        refuse_link(output, "name a folder")
    # The limit is of what is drawn, and so of what was chosen.
    reading = replace(limits, figures=EVERY)
    sections, ranks, outside = read_sections(results, benchmark, protocol, reading, metrics, unranked=unranked)
    work = chosen(all_pictures(sections, ranks), names)
    if not work:
        remedy = f"see why: {command('leaderboard', results=results)}"
        raise ResultsError("there is nothing to draw", where=str(results), remedy=remedy)
    if form in FORMATS:
        if len(work) > 1:
            raise OptionError(
                f"{output.name} would be one figure, and there are {len(work)}",
                where=str(output),
                remedy=f"choose one with --figure, or name a folder ({output.stem}/) for all (the report itself is a "
                f"page, which a browser can print):\n{_listed(work)}",
            )
        with_file = render(*work[0], layout)
        write_output(output, getattr(with_file, form))
        return FigureFiles((with_file,), (output,), tuple(outside))
    drawn = work if names else work[: limits.figures]
    excluded = len(work) - len(drawn)
    notes = [f"{excluded} figures are not drawn: --figures {len(work)} draws all"] if excluded else []
    figures, paths = [], []
    with folder_lock(output):
        for name, picture in tracked(drawn, "drawing figures"):
            figures.append(render(name, picture, layout))
            paths += write_files(output, figures[-1])
        write_atomic(output / CAPTIONS, captions(figures))
    return FigureFiles(tuple(figures), (*paths, output / CAPTIONS), (*notes, *outside))


def write_files(folder: Path, figure: RenderedFigure) -> list[Path]:
    """Write a figure in every format; the files."""
    for name, content in figure.files.items():
        write_atomic(folder / name, content, durable=False)  # it can be made again at any time
    return [folder / name for name in figure.files]


def all_pictures(sections: Iterable[Section], ranks: Iterable[RankSection]) -> list[tuple[str, Picture]]:
    """Name and picture of every figure of a report; names begin with the group, and end with the kind."""
    of_groups = [
        (f"{section.board.name}-{picture.kind}", picture)
        for section in sections
        for picture in (*section.comparing, *section.single)
    ]
    return [*of_groups, *[(f"{each.name}-{each.picture.kind}", each.picture) for each in ranks if each.is_drawn]]


def keep(sections: Iterable[Section], ranks: Iterable[RankSection], names: Sequence[str]) -> list[RankSection]:
    """Keep the pictures of these names in sections, and draw those over benchmarks only if they are among them."""
    sections, ranks = list(sections), list(ranks)
    left = {name for name, _ in chosen(all_pictures(sections, ranks), names)}
    for section in sections:
        for pictures in (section.comparing, section.single):
            pictures[:] = [it for it in pictures if f"{section.board.name}-{it.kind}" in left]
    return [replace(it, is_drawn=it.is_drawn and f"{it.name}-{it.picture.kind}" in left) for it in ranks]


def chosen(pictures: Sequence[tuple[str, Picture]], names: Sequence[str]) -> list[tuple[str, Picture]]:
    """Choose pictures by name.

    Args:
        pictures: name and picture of each.
        names: kinds (``average-accuracy``) or whole names; ``*`` and ``?`` stand for letters. None: all.

    Raises:
        ResultsError: there is no picture of one of these names.
    """
    if names and not pictures:
        raise ResultsError(
            "no figure can be made of these runs", remedy="run a strategy: references are drawn beside others alone"
        )
    for name in names:
        if not any(_is_named(each, name) for each in pictures):
            raise ResultsError(
                f"there is no figure {printable(name)!r}",
                remedy=f"give one of these, or part of its file's name with *:\n{_listed(pictures)}",
            )
    return [each for each in pictures if not names or any(_is_named(each, name) for name in names)]


def captions(figures: Iterable[RenderedFigure]) -> str:
    """Captions of figures as Markdown."""
    parts = (
        f"## {escape_markdown(each.name)}\n\n**{escape_markdown(each.title)}.** {escape_markdown(each.caption)}\n"
        for each in figures
    )
    return "\n".join(["# Captions of the figures\n", *parts])


def _is_named(picture: tuple[str, Picture], name: str) -> bool:
    return any(fnmatchcase(known, name) for known in (picture[0], picture[1].kind))


def _listed(pictures: Sequence[tuple[str, Picture]]) -> str:
    """Kinds, of many that differ in numbers alone one with ``*``; of a single kind the whole names; a line each."""
    kinds = dict.fromkeys(picture.kind for _, picture in pictures)
    similar = Counter(map(_without_numbers, kinds))
    names = {kind: _without_numbers(kind) for kind in kinds}
    found = list(dict.fromkeys(kind if similar[name] == 1 else name for kind, name in names.items()))
    if len(kinds) == 1:
        found = [name for name, _ in pictures]
    more = [f"and {len(found) - _MOST_LISTED} more"] if len(found) > _MOST_LISTED else []
    return "\n".join(f"    {name}" for name in [*found[:_MOST_LISTED], *more])


def _without_numbers(kind: str) -> str:
    return re.sub(r"\d+", "*", kind)
