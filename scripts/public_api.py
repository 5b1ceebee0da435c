"""The public surface: docs/reference/public_api.md, written from the rooms' ``__all__``.

python scripts/public_api.py            # print how many names are public
python scripts/public_api.py --write    # write the page as well
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "public_api.md"
PACKAGE: Final = ROOT / "seu_bench"

HEAD: Final = """# Public names

{count} names. Import them from the room, e.g. `from seu_bench import hookimpl`; a name is imported when it is first
used, so that no room imports torch by itself. Everything else is private and may change without notice. The docstring
of each room says what its modules do. This page is made by `make docs`.
"""


def rooms() -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """Yield each room's full name, top package first, and its public names by the module that defines them.

    Modules that stand beside the rooms count as rooms where they declare ``__all__``.
    """
    tops = [path for path in sorted(PACKAGE.glob("*.py")) if path.name != "__init__.py"]
    for path in [PACKAGE / "__init__.py", *tops, *sorted(PACKAGE.glob("*/__init__.py"))]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = declared(tree)
        if not names:
            continue
        parts = path.relative_to(ROOT).with_suffix("").parts
        room = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        sources = imported(tree, room)
        found: dict[str, list[str]] = {}
        for name in names:
            found.setdefault(sources.get(name, room), []).append(name)
        yield room, found


def declared(tree: ast.Module) -> list[str]:
    """Return the strings of ``__all__``; empty where there is none."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value = getattr(node, "value", None)
            return [str(name) for name in ast.literal_eval(value)] if value is not None else []
    return []


def imported(tree: ast.Module, package: str) -> dict[str, str]:
    """Return the module of each name that ``__init__`` imports, those under ``TYPE_CHECKING`` included."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = f"{package}.{node.module}" if node.level else node.module
            found |= {alias.asname or alias.name: module for alias in node.names}
    return found


def page() -> str:
    """Return the text of the page."""
    lines = []
    for room, modules in rooms():
        lines += [f"\n## `{room}`\n", "| module | names |", "| --- | --- |"]
        for module, names in sorted(modules.items()):
            lines.append(f"| `{module}` | {', '.join(f'`{name}`' for name in sorted(names))} |")
    return HEAD.format(count=count()) + "\n".join(lines) + "\n"


def count() -> int:
    """Return the number of public names; one that two rooms offer counts once."""
    return len({name for _, modules in rooms() for names in modules.values() for name in names})


def main() -> None:
    """Print the number of public names of each room and of all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write docs/reference/public_api.md")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
    sizes = {room: sum(map(len, modules.values())) for room, modules in rooms()}
    for room, size in sizes.items():
        print(f"{size:4} {room}")
    print(f"{count():4} public names")


if __name__ == "__main__":
    main()
