"""Benchmarks as validated values: which data sets, cut into which tasks, in which order, under which protocols.

:mod:`seu_bench.config.benchmark_file` reads one from a TOML file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from seu_bench.config.options import Frozen
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.config.streams import Fraction, StreamSpec, stream_identity, titled
from seu_bench.config.toml_file import OwnPath

#: Keys of ``[datasets.NAME]`` that say where files lie and how images are held, which decides no result.
PLACES: Final = ("path", "cache")

Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=60)]


class FolderDefinition(Frozen):
    """A folder of class folders of images; with sub-folders ``train`` and ``test``, or one that is split here."""

    kind: Literal["folder"]
    path: OwnPath
    size: PositiveInt | tuple[PositiveInt, PositiveInt] = Field(description="height and width of every image")
    channels: Literal[1, 3] = 3
    test_fraction: Fraction = Field(0.20, description="held out per class where there is no test folder")
    cache: Literal["memory", "disk"] = Field(
        "memory", description="where decoded images are: all in memory, or in a file of which batches are read"
    )


class NpzDefinition(Frozen):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test``, ``y_test``."""

    kind: Literal["npz"]
    path: OwnPath
    test_fraction: Fraction = Field(0.20, description="held out per class where the file has no test arrays")


class TorchvisionDefinition(Frozen):
    """Any classification set of ``torchvision.datasets`` by class name."""

    kind: Literal["torchvision"]
    class_name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = Field(None, description="resize every image to this")
    channels: Literal[1, 3] | None = None
    train: dict[str, Any] | tuple[dict[str, Any], ...] | None = Field(
        None, description="constructor arguments of the training set, or of each of its parts, in order"
    )
    test: dict[str, Any] | None = Field(None, description="constructor arguments of the test set")
    test_fraction: Fraction = Field(0.20, description="held out per class where the set has no test split")


DatasetDefinition: TypeAlias = Annotated[
    FolderDefinition | NpzDefinition | TorchvisionDefinition, Field(discriminator="kind")
]


class BenchmarkSpec(Frozen):
    """A benchmark: data sets, their cut into tasks, and the protocols it is learned with.

    Attributes:
        stream: tasks, their order and how images become inputs.
        datasets: the user's own, by name.
        protocols: by name; ``default_protocol`` is one of them.
    """

    name: Name
    version: PositiveInt = 1
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

    @property
    def title(self) -> str:
        """Its name, with the scenario where that is neither ``task`` nor in the name."""
        return titled(self.name, self.stream.scenario)

    def identity(self) -> dict[str, Any]:
        """Values that make two benchmarks the same: all but texts, protocols and where the user's files lie."""
        texts = dict.fromkeys(("summary", "citation", "protocols", "default_protocol"), True)
        identity = self.model_dump(mode="json", exclude={**texts, "datasets": {"__all__": {*PLACES}}})
        identity["stream"] = stream_identity(self.stream)
        return identity


class BenchmarkSource(Protocol):
    """A benchmark that is loaded when it is needed; ``register_benchmarks`` offers such."""

    @property
    def summary(self) -> str:
        """One line that says what it is."""

    def load(self, overrides: Mapping[str, Any] | None = None) -> BenchmarkSpec:
        """The benchmark, with keys such as ``stream.validation`` replaced.

        Raises:
            SpecError: the file is missing or has faults.
        """
