"""Options that searchers have in common: derive a searcher's own from these."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field, PositiveInt

from seu_bench.spec import ScheduleOptions

#: Fewer than three cells have no place for two reductions.
Cells: TypeAlias = Annotated[int, Field(ge=3)]


class NetworkOptions(ScheduleOptions):
    """Options of a searcher that builds networks of the protocol's search size, and trains them or not."""

    cells: Cells | None = Field(None, description="cells of the proxy network")
    channels: PositiveInt | None = Field(None, description="initial channels of the proxy network")
