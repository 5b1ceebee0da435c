"""Every strategy says over which values it is tuned, and they are values of its options."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from support.tiny import registry

from seu_bench.config.common_options import TrainingOptions
from seu_bench.config.options import build_options

#: Configurations that tuning one strategy may take where no grid is given.
MOST = 24


@pytest.mark.parametrize(
    "name", sorted(name for name in registry().strategies if name not in ("nearest_mean", "ranpac"))
)
def test_default_grid(name: str) -> None:
    """Few enough combinations, learning rates among them where there is SGD, each accepted by the options."""
    options = registry().strategies.find(name).factory.options
    grid = options.tuning_grid
    assert ("learning_rate" in grid) == issubclass(options, TrainingOptions)
    assert 1 < math.prod(len(values) for values in grid.values()) <= MOST
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        built = build_options(options, f"strategy {name!r}", chosen)
        assert {key: getattr(built, key) for key in chosen} == chosen


def test_page_has_the_grids() -> None:
    """The table of docs/reference/strategies.md has every value of an own option, as in ``.05, .25``."""
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "strategies.md"
    text = page.read_text(encoding="utf-8").partition("## What they are tuned over")[2]
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    for name, row in rows.items():
        grid = registry().strategies.find(name).factory.options.tuning_grid
        for key, values in grid.items():
            if key not in ("learning_rate", "restore"):
                assert f"`{key}` " + ", ".join(f"{value:g}".replace("0.", ".") for value in values) in row, name
    assert len(rows) > 10
