"""The rule of stability decay as it is written."""

from __future__ import annotations

from typing import Any

import pytest

from seu_bench.config.run import Request
from seu_bench.config.stability import StabilityDecay
from seu_bench.errors import OptionError


def test_written() -> None:
    """The option and its start, then keys of the rule; what is left out is as published."""
    rule = Request(stability_decay="ewc_lambda=1e5, learning_rate=0.1|0.05, tolerance=0.1").stability_decay
    assert rule == StabilityDecay(option="ewc_lambda", start=1e5, learning_rates=(0.1, 0.05), tolerance=0.1)
    short = Request(stability_decay="si_lambda=8,searches=3").stability_decay
    assert short is not None
    assert (short.tolerance, short.factor) == (0.2, 0.5)
    assert short.values == (8, 4, 2)
    assert Request().stability_decay is None


@pytest.mark.parametrize("given", ["ewc_lambda", "ewc_lambda=", "a=0", "a=-1", "a=1,b=2", "a=1,tolerance=1", "a=1,", 7])
def test_refused(given: Any) -> None:
    with pytest.raises(OptionError, match="stability_decay"):
        Request(stability_decay=given)
