"""How stages compute: in what precision, with what memory, compiled or not. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

#: What learning computes in: float32; float32 with outputs of frozen layers kept in bfloat16; bfloat16 by autocast.
Precision: TypeAlias = Literal["float32", "bf16-features", "bf16"]


@dataclass(frozen=True)
class Computing:
    """How a strategy's stages compute.

    Attributes:
        precision: evaluation is in float32 in any case.
        feature_cache: bytes, at most, for outputs of frozen layers on a task's images; ``None``: half of what is free
            when the task begins; 0: none.
        compiles: whether units are compiled for their training.
    """

    precision: Precision = "float32"
    feature_cache: int | None = None
    compiles: bool = False
