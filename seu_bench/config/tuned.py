"""Tuned files: hyper-parameters that ``seu-bench tune`` chose, with all that the choice rests on.

A file is TOML, and ends in a SHA-256 of its content, so that values that were edited afterwards are noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt

from seu_bench.config.options import Frozen
from seu_bench.config.streams import Scenario
from seu_bench.config.toml_file import read_toml, toml_text, validate_document
from seu_bench.errors import RequestError, SpecError
from seu_bench.utils.files import write_atomic

#: Where tuned files lie in a results folder, and where the runs of tuning do.
TUNED_FOLDER: Final = "tuned"
TRIALS_FOLDER: Final = "tuning"
#: The page that describes tuning.
_GUIDE: Final = "docs/guides/tuning.md"

#: Benchmark and its version, protocol, strategy, searcher, creator, scenario.
Place: TypeAlias = tuple[str, int, str, str, str | None, str | None, Scenario]
_PLAIN: Final = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
_Name: TypeAlias = Annotated[str, Field(pattern=_PLAIN, max_length=200)]
_Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
#: What some methods presuppose that a lifelong learner does not have.
NOTES: Final = {
    "first-tasks": "chosen on the first tasks of other seeds' streams, which are left afterwards",
    "whole-stream": "chosen on validation images of all tasks of other seeds' streams, which no lifelong learner has "
    "before it has learned the last one",
}


def _of_no_benchmark(options: dict[str, Any]) -> dict[str, Any]:
    if own := [key for key in options if key.startswith("benchmark.")]:
        raise ValueError(f"a tuned file changes no benchmark, but has {', '.join(own)}")
    return options


class TuningCost(Frozen):
    """What all runs of a tuning cost together; ``None``: not measured for all."""

    runs: NonNegativeInt
    image_passes: NonNegativeInt
    cpu_seconds: NonNegativeFloat | None = None
    flops: NonNegativeInt | None = None


class Trial(Frozen):
    """Values that were tried; ``score`` is the mean over ``runs`` on several seeds, ``None`` where one failed."""

    options: dict[str, Any]
    score: _Share | None = None
    runs: tuple[dict[str, Any], ...]


class TunedFile(Frozen):
    """A tuned file.

    Attributes:
        configuration: the strategy, with searcher and creator where they are not its own.
        scenario: of the benchmark; ``None``: ``task``.
        method: ``first-tasks:N`` or ``whole-stream``; ``note`` says what it presupposes.
        seeds: on which it was tuned; no other run may have one of them.
        given: options of all trials; so are ``limit``, ``synthetic``, ``precision`` and ``threads`` of all.
        options: those given, and the values chosen: what ``--tuned`` applies.
        space: what was searched, by option, as it was given.
        cost: of all trials, and of the tuning of the protocol's defaults that they start from.
    """

    id: _Name
    benchmark: _Name
    benchmark_version: NonNegativeInt
    protocol: _Name
    configuration: _Name
    strategy: str
    searcher: str | None = None
    creator: str | None = None
    scenario: Scenario | None = None
    method: str
    note: str
    sampler: str = "grid"
    given: dict[str, Any] = Field(default_factory=dict)
    limit: int | None = None
    synthetic: bool = False
    precision: str = "float32"
    threads: int | None = None
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]
    score: _Share
    options: Annotated[dict[str, Any], AfterValidator(_of_no_benchmark)]
    space: dict[str, str]
    cost: TuningCost
    software: dict[str, str]
    trials: Annotated[tuple[Trial, ...], Field(min_length=1)]
    sha256: str

    @classmethod
    def sealed(cls, **fields: Any) -> Self:
        """Create a file's content with its hash."""
        draft = cls(sha256="", **fields)
        return draft.model_copy(update={"sha256": draft.content_sha256})

    @property
    def content_sha256(self) -> str:
        """SHA-256 of the content but for itself."""
        # Without what is not set: a later version's new key does not change the hash of an old file.
        document = self.model_dump(mode="json", exclude={"sha256"}, exclude_none=True)
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    @property
    def place(self) -> Place:
        """What it was tuned for."""
        names = self.strategy, self.searcher, self.creator, self.scenario or "task"
        return self.benchmark, self.benchmark_version, self.protocol, *names

    def refuse_seed(self, seed: int) -> None:
        """Refuse a run on a seed of the tuning: its result would have been chosen."""
        if seed in self.seeds:
            what = f"seed {seed} was tuned on: {self.id} was chosen on the seeds {', '.join(map(str, self.seeds))}"
            remedy = "choose another seed: seeds of tuning and of evaluation must differ"
            raise RequestError(what, where=f"seed {seed}", remedy=remedy)

    def write(self, path: Path) -> None:
        """Write it, completely or not at all."""
        write_atomic(path, toml_text(self.model_dump(mode="json", exclude_none=True)))

    @classmethod
    def read(cls, path: Path) -> TunedFile:
        """Read a file.

        Raises:
            SpecError: it is missing or no tuned file, or was changed after it was written.
        """
        remedy = f"make it again with seu-bench tune; {_GUIDE} describes it"
        file = validate_document(cls, read_toml(path, "tuned", _GUIDE, remedy), "the tuned file", _GUIDE, path)
        if file.content_sha256 != file.sha256:
            what = "the tuned file was changed after it was written: its content does not have its SHA-256"
            raise SpecError(what, where=str(path), remedy=f"to change a value give it with -o; otherwise {remedy}")
        return file


def tuned_path(results: Path, name: str) -> Path:
    """Path of a tuned file or of a folder of them, by path, or of one in a results folder by its id."""
    if re.fullmatch(_PLAIN, name) and not name.endswith(".toml"):
        inside = results / TUNED_FOLDER / f"{name}.toml"
        return Path(name) if Path(name).is_dir() and not inside.exists() else inside
    return Path(name).expanduser()
