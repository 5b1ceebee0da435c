"""Whether the rewards that a search learns from say more than guesses would."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Probability that a search whose networks all guess has any reward that is called above chance.
LEVEL = 0.05


def guessing_probability(accuracy: float, labels: Tensor) -> float:
    """The probability that guessing the most frequent class is right at least as often.

    Guessing is binomial with that class's share among the images: 1 / number of classes where these are balanced, and
    what a network reaches that always gives the same answer where they are not.

    Args:
        accuracy: in [0, 1], measured on ``labels``.
        labels: ``[N]``, of the images that were scored.

    Returns:
        The p-value of the one-sided binomial test, in [0, 1].

    Example:
        ``guessing_probability(0.9, torch.arange(100) % 2) < 1e-10``
    """
    from scipy.special import bdtrc  # the binomial's tail; scipy.stats takes long to import

    count = len(labels)
    right = round(accuracy * count)
    if not right:
        return 1.0
    share = float(torch.bincount(labels).max()) / count
    return float(bdtrc(right - 1, count, share))


def chance_share(probabilities: Sequence[float]) -> float | None:
    """The share of rewards that are not distinguishable from guessing, at :data:`LEVEL` over all of them (Bonferroni).

    Args:
        probabilities: of each reward, by :func:`guessing_probability`.

    Returns:
        A share in [0, 1], 1 where the rewards stayed at chance; ``None`` where there are no rewards.
    """
    if not probabilities:
        return None
    count = len(probabilities)
    return sum(probability * count > LEVEL for probability in probabilities) / count
