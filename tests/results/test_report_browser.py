"""The page in a real browser: charts are drawn and read, tables sort, and axe-core finds no violation (WCAG 2.1 AA)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from support.browsing import MARKS, draw_charts, screen, wait
from support.report_records import HOSTILE, STRATEGIES, published, put, put_all

from seu_bench.results import write_report

pytestmark = [*MARKS, pytest.mark.long]

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


def several(results: Path) -> None:
    """Three benchmarks with ranks, and one with other data."""
    put_all(results)
    for benchmark in ("second", "third"):
        for strategy in STRATEGIES:
            for seed in (0, 1, 2):
                put(results, published(strategy, seed), run_id=f"{benchmark}{strategy}{seed}", benchmark=benchmark)
    put(results, published("naive", 0), run_id="data", data_fingerprint="f" * 64)


def strange(results: Path) -> None:
    """Long names and markup, and what was not measured."""
    names = {"strategy": HOSTILE, "task_names": ["x" * 300] * 5, "options": {"value": "long" * 60, HOSTILE: 1}}
    put(results, published("naive", 0), run_id="a", **names)
    put(results, published("naive", 0), run_id="b", benchmark="b" * 90, protocol="p" * 90, **names)
    put(results, published("seu", 0), run_id="c", metrics={}, params_total=[])
    put(results, published("seu", 0), run_id="d", status="failed", error=HOSTILE)


@pytest.fixture(scope="module", params=[several, strange], ids=lambda make: make.__name__)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp(request.param.__name__)
    request.param(results)
    return write_report(results).page


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two configurations, one of whose names is markup, and a reference."""
    results = put_all(tmp_path_factory.mktemp("curves"), ["naive", "joint"])
    for seed in (0, 1, 2):
        put(results, published("seu", seed), run_id=f"s{seed}", strategy=HOSTILE, options={"x": HOSTILE})
    return write_report(results).page


@pytest.fixture(scope="module")
def axe() -> str:
    pytest.importorskip("selenium_axe_python")
    return (files("selenium_axe_python") / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def driver(chromium: Any) -> Iterator[Any]:
    screen(chromium, 1280)
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


@pytest.mark.parametrize("width", [1400, 390])
def test_no_violation(driver: Any, page: Path, axe: str, width: int) -> None:
    """As it opens, and with everything unfolded and every chart drawn; nothing is wider than the screen."""
    screen(driver, width)
    driver.get(page.as_uri())
    assert violations(driver, axe) == []
    driver.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    draw_charts(driver)
    assert violations(driver, axe) == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_violations_are_seen(driver: Any, curves: Path, axe: str) -> None:
    """So that the tests above can fail."""
    driver.get(curves.as_uri())
    driver.execute_script("document.querySelector('h1').insertAdjacentHTML('afterend', '<button></button>')")
    assert [found.partition(":")[0] for found in violations(driver, axe)] == ["button-name"]


def test_opens_from_disk(driver: Any, curves: Path) -> None:
    """Nothing is asked for but the page itself, nothing of a stranger runs, and the console has no complaint."""
    driver.get_log("performance")
    driver.get_log("browser")
    driver.get(curves.as_uri())
    assert draw_charts(driver) == 3
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = {it["params"]["request"]["url"] for it in events if it["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} <= {curves.as_uri()}
    assert [entry["message"] for entry in driver.get_log("browser")] == []
    assert driver.execute_script("return document.querySelectorAll('img, main script[src]').length") == 0


def test_charts(driver: Any, curves: Path) -> None:
    """plotly shows the values beside the pointer."""
    from selenium.webdriver import ActionChains

    driver.get(curves.as_uri())
    draw_charts(driver)
    figure = driver.find_elements("css selector", "figure")[1]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", figure)
    point = driver.execute_script(
        "return [...arguments[0].querySelectorAll('.scatterlayer .trace .point')].at(-1)", figure
    )
    ActionChains(driver).move_to_element(point).perform()
    wait(driver, lambda: figure.find_elements("css selector", ".hoverlayer .hovertext"))
    assert "±" in figure.find_element("css selector", ".hoverlayer").text
    assert "<script>alert(1)" in figure.find_element("css selector", ".legend").text


def test_tables_sort(driver: Any, curves: Path) -> None:
    """By a click or from the keyboard: numbers as numbers, and said to who cannot see it."""
    driver.get(curves.as_uri())
    table = driver.find_element("css selector", "table:has([data-more])")
    (head,) = [it for it in table.find_elements("css selector", "thead th") if it.text.startswith("acc (%)")]
    column = "return [...arguments[0].tBodies[0].rows].map((row) => parseFloat(row.cells[3].textContent.slice(-13)))"
    button = head.find_element("css selector", "button")
    button.click()
    assert head.get_attribute("aria-sort") == "descending"
    falling = driver.execute_script(column, table)
    button.send_keys("\ue007")
    assert head.get_attribute("aria-sort") == "ascending"
    assert driver.execute_script(column, table) == falling[::-1] and falling == sorted(falling, reverse=True)


def test_columns(driver: Any, curves: Path) -> None:
    """The usual ones fit; others are shown and hidden from the keyboard."""
    screen(driver, 1400)
    driver.get(curves.as_uri())
    frame = driver.find_element("css selector", ".scroll:has([data-more])")
    assert driver.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", frame) == 0
    head = frame.find_element("css selector", "[data-more]")
    driver.find_element("xpath", "//summary[.='Choose columns']").send_keys("\ue007")
    box = driver.find_element("css selector", ".columns input:not(:checked)")
    for is_shown in (False, True, False):
        assert head.is_displayed() is is_shown
        box.send_keys(" ")


def test_saves_csv(driver: Any, curves: Path) -> None:
    """Means and deviations are columns of their own, and no cell is a formula."""
    driver.get(curves.as_uri())
    saved = driver.execute_script("""
    HTMLAnchorElement.prototype.click = function () { window.saved = decodeURIComponent(this.href); };
    const { cells } = document.querySelector('tbody tr');
    [cells[1].textContent, cells[2].textContent] = ['=1+1, "x"', '1,234.5\\u00a0±\\u00a00.1'];
    document.querySelector('.save button').click();
    return window.saved;
    """)
    assert '"acc (%)","acc (%) deviation","not significantly different"' in saved
    assert '"\'=1+1, ""x""",1234.5,0.1,' in saved
