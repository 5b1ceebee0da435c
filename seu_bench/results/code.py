"""Code of a run that is not part of seu-bench: whether it is the same, and what tells configurations apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from seu_bench.errors import ResultsError
from seu_bench.results.record_parts import CodeRecord

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: What learns. Data sets are told apart by their fingerprint, and metrics one by one.
_LEARNERS: Final = ("strategy", "searcher", "creator", "backbone", "attached plugin")
#: What the run id has all of that decides.
FILES: Final = ("benchmark", "benchmark file")


def differing_code(
    recorded: Sequence[CodeRecord], present: Sequence[CodeRecord]
) -> list[tuple[CodeRecord, CodeRecord | None]]:
    """Return what a record names and is other code at present, with that; ``None``: it is seu-bench's own.

    Metrics that are not there, and files of benchmarks, whose run id has all that decides, do not count.
    """
    here = {(code.kind, code.name): code for code in present}
    pairs = [(code, here.get((code.kind, code.name))) for code in recorded if code.kind not in FILES]
    return [
        (code, other)
        for code, other in pairs
        if (code.kind != "metric" if other is None else _identity(code) != _identity(other))
    ]


def code_fault(recorded: Sequence[CodeRecord], present: Sequence[CodeRecord]) -> str | None:
    """Say that a run was made with other code than the present, with both; ``None``: it was not, or is not known."""
    pairs = [
        f"{code.kind} {code.name!r} of {code}, here {other or 'part of seu-bench'}"
        for code, other in differing_code(recorded, present)
    ]
    return f"the run was made with other code: {'; '.join(pairs)}" if pairs else None


def refuse_other_code(recorded: Sequence[CodeRecord], present: Sequence[CodeRecord], where: str) -> None:
    """Refuse a run that was made with other code than the present with a ResultsError that has both."""
    if (fault := code_fault(recorded, present)) is not None:
        remedy = "make it again with --restart, or accept it as it is with --accept-code"
        raise ResultsError(fault, where=where, remedy=remedy)


def learner_code(record: Record) -> list[list[str]]:
    """The code of what learned, as plain values that are equal where it is: other code is another configuration."""
    parts = (("", record.code), ("earlier ", record.earlier_code))
    found = ((when, code) for when, codes in parts for code in codes if code.kind in _LEARNERS)
    return sorted([when + code.kind, code.name, _identity(code)] for when, code in found)


def learner_code_text(record: Record) -> str | None:
    """The code of what learned in a few words; ``None``: it is part of seu-bench, or the record is an older one."""
    now, before = (
        " + ".join(dict.fromkeys(str(code) for code in codes if code.kind in _LEARNERS))
        for codes in (record.code, record.earlier_code)
    )
    return (f"{now} after {before}" if before else now) or None


def metric_code(record: Record, metric: str) -> str | None:
    """Identity of the code that computed a metric of a plugin; ``None``: core's, or not known."""
    return next((_identity(code) for code in record.code if (code.kind, code.name) == ("metric", metric)), None)


def _identity(code: CodeRecord) -> str:
    """The digest of its source; where that is not known, package and version."""
    return code.sha256 or f"{code.package} {code.version}"
