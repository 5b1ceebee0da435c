"""Messages of pydantic's errors, one line each, by the key that was given, with what may have been meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails


def format_errors(error: ValidationError, document: Any = None, model: type[BaseModel] | None = None) -> list[str]:
    """Format a pydantic error as ``key: what it must be (given: ...)``, one line per key.

    Args:
        error: of a validation.
        document: what was validated; it tells the keys of a path from the types that pydantic names in it.
        model: whose keys are proposed in place of unknown ones.
    """
    found: dict[str, dict[str, str]] = {}
    for fault in error.errors(include_url=False):
        text = error_text(fault)
        if fault["type"] == "extra_forbidden" and model is not None:
            text += did_you_mean(str(fault["loc"][-1]), _keys(model))
        given = f" (given: {fault['input']!r})"
        is_shown = fault["input"] is not None and not isinstance(fault["input"], Mapping) and len(given) <= 100
        key = _key(fault, document)
        found.setdefault(key, {})[text] = given if is_shown else ""
    lines = []
    for key, texts in found.items():
        # Of several types that a value may have, those that fit it further are the ones that were meant.
        if not any(other != key and other.startswith((f"{key}.", f"{key}[")) for other in found if key):
            lines.append(f"{key}: " * bool(key) + " or ".join(texts) + list(texts.values())[-1])
    return lines


def error_text(fault: ErrorDetails) -> str:
    """What is wrong by one of pydantic's errors, without the key and the value."""
    match fault["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "no such key"
        case "union_tag_not_found":
            return f"{fault['ctx']['discriminator']} is missing"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "Input should be a table"
        case "literal_error" | "union_tag_invalid":
            context, value = fault["ctx"], fault["input"]
            choices = re.findall(r"'([^']*)'", context.get("expected_tags") or context["expected"])
            return fault["msg"] + did_you_mean(str(context.get("tag", value)), choices)
    return fault["msg"].removeprefix("Value error, ").replace("valid tuple", "valid list")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where no known name is near; case does not count."""
    folded = {known_name.casefold(): known_name for known_name in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near and folded[near[0]] != name else ""


def _keys(model: type[BaseModel]) -> list[str]:
    """Keys of a model and of all models below it."""
    schema = model.model_json_schema()
    return [key for part in (schema, *schema.get("$defs", {}).values()) for key in part.get("properties", ())]


def _key(fault: ErrorDetails, document: Any) -> str:
    """Write pydantic's path of an error as ``stream.groups[0][1]``; names of types in it are left out."""
    path, text, value = fault["loc"], "", document
    for number, part in enumerate(path, start=1):
        is_index = isinstance(part, int) and (document is None or isinstance(value, Sequence))
        # A key that is not in the document is missing, or its default is at fault.
        is_last = number == len(path) and (fault["type"] == "missing" or fault["input"] != value)
        if is_index:
            text += f"[{part}]"
        elif part == "[key]":
            text += " (its name)"
        elif document is None or (isinstance(value, Mapping) and (part in value or is_last)):
            text += f".{part}" if text else str(part)
        else:
            continue
        try:
            value = value[part]
        except (LookupError, TypeError):  # nothing has the key, or the document is not known
            value = None
    return text
