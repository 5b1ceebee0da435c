"""Power of the paired t-test: which difference so many pairs would find.

J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 2nd edition, 1988.
"""

from __future__ import annotations

import math
from typing import Final

#: Differences are tested at this level, two-sided.
LEVEL: Final = 0.05
#: Power that a minimal detectable difference is given for.
POWER: Final = 0.8


def detectable_effect(pairs: int, comparisons: int = 1) -> float | None:
    """Compute the least true difference that the paired t-test finds in four of five experiments.

    The two-sided test rejects beyond ``t(1 - LEVEL / (2 comparisons), pairs - 1)``; its statistic has the noncentral t
    distribution with the noncentrality ``effect * sqrt(pairs)``. That the test may reject on the wrong side, which it
    hardly ever does where it has this power, is left out.

    Args:
        pairs: seeds that both sides have.
        comparisons: in the family; with more than one it is the first step of Holm's correction, its strictest.

    Returns:
        The difference in standard deviations of the pairs' differences; ``None`` with fewer than two pairs.

    Example:
        >>> [round(detectable_effect(pairs), 1) for pairs in (3, 5, 10)]
        [3.3, 1.7, 1.0]
    """
    if pairs < 2:
        return None
    from scipy.special import nctdtrinc, stdtrit

    limit = stdtrit(pairs - 1, 1 - LEVEL / (2 * comparisons))
    return float(nctdtrinc(pairs - 1, 1 - POWER, limit)) / math.sqrt(pairs)
