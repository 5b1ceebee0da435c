"""Benchmarks: which data sets, cut into which tasks, in which order, under which protocols; and their TOML files.

docs/reference/benchmarks.md describes every key.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from seu_bench.config.options import Frozen, did_you_mean, flatten_options
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.config.streams import Fraction, OnlineStream, Stream, StreamSpec, stream_identity, title_of
from seu_bench.config.toml_file import OwnPath, read_toml, validate_document

#: The page that describes benchmark files.
_GUIDE: Final = "docs/reference/benchmarks.md"
#: Keys of ``[datasets.NAME]`` that say where files lie and how images are held, which decides no result.
PLACES: Final = ("path", "cache")

Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=60)]


class _ImageFiles(Frozen):
    path: OwnPath
    size: PositiveInt | tuple[PositiveInt, PositiveInt]
    channels: Literal[1, 3] = 3
    test_fraction: Fraction = 0.20
    cache: Literal["memory", "disk"] = "memory"


class FolderDefinition(_ImageFiles):
    """A folder of class folders of images; with sub-folders ``train`` and ``test``, or one that is split here."""

    kind: Literal["folder"]


class FilesDefinition(_ImageFiles):
    """A ``.csv`` with a row for each image, ``path,label[,task][,split]``; with ``task`` its rows alone."""

    kind: Literal["files"]
    task: str | None = None


class NpzDefinition(Frozen):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test``, ``y_test``."""

    kind: Literal["npz"]
    path: OwnPath
    test_fraction: Fraction = 0.20


class FeaturesDefinition(Frozen):
    """A table of numbers: an ``.npz``, or a ``.csv`` or ``.parquet`` with a column of labels."""

    kind: Literal["features"]
    path: OwnPath
    label: str | None = None
    test_fraction: Fraction = 0.20

    @model_validator(mode="after")
    def _check_label(self) -> Self:
        ending = self.path.suffix.lower()
        if ending not in (".csv", ".npz", ".parquet"):
            raise ValueError("path must end in .csv, .npz or .parquet")
        if ending != ".npz" and self.label is None:
            raise ValueError("label must name the column of labels")
        if ending == ".npz" and self.label is not None:
            raise ValueError("an .npz has an array of labels: leave label out")
        return self


class TokensDefinition(Frozen):
    """An ``.npz`` with ``tokens`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test``, ``y_test``."""

    kind: Literal["tokens"]
    path: OwnPath
    vocabulary: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    test_fraction: Fraction = 0.20


class TorchvisionDefinition(Frozen):
    """Any classification set of ``torchvision.datasets`` by class name."""

    kind: Literal["torchvision"]
    class_name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = None
    channels: Literal[1, 3] | None = None
    train: dict[str, Any] | tuple[dict[str, Any], ...] | None = None
    test: dict[str, Any] | None = None
    test_fraction: Fraction = 0.20


DatasetDefinition: TypeAlias = Annotated[
    FolderDefinition | FilesDefinition | NpzDefinition | FeaturesDefinition | TokensDefinition | TorchvisionDefinition,
    Field(discriminator="kind"),
]


class BenchmarkSpec(Frozen):
    """A benchmark: data sets, their cut into tasks, and the protocols it is learned with."""

    name: Name
    version: PositiveInt = 1
    title: str = ""
    summary: str = ""
    citation: str = ""
    default_protocol: str = "paper"
    stream: StreamSpec
    datasets: dict[Name, DatasetDefinition] = Field(default_factory=dict)
    protocols: dict[Name, ProtocolSpec]

    @model_validator(mode="after")
    def _require_default(self) -> Self:
        if self.default_protocol not in self.protocols:
            raise ValueError(f"default_protocol {self.default_protocol!r} is not one of {', '.join(self.protocols)}")
        return self

    @model_validator(mode="after")
    def _require_one_pass(self) -> Self:
        trained = [it.training for it in self.protocols.values()]
        if isinstance(self.stream, OnlineStream) and any({it.epochs, it.first_epochs or 1} != {1} for it in trained):
            raise ValueError("an online stream is seen once: training.epochs of every protocol is 1")
        return self

    @classmethod
    def of(
        cls,
        stream: Mapping[str, Any] | Stream,
        *,
        name: str,
        datasets: Mapping[str, Any] | None = None,
        protocols: Mapping[str, Any] | None = None,
        default_protocol: str | None = None,
        summary: str = "",
        version: int = 1,
    ) -> BenchmarkSpec:
        """Make a benchmark without a file, with the standard protocols; ``register_benchmarks`` takes it.

        Args:
            stream: what a file has in ``[stream]``.
            name: lower-case letters, digits and ``_``.
            datasets: what it has in ``[datasets]``; relative paths start from the working folder.
            protocols: what it has in ``[protocols]``, laid over the standard ones.
            default_protocol: one of them, which is learned by where none is asked for; ``None``: ``paper``, of data
                sets of one's own ``quick``.
            summary: one line for ``seu-bench list``.
            version: another number is another benchmark.

        Raises:
            SpecError: it has faults; all are listed.

        Example:
            >>> stream = {"kind": "classes", "dataset": "digits", "classes_per_task": 2}
            >>> seu_bench.run("ewc", BenchmarkSpec.of(stream, name="pairs"), protocol="quick")
        """
        document = {
            "name": name,
            "version": version,
            "summary": summary,
            "stream": dict(stream) if isinstance(stream, Mapping) else stream.model_dump(exclude_unset=True),
            "datasets": datasets or {},
            "protocols": protocols or {},
        }
        document |= {"default_protocol": default_protocol} if default_protocol else {}
        return _complete(_with_own_defaults(document), {}, f"the benchmark {name!r}")

    def load(self, overrides: Mapping[str, Any] | None = None, protocol: str | None = None) -> BenchmarkSpec:
        """Itself, with keys such as ``stream.validation`` replaced, as :meth:`BenchmarkFile.load` does.

        Raises:
            SpecError: a value does not fit; all faults are listed.
        """
        if not overrides and protocol is None:
            return self
        return _complete(self.model_dump(), overrides or {}, f"the benchmark {self.name!r}", protocol=protocol)

    @property
    def name_in_scenario(self) -> str:
        """Its name, with the scenario where that is neither ``task`` nor in the name."""
        return title_of(self.name, self.stream.scenario)

    def identity(self) -> dict[str, Any]:
        """Values that make two benchmarks the same: all but texts, protocols and where the user's files lie."""
        texts = dict.fromkeys(("title", "summary", "citation", "protocols", "default_protocol"), True)
        identity = self.model_dump(mode="json", exclude={**texts, "datasets": {"__all__": {*PLACES}}})
        identity["stream"] = stream_identity(self.stream)
        return identity


class BenchmarkSource(Protocol):
    """A benchmark that is loaded when it is needed; ``register_benchmarks`` offers such."""

    @property
    def summary(self) -> str:
        """One line that says what it is."""

    def load(self, overrides: Mapping[str, Any] | None = None, protocol: str | None = None) -> BenchmarkSpec:
        """The benchmark, with keys such as ``stream.validation`` replaced, over those that a protocol has of its own.

        Raises:
            SpecError: the file is missing or has faults.
        """


#: The protocols that every benchmark has; a file's own tables are laid over these.
STANDARD_PROTOCOLS: dict[str, dict[str, Any]] = {
    "paper": {"summary": "the published schedule"},
    # No dropout: it is meant for 50 epochs, and in ten it costs AlexNet more than it saves.
    "half_day": {
        "summary": "half a day on a 2-core computer, for three seeds of the paper's strategies on three benchmarks",
        "images": {"train": 2000, "valid": 400, "test": 1000},
        "training": {"epochs": 10, "batch_size": 32},
        "search": {"epochs": 12, "batch_size": 64, "cells": 3, "channels": 8},
        "creation": {"epochs": 12, "batch_size": 32},
        "model": {"cells": 4, "channels": 12, "width": 0.5, "dropout": 0.0},
    },
    # So many images that networks of all families are better than linear classifiers on CIFAR-100.
    "quick": {
        "summary": "minutes on a 2-core laptop",
        "images": {"train": 1000, "valid": 200, "test": 500},
        "training": {"epochs": 8, "batch_size": 32},
        "search": {"epochs": 6, "batch_size": 32, "cells": 3, "channels": 4},
        "creation": {"epochs": 6, "batch_size": 32},
        "model": {"cells": 3, "channels": 8, "width": 0.25, "dropout": 0.0},
    },
    "smoke": {
        "summary": "seconds; for tests, never ranked",
        "ranked": False,
        "images": {"train": 64, "valid": 32, "test": 64},
        "training": {"epochs": 2, "batch_size": 16},
        "search": {"epochs": 2, "batch_size": 32, "cells": 3, "channels": 2},
        "creation": {"epochs": 2, "batch_size": 16},
        "model": {"cells": 3, "channels": 4, "width": 0.125},
    },
}


@dataclass(frozen=True)
class BenchmarkFile:
    """A benchmark in a TOML file.

    Example:
        ``register("mine", BenchmarkFile(Path(__file__).parent / "mine.toml"))``
    """

    path: Path

    @property
    def summary(self) -> str:
        """The file's own one line."""
        return str(self._document().get("summary", ""))

    @property
    def title(self) -> str:
        """The file's display name."""
        return str(self._document().get("title", ""))

    @property
    def citation(self) -> str:
        """What the file says of its sources."""
        return str(self._document().get("citation", ""))

    def load(self, overrides: Mapping[str, Any] | None = None, protocol: str | None = None) -> BenchmarkSpec:
        """Read, complete and validate the file; paths in it start from its folder.

        Args:
            overrides: dotted keys and their values, e.g. ``{"stream.validation": 0.15}``.
            protocol: whose keys of the stream are laid below these; ``None``: those of no protocol are.

        Raises:
            SpecError: the file is missing, is not TOML, or has faults; all faults are listed.
        """
        document = _with_own_defaults(self._document())
        return _complete(document, overrides or {}, "the benchmark file", self.path, protocol)

    def _document(self) -> dict[str, Any]:
        remedy = "check the path; benchmarks known by name: seu-bench list benchmarks"
        return read_toml(self.path, "benchmark", _GUIDE, remedy)


def _with_own_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """A document with what is the default where data sets are one's own: minutes, and nothing that looks ahead."""
    stream = document.get("stream")
    if not document.get("datasets") or not isinstance(stream, dict):
        return document
    own = {"default_protocol": "quick", **document}
    given = stream.get("input", {})
    if stream.get("kind") != "drawn" and isinstance(given, dict):
        own["stream"] = stream | {"input": {"normalise": "first_task", **given}}
    return own


def _complete(
    document: dict[str, Any],
    overrides: Mapping[str, Any],
    what: str,
    file: Path | None = None,
    protocol: str | None = None,
) -> BenchmarkSpec:
    """Validate ``document`` with ``overrides`` by dotted key in it, below them the stream's keys of a ``protocol``, and
    the standard protocols below its own; without overrides and protocol with those of each protocol, too."""
    faults: list[str] = []
    options = {key: f"option benchmark.{key}" for key in overrides}
    if protocol is not None:
        for key, value in overrides.items():  # which may be of the protocol
            _replace(document, key, value, [])
        stream = document["protocols"][protocol]["stream"]
        own = {f"stream.{key}": value for key, value in flatten_options(stream)}
        options = {key: f"protocols.{protocol}.{key}" for key in own} | options
        overrides = own | dict(overrides)
    whole = copy.deepcopy(document) if protocol is None and not overrides else {}
    # What is asked for takes the place of what is there.
    asked, sizes = {key.removeprefix("stream.") for key in overrides}, {"classes_per_task", "then", "groups"}
    firsts = {"first", "first_task"}
    others = (sizes if asked & sizes else set()) | (firsts if asked & {*firsts, "groups"} else set())
    if isinstance(stream := document.get("stream"), dict):
        for other in others - asked:
            stream.pop(other, None)
    for key, value in overrides.items():
        _replace(document, key, value, faults)
    own = document.get("protocols", {})
    if isinstance(own, Mapping):
        document["protocols"] = merge_tables(STANDARD_PROTOCOLS, own)
        stream = document.get("stream")
        if isinstance(stream, dict) and stream.get("kind") == "online":
            once = {name: {"training": {"epochs": 1}} for name in document["protocols"]}
            document["protocols"] = merge_tables(merge_tables(STANDARD_PROTOCOLS, once), own)
    spec = validate_document(BenchmarkSpec, document, what, _GUIDE, file, faults, options)
    for name in [name for name, it in spec.protocols.items() if it.stream and whole]:
        _complete(copy.deepcopy(whole), {}, what, file, name)
    return spec


def merge_tables(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` laid over it, tables merged key by key; neither is changed."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merge_tables(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def _replace(document: dict[str, Any], key: str, value: Any, faults: list[str]) -> None:
    """Set a dotted ``key`` whose first part the schema knows; pydantic judges the rest."""
    top, *path = key.split(".")
    if top not in BenchmarkSpec.model_fields:
        faults.append(f"{key}: no such key{did_you_mean(top, BenchmarkSpec.model_fields)}")
        return
    table: Any = document
    *parents, last = top, *path
    for part in parents:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            faults.append(f"{key}: {part!r} is not a table")
            return
    table[last] = value


def names_a_file(benchmark: str) -> bool:
    """Whether a benchmark was given by the path of its file."""
    return benchmark.endswith(".toml") or "/" in benchmark or "\\" in benchmark
