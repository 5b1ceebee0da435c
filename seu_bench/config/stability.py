"""The rule that chooses a penalty's strength task by task, as a value of a run."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, PositiveFloat

from seu_bench.config.options import Frozen, parse_value


class StabilityDecay(Frozen):
    """Rule of stability decay (De Lange et al. 2022, section 4.3; Masana et al. 2022, section 5.1).

    Before each task, from the model as it is: the new task is learned with no penalty, at each of the learning rates;
    the best validation accuracy is what plasticity can reach. Then it is learned with the penalty, which begins high
    and decays until the accuracy is within a tolerance of that.

    Attributes:
        option: name of the strategy's option that is decayed; 0 must mean no penalty.
        start: its first value.
        learning_rates: those compared; empty: the protocol's alone.
        tolerance: share of the accuracy that may be lost.
        factor: by which the value decays.
        searches: values tried at most; the last one is taken anyway.
    """

    option: str
    start: PositiveFloat
    learning_rates: tuple[PositiveFloat, ...] = ()
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.2
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    searches: Annotated[int, Field(ge=1, le=50)] = 7

    @property
    def values(self) -> tuple[float, ...]:
        """Values of the option in the order in which they are tried."""
        return tuple(self.start * self.factor**number for number in range(self.searches))


def parse_decay(given: Any) -> Any:
    """Read ``"ewc_lambda=1e5,learning_rate=0.1|0.05,tolerance=0.2"``: the option first, then keys of the rule.

    Raises:
        ValueError: a part is no assignment.
    """
    if not isinstance(given, str):
        return given
    parts = [part.partition("=") for part in given.split(",")]
    if not all(separator and value.strip() for _, separator, value in parts):
        raise ValueError("write it as OPTION=START, e.g. ewc_lambda=1e5,tolerance=0.1,learning_rate=0.1|0.05")
    (option, _, start), *others = parts
    known: dict[str, Any] = {key.strip(): value.strip() for key, _, value in others}
    rates = known.pop("learning_rate", "")
    known = {key: parse_value(value) for key, value in known.items()}
    if rates:
        known["learning_rates"] = [parse_value(rate) for rate in rates.split("|")]
    return {"option": option.strip(), "start": parse_value(start.strip()), **known}


#: The rule as a field of a run.
Decay: TypeAlias = Annotated[StabilityDecay | None, BeforeValidator(parse_decay)]
