"""Faults of values in plain words, each by the key that its writer gave, with what may have been meant."""

from __future__ import annotations

import difflib
import json
import re
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

#: What a value must be, by pydantic's type of the fault; braces are of its context.
_WORDS: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "extra_forbidden": "no such key",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number, such as 3"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number, such as 0.5"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list, such as {example}"),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type"), "must be a table, such as {{key = 1}}"
    ),
    "string_type": 'must be text in quotes, such as "abc"',
    "path_type": 'must be a path in quotes, such as "data/images"',
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "too_short": "must have at least {min_length} of them",
    "too_long": "must have at most {max_length} of them",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "union_tag_invalid": "must be {expected}",
    "union_tag_not_found": "is missing: it must be {expected}",
}
#: What texts of a pattern are made of.
_PATTERNS: Final[Mapping[str, str]] = {
    r"^[a-z0-9][a-z0-9_]*$": "small letters, digits and _ only, a letter or digit first",
    r"^[A-Za-z0-9][A-Za-z0-9._+-]*$": "letters, digits and . _ + - only, a letter or digit first",
    r"^[A-Za-z][A-Za-z0-9_]*$": "letters, digits and _ only, a letter first",
    r"^[0-9a-f]{64}$": "64 digits of a SHA-256, 0 to 9 and a to f",
}
#: Elements of an example, by their type.
_EXAMPLES: Final[Mapping[Any, str]] = {int: "[1, 2]", float: "[0.5, 0.25]", str: '["a", "b"]', tuple: "[[1, 2], [3]]"}
#: Tables that a key may be proposed to belong to, and known keys that are listed; more would be noise.
_MOST_PLACES, _MOST_KEYS = 3, 16
#: What stands for a name of the user's own in the path of a table.
_ANY_NAME: Final = "NAME"
#: Depth to which tables are searched for a key: no file has deeper ones.
_DEEPEST: Final = 5


class _Fault(NamedTuple):
    """A fault; ``union`` is the key whose value may be of several types, of which it concerns one."""

    key: str
    text: str
    given: str
    union: str | None


def fault_lines(error: ValidationError, model: type[BaseModel] | None = None) -> list[str]:
    """Every fault of a pydantic error as ``key: what it must be (given: ...)``, one line each.

    Args:
        error: the faults.
        model: what was validated, whose keys are proposed in place of unknown ones; ``None``: no keys are.
    """
    faults = [_fault(fault, model) for fault in error.errors(include_url=False)]
    depths: dict[str, int] = {}
    for fault in faults:
        if fault.union is not None:
            depths[fault.union] = max(depths.get(fault.union, 0), len(fault.key))
    # Of the types that a value may have, the one that fits it furthest is the one that was meant.
    faults = [fault for fault in faults if fault.union is None or len(fault.key) == depths[fault.union]]
    texts: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for number, fault in enumerate(faults):
        texts[fault.key, fault.given if fault.union is not None else f"{number}\0{fault.given}"][fault.text] = None
    lines = []
    for (key, given), parts in texts.items():
        first, *others = parts
        text = " or ".join([first, *(part.removeprefix("must be ") for part in others)])
        lines.append((f"{key}: " if key else "") + text + given.rpartition("\0")[2])
    return lines


def fault_text(fault: ErrorDetails) -> str:
    """The message of one fault, without the key and the value."""
    return _text(fault)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where no known name is near."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    if not near:  # written in other letters, e.g. "CIFAR10"
        folded = {known_name.casefold(): known_name for known_name in names}
        near = [folded[found] for found in difflib.get_close_matches(name.casefold(), folded, n=1)]
    return f" (did you mean {near[0]!r}?)" if near else ""


def _fault(fault: ErrorDetails, model: type[BaseModel] | None) -> _Fault:
    path, kinds, union = _walked(fault["loc"], model)
    kind, value = fault["type"], fault["input"]
    context = fault.get("ctx", {})
    example = next((found for item in _elements(kinds) if (found := _EXAMPLES.get(get_origin(item) or item))), "[1, 2]")
    choices = re.findall(r"'([^']*)'", str(context.get("expected_tags", context.get("expected", ""))))
    if kind.startswith("union_tag_"):
        key = str(context["discriminator"]).strip("'")
        choices = choices or [tag for member in kinds for tag in _tags(member)]
        path, value = [*path, key], value.get(key) if isinstance(value, Mapping) else value
    text = _text(fault, example, choices)
    if kind == "extra_forbidden" and model is not None and path:
        text += _proposal(str(path[-1]), kinds, model)
    elif isinstance(value, str):
        # A shell or a TOML file without the inner quotes: the list was taken for a text.
        is_unquoted = kind in ("tuple_type", "list_type") and value.startswith("[")
        text += "; texts in a list need quotes" if is_unquoted else did_you_mean(value, choices)
    given = f" (given: {value!r})"
    shown = "" if kind == "missing" or value is None or len(given) > 100 else given
    return _Fault(_dotted(path), text, shown, union)


def _text(fault: ErrorDetails, example: str = "[1, 2]", choices: Sequence[str] = ()) -> str:
    context = {name: f"{it:g}" if isinstance(it, float) else it for name, it in fault.get("ctx", {}).items()}
    if len(choices) > 1:
        context["expected"] = " or ".join((", ".join(map(repr, choices[:-1])), repr(choices[-1])))
    if fault["type"] == "string_pattern_mismatch" and context.get("pattern") in _PATTERNS:
        return f"must have {_PATTERNS[context['pattern']]}"
    try:
        return _WORDS[fault["type"]].format(**context, example=example)
    except KeyError:  # a rule of ours, or a type of fault that has no words here
        return fault["msg"].removeprefix("Value error, ")


def _walked(
    location: Sequence[str | int], model: type[BaseModel] | None
) -> tuple[list[str | int], list[Any], str | None]:
    """Follow pydantic's path of a fault: the keys of it, the types at its end, and the union in which it lies.

    Parts of a path that name one of several types are no keys of the file. The types are those of the table where
    the last key is unknown.
    """
    path: list[str | int] = []
    kinds: list[Any] = [] if model is None else [model]
    union: str | None = None
    for part in location:
        following = [found for kind in kinds for found in _below(kind, part)]
        chosen = [kind for kind in kinds if part in _tags(kind)]
        if following:
            path.append(part)
            kinds = following
        elif len(kinds) > 1 and chosen:
            kinds = chosen
        elif part == "[key]":
            continue
        elif isinstance(part, str) and kinds and not any(_is_model(kind) for kind in kinds):
            union = union or _dotted(path)
            kinds = [kind for kind in kinds if _type_name(kind) == part.partition("[")[0]] or kinds
        else:
            path.append(part)
    return path, kinds, union


def _proposal(key: str, kinds: Sequence[Any], model: type[BaseModel]) -> str:
    """What may have been meant by a key that a table has not."""
    known = [name for kind in kinds if _is_model(kind) for name in kind.model_fields]
    places = list(dict.fromkeys(_places(model, key)))
    if 0 < len(places) <= _MOST_PLACES:
        return f" here; it belongs in {' or '.join(places)}"
    if meant := did_you_mean(key, known):
        return meant
    return f" here; there are {', '.join(known)}" if 0 < len(known) <= _MOST_KEYS else ""


def _places(model: type[BaseModel], key: str, table: str = "") -> Iterator[str]:
    """Yield the tables, as headings of TOML, of all in which a key is known."""
    if key in model.model_fields:
        yield f"[{table}]" if table else "the file itself, above all tables"
    if table.count(".") < _DEEPEST:
        for name, field in model.model_fields.items():
            for kind in _members(field.annotation):
                own = f"{table}.{name}" if table else name
                for item in (kind, *_members(get_args(kind)[1])) if get_origin(kind) is dict else (kind,):
                    if _is_model(item):
                        yield from _places(item, key, own if item is kind else f"{own}.{_ANY_NAME}")


def _below(kind: Any, part: str | int) -> list[Any]:
    """Types of what a value of a type has under a key or an index."""
    origin, arguments = get_origin(kind), get_args(kind)
    if _is_model(kind):
        return list(_members(kind.model_fields[part].annotation)) if part in kind.model_fields else []
    if origin is dict:
        return list(_members(arguments[1]))
    return list(_members(arguments[0])) if origin in (tuple, list) and isinstance(part, int) else []


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _members(part)
    elif annotation is not type(None):
        yield annotation


def _elements(kinds: Iterable[Any]) -> Iterator[Any]:
    """Yield the types of the elements of lists."""
    for kind in kinds:
        if get_origin(kind) in (tuple, list):
            yield from _members(get_args(kind)[0])


def _tags(kind: Any) -> tuple[Any, ...]:
    """Values of the key ``kind`` that choose a model among several."""
    field = kind.model_fields.get("kind") if _is_model(kind) else None
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _type_name(kind: Any) -> str:
    origin = get_origin(kind)
    return "literal" if origin is Literal else getattr(origin or kind, "__name__", "")


def _dotted(path: Sequence[str | int]) -> str:
    """Keys and indices as ``stream.groups[0][1]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch(r"[\w.+-]+", part) else json.dumps(part))
    return text
