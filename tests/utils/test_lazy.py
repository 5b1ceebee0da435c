"""Rooms whose names are imported when they are first asked for."""

from __future__ import annotations

import importlib
import itertools
import py_compile
import pydoc
import rlcompleter
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOM = '''"""A room."""
from typing import TYPE_CHECKING
from seu_bench.utils.lazy import attach
if TYPE_CHECKING:
    from a_room.inner.deep import deep
    from .shallow import hidden, one, two
eager = 3
__all__ = ["deep", "eager", "nowhere", "one", "two"]
__getattr__, __dir__ = attach(__name__)
'''
FILES = {
    "__init__": ROOM,
    "shallow": "hidden, one, two = 0, 1, 2\n",
    "inner/__init__": "",
    "inner/deep": "deep = 'deep'\n",
    "broken": "import no_such_package\n",
}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the package ``a_room``, which can be imported during the test."""
    for name, text in FILES.items():
        path = (tmp_path / "a_room" / name).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "a_room"
    for module in [name for name in sys.modules if name.startswith("a_room")]:
        del sys.modules[module]


def test_names_are_imported_when_asked_for(room: Path) -> None:
    """Each from its own module and no other; those that are not public, or are nowhere, are no attributes."""
    package = importlib.import_module("a_room")
    assert {name for name in sys.modules if name.startswith("a_room")} == {"a_room"}
    assert (package.one, package.two, package.eager) == (1, 2, 3)
    assert "a_room.inner" not in sys.modules
    assert package.deep == "deep"
    for name in ("hidden", "nowhere", "no_such_name"):
        with pytest.raises(AttributeError, match=f"module 'a_room' has no attribute '{name}'"):
            getattr(package, name)
    assert [name for name in dir(package) if not name.startswith("__")] == [
        *("broken", "deep", "eager", "inner", "nowhere", "one", "shallow", "two")
    ]
    assert {"__doc__", "__file__", "__name__", "__path__"} <= {*dir(package)}


def test_modules_of_a_room_are_imported_as_ever(room: Path) -> None:
    """``from room import module`` imports a module; one that is broken says why."""
    shallow = importlib.import_module("a_room.shallow")
    assert importlib.import_module("a_room").shallow is shallow
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        importlib.import_module("a_room.broken")


def test_modules_of_a_room_are_there_when_asked_for(room: Path) -> None:
    """As attributes, without an import by whoever asks; one that is broken is none, and says why."""
    package = importlib.import_module("a_room")
    assert "a_room.shallow" not in sys.modules
    assert package.shallow is importlib.import_module("a_room.shallow")
    assert package.inner is importlib.import_module("a_room.inner")
    with pytest.raises(
        AttributeError, match=r"module 'a_room' has no attribute 'broken': No module named 'no_such_pac"
    ):
        _ = package.broken
    assert not hasattr(package, "__main__") and not hasattr(package, "_private")


def test_completion_and_help(room: Path) -> None:
    """What lists a module's names and reads each of them comes through, past one that is broken or nowhere."""
    package = importlib.import_module("a_room")
    completer = rlcompleter.Completer({"a_room": package})
    completed = list(itertools.takewhile(bool, (completer.complete("a_room.", at) for at in range(20))))
    assert {*completed} >= {f"a_room.{name}" for name in ("deep", "eager", "inner", "one", "shallow", "two")}
    text = pydoc.plain(pydoc.render_doc(package))
    assert "A room." in text and "    one = 1\n" in text and "    shallow\n" in text


def test_in_a_zip(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source comes from whatever imports the package."""
    with zipfile.ZipFile(room.parent / "rooms.zip", "w") as file:
        for name, text in FILES.items():
            file.writestr(f"a_room/{name}.py", text)
    room.rename(room.with_name("moved"))
    monkeypatch.syspath_prepend(room.parent / "rooms.zip")
    package = importlib.import_module("a_room")
    assert "rooms.zip" in str(package.__file__)
    assert (package.one, package.deep) == (1, "deep")


def test_without_its_source(room: Path) -> None:
    """A package of compiled modules alone says what it needs."""
    for path in list(room.rglob("*.py")):
        py_compile.compile(str(path), str(path.with_suffix(".pyc")), doraise=True)
        path.unlink()
    package = importlib.import_module("a_room")
    assert package.eager == 3
    with pytest.raises(ImportError, match=r"public names of a_room .* its source, __init__\.py, is missing"):
        _ = package.one
