"""Search without training: genotypes drawn at random are scored at initialisation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from seu_bench import Register, hookimpl
from seu_bench.config import Options, SearchSchedule
from seu_bench.config.common_options import Cells
from seu_bench_kit import SearcherFactory


class ZeroCostOptions(Options):
    """Number of candidates, score and batch size."""

    candidates: PositiveInt = Field(32, description="genotypes that are drawn and scored")
    score: Literal["naswot", "synflow", "both"] = Field(
        "both", description="score of a genotype: NASWOT, SynFlow, or the sum of its ranks under the two"
    )
    images: int = Field(64, ge=2, description="training images of the batch that NASWOT looks at")
    cells: Cells | None = Field(None, description="cells of the networks that are scored")
    channels: PositiveInt | None = Field(None, description="initial channels of the networks that are scored")

    def applied_to(self, schedule: SearchSchedule) -> SearchSchedule:
        """The protocol's search with the sizes set here."""
        sizes = {name: value for name in ("cells", "channels") if (value := getattr(self, name)) is not None}
        return schedule.model_copy(update=sizes)


def estimate_passes(options: ZeroCostOptions, _schedule: SearchSchedule, train_images: int) -> tuple[int, int]:
    """NASWOT passes its batch forward once per genotype; SynFlow one made-up sample, forward and back."""
    forward = 0 if options.score == "synflow" else options.candidates * min(options.images, train_images)
    back = 0 if options.score == "naswot" else options.candidates
    return back, forward


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``zero_cost``."""
    register(
        "zero_cost",
        SearcherFactory(
            "training-free: scores many random genotypes at initialisation by NASWOT and SynFlow, in seconds",
            options=ZeroCostOptions,
            build="seu_bench_zero_cost.searcher:ZeroCostSearch",
            estimate_passes=estimate_passes,
        ),
    )
