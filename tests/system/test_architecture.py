"""The architecture: imports point down, no circles, few names are public, and nothing grows beyond its limits."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path

import pytest

from scripts.structure import CORE, FLOORS, arrows_of, circles_of, main, read_package, rooms_of, upward

ROOT = Path(__file__).resolve().parents[2]
MODULES = read_package(ROOT / CORE)
ARROWS = arrows_of(MODULES)
ROOMS = rooms_of(MODULES)
PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/__init__.py"))


def package(folder: Path, **files: str) -> Path:
    """A package of these modules, ``a__b`` for ``b`` in the folder ``a``."""
    for name, text in files.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py") if name != "init" else folder / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_every_import_points_down() -> None:
    """Rooms are in order, and a room imports from lower ones only; so do modules beside rooms."""
    assert upward(MODULES, ARROWS) == []
    assert {module.room for module in MODULES.values()} == {room for floor in FLOORS for room in floor}


def test_no_circle_in_core() -> None:
    """Imports in functions and for types count."""
    assert circles_of(ARROWS) == []


def test_upward_imports_and_circles_are_seen(tmp_path: Path) -> None:
    """Wherever they hide: in a function, for types, relative, of a module or of a name in it, in a room of no floor."""
    folder = package(
        tmp_path / CORE,
        init="",
        utils__a="def f():\n    from seu_bench.engine import b\n",
        engine__b="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..cli.c import name\n",
        cli__c="import seu_bench.engine.b\nname = 1\n",
        garage__d="from seu_bench.utils.a import f\n",
        utils__e="from seu_bench.garage.d import f\n",
    )
    modules = read_package(folder)
    arrows = arrows_of(modules)
    names = [(a.removeprefix("seu_bench."), b.removeprefix("seu_bench.")) for a, b in upward(modules, arrows)]
    assert names == [("engine.b", "cli.c"), ("utils.a", "engine.b"), ("utils.e", "garage.d")]
    assert circles_of(arrows) == [("seu_bench.cli.c", "seu_bench.engine.b")]


def test_core_imports_no_plugin() -> None:
    """Plugins of this package are found as those of any other."""
    imported = {name for module in MODULES.values() for name in module.imported()}
    assert not [name for name in imported if name.startswith("seu_bench_")]
    assert "seu_bench.hookspecs.hookimpl" in imported


@pytest.mark.parametrize("folder", [*PLUGINS, ROOT / "benchmarks"], ids=lambda folder: folder.name)
def test_plugins_import_core_and_the_kit_alone(folder: Path) -> None:
    """A plugin can be removed without another one failing; the kit alone is shared."""
    own = "seu_bench_benchmarks" if folder.name == "benchmarks" else folder.name
    tops = {name.partition(".")[0] for module in read_package(folder).values() for name in module.imported()}
    assert {top for top in tops if top.startswith("seu_bench_")} <= {own, "seu_bench_kit"}
    assert "seu_bench" in tops


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_no_circle_in_plugins(folder: Path) -> None:
    """As in core."""
    assert circles_of(arrows_of(read_package(folder))) == []


#: Lines that a room may have; the modules beside the rooms count together. To raise one is a decision, which
#: docs/explanation/decisions.md gives the reason of.
BUDGETS = {
    "beside": 1_093, "cli": 2_886, "config": 2_030, "data": 3_970, "engine": 4_630, "models": 1_571, "plugin": 1_382,
    "results": 4_479, "sweeps": 1_600, "testing": 1_750, "training": 3_163, "utils": 1_187,
}  # fmt: skip


def test_rooms_keep_their_budgets() -> None:
    """And so do plugins and tests."""
    lines: Counter[str] = Counter()
    for module in MODULES.values():
        lines[module.room if (ROOT / CORE / module.room).is_dir() else "beside"] += module.lines
    assert {room: count for room, count in lines.items() if count > BUDGETS[room]} == {}
    for folder, most in (("plugins", 17_812), ("tests", 39_807), ("scripts", 6_489)):
        assert sum(len(path.read_text("utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")) <= most, folder


@pytest.mark.parametrize("name", MODULES)
def test_no_module_is_long(name: str) -> None:
    """Of core."""
    assert MODULES[name].lines <= 500


def test_no_test_file_is_long() -> None:
    """A test file is read, too."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "tests").rglob("*.py")
    }
    assert {path: lines for path, lines in lengths.items() if lines > 500} == {}


@pytest.mark.parametrize("name", ROOMS)
def test_room_says_what_is_public(name: str) -> None:
    """Its ``__init__`` has a docstring and ``__all__``, sorted, and every name in it can be imported."""
    room = ROOMS[name]
    assert len(ast.get_docstring(room.tree) or "") > 60
    names = room.public_names
    assert names and len(set(names)) == len(names)
    module = importlib.import_module(name)
    assert [each for each in names if getattr(module, each, None) is None] == []
    with pytest.raises(AttributeError):
        _ = module.no_such_name


def test_few_names_are_public() -> None:
    """At most 350 of core and its rooms together."""
    names = {name for room in ROOMS.values() for name in room.public_names or ()}
    assert 100 < len(names) <= 350


def test_tests_share_by_support_only() -> None:
    """No test module imports another one."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                parts = (node.module or "").split(".")
                assert not any(part.startswith("test_") for part in parts), path
                assert parts[0] != "conftest", path


def test_the_script_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A line per room, and the sums."""
    main(ROOT)
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines[1 : 1 + sum(map(len, FLOORS))]} == {r for floor in FLOORS for r in floor}
    assert "upward imports: 0" in lines
    total = sum(module.lines for module in MODULES.values())
    assert f"{CORE}: {total:,} lines, {len(MODULES)} modules, at most " in "\n".join(lines)
