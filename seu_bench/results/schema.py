"""Versions of the record's schema: what an older version wrote is brought up to date when it is read.

A key that is new and has a default changes no version: records without it mean the default, and versions that do not
know it ignore it. The version is raised where a key gets another name or meaning. Then :data:`STEPS` gets a function,
by the version that it begins with, and a sample of the old records goes to ``tests/results/old_records``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from seu_bench.config.options import fault_lines
from seu_bench.errors import NewerRecordError, ResultsError

#: Of the records that are written now.
SCHEMA_VERSION: Final = 1

#: A record as it is in the file.
Document: TypeAlias = dict[str, Any]
Migration: TypeAlias = Callable[[Document], Document]
ModelT = TypeVar("ModelT", bound=BaseModel)

#: What makes a document of version n + 1 of one of version n, by n.
STEPS: Final[Mapping[int, Migration]] = {}


def parsed(model: type[ModelT], text: str, where: str) -> ModelT:
    """A record of any version that is known.

    Args:
        model: the record as it is in the present version, with a field ``schema_version``.
        text: of the file.
        where: the file, for messages.

    Raises:
        NewerRecordError: it is of a later version.
        ResultsError: it is not a record.
    """
    faults: list[str] = []
    try:
        record = model.model_validate_json(text)
        if getattr(record, "schema_version", None) == SCHEMA_VERSION:
            return record
    except ValidationError as error:
        faults = fault_lines(error)
    # Another version may mean something else by a key, whether or not it would pass for a record of this one.
    try:
        document = json.loads(text)
        if isinstance(document, dict) and version_of(document) != SCHEMA_VERSION:
            return model.model_validate_json(json.dumps(upgraded(document, where)))
    except ValidationError as error:
        faults = fault_lines(error)
    except (ValueError, RecursionError) as error:
        faults = faults or [str(error)]
    raise ResultsError(
        "this is not a whole record: " + "; ".join(faults[:5]),
        where=where,
        remedy="remove this record and make the run again",
    )


def version_of(document: Document) -> int | None:
    """The schema version that a document says it has; 1 where it says none, ``None`` where that is no number."""
    version = document.get("schema_version", 1)
    return version if isinstance(version, int) and not isinstance(version, bool) else None


def upgraded(
    document: Document, where: str, *, steps: Mapping[int, Migration] = STEPS, current: int = SCHEMA_VERSION
) -> Document:
    """A document of the ``current`` version, by as many steps as it takes.

    Args:
        document: of any version; it is not changed.
        where: the file, for a message.

    Raises:
        NewerRecordError: it is of a later version.
        ValueError: its version is no number or there never was one such, or it is not as that version has it.
    """
    version = version_of(document)
    if version is None or not 1 <= version < 2**31:
        raise ValueError(f"schema_version: there never was a version {document.get('schema_version')!r}"[:200])
    if version > current:
        raise NewerRecordError(
            f"the record was written by a later version of seu-bench: its schema version is {version}, "
            f"and those up to {current} are known here",
            where=where,
            remedy="update seu-bench, or choose another folder with --results",
        )
    for older in range(version, current):
        try:
            document = {**steps[older](dict(document)), "schema_version": older + 1}
        except (LookupError, TypeError, AttributeError) as error:  # a stranger's record may hold anything
            raise ValueError(f"it is no record of schema version {older}: {error}") from error
    return document
