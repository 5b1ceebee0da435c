"""Pages of a report under axe-core, the rules of WCAG 2.1 AA and best practices: no violation, whatever is on them, on
large and small screens, light and dark, folded and unfolded."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from support.browsing import MARKS, draw_charts, screen
from support.report_records import HOSTILE, STRATEGIES, published, put, put_all, with_curves

from seu_bench.results.report import Limits, write_report

pytestmark = [*MARKS, pytest.mark.long]

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


def several(results: Path) -> None:
    """Three benchmarks with ranks, and a version with other data."""
    put_all(results)
    for benchmark in ("second", "third"):
        for strategy in STRATEGIES:
            for seed in (0, 1, 2):
                put(results, published(strategy, seed), run_id=f"{benchmark}{strategy}{seed}", benchmark=benchmark)
    put(results, published("naive", 0), run_id="data", data_fingerprint="f" * 64)
    put(results, with_curves(published("seu", 0), search=3, training=3))


def one(results: Path) -> None:
    """A single record."""
    put_all(results, ["naive"], [0])


def unranked(results: Path) -> None:
    """Runs that are never ranked, beside one that is."""
    put_all(results, ["seu"], [0])
    for seed in (0, 1):
        put(results, published("naive", seed), run_id=f"smoke{seed}", protocol="smoke", ranked=False)


def nothing(results: Path) -> None:
    """No group at all."""
    put(results, published("naive", 0), status="failed", error=HOSTILE)


def strange(results: Path) -> None:
    """Long names and markup, and what was not measured."""
    names = {"strategy": HOSTILE, "task_names": ["x" * 300] * 5, "options": {"value": "long" * 60, HOSTILE: 1}}
    put(results, published("naive", 0), run_id="a", **names)
    put(results, published("naive", 0), run_id="b", benchmark="b" * 90, protocol="p" * 90, **names)
    put(results, published("seu", 0), run_id="c", metrics={}, params_total=[])
    put(results, published("seu", 0), run_id="d", status="failed", error=HOSTILE)


@pytest.fixture(scope="module", params=[one, several, unranked, nothing, strange], ids=lambda make: make.__name__)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp(request.param.__name__)
    request.param(results)
    figures = Limits(figures=14 if request.param is several else 8, units=1)
    return write_report(results, limits=figures, unranked=request.param is unranked).page


@pytest.fixture(scope="module")
def axe() -> str:
    pytest.importorskip("selenium_axe_python")
    return (files("selenium_axe_python") / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def driver(chromium: Any) -> Iterator[Any]:
    yield chromium
    screen(chromium, 1280)


def violations(driver: Any, axe: str) -> list[str]:
    """Rules that are broken, each with the first element that breaks it."""
    driver.execute_script(axe)
    script = """
    const done = arguments[1];
    axe.run(document, {runOnly: {type: 'tag', values: arguments[0]}, resultTypes: ['violations']})
      .then((found) => done(found.violations.map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 300)}`)));
    """
    return list(driver.execute_async_script(script, TAGS))


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1400, "light"),
        (390, "dark"),
        (390, "light"),
        (1400, "dark"),
    ],
)
def test_no_violation(driver: Any, page: Path, axe: str, width: int, scheme: str) -> None:
    """As it opens, with everything unfolded and every chart drawn, and with everything folded; nothing is wider than
    the screen."""
    screen(driver, width, scheme)
    driver.get(page.as_uri())
    every = "for (const each of document.querySelectorAll('details')) each.open = arguments[0]"
    for is_open in (None, True, False):
        if is_open is not None:
            driver.execute_script(every, is_open)
        if is_open:
            draw_charts(driver)
        assert violations(driver, axe) == []
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_violations_are_seen(driver: Any, page: Path, axe: str) -> None:
    """So that the tests above can fail."""
    screen(driver, 1400)
    driver.get(page.as_uri())
    driver.execute_script("document.querySelector('h1').insertAdjacentHTML('afterend', '<button></button>')")
    assert [found.partition(":")[0] for found in violations(driver, axe)] == ["button-name"]
