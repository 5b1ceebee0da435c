"""What a sweep asks for: lists of strategies, benchmarks, seeds, ... whose every combination is a job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field, StrictBool, StrictInt, field_validator, model_validator

from seu_bench.config.options import flattened, parse_value
from seu_bench.config.run import ExecutionFields, ResultFields
from seu_bench.errors import OptionError

#: A sweep of more jobs is taken for a slip of the fingers.
MAX_JOBS: Final = 100_000
#: Prefix of option keys that address the executor; they are no axes of the grid.
EXECUTOR: Final = "executor."

_Name: TypeAlias = Annotated[str, Field(min_length=1)]
_Names: TypeAlias = Annotated[tuple[_Name, ...], Field(min_length=1)]
_Seed: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
_OPENING: Final = {"[": "]", "{": "}"}
_QUOTES: Final = "\"'"


class SweepSpec(ResultFields, ExecutionFields):
    """A sweep; the keys of a sweep's TOML file are these, and those fields of a run that all its runs share.

    Lists may be written as text, as on the command line: ``"seu,ewc"``, ``"0-4,7"``.

    Attributes:
        searcher, creator: those of the strategies that take one; empty: each strategy's default.
        options: by key, the values that are combined; a list is several values, so a list as one value is in a list.
        jobs: jobs at once, the executor's option of that name.
    """

    strategy: _Names = ("seu",)
    benchmark: _Names = ("split_digits",)
    seeds: Annotated[tuple[_Seed, ...], Field(min_length=1)] = (0,)
    searcher: tuple[_Name, ...] = ()
    creator: tuple[_Name, ...] = ()
    protocol: str | None = None
    options: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    executor: _Name = "local"
    jobs: StrictInt | None = Field(None, ge=1)
    retry_failed: StrictBool = False

    @field_validator("strategy", "benchmark", "searcher", "creator", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return split_names(value) if isinstance(value, str) else value

    @field_validator("seeds", mode="before")
    @classmethod
    def _seed_list(cls, value: Any) -> Any:
        given = [value] if isinstance(value, str | int) else value
        if not isinstance(given, Sequence):
            return given
        parts = [parse_seeds(part) if isinstance(part, str) else [part] for part in given]
        return [seed for part in parts for seed in part]

    @field_validator("options", mode="before")
    @classmethod
    def _axes(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        axes = {}
        for key, given in flattened(value):
            axes[key] = tuple(given) if isinstance(given, list | tuple) else (given,)
            if not axes[key]:
                raise ValueError(f"{key!r} has no value")
            if key.startswith(EXECUTOR) and len(axes[key]) > 1:
                raise ValueError(f"{key!r} has {len(axes[key])} values: a sweep has one executor")
        return axes

    @model_validator(mode="after")
    def _no_slip(self) -> SweepSpec:
        if self.jobs is not None and f"{EXECUTOR}jobs" in self.options:
            raise ValueError("jobs is given twice, by itself and as an option executor.jobs")
        jobs = len(self.seeds)
        for axis in (self.strategy, self.benchmark, self.searcher, self.creator, *self.options.values()):
            jobs *= max(1, len(axis))
        if jobs > MAX_JOBS:
            raise ValueError(f"the sweep has {jobs:,} jobs, more than {MAX_JOBS:,}; make several of it")
        return self

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The options of the runs, by key."""
        return {key: values for key, values in self.options.items() if not key.startswith(EXECUTOR)}

    @property
    def executor_options(self) -> dict[str, Any]:
        """The options of the executor, without the prefix."""
        own = {key.removeprefix(EXECUTOR): value for key, (value, *_) in self.options.items() if key not in self.axes}
        return own if self.jobs is None else own | {"jobs": self.jobs}


def parse_seeds(text: str) -> Sequence[int]:
    """``"0-4,7"`` as ``[0, 1, 2, 3, 4, 7]``.

    Raises:
        ValueError: it is no list of seeds and ranges, or too long a one.
    """
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", part, re.ASCII)
        if found is None:
            raise ValueError(f"{part.strip()!r} is no seed and no range; write seeds as in 0-4,7")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"the range {part.strip()} ends before it begins")
        if last - first >= MAX_JOBS:
            raise ValueError(f"the range {part.strip()} has more than {MAX_JOBS:,} seeds")
        seeds += range(first, last + 1)
    return seeds


def split_names(text: str) -> list[str]:
    """Names separated by commas; one that holds a comma is in quotes."""
    return [str(parse_value(part)) if part[:1] in _QUOTES and part else part for part in split_values(text)]


def parse_axes(assignments: Sequence[str]) -> dict[str, list[Any]]:
    """``["epochs=3,5", "lambda=[1, 2],[3]"]`` as ``{"epochs": [3, 5], "lambda": [[1, 2], [3]]}``.

    Raises:
        OptionError: an assignment has no ``=``, no key, or an empty value among several; or a key is given twice.
    """
    axes: dict[str, list[Any]] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        key = key.strip()
        if not separator or not key:
            raise OptionError(f"-o {assignment!r} is not an assignment", remedy="write it as -o key=value1,value2")
        if key in axes:
            raise OptionError(f"option {key!r} is given twice", remedy="give it once, its values separated by commas")
        parts = split_values(text)
        if len(parts) > 1 and "" in parts:
            raise OptionError(
                f"-o {assignment!r} has an empty value",
                remedy='remove a comma; a value that holds one is written in quotes, an empty one as ""',
            )
        axes[key] = [parse_value(part) for part in parts]
    return axes


def split_values(text: str) -> list[str]:
    """``text`` cut at its commas, but for those within a value that begins with a bracket, a brace or a quote.

    Such a value is one of TOML: ``[1, 2],[3, 4]`` are two lists, ``"a,b",c`` two texts. Where its end is missing it
    goes to the end of ``text``.
    """
    parts, begin, index = [], 0, 0
    while index < len(text):
        if text[index] == ",":
            parts.append(text[begin:index].strip())
            begin = index + 1
        elif not text[begin:index].strip():  # a value may begin here
            index = _end_of_value(text, index)
        index += 1
    return [*parts, text[begin:].strip()]


def _end_of_value(text: str, begin: int) -> int:
    """Where the value that begins at ``begin`` ends: its last letter if it is one of TOML's, otherwise ``begin``."""
    if text[begin] not in _OPENING and text[begin] not in _QUOTES:
        return begin
    expected: list[str] = []
    index = begin
    while index < len(text):
        letter = text[index]
        if letter in _QUOTES:
            index = _end_of_quote(text, index)
        elif letter in _OPENING:
            expected.append(_OPENING[letter])
        elif expected and letter == expected[-1]:
            expected.pop()
        if not expected:
            return index
        index += 1
    return len(text)


def _end_of_quote(text: str, begin: int) -> int:
    """Where a quoted text ends; in double quotes a backslash takes away the next letter's meaning, as in TOML."""
    index = begin + 1
    while index < len(text) and text[index] != text[begin]:
        index += 2 if text[index] == "\\" and text[begin] == '"' else 1
    return index
