"""What a tuning is asked for: values and ranges of hyper-parameters, its method, where its runs and its file lie."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, field_validator, model_validator

from seu_bench.config.options import flatten_options, format_option
from seu_bench.config.run import ExecutionFields, Request, ResultFields
from seu_bench.config.toml_file import validate_document
from seu_bench.config.tuned import TRIALS_FOLDER, TUNED_FOLDER
from seu_bench.plugin.registry import Registry
from seu_bench.sweeps.spec import EXECUTOR, Seeds, SweepSpec, parse_values

#: The page that describes tuning.
_GUIDE: Final = "docs/guides/tuning.md"
#: Fields that a tuning decides itself.
DECIDED: Final = frozenset({"evaluation", "first_tasks", "keep_weights"})

_NUMBER: Final = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE: Final = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*(:\s*log)?\s*", re.ASCII)


@dataclass(frozen=True)
class Choices:
    """Values one by one, in the order in which they are tried."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return ",".join(map(format_option, self.values))


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, both included; whole ones if both ends are."""

    low: float
    high: float
    log: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def round_value(self, value: float) -> float:
        """A number of the range near ``value``, with few digits, which can be read and typed."""
        short = int(value) if self.is_whole else float(f"{value:.4g}")
        return min(max(short, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{':log' if self.log else ''}"


Dimension: TypeAlias = Choices | Range


def parse_dimension(given: Any) -> Dimension:
    """Read ``"1,10,100"``, ``"1..100"``, ``"0.001..0.1:log"`` or a list of values.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(given, Choices | Range):
        return given
    if isinstance(given, str) and not given.strip():
        raise ValueError("there is no value")
    if not isinstance(given, str):
        values = tuple(given) if isinstance(given, list | tuple) else (given,)
    elif found := _RANGE.fullmatch(given):
        low, high = (int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text) for text in found.groups()[:2])
        if low >= high:
            raise ValueError(f"the range {given.strip()} ends before it begins")
        if found[3] and low <= 0:
            raise ValueError(f"the range {given.strip()} begins at {low}: a logarithmic one begins above 0")
        return Range(low, high, bool(found[3]))
    else:
        values = tuple(parse_values(given))
    if not values:
        raise ValueError("there is no value")
    if len({format_option(value) for value in values}) < len(values):
        raise ValueError(f"a value is given twice: {Choices(values)}")
    return Choices(values)


def grid(space: Mapping[str, Dimension]) -> Iterator[dict[str, Any]]:
    """Every combination of the values, the last option changing fastest."""
    values: list[Sequence[Any]] = [part.values for part in space.values() if isinstance(part, Choices)]
    for combination in itertools.product(*values):
        yield dict(zip(space, combination, strict=True))


Sampler: TypeAlias = Literal["grid", "tpe", "random"]
_OfRequest = Request.model_fields


def _space(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    space = {}
    for key, values in given.items():
        try:
            space[key] = parse_dimension(values)
        except ValueError as error:
            raise ValueError(f"{key!r}: {error}") from None
    return space


class TuneSpec(ResultFields, ExecutionFields):
    """A tuning: the options of ``seu-bench tune``.

    Example:
        ``TuneSpec(strategy="ewc", protocol="quick", space={"ewc_lambda": "10,100,1000"}, method="first-tasks:3")``
    """

    strategy: str = Field(_OfRequest["strategy"].default, description=_OfRequest["strategy"].description)
    benchmark: str = Field(_OfRequest["benchmark"].default, description=_OfRequest["benchmark"].description)
    searcher: str | None = Field(None, description=_OfRequest["searcher"].description)
    creator: str | None = Field(None, description=_OfRequest["creator"].description)
    protocol: str | None = Field(None, description=_OfRequest["protocol"].description)
    options: dict[str, Any] = Field(default_factory=dict)
    space: Annotated[dict[str, Dimension], BeforeValidator(_space)] = Field(default_factory=dict, min_length=1)
    method: str = Field(
        "first-tasks:3",
        description="What a trial learns and is scored on: first-tasks:N or whole-stream (see docs).",
    )
    seeds: Seeds = Field(
        (100, 101, 102), min_length=1, description="Random seeds of the trials; no run that uses the result has them."
    )
    sampler: Sampler = Field("grid", description="Which values are tried: all of the grid, or those that Optuna draws.")
    trials: StrictInt | None = Field(None, ge=1, description="Number of trials, where the sampler draws them.")
    batch: StrictInt = Field(4, ge=1, description="Trials that Optuna draws at once; they run side by side.")
    executor: str = Field("local", min_length=1, description=SweepSpec.model_fields["executor"].description)
    jobs: StrictInt | None = Field(None, ge=1, description=SweepSpec.model_fields["jobs"].description)
    retry_failed: StrictBool = Field(False, description=SweepSpec.model_fields["retry_failed"].description)
    id: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=200)] = Field(
        None, description="Name of the tuned file [default: benchmark, protocol and strategy]."
    )
    output: Path | None = Field(None, description="Tuned file, or its folder [default: RESULTS/tuned].")
    replace: StrictBool = Field(False, description="Replace the file if it is that of another tuning.")

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        if not re.fullmatch(r"whole-stream|first-tasks:[1-9]\d{0,3}", method):
            raise ValueError(f"there is no method {method!r}; give first-tasks:N, as in first-tasks:3, or whole-stream")
        return method

    @field_validator("options")
    @classmethod
    def _of_no_benchmark(cls, options: dict[str, Any]) -> dict[str, Any]:
        if own := [key for key in options if key.startswith("benchmark.")]:
            raise ValueError(f"{own[0]!r}: a tuning changes no benchmark; write a benchmark file of your own")
        return options

    @model_validator(mode="after")
    def _of_one_piece(self) -> TuneSpec:
        if twice := self.space.keys() & self.options.keys():
            raise ValueError(f"{min(twice)!r} is given as an option and is to be tuned")
        if wrong := [key for key in self.space if key.startswith(("benchmark.", EXECUTOR))]:
            raise ValueError(f"{wrong[0]!r} cannot be tuned: it is no option of the strategy, searcher or creator")
        ranges = [key for key, part in self.space.items() if not isinstance(part, Choices)]
        if self.sampler == "grid" and (ranges or self.trials is not None):
            what = f"{ranges[0]!r} is a range" if ranges else "a number of trials is given"
            raise ValueError(f"{what}, which a grid has not: choose a sampler, as in --sampler tpe --trials 30")
        if self.sampler != "grid" and self.trials is None:
            raise ValueError(f"sampler {self.sampler!r} needs a number of trials")
        return self

    @property
    def first_of_stream(self) -> int | None:
        """Tasks that a trial learns; ``None``: all."""
        return int(self.method.partition(":")[2]) if self.method.startswith("first-tasks:") else None

    @property
    def run_options(self) -> dict[str, Any]:
        """Options of all trials, without those of the executor."""
        return {key: value for key, value in self.options.items() if not key.startswith(EXECUTOR)}

    def request(self, values: Mapping[str, Any]) -> Request:
        """The run of a trial on the first seed."""
        own = {name: getattr(self, name) for name in ("strategy", "benchmark", "searcher", "creator", "protocol")}
        return Request(
            **self._shared_fields | own,
            options=self.run_options | {key: values[key] for key in self.space},
            seed=self.seeds[0],
        )

    def sweep(self) -> SweepSpec:
        """The sweep that the trials are jobs of."""
        own = {key: value for key, value in self.options.items() if key.startswith(EXECUTOR)}
        return SweepSpec(
            **self._shared_fields,
            seeds=self.seeds,
            options={key: (value,) for key, value in own.items()},
            executor=self.executor,
            jobs=self.jobs,
            retry_failed=self.retry_failed,
        )

    @property
    def _shared_fields(self) -> dict[str, Any]:
        fields = ResultFields.model_fields.keys() | ExecutionFields.model_fields.keys()
        return {name: getattr(self, name) for name in fields} | {"results": self.results / TRIALS_FOLDER}

    def file(self, default_id: str) -> Path:
        """The tuned file."""
        name = f"{self.id or default_id}.toml"
        if self.output is None:
            return self.results / TUNED_FOLDER / name
        return self.output if self.output.suffix == ".toml" else self.output / name


def make_tune_spec(given: Mapping[str, Any], registry: Registry | None = None) -> TuneSpec:
    """Build a tuning from the fields of :class:`TuneSpec`; without a space the strategy's own grid is taken.

    Raises:
        UnknownNameError: there is no such strategy.
        SpecError: something does not fit; all faults are listed.
    """
    options = given.get("options")
    document = dict(given) | ({"options": dict(flatten_options(options))} if isinstance(options, Mapping) else {})
    if registry is not None and not document.get("space"):
        strategy = registry.strategies.find(document.get("strategy", TuneSpec.model_fields["strategy"].default))
        fixed = document.get("options", {})
        grid = strategy.factory.options.tuning_grid
        document["space"] = {key: values for key, values in grid.items() if key not in fixed}
    decided = {"evaluation": "validation", "keep_weights": False}
    spec = validate_document(TuneSpec, document | decided, "the tuning", _GUIDE)
    return spec.model_copy(update={"first_tasks": spec.first_of_stream})
