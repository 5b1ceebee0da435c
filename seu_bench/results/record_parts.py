"""Parts of a record: types of its values, and values that belong together."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

#: A name that files are called by. A record may come from a stranger: none of its names may lead out of a folder.
FileName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=200)]
#: Integers that tables and other programs can hold. A record of a stranger may have a number of any length.
Integer: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
#: How many of something there are.
Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
#: A measured number.
Measurement: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Document(BaseModel):
    """Part of a record. Unknown keys, of a later version, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Environment(Document):
    """Device, versions and platform of a run.

    Attributes:
        compile: whether units were to be compiled for their training, which rounds otherwise.
    """

    versions: dict[str, str] = Field(default_factory=dict)
    device: str = "cpu"
    git_revision: str | None = None
    platform: str = ""
    threads: Integer | None = None
    compile: bool = False


class CodeRecord(Document):
    """Code that a run used and that is not part of seu-bench, or its benchmark's file.

    Attributes:
        kind: what it was used as: ``strategy``, ``searcher``, ``creator``, ``backbone``, ``data set``, ``metric``,
            ``benchmark``, ``attached plugin``, ``attached metric``; ``benchmark file`` for one that was given by its
            path.
        name: registered name, or name of the file.
        package, version: that it was installed with; ``None``: it was not installed.
        sha256: of its source, or of the benchmark's file; ``None``: that could not be read.
    """

    kind: str
    name: str
    package: str | None = None
    version: str | None = None
    sha256: str | None = None

    def __str__(self) -> str:
        digest = "source unknown" if self.sha256 is None else self.sha256[:10]
        return " ".join(filter(None, (self.package, self.version, f"[{digest}]")))


class TaskInput(Document):
    """What makes the network's input of a task's images: padding, background, normalisation, order of the pixels.

    Attributes:
        shape: channels, height and width of an image of the data set, which has 8 bits.
        pad: zero pixels that are added on each side.
        background: colour in [0, 1] that zero stands for; ``None``: grey images stay grey.
        mean, std: of each channel, of pixels in [0, 1], or one for all.
        permutation_seed: of the order of the pixels of an input; ``None``: as they are.
    """

    shape: tuple[Integer, Integer, Integer]
    pad: Count
    background: tuple[Measurement, ...] | None
    mean: tuple[Measurement, ...]
    std: tuple[Measurement, ...]
    permutation_seed: Integer | None


class StabilityRecord(Document):
    """Stability of SGD on a quadratic penalty.

    Attributes:
        value: learning rate of the first epoch times the largest second derivative of the penalty.
        bound: ``2 (1 + momentum)``; beyond it SGD diverges along that direction.
    """

    value: Measurement
    bound: Measurement


class TuningRecord(Document):
    """The tuning that chose options of a run.

    Attributes:
        id, sha256: of its file.
        method: how it was chosen, e.g. ``first-tasks:3``.
        seeds: on which.
        options: what it chose, with the values that were given to it; keys as of ``-o``.
        runs, image_passes, cpu_seconds, flops: its cost; ``None``: not measured.
    """

    id: FileName
    sha256: str
    method: str
    seeds: tuple[Integer, ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)
    runs: Count
    image_passes: Count
    cpu_seconds: Seconds | None = None
    flops: Count | None = None

    def __hash__(self) -> int:
        """By the file, which says all else: options may be lists."""
        return hash((self.id, self.sha256))
