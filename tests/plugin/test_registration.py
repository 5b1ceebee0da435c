"""Factories that a plugin registers import nothing before they are used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seu_bench import LazyFactory
from seu_bench.config.options import Options
from seu_bench.plugin.registration import deferred

HEAVY = """
class Built:
    def __init__(self, *given):
        self.given = given


def cost(context):
    return context + 1
"""


@pytest.fixture
def heavy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that was not imported yet."""
    (tmp_path / "heavy_half.py").write_text(HEAVY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "heavy_half", raising=False)
    return "heavy_half"


def test_nothing_is_imported_before_it_is_used(heavy: str) -> None:
    """Summary, options and announcements need no import; the first call of build or cost does."""
    factory = LazyFactory("a summary", options=Options, build=f"{heavy}:Built", cost=f"{heavy}:cost")
    assert (factory.summary, factory.options, factory.components, factory.presets) == ("a summary", Options, {}, {})
    assert factory.estimate_passes(Options(), None, 100) == (0, 0)
    assert heavy not in sys.modules
    assert factory.build("options", "task").given == ("options", "task")
    assert heavy in sys.modules
    assert factory.cost(41) == 42


def test_functions_are_taken_as_they_are() -> None:
    factory = LazyFactory("a summary", options=Options, build=lambda context: [context], components={"searcher": "mdl"})
    assert factory.build(3) == [3] and factory.components == {"searcher": "mdl"}


@pytest.mark.parametrize(
    ("reference", "kind"), [("no_such_module:x", ModuleNotFoundError), ("math:no", AttributeError)]
)
def test_references_that_lead_nowhere(reference: str, kind: type[Exception]) -> None:
    """The error names what is missing, when it is called."""
    with pytest.raises(kind, match="no"):
        deferred(reference)()
