"""Rooms whose names are imported when they are first asked for."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FILES = {
    "__init__": "from typing import TYPE_CHECKING\n"
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
}


def test_names_are_imported_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each from its own module and no other; those that are not public, or are nowhere, are no attributes."""
    for name, text in FILES.items():
        path = (tmp_path / "a_room" / name).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    package = importlib.import_module("a_room")
    assert {name for name in sys.modules if name.startswith("a_room")} == {"a_room"}
    assert (package.one, package.two, package.eager) == (1, 2, 3)
    assert "a_room.inner" not in sys.modules
    assert package.deep == "deep"
    for name in ("hidden", "nowhere", "no_such_name", "_private"):
        with pytest.raises(AttributeError, match=f"module 'a_room' has no attribute '{name}'"):
            getattr(package, name)
    assert {"deep", "eager", "one", "two"} <= {*dir(package)}
