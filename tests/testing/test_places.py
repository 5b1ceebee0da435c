"""Which line of a plugin's own code a failed check points at."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from seu_bench.plugin.registration import deferred
from seu_bench.testing.places import Place, chain, place_defined, place_raised, readable_traceback

PLUGIN = '''"""A plugin."""


def fail(then):
    return then()


def divide():
    1 / 0


def wrapped():
    try:
        divide()
    except ZeroDivisionError as error:
        raise RuntimeError("wrapped") from error


class Made:
    """What is built."""

    @staticmethod
    def build(options):
        return Made()
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The plugin's module, in a folder that is reached by a link, as after an installation in place."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a_plugin.py").write_text(PLUGIN)
    (tmp_path / "real" / "unreadable.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.syspath_prepend(tmp_path / "link")
    yield importlib.import_module("a_plugin")
    del sys.modules["a_plugin"]


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def lead_nowhere() -> None:
    raise LookupError


def test_deepest_line_of_the_plugin(plugin: ModuleType, tmp_path: Path) -> None:
    """Below it may be core or a library; the line is the plugin's, its file where it really lies."""
    place = place_raised(raised(lambda: plugin.fail(lead_nowhere)), {"a_plugin"})
    assert place == Place(str((tmp_path / "real" / "a_plugin.py").resolve()), 5, "fail", "return then()")


def test_first_cause_counts(plugin: ModuleType) -> None:
    """Of a chain of causes, what was raised first is what is to be repaired."""
    error = raised(plugin.wrapped)
    assert [type(each) for each in chain(error)] == [RuntimeError, ZeroDivisionError]
    place = place_raised(error, {"a_plugin"})
    assert place is not None and (place.line, place.function, place.code) == (9, "divide", "1 / 0")


def test_module_that_cannot_be_read(plugin: ModuleType, tmp_path: Path) -> None:
    """A syntax error has a place, too, though nothing of the module ran."""
    place = place_raised(raised(lambda: importlib.import_module("unreadable")), {"unreadable"})
    assert place is not None and (Path(place.file).name, place.line, place.code) == ("unreadable.py", 2, "def f(:")


def test_nothing_of_the_plugin(plugin: ModuleType) -> None:
    """Where none of its code took part there is no place."""
    assert place_raised(raised(lead_nowhere), {"a_plugin"}) is None
    assert place_raised(raised(lambda: plugin.fail(lead_nowhere)), {"another"}) is None


def test_where_it_is_made(plugin: ModuleType) -> None:
    """A class by reference, a method of a factory, and a factory that is somebody else's."""
    factory = type("Factory", (), {"__module__": "elsewhere", "build": deferred("a_plugin:Made")})()
    place = place_defined(factory, {"a_plugin"})
    assert place is not None and (place.line, place.code) == (19, "class Made:")
    place = place_defined(plugin.Made(), {"a_plugin"})
    assert place is not None and place.code == "def build(options):"
    assert place_defined(factory, {"another"}) is None
    lost = type("Factory", (), {"__module__": "elsewhere", "build": deferred("a_plugin.nowhere:Made")})()
    assert place_defined(lost, {"a_plugin"}) is None


def test_shown_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an editor opens it: relative inside the folder, absolute outside."""
    monkeypatch.chdir(tmp_path)
    assert str(Place(str(tmp_path / "a" / "b.py"), 3, "C.f", "x")) == "a/b.py:3, in C.f"
    assert str(Place("/elsewhere/b.py", 3, "", "x")) == "/elsewhere/b.py:3"


def test_traceback_without_the_runner(plugin: ModuleType) -> None:
    """All causes are in it."""
    text = readable_traceback(raised(plugin.wrapped))
    assert text.startswith("Traceback") and "direct cause" in text and "_pytest" not in text
    assert "ZeroDivisionError" in text and text.endswith("RuntimeError: wrapped")
