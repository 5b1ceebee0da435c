"""Files of weights as options: in a run's identity they stand by what is in them, not by where they lie."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import PlainSerializer, PlainValidator

from seu_bench.utils.reading import open_file

#: Hexadecimal digits of a checksum that stand for a file: enough to tell files apart, and short enough for a table.
_DIGITS: Final = 16


@dataclass(frozen=True)
class Weights:
    """A file of weights: its path, ``None`` where only a record names it, and the first digits of its SHA-256."""

    path: Path | None
    sha256: str

    def __str__(self) -> str:
        return f"sha256:{self.sha256}"

    @classmethod
    def parse(cls, given: Any) -> Weights:
        """Read a path, or the text of :meth:`__str__`; a ValueError where there is no such file."""
        if isinstance(given, Weights):
            return given
        if not isinstance(given, str | Path) or not str(given):
            raise ValueError("give the path of a file of weights")
        if found := re.fullmatch(rf"sha256:([0-9a-f]{{{_DIGITS}}})", str(given)):
            return cls(None, found[1])
        try:
            path = Path(given).expanduser().resolve()
            with open_file(path) as file:
                return cls(path, digest_of(file))
        except (OSError, ValueError, RuntimeError) as error:
            raise ValueError(f"{given} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def digest_of(file: BufferedIOBase) -> str:
    """The digits by which :class:`Weights` tells files apart."""
    return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]


WeightsFile: TypeAlias = Annotated[
    Weights, PlainValidator(Weights.parse), PlainSerializer(str, return_type=str, when_used="always")
]
