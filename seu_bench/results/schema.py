"""Versions of the record's schema: records of this version are read, those of a later one refused.

A key that is new and has a default changes no version: records without it mean the default, and versions that do not
know it ignore it. The version is raised where a key gets another name or meaning. Then :func:`parsed` must bring older
documents up to date, and a sample of them goes to ``tests/results/old_records``.
"""

from __future__ import annotations

import json
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from seu_bench.config.options import fault_lines
from seu_bench.errors import NewerRecordError, ResultsError

#: Of the records that are written now.
SCHEMA_VERSION: Final = 1

ModelT = TypeVar("ModelT", bound=BaseModel)


def parsed(model: type[ModelT], text: str, where: str) -> ModelT:
    """Parse a record.

    Args:
        model: the record as it is in the present version, with a field ``schema_version``.
        text: of the file.
        where: the file, for messages.

    Raises:
        NewerRecordError: it is of a later version.
        ResultsError: it is not a record.
    """
    try:
        record = model.model_validate_json(text)
        faults: list[str] = []
    except ValidationError as error:
        record, faults = None, fault_lines(error)
    if record is not None and getattr(record, "schema_version", None) == SCHEMA_VERSION:
        return record
    # Another version may mean something else by a key, whether or not it would pass for a record of this one.
    try:
        document = json.loads(text)
        version = document.get("schema_version", SCHEMA_VERSION) if isinstance(document, dict) else SCHEMA_VERSION
    except (ValueError, RecursionError) as error:
        version, faults = SCHEMA_VERSION, faults or [str(error)]
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version < 2**31:
        faults = [f"schema_version: there never was a version {version!r}"[:200]]
    elif version > SCHEMA_VERSION:
        raise NewerRecordError(
            f"the record was written by a later version of seu-bench: its schema version is {version}, "
            f"and those up to {SCHEMA_VERSION} are known here",
            where=where,
            remedy="update seu-bench, or choose another folder with --results",
        )
    raise ResultsError(
        "this is not a complete record: " + "; ".join(faults[:5]),
        where=where,
        remedy="remove the run's folder and run it again",
    )
