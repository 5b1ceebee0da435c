"""Print the structure of the source: lines, modules, imports between rooms, circles and public names.

Usage: ``python scripts/structure.py [FOLDER]`` or ``make structure``. Sources are parsed, not imported: imports inside
functions and under ``TYPE_CHECKING`` count as any other.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CORE: Final = "seu_bench"
_HOUSE: Final = (
    "__main__, __init__, api+avalanche, cli, sweeps, testing, engine, plugin+hookspecs, training, results, models, "
    "data, metrics, config, utils, errors+_version"
)
#: Floors, top first, of rooms and of the modules beside them. Imports point into the same room or to a floor below.
FLOORS: Final = tuple(tuple(floor.split("+")) for floor in _HOUSE.split(", "))
_LEVEL: Final = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


@dataclass(frozen=True)
class Module:
    """A module of a package, parsed; ``name`` is the one it is imported by."""

    name: str
    path: Path
    lines: int
    tree: ast.Module

    @property
    def room(self) -> str:
        """The folder or module directly below the package."""
        return self.name.partition(".")[2].partition(".")[0] or "__init__"

    @property
    def public_names(self) -> tuple[str, ...] | None:
        """``__all__``, or ``None`` where there is none."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
            ):
                return tuple(ast.literal_eval(node.value))
        return None

    def imported(self) -> Iterator[str]:
        """Every dotted name that is imported, ``from`` imports with the name."""
        package = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                yield from (".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names)


def read_package(folder: Path) -> dict[str, Module]:
    """Parse every module of a package."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = (folder.name, *path.relative_to(folder).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, path, len(text.splitlines()), ast.parse(text))
    return found


def arrows_of(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Modules that each module imports, out of ``modules``."""
    arrows: dict[str, set[str]] = {}
    for name, module in modules.items():
        targets = {full if full in modules else full.rpartition(".")[0] for full in module.imported()}
        arrows[name] = {target for target in targets if target in modules and target != name}
    return arrows


def upward(modules: Mapping[str, Module], arrows: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """Imports of core that point to the same floor or to one above; a room that has no floor counts as the top."""
    level = {name: _LEVEL.get(module.room, -1) for name, module in modules.items()}
    inside = {name: frozenset(FLOORS[level[name]]) if level[name] >= 0 else frozenset() for name in modules}
    return sorted(
        (name, target)
        for name, targets in arrows.items()
        for target in targets
        if level[target] <= level[name] and modules[target].room not in inside[name]
    )


def circles_of(arrows: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Groups of modules that import each other, directly or by way of others."""
    reach: dict[str, set[str]] = {}
    for start in arrows:
        found, todo = set[str](), list(arrows[start])
        while todo:
            if (name := todo.pop()) not in found:
                found.add(name)
                todo += arrows[name]
        reach[start] = found
    groups = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in arrows}
    return sorted(group for group in groups if group)


def rooms_of(modules: Mapping[str, Module]) -> dict[str, Module]:
    """``__init__`` of the package and of each folder directly below it."""
    return {n: m for n, m in modules.items() if m.path.name == "__init__.py" and n.count(".") <= 1}


def main(root: Path) -> None:
    """Print the structure of a checkout."""
    modules = read_package(root / CORE)
    arrows = arrows_of(modules)
    public = {module.room: set(module.public_names or ()) for module in rooms_of(modules).values()}
    print(f"{'room':<14}{'modules':>8}{'lines':>8}{'public names':>14}  imports")
    for room in sorted({module.room for module in modules.values()}, key=lambda room: _LEVEL.get(room, -1)):
        own = [module for module in modules.values() if module.room == room]
        to = sorted({modules[target].room for module in own for target in arrows[module.name]} - {room})
        lines, names = sum(module.lines for module in own), len(public.get(room, ()))
        print(f"{room:<14}{len(own):>8}{lines:>8,}{names or '':>14}  {' '.join(to)}")
    lines = sum(module.lines for module in modules.values())
    fullest = max(Counter(module.path.parent for module in modules.values()).values())
    print(f"\n{CORE}: {lines:,} lines, {len(modules)} modules, at most {fullest} in a folder")
    print(f"imports between modules: {sum(map(len, arrows.values()))}")
    print(f"public names: {len(set().union(*public.values()))}")
    _print_all("upward imports", upward(modules, arrows))
    _print_all("circles", circles_of(arrows))
    plugins = [read_package(folder) for folder in sorted((root / "plugins").iterdir()) if folder.is_dir()]
    lines = sum(module.lines for package in plugins for module in package.values())
    print(f"\nplugins: {lines:,} lines, {len(plugins)} packages")
    _print_all("circles", [ring for package in plugins for ring in circles_of(arrows_of(package))])


def _print_all(what: str, found: Sequence[tuple[str, ...]]) -> None:
    print("\n  ".join([f"{what}: {len(found)}", *map(" ".join, found)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
