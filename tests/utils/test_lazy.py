"""Rooms whose names are imported when they are first asked for."""

from __future__ import annotations

import importlib
import pydoc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FILES = {
    "__init__": '"""A room."""\n'
    "from typing import TYPE_CHECKING\n"
    "from seu_bench.utils.lazy import attach\n"
    "if TYPE_CHECKING:\n"
    "    from a_room.inner.deep import deep\n"
    "    from .shallow import hidden, one, two\n"
    "eager = 3\n"
    '__all__ = ["deep", "eager", "nowhere", "one", "two"]\n'
    "__getattr__, __dir__ = attach(__name__)\n",
    "shallow": "hidden, one, two = 0, 1, 2\n",
    "inner/__init__": "",
    "inner/deep": "deep = 'deep'\n",
    "broken": "import no_such_package\n",
}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package that can be imported during the test."""
    for name, text in FILES.items():
        path = (tmp_path / "a_room" / name).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield "a_room"
    for module in [name for name in sys.modules if name.startswith("a_room")]:
        del sys.modules[module]


def test_names_are_imported_when_asked_for(room: str) -> None:
    """Each from its own module and no other; those that are not public, or are nowhere, are no attributes."""
    package = importlib.import_module(room)
    assert {name for name in sys.modules if name.startswith(room)} == {room}
    assert (package.one, package.two, package.eager) == (1, 2, 3)
    assert "a_room.inner" not in sys.modules
    assert package.deep == "deep"
    for name in ("hidden", "nowhere", "no_such_name", "_private"):
        with pytest.raises(AttributeError, match=f"module 'a_room' has no attribute '{name}'"):
            getattr(package, name)


def test_modules_are_attributes(room: str) -> None:
    """Without an import by whoever asks; one that is broken says why, and stops neither ``dir`` nor ``help``."""
    package = importlib.import_module(room)
    assert package.shallow is importlib.import_module("a_room.shallow")
    with pytest.raises(AttributeError, match=r"no attribute 'broken': No module named 'no_such_package'"):
        _ = package.broken
    assert {"__doc__", "broken", "deep", "eager", "inner", "one", "shallow", "two"} <= {*dir(package)}
    assert "A room." in pydoc.plain(pydoc.render_doc(package))
