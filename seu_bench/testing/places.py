"""Where in a plugin's own code an exception was raised, and where its parts are defined."""

from __future__ import annotations

import functools
import inspect
import linecache
import pkgutil
import traceback
from collections.abc import Iterator, Set
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

#: Packages whose frames lead to every test and say nothing.
_RUNNERS: Final = ("_pytest", "pluggy")


class Place(NamedTuple):
    """A line of source code.

    Attributes:
        file: absolute path, links resolved.
        line: from 1.
        function: the function or class that it belongs to; empty where there is none.
        code: its text, without indentation.
    """

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        path = Path(self.file)
        here = Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        return f"{shown}:{self.line}" + (f", in {self.function}" if self.function else "")


def chain(error: BaseException) -> list[BaseException]:
    """The exception, what it was raised from or in the handling of, and so on: what happened first comes last."""
    found: list[BaseException] = []
    pending: BaseException | None = error
    while pending is not None and not any(pending is seen for seen in found):
        found.append(pending)
        pending = pending.__cause__ or (None if pending.__suppress_context__ else pending.__context__)
    return found


def place_raised(error: BaseException, modules: Set[str]) -> Place | None:
    """Find the deepest line of a plugin's own code that an exception came through.

    Args:
        error: of the chain of its causes, the first that the plugin's code is part of counts.
        modules: top-level import names of the plugin's code.

    Returns:
        The line; ``None``: no code of the plugin took part.
    """
    for each in reversed(chain(error)):
        if isinstance(each, SyntaxError) and each.filename and each.lineno:
            return _place(each.filename, each.lineno, "")
        for frame, line in reversed(list(traceback.walk_tb(each.__traceback__))):
            if _module(frame) in modules:
                return _place(frame.f_code.co_filename, line, frame.f_code.co_qualname)
    return None


def place_defined(factory: Any, modules: Set[str]) -> Place | None:
    """Find where a factory's ``build``, or else the factory itself, is written in a plugin's own code."""
    for part in _parts(factory):
        if getattr(part, "__module__", "").partition(".")[0] not in modules:
            continue
        try:
            file, (lines, line) = inspect.getsourcefile(part), inspect.getsourcelines(part)
        except (OSError, TypeError):
            continue
        if file is not None:
            at = next((at for at, text in enumerate(lines) if text.lstrip().startswith(("class ", "def "))), 0)
            return _place(file, max(line, 1) + at, "")
    return None


def readable_traceback(error: BaseException) -> str:
    """The whole traceback with all causes, without the frames of pytest above the test."""
    told = traceback.TracebackException.from_exception(error)
    kept = [each for each in told.stack if not {*Path(each.filename).parts} & {*_RUNNERS}]
    told.stack = traceback.StackSummary.from_list(kept)
    return "".join(told.format()).rstrip()


def _parts(factory: Any) -> Iterator[Any]:
    for part in (*(getattr(factory, name, None) for name in ("build", "compute", "load")), factory, type(factory)):
        part = part.func if isinstance(part, functools.partial) else part  # noqa: PLW2901
        reference = getattr(part, "reference", None)
        if isinstance(reference, str):
            try:
                yield pkgutil.resolve_name(reference)
            except Exception:  # whatever the plugin's module does when it is imported, the check has told
                continue
        elif part is not None:
            yield part


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _place(file: str, line: int, function: str) -> Place:
    return Place(str(Path(file).resolve()), line, function, linecache.getline(file, line).strip())
