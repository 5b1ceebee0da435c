"""Definition of a sweep: lists of strategies, benchmarks, seeds, ... whose every combination is a job.

It comes from a TOML file, from options, or from both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, field_validator, model_validator

from seu_bench.config.benchmark import names_a_file
from seu_bench.config.options import did_you_mean, flatten_options, parse_value
from seu_bench.config.run import CommandLine, ExecutionFields, Request, ResultFields
from seu_bench.config.toml_file import read_toml, validate_document
from seu_bench.config.tuned import tuned_path
from seu_bench.errors import OptionError

#: Prefix of option keys that address the executor; they are no axes of the grid.
EXECUTOR: Final = "executor."
#: A sweep of more jobs is taken for a slip of the fingers.
_MAX_JOBS: Final = 100_000
_GUIDE: Final = "docs/reference/sweeps.md"

_Name: TypeAlias = Annotated[str, Field(min_length=1)]
_Names: TypeAlias = Annotated[tuple[_Name, ...], CommandLine(metavar="A,B")]
_Seed: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=2**32)]


def _seed_list(value: Any) -> Any:
    given = [value] if isinstance(value, str | int) else value
    if not isinstance(given, Sequence):
        return given
    parts = [parse_seeds(part) if isinstance(part, str) else [part] for part in given]
    return [seed for part in parts for seed in part]


#: Seeds as a list, or as text such as ``"0-4,7"``.
Seeds: TypeAlias = Annotated[tuple[_Seed, ...], BeforeValidator(_seed_list), CommandLine(metavar="0-4,7")]


class SweepSpec(ResultFields, ExecutionFields):
    """A sweep: the keys of its TOML file. The inherited ones are the same for all of its runs.

    Lists may be written as text, as on the command line: ``"seu,ewc"``, ``"0-4,7"``. A list in ``options`` is several
    values, so that a list as one value is a list in a list.

    Example:
        ``SweepSpec(strategy="ewc,naive", seeds="0-4", options={"epochs": [4, 8], "executor.jobs": 2})``
    """

    strategy: _Names = Field(("seu",), min_length=1, description="Strategies that learn.")
    benchmark: _Names = Field(
        ("split_digits",), min_length=1, description="Benchmarks to learn: names, TOML files or folders."
    )
    seeds: Seeds = Field((0,), min_length=1, description="Random seeds and ranges of them.")
    searcher: _Names = Field((), description="Searchers, for strategies that take one [default: the strategy's].")
    creator: _Names = Field((), description="Creators, for strategies that take one [default: the strategy's].")
    protocol: str | None = Field(None, description="Schedule and sizes [default: each benchmark's].")
    tuned: Annotated[tuple[_Name, ...], CommandLine(metavar="FILE|ID")] = Field(
        (),
        description="Options that seu-bench tune chose: files, their ids in RESULTS/tuned, or folders of files; each "
        "configuration takes the file that was tuned for it. May be repeated.",
    )
    options: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    executor: _Name = Field("local", description="Executor of the jobs (seu-bench list executors).")
    jobs: StrictInt | None = Field(
        None, ge=1, description="Jobs at once, an option of the executor [default: one per core, or GPU]."
    )
    retry_failed: StrictBool = Field(False, description="Also run jobs that failed before.")

    @field_validator("strategy", "benchmark", "searcher", "creator", "tuned", mode="before")
    @classmethod
    def _to_list(cls, value: Any) -> Any:
        return split_names(value) if isinstance(value, str) else value

    @field_validator("options", mode="before")
    @classmethod
    def _axes(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        axes = {
            key: tuple(given) if isinstance(given, list | tuple) else (given,) for key, given in flatten_options(value)
        }
        for key, values in axes.items():
            if not values:
                raise ValueError(f"{key!r} has no value")
            if key.startswith(EXECUTOR) and len(values) > 1:
                raise ValueError(f"{key!r} has {len(values)} values: a sweep has one executor")
        return axes

    @model_validator(mode="after")
    def _no_slip(self) -> SweepSpec:
        if self.jobs is not None and f"{EXECUTOR}jobs" in self.options:
            raise ValueError("jobs is given twice, by itself and as an option executor.jobs")
        jobs = len(self.seeds)
        for axis in (self.strategy, self.benchmark, self.searcher, self.creator, *self.options.values()):
            jobs *= max(1, len(axis))
        if jobs > _MAX_JOBS:
            raise ValueError(f"the sweep has {jobs:,} jobs, more than {_MAX_JOBS:,}; make several of it")
        return self

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """Values of the options of the runs, by key."""
        return {key: values for key, values in self.options.items() if not key.startswith(EXECUTOR)}

    @property
    def executor_options(self) -> dict[str, Any]:
        """Options of the executor, without the prefix."""
        own = {key.removeprefix(EXECUTOR): value for key, (value, *_) in self.options.items() if key not in self.axes}
        return own if self.jobs is None else own | {"jobs": self.jobs}


def make_spec(given: Mapping[str, Any], file: Path | None = None) -> SweepSpec:
    """Build a sweep from values by key, which replace the file's, each of ``options`` by itself.

    Raises:
        SpecError: the file cannot be read, or something does not fit; all faults are listed.
    """
    document = _read(file) if file is not None else {}
    own = document.get("options", {})
    document |= given
    if "options" in given:
        document["options"] = (
            dict(flatten_options(own)) | dict(flatten_options(given["options"])) if isinstance(own, dict) else own
        )
    unknown = [key for key in document if key not in SweepSpec.model_fields]
    faults = [f"{key}: no such key{did_you_mean(key, SweepSpec.model_fields)}" for key in unknown]
    known = {key: value for key, value in document.items() if key not in unknown}
    return validate_document(
        SweepSpec, known, "the sweep file" if file is not None else "the sweep", _GUIDE, file, faults
    )


def _read(file: Path) -> dict[str, Any]:
    def beside(path: str) -> str:
        return str(file.parent / Path(path).expanduser()) + "/" * path.endswith("/")

    document = read_toml(file, "sweep", _GUIDE)
    places = {key: beside(document[key]) for key in ("results", "data_root") if isinstance(document.get(key), str)}
    for key in ("benchmark", "tuned", "plugin"):
        named = document.get(key)
        listed = split_names(named) if isinstance(named, str) else named
        if isinstance(listed, list):
            document[key] = [
                beside(name) if isinstance(name, str) and (key == "plugin" or names_a_file(name)) else name
                for name in listed
            ]
    return document | places


def absolute_paths(request: Request) -> dict[str, Any]:
    """Return the fields that hold paths, which then do not depend on the working folder."""
    benchmark = request.benchmark
    if names_a_file(benchmark):
        benchmark = str(Path(benchmark).expanduser().absolute())
    return {
        "results": request.results.absolute(),
        "data_root": request.data_root.absolute() if request.data_root is not None else None,
        "benchmark": benchmark,
        "tuned": str(tuned_path(request.results, request.tuned).absolute()) if request.tuned else None,
    }


def parse_seeds(text: str) -> Sequence[int]:
    """Read ``"0-4,7"`` as ``[0, 1, 2, 3, 4, 7]``."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", part, re.ASCII)
        if found is None:
            raise ValueError(f"{part.strip()!r} is no seed and no range; write seeds as in 0-4,7")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"the range {part.strip()} ends before it begins")
        if last - first >= _MAX_JOBS:
            raise ValueError(f"the range {part.strip()} has more than {_MAX_JOBS:,} seeds")
        seeds += range(first, last + 1)
    return seeds


def split_names(text: str) -> list[str]:
    """Read names divided by commas; where one holds a comma, all are in quotes."""
    quoted = parse_value(f"[{text}\n]")
    if isinstance(quoted, list) and quoted and all(isinstance(name, str) for name in quoted):
        return quoted
    return [name.strip() for name in text.split(",")]


def parse_axes(assignments: Sequence[str]) -> dict[str, list[Any]]:
    """Read ``["epochs=3,5", "sizes=[1, 2],[3]"]`` as ``{"epochs": [3, 5], "sizes": [[1, 2], [3]]}``."""
    axes: dict[str, list[Any]] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        key = key.strip()
        if not separator or not key:
            raise OptionError(f"-o {assignment!r} is not an assignment", remedy="write it as -o key=value1,value2")
        if key in axes:
            raise OptionError(f"option {key!r} is given twice", remedy="give it once, its values separated by commas")
        try:
            axes[key] = parse_values(text)
        except ValueError as error:
            raise OptionError(
                f"-o {assignment!r} {error}",
                remedy="write values as in a list of TOML, every text of them in quotes if one holds a comma: "
                """-o 'key="a,b", "c"'""",
            ) from None
    return axes


def parse_values(text: str) -> list[Any]:
    """Read values divided by commas, as a list of TOML if they are one, otherwise each by itself."""
    values = parse_value(f"[{text}\n]")
    if isinstance(values, list) and values and not text.rstrip().endswith(","):
        return values
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and "" in parts:
        raise ValueError("has an empty value")
    values = [parse_value(part) for part in parts]
    for part, value in zip(parts, values, strict=True):
        if value == part and part.startswith(("[", "{", '"', "'")):
            raise ValueError(f"has a value that cannot be read: {part}")
    return values
