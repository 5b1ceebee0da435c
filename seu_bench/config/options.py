"""Options of plugins: typed, documented, set by ``-o key=value``; and pydantic's errors in words."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
)
from pydantic_core import ErrorDetails

from seu_bench.errors import OptionError
from seu_bench.utils.text import printable, toml_value

#: Prefixes of ``-o`` keys that do not address the strategy.
PREFIXES = ("searcher", "creator", "benchmark")
#: Values to try, by option.
TuningGrid: TypeAlias = Mapping[str, Sequence[Any]]


class Frozen(BaseModel):
    """A validated value object: unknown keys and infinite numbers are faults, nothing can be changed afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class Identified(Frozen):
    """Values that are part of run ids: keys in ``later`` are dumped only where they are not at their defaults."""

    later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _leave_out_later(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        unchanged = {key for key in self.later if getattr(self, key) == fields[key].default}
        return {key: value for key, value in dump(self).items() if key not in unchanged}


class Options(Frozen):
    """Base of a plugin's options; a field whose default is ``None`` is as the benchmark's protocol says.

    Attributes:
        tuning_grid: values that ``seu-bench tune`` tries where it is given none, by option; all combinations.
        id_names: names that options have in run ids, where these are older than the option's name.
        removed: options that are gone, with the defaults that published records have of them.

    Example:
        .. code-block:: python

            class MyOptions(Options):
                tuning_grid: ClassVar[TuningGrid] = {"weight": (0.1, 1.0, 10.0), "learning_rate": LEARNING_RATES}

                weight: PositiveFloat = Field(1.0, description="weight of the penalty")
    """

    tuning_grid: ClassVar[TuningGrid] = {}
    id_names: ClassVar[Mapping[str, str]] = {}
    removed: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def prepare(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of one layer as they are laid over those of earlier ones, without removed ones at defaults."""
        return {key: value for key, value in values.items() if key not in cls.removed or value != cls.removed[key]}

    def identity(self) -> dict[str, Any]:
        """Return what a run id covers: values that differ from the defaults, so that new options change no id."""
        changed = self.model_dump(mode="json", exclude_defaults=True)
        return {self.id_names.get(key, key): value for key, value in changed.items()}

    @field_validator("*", mode="wrap")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        result = validate(value)
        if isinstance(value, bool) and not isinstance(result, bool):  # pydantic reads true as 1
            raise ValueError("Input should not be true or false")
        return result


OptionsT = TypeVar("OptionsT", bound=Options)


def parse_value(text: str) -> Any:
    """Read a TOML value (a number, true, a list, ...); anything else is text."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # TOMLDecodeError, thousands of digits, deep nesting
        return text
    return document["value"] if len(document) == 1 else text


def parse_assignments(assignments: Iterable[str], flag: str = "-o") -> dict[str, Any]:
    """``["epochs=3", "searcher.alpha=0.1"]`` as ``{"epochs": 3, "searcher.alpha": 0.1}``, or an OptionError."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        key = key.strip()
        if not separator or not key:
            raise OptionError(f"{flag} {assignment!r} is not an assignment", remedy=f"write it as {flag} key=value")
        if key in values:
            raise OptionError(f"option {key!r} is given twice", remedy="give it once")
        values[key] = parse_value(text.strip())
    return values


def split_by_prefix(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort options by the part of a run that they address: ``""`` is the strategy, the others are :data:`PREFIXES`."""
    parts: dict[str, dict[str, Any]] = {"": {}, **{prefix: {} for prefix in PREFIXES}}
    for key, value in values.items():
        prefix, dot, rest = key.partition(".")
        if dot and prefix in PREFIXES:
            parts[prefix][rest] = value
        else:
            parts[""][key] = value
    return parts


def flatten_options(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield options by dotted key: ``{"searcher": {"alpha": 1}}`` has ``searcher.alpha``."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from flatten_options(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def build_options(model: type[OptionsT], owner: str, *layers: Mapping[str, Any]) -> OptionsT:
    """Validate options of ``owner``, such as ``strategy 'seu'``, from layers of values by name; later layers win.

    Raises:
        OptionError: unknown names or values of the wrong type; all are listed.
    """
    values = {key: value for layer in layers for key, value in model.prepare(layer).items()}
    known = sorted(model.model_fields)
    prefixed = [f"{prefix}.{key}" for prefix in PREFIXES for key in {name.partition(".")[2] for name in values} if key]
    faults = [f"{key!r} is not an option{did_you_mean(key, known + prefixed)}" for key in values if key not in known]
    values = {key: value for key, value in values.items() if key in known}
    try:
        options = model.model_validate(values)
    except ValidationError as error:
        faults += format_errors(error, values)
    if faults:
        raise OptionError(
            f"options of {owner} do not fit: " + "; ".join(faults),
            where=owner,
            remedy=f"the options of {owner} are: {', '.join(known) or 'none'}"
            + ("; --strategy NAME chooses another one" if owner.startswith("strategy ") else ""),
        )
    return options


#: Names of types as TOML and Python have them, by those of a JSON schema; and the signs of a schema's limits.
_TYPES: Final = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "array": "list"}
_LIMITS: Final = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def describe_options(model: type[Options]) -> list[dict[str, Any]]:
    """Name, type, range, default, help and choices of every option, for ``seu-bench list``.

    Types are such as ``int or float``, ranges such as ``>= 0, < 1``.
    """
    rows = []
    properties = model.model_json_schema(mode="serialization").get("properties", {})
    for name, field in model.model_fields.items():
        schemas = [it for it in properties[name].get("anyOf", [properties[name]]) if it != {"type": "null"}]
        types = (_TYPES.get(str(schema.get("type", "string")), "table") for schema in schemas)
        limits = (f"{sign} {it[key]:g}" for it in schemas for key, sign in _LIMITS.items() if key in it)
        row = {
            "name": name,
            "type": " or ".join(dict.fromkeys(types)),
            "range": ", ".join(dict.fromkeys(limits)),
            "default": None if field.is_required() else field.get_default(call_default_factory=True),
            "help": field.description or "",
            "choices": [choice for schema in schemas for choice in schema.get("enum", ())],
        }
        rows.append(row)
    return rows


def format_option(value: Any, *, bare: bool = True) -> str:
    """Write an option's value as it could be given with ``-o``; with ``bare``, text without quotes where possible."""
    if bare and isinstance(value, str) and value and printable(value) == value and parse_value(value) == value:
        return value
    return toml_value(value)


def format_errors(error: ValidationError, document: Any = None, model: type[BaseModel] | None = None) -> list[str]:
    """Format a pydantic error as ``key: what it must be (given: ...)``, one line per key.

    ``document`` tells keys from the types that pydantic names in a path; unknown ones are likened to a model's.
    """
    found: dict[str, dict[str, str]] = {}
    for fault in error.errors(include_url=False):
        text = _error_text(fault)
        if fault["type"] == "extra_forbidden" and model is not None:
            schema = model.model_json_schema()
            tables = (schema, *schema.get("$defs", {}).values())
            text += did_you_mean(str(fault["loc"][-1]), [key for it in tables for key in it.get("properties", ())])
        given = f" (given: {fault['input']!r})"
        is_shown = fault["input"] is not None and not isinstance(fault["input"], Mapping) and len(given) <= 100
        found.setdefault(_key(fault, document), {})[text] = given if is_shown else ""
    lines = []
    for key, texts in found.items():
        # Of several types that a value may have, those that fit it further are the ones that were meant.
        if not any(other != key and other.startswith((f"{key}.", f"{key}[")) for other in found if key):
            lines.append(f"{key}: " * bool(key) + " or ".join(texts) + list(texts.values())[-1])
    return lines


def _error_text(fault: ErrorDetails) -> str:
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


#: Names by what other tools call them.
ELSEWHERE: Final = {
    "lr": "learning_rate", "wd": "weight_decay", "bs": "batch_size", "accuracy": "acc", "models": "strategies",
    "methods": "strategies", "networks": "backbones",
}  # fmt: skip


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where no known name is near; case does not count."""
    folded = {known_name.casefold(): known_name for known_name in known}
    asked = name.casefold()
    near = [it for it in (ELSEWHERE.get(asked),) if it in folded] or difflib.get_close_matches(asked, folded, n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near and folded[near[0]] != name else ""


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
