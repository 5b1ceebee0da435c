"""Sources of the reference: a page for each room, with every public name of it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from sphinx.pycode import ModuleAnalyzer

from scripts.public_api import rooms

FOLDER: Final = "reference/api"
_INDEX: Final = """# Reference of public names

Import names from the room, e.g. `from seu_bench.training import Stage`. What is not listed is private.

```{{toctree}}
:maxdepth: 1

{rooms}
```
"""


def write_reference(sources: Path) -> None:
    """Write the pages below ``docs/reference/api``.

    Args:
        sources: folder of the site's sources.
    """
    folder = sources / "docs" / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    documented: set[int] = set()
    names = []
    for room, modules in rooms():
        names.append(room)
        (folder / f"{room}.md").write_text(room_page(room, modules, documented), encoding="utf-8")
    (folder / "index.md").write_text(_INDEX.format(rooms="\n".join(names)), encoding="utf-8")


def room_page(room: str, modules: Mapping[str, list[str]], documented: set[int]) -> str:
    """Write the page of a room: what its docstring says, then name by name.

    Args:
        room: its full name.
        modules: public names by the module that defines them, as :func:`scripts.public_api.rooms` yields.
        documented: classes and functions that earlier pages have; those of this page are added.

    Returns:
        Markdown, with a directive of autodoc for each name.
    """
    module = importlib.import_module(room)
    lines = [f"# `{room}`", "", "```{eval-rst}", f".. automodule:: {room}", "   :no-members:", "```", ""]
    for defined, names in sorted(modules.items()):
        if defined != room:
            lines += [f"## `{defined}`", ""]
        for name in sorted(names):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                lines += [*_directive(f"{room}.{name}", value, documented), ""]
            else:
                lines += [*_data(room, defined, name), ""]
    return "\n".join(lines)


def _directive(full_name: str, value: type | Callable[..., object], documented: set[int]) -> list[str]:
    if id(value) in documented:
        return [f"{{py:obj}}`{value.__module__}.{value.__qualname__}`, as `{full_name}` as well"]
    documented.add(id(value))
    kind = "class" if inspect.isclass(value) else "function"
    if inspect.isclass(value) and issubclass(value, BaseException):
        kind = "exception"
    members = [] if kind == "function" else ["   :members:"]
    return ["```{eval-rst}", f".. auto{kind}:: {full_name}", *members, "```"]


def _data(room: str, module: str, name: str) -> list[str]:
    """A value, with the comment that its module gives it: the room's own source does not have it."""
    described = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name), [])
    head = [f".. py:data:: {name}", f"   :module: {room}", ""]
    return ["```{eval-rst}", *head, *(f"   {line}".rstrip() for line in described), "```"]
