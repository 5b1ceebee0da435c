"""Configurations of a group, and pictures of them that are not drawn yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seu_bench.results.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seu_bench.results.report.styles import Style


@dataclass(frozen=True)
class Configuration:
    """A row of a leaderboard with the records behind it.

    Attributes:
        rank: in its leaderboard, from 1.
        label: as the leaderboard calls it; not escaped.
        runs: its records in the order of their seeds.
        style: how figures draw it.
    """

    rank: int
    label: str
    runs: tuple[Record, ...]
    style: Style

    @property
    def title(self) -> str:
        """Rank and label: a label that a figure cuts short is still found in the leaderboard."""
        return f"{self.rank} {self.label}"

    @property
    def example(self) -> Record:
        """The run of the lowest seed, where a figure can show but one."""
        return min(self.runs, key=lambda run: run.seed)

    @property
    def seeds(self) -> str:
        """``3 seeds``."""
        return f"{len(self.runs)} seed{'s' * (len(self.runs) != 1)}"


@dataclass(frozen=True)
class Numbers:
    """Values of a picture as a table."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A picture that has not been drawn yet.

    Attributes:
        kind: what it shows, as part of a file name.
        heading: for a reader.
        caption: how it is to be read.
        alt: what it shows, with its numbers.
        draw: makes the figure; to be called within :func:`~seu_bench.results.report.canvas.settings`.
        numbers: its values, if they are not too many.
    """

    kind: str
    heading: str
    caption: str
    alt: str
    draw: Callable[[], Figure]
    numbers: Numbers | None = None


def sentences(parts: Sequence[str], most: int = 12) -> str:
    """Join parts of an alternative text; of very many, the first ``most`` and how many more."""
    more = [f"{len(parts) - most} more are in the table"] if len(parts) > most else []
    return " ".join(f"{part}." for part in [*parts[:most], *more])


def by_configuration(configurations: Sequence[Configuration], texts: Sequence[str]) -> str:
    """Join an alternative text of each configuration."""
    named = zip(configurations, texts, strict=True)
    return sentences([f"{configuration.title} ({configuration.seeds}): {text}" for configuration, text in named])
