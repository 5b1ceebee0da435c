"""Commands that are printed to be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from seu_bench.config.options import format_option
from seu_bench.config.run import CommandLine, ExecutionFields, Request

#: Fields that are part of a command also at their defaults, and fields that concern learning alone.
_ALWAYS: Final = ("strategy", "benchmark", "seed")
_LEARNING: Final = (
    *("data_root", "checkpoint_every", "max_seconds", "feature_cache", "compile", "keep_weights", "log", "log_options"),
    "keep_learner",
)


def command(name: str, *words: str, **fields: Any) -> str:
    """Write a command of seu-bench that can be pasted into a shell: every part of it is quoted.

    Args:
        name: of the command.
        words: its arguments, and options that are no fields of a request.
        fields: of a request, or options of the same form; those at their defaults are left out.

    Example:
        >>> command("show", "a-run", results="my results")
        "seu-bench show a-run --results 'my results'"
    """
    options = (word for key, value in fields.items() for option in _option_words(key, value) for word in option)
    return shlex.join(["seu-bench", name, *words, *options])


def _option_words(name: str, value: Any) -> Iterator[tuple[str, ...]]:
    field = Request.model_fields.get(name)
    is_default = field is not None and value == field.get_default(call_default_factory=True)
    if value is None or (is_default and name not in _ALWAYS):
        return
    form = next((mark for mark in field.metadata if isinstance(mark, CommandLine)), None) if field else None
    flag = form.flags[0] if form and form.flags else f"--{name.replace('_', '-')}"
    match value:
        case bool():
            yield (flag.split("/")[0 if value or "/" not in flag else 1],)
        case Mapping():
            for key, item in value.items():
                if item is not None:
                    # In a sweep a comma in bare text would divide it.
                    yield flag, f"{key}={format_option(item, bare=',' not in str(item))}"
        case tuple() if name == "plugin":
            yield from ((flag, str(path)) for path in value)
        case tuple():
            yield flag, ",".join(map(str, value))
        case _:
            yield flag, str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def unused_flags(request: ExecutionFields) -> str:
    """Return the options that were given and have no effect on a run that is finished; empty: none."""
    given = ((name, getattr(request, name)) for name in _LEARNING if name in type(request).model_fields)
    return ", ".join(shlex.join(words) for name, value in given for words in _option_words(name, value))
