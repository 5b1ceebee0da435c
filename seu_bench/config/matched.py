"""A budget that was matched: which option of a run was chosen so that it costs what another run did."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from seu_bench.errors import OptionError

#: What can be matched: parameters stored at the end, operations of learning, image passes of learning.
Budget: TypeAlias = Literal["params", "flops", "passes"]

#: For each the option that is chosen, the metric of records that is matched, and words for what is counted.
OPTION_OF: Final[dict[Budget, str]] = {"params": "width", "flops": "epochs", "passes": "epochs"}
METRIC_OF: Final[dict[Budget, str]] = {"params": "params_total", "flops": "train_flops", "passes": "image_passes"}
NOUNS: Final[dict[Budget, str]] = {
    **{"params": "parameters", "flops": "operations of learning", "passes": "image passes of learning"}
}


class Matched(BaseModel):
    """How a budget was matched; part of a record.

    Attributes:
        run: the run id, or the configuration whose runs were averaged.
        seeds: of the runs that were averaged.
        target: their value, the mean over seeds.
        value: that of the run by its forecast.
        option, chosen: the option and its value.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    budget: Budget
    run: str
    seeds: tuple[int, ...]
    target: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    value: Annotated[int, Field(ge=0, lt=2**63)]
    option: str
    chosen: Annotated[int | float, Field(gt=0, allow_inf_nan=False)]

    @property
    def ratio(self) -> float:
        """The run's own value by what was asked for."""
        return self.value / self.target

    def __str__(self) -> str:
        mean = f", mean of {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        return (
            f"{self.option}={self.chosen:g}: {self.value:,} {NOUNS[self.budget]}, {self.ratio:.4g} times the "
            f"{self.target:,.0f} of {self.run}{mean}"
        )


def parse_match(text: str) -> tuple[Budget, str]:
    """Read ``params=RUN`` as what is matched, and the run, or raise an OptionError."""
    name, _, run = (part.strip() for part in text.partition("="))
    for budget in OPTION_OF:
        if name == budget and run:
            return budget, run
    raise OptionError(
        f"--match {text!r} names no budget and run",
        where="--match",
        remedy=f"write it as BUDGET=RUN, such as params=seu; budgets are: {', '.join(OPTION_OF)}",
    )
