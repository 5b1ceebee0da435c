"""Leaderboards for notebooks: shown as tables, and as one table of pandas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, overload

from seu_bench.results.leaderboard.boards import Leaderboard
from seu_bench.utils.notebook import html_table

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class Leaderboards(Sequence[Leaderboard]):
    """Leaderboards of a results folder, in the order of benchmarks, versions, protocols and scenarios.

    A notebook shows them as tables.

    Attributes:
        boards: one for each benchmark, version, scenario, protocol and data fingerprint.
        excluded: why records are in none, one line for each reason.

    Example:
        ``seu_bench.leaderboard("results").frame.sort_values("acc_mean")``
    """

    boards: tuple[Leaderboard, ...]
    excluded: tuple[str, ...] = ()

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """A row for each configuration of each leaderboard, in the units of records.

        :meth:`~seu_bench.results.Leaderboard.table` has the columns. Means, deviations and bounds are floats.
        """
        import pandas

        frame = pandas.DataFrame([row for board in self.boards for row in board.table()])
        numbers = [name for name in frame.columns if name.endswith(("_mean", "_std", "_low", "_high"))]
        return frame.astype(dict.fromkeys(numbers, "float64"))

    @overload
    def __getitem__(self, index: int) -> Leaderboard: ...

    @overload
    def __getitem__(self, index: slice) -> Leaderboards: ...

    def __getitem__(self, index: int | slice) -> Leaderboard | Leaderboards:
        """One of them, or some of them."""
        return Leaderboards(self.boards[index], self.excluded) if isinstance(index, slice) else self.boards[index]

    def __len__(self) -> int:
        """Number of leaderboards."""
        return len(self.boards)

    def __iter__(self) -> Iterator[Leaderboard]:
        """One after another."""
        return iter(self.boards)

    def __repr__(self) -> str:
        """Titles and numbers of rows."""
        return f"Leaderboards([{', '.join(map(repr, self.boards))}])"

    def _repr_html_(self) -> str:
        """Tables for a notebook; where there are none, why."""
        if self.boards:
            return "\n".join(board._repr_html_() for board in self.boards)
        return html_table("no record can be ranked", (), (), self.excluded)
