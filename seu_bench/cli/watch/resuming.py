"""The command that resumes a run, from the request that the run left in its folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from seu_bench.config.commands import command
from seu_bench.config.run import Request
from seu_bench.errors import OptionError
from seu_bench.utils.text import printable

#: Options in the order in which users give them.
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
    names = (*_FIRST, *[name for name in Request.model_fields if name not in _FIRST])
    text = command("run", **{name: getattr(asked, name) for name in names})
    # A command of a stranger's folder must be what it looks like.
    return text if all(printable(word) == word for word in shlex.split(text)) else None
