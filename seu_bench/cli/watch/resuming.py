"""The command that resumes a run, from the request that the run left in its folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from seu_bench.cli.options import field_option
from seu_bench.config.options import format_option
from seu_bench.config.run import Request
from seu_bench.config.stability import StabilityDecay
from seu_bench.errors import OptionError
from seu_bench.utils.text import printable

#: Options in the order in which users give them; these three stand there also at their defaults.
_ALWAYS: Final = ("strategy", "benchmark", "seed")
_FIRST: Final = ("strategy", "benchmark", "searcher", "creator", "protocol", "seed", "options")


def resuming_command(request: Mapping[str, Any], results: Path) -> str | None:
    """Return the command that resumes a run, for a shell.

    Args:
        request: fields of the run's request that are not at their defaults.
        results: the results folder.

    Returns:
        One line, its words quoted where a shell would change them; ``None``: no command is known.
    """
    try:
        asked = Request(**{**request, "results": results})
    except (OptionError, TypeError):
        return None  # of a later version, or not ours
    words = ["seu-bench", "run", *_words(asked)]
    # A command of a stranger's folder must be what it looks like.
    return shlex.join(words) if all(printable(word) == word for word in words) else None


def _words(asked: Request) -> Iterator[str]:
    for name in (*_FIRST, *[name for name in Request.model_fields if name not in _FIRST]):
        field, value = Request.model_fields[name], getattr(asked, name)
        if name not in _ALWAYS and value == field.get_default(call_default_factory=True):
            continue
        flag = field_option(name, field).opts[0]
        match value:
            case bool():
                yield flag
            case Mapping():
                for key, item in value.items():
                    yield from (flag, f"{key}={format_option(item)}")
            case tuple():
                yield from (flag, ",".join(map(str, value)))
            case StabilityDecay():
                yield from (flag, _decay_text(value))
            case _:
                yield from (flag, str(value))


def _decay_text(decay: StabilityDecay) -> str:
    """The rule as :func:`seu_bench.config.stability.parse_decay` reads it."""
    rates = {"learning_rate": "|".join(map(str, decay.learning_rates))} if decay.learning_rates else {}
    others = {"tolerance": decay.tolerance, "factor": decay.factor, "searches": decay.searches} | rates
    return ",".join([f"{decay.option}={decay.start}", *[f"{key}={value}" for key, value in others.items()]])
