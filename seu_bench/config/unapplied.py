"""Fields of a request that had no effect because its run was finished before."""

from __future__ import annotations

import shlex
from typing import Any, Final

from seu_bench.config.commands import command, option_words
from seu_bench.config.run import ExecutionFields

#: Fields that concern learning alone, in the order in which they are told.
LEARNING_FIELDS: Final[tuple[str, ...]] = (
    "device",
    "data_root",
    "checkpoint_every",
    "max_seconds",
    "feature_cache",
    "compile",
    "keep_weights",
    "log",
    "log_options",
)


def unapplied_fields(request: ExecutionFields, device: str | None = None, *, has_model: bool = True) -> dict[str, Any]:
    """Fields that were given and had an effect only while the run learned, and their values.

    Args:
        request: what was asked for; those of its fields that have their default were not given.
        device: of the record, such as ``cuda:0 (NVIDIA H100)``; one that was asked for again is not told.
        has_model: whether the run has kept its model; where it has none, none was to be kept.
    """
    fields = type(request).model_fields
    given = {name: getattr(request, name) for name in LEARNING_FIELDS if name in fields}
    found = {
        name: value for name, value in given.items() if value != fields[name].get_default(call_default_factory=True)
    }
    if device is not None and "device" in found and device.startswith(found["device"]):
        del found["device"]
    if not has_model:
        found.pop("keep_weights", None)
    return found


def unapplied_lines(
    request: ExecutionFields,
    run_id: str | None,
    device: str | None = None,
    *,
    has_model: bool = True,
    as_flags: bool = True,
) -> list[str]:
    """What to tell a user who asked for what was finished before; nothing where all that was given was applied.

    Args:
        request: what was asked for.
        run_id: of the run; ``None``: several runs were.
        device, has_model: as :func:`unapplied_fields` takes them.
        as_flags: whether fields are named as on the command line, or as keywords of Python.
    """
    found = unapplied_fields(request, device, has_model=has_model)
    if not found:
        return []
    given = [f"{key}={value!r}" for key, value in found.items()]
    if as_flags:
        given = [shlex.join(words) for key, value in found.items() for words in option_words(key, value)]
    what = "the run was finished before" if run_id is not None else "all runs were finished before"
    again = "--restart" if as_flags else "restart=True"
    lines = [f"without effect, because {what}: {', '.join(given)}" + (f" ({again} makes it again)" if run_id else "")]
    if request.log:
        sent = "its record" if run_id is not None else "a record"
        lines.append(f"to send {sent} to {' and '.join(request.log)}: {log_command(request, run_id or 'RUN')}")
    return lines


def log_command(request: ExecutionFields, run_id: str) -> str:
    """The command that sends a finished run's record to the loggers asked for, ready for a shell."""
    to = (word for name in request.log for word in ("--to", name))
    return command("log", run_id, *to, log_options=request.log_options, results=request.results)
