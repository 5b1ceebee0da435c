"""Factories that a plugin registers import nothing before they are used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seu_bench import LazyFactory
from seu_bench.config.options import Options
from seu_bench.plugin.registration import Deferred


def test_nothing_is_imported_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Summary and options need no import; the first call of build or cost does."""
    (tmp_path / "heavy_half.py").write_text("def build(*given):\n    return given\ndef cost(it):\n    return it + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "heavy_half", raising=False)
    factory = LazyFactory("a summary", options=Options, build="heavy_half:build", cost="heavy_half:cost")
    assert (factory.summary, factory.options, factory.components) == ("a summary", Options, {})
    assert factory.estimate_passes(Options(), None, 100) == (0, 0)
    assert "heavy_half" not in sys.modules
    assert factory.build("options", "task") == ("options", "task") and factory.cost(41) == 42


def test_what_leads_nowhere() -> None:
    """Errors name what is missing, when it is called."""
    for target, kind in {"no_such_module:x": ModuleNotFoundError, "math:no": AttributeError}.items():
        with pytest.raises(kind, match="no"):
            Deferred(target)()
