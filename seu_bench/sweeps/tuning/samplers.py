"""Samplers: which values are tried next. What they drew is not kept: with the same seed and scores they draw it again.

So a tuning that is resumed draws the values that it drew before, whose runs are finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from seu_bench.errors import RequestError
from seu_bench.sweeps.tuning.space import Choices, grid
from seu_bench.sweeps.tuning.spec import TuneSpec
from seu_bench.utils.seeding import derive_seed


class TrialSampler(Protocol):
    """Draws values of hyper-parameters, several trials at once."""

    def ask(self) -> list[dict[str, Any]]:
        """Values of the next trials by option; empty: there are no more."""

    def tell(self, scores: Sequence[float | None]) -> None:
        """Learn the scores of the trials asked for last, in their order; ``None``: a run failed."""


class GridSampler:
    """Every combination, all at once."""

    def __init__(self, spec: TuneSpec) -> None:
        self._values = list(grid(spec.space))

    def ask(self) -> list[dict[str, Any]]:
        """All combinations, once."""
        values, self._values = self._values, []
        return values

    def tell(self, scores: Sequence[float | None]) -> None:
        """Nothing is learned from scores."""


class OptunaSampler:
    """A sampler of Optuna, which draws from a seed of its own.

    Raises:
        RequestError: Optuna is not installed.
    """

    def __init__(self, spec: TuneSpec) -> None:
        try:
            import optuna
        except ImportError:
            raise RequestError(
                f"the sampler {spec.sampler!r} is Optuna's, which is not installed",
                where=f"--sampler {spec.sampler}",
                remedy="pip install 'seu-bench[optuna]', or take the sampler grid",
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = derive_seed(spec.seeds[0], "tuning") % 2**32  # as many as NumPy's old generator takes
        samplers = optuna.samplers
        known = {"tpe": samplers.TPESampler, "random": samplers.RandomSampler}
        self._study = optuna.create_study(direction="maximize", sampler=known[spec.sampler](seed=seed))
        self._space = spec.space
        self._left = spec.trials or 0
        self._batch = spec.batch
        self._asked: list[Any] = []

    def ask(self) -> list[dict[str, Any]]:
        """The next trials, a batch of them."""
        number = min(self._batch, self._left)
        self._left -= number
        self._asked = [self._study.ask() for _ in range(number)]
        return [self._values(trial) for trial in self._asked]

    def tell(self, scores: Sequence[float | None]) -> None:
        """Report the scores to the study."""
        from optuna.trial import TrialState

        for trial, score in zip(self._asked, scores, strict=True):
            self._study.tell(trial, score, state=TrialState.FAIL if score is None else TrialState.COMPLETE)

    def _values(self, trial: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, part in self._space.items():
            if isinstance(part, Choices):
                # By position: Optuna's categories are plain numbers and texts, and options may be lists.
                values[key] = part.values[trial.suggest_categorical(key, range(len(part.values)))]
            elif part.is_whole:
                values[key] = part.rounded(trial.suggest_int(key, int(part.low), int(part.high), log=part.log))
            else:
                values[key] = part.rounded(trial.suggest_float(key, part.low, part.high, log=part.log))
        return values


def make_sampler(spec: TuneSpec) -> TrialSampler:
    """Create the sampler of a tuning."""
    return GridSampler(spec) if spec.sampler == "grid" else OptunaSampler(spec)
