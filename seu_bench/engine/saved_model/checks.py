"""Checks of a verification, and how differences are reported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seu_bench.results.record import Record

#: Metrics are sums and functions of what the record has; another machine's mathematical library may round differently.
_ROUNDING: Final = 1e-12


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Attributes:
        passed: ``None``: it could not be compared, for the reason in ``detail``.
        detail: the values found, or every difference.
    """

    name: str
    passed: bool | None
    detail: tuple[str, ...]


@dataclass(frozen=True)
class Verification:
    """Result of a verification, check by check."""

    record: Record
    folder: Path
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def document(self) -> dict[str, Any]:
        """Return plain values for other programs."""
        return {
            "run_id": self.record.run_id,
            "folder": str(self.folder),
            "passed": self.passed,
            "checks": [
                {"name": check.name, "passed": check.passed, "detail": list(check.detail)} for check in self.checks
            ],
        }


def differences(recorded: Any, other: Any, name: str, word: str) -> Iterator[str]:
    """Differences of two plain values by place, e.g. ``accuracy_matrix[1][0]: recorded 0.9, sealed 0.8``."""
    if isinstance(recorded, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*recorded, *other]):
            if key not in recorded or key not in other:
                yield f"{name}.{key}: only {word}" if key in other else f"{name}.{key}: only recorded"
            else:
                yield from differences(recorded[key], other[key], f"{name}.{key}", word)
    elif _is_list(recorded) and _is_list(other) and len(recorded) == len(other):
        for place, (left, right) in enumerate(zip(recorded, other, strict=True)):
            yield from differences(left, right, f"{name}[{place}]", word)
    elif recorded != other:
        yield f"{name}: recorded {_short(recorded)}, {word} {_short(other)}"


def near(recorded: float | None, found: float | None) -> bool:
    """Whether two metrics are the same number but for rounding, or both are not measured."""
    if recorded is None or found is None:
        return recorded is found
    return math.isclose(recorded, found, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def compared(name: str, faults: Sequence[str], passed: str) -> Check:
    """Return a check that failed with its ``faults`` if there are any, else one with the note ``passed``."""
    return Check(name, False, tuple(faults)) if faults else Check(name, True, (passed,))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _short(value: Any, most: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
