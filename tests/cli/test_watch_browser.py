"""The page of ``seu-bench watch`` in a real browser: it loads itself again, with scripts and without."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browsing import MARKS, browser
from support.browsing import screen as sized
from support.locks import locked
from support.sweeping import within
from support.watched import EVIL, put_plan, put_run

from seu_bench.cli.watch.page import watch_page
from seu_bench.cli.watch.view import Watcher
from seu_bench.results.record import record_path
from seu_bench.utils.files import write_atomic

pytestmark = [*MARKS, pytest.mark.long]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("downloads")) as found:
        yield found


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Runs in every state, one whose names are markup, and a sweep."""
    put_plan(tmp_path, range(9))
    for seed in range(3):
        put_run(tmp_path, seed, "finished")
    put_run(tmp_path, 3, "failed", {"request": {"strategy": "naive", "options": {"a" * 90: 1}}}, error="why " * 30)
    put_run(tmp_path, 4, "failed", error=EVIL, strategy=EVIL)
    put_run(tmp_path, 5, "running", {"stage": "training"})
    return tmp_path


@pytest.fixture
def write(results: Path) -> Callable[[float | None], Path]:
    """Write the page as it is while the run of seed 5 lives; its file."""
    watcher, folder = Watcher(results), record_path(results, "cifar10-quick-naive-seed5-0123456789").parent

    def call(every: float | None = 1.0) -> Path:
        with locked(folder):
            view = watcher.look()
        write_atomic(results / "watch.html", watch_page(view, every))
        return results / "watch.html"

    return call


def screen(driver: Any, width: int, scheme: str = "light", *, scripts: bool = True) -> None:
    sized(driver, width, scheme)
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})


def text(driver: Any) -> str:
    """What is on the page now; empty while it is being loaded."""
    from selenium.common.exceptions import WebDriverException

    try:
        return str(driver.find_element("tag name", "main").text)
    except WebDriverException:
        return ""


@pytest.mark.parametrize("scripts", [True, False], ids=["with-scripts", "without-scripts"])
def test_shows_the_new_state(driver: Any, results: Path, write: Callable[..., Path], scripts: bool) -> None:
    """Opened once, it follows the file; the last one stays."""
    screen(driver, 1280, scripts=scripts)
    driver.get(write().as_uri())
    assert within(20, lambda: "epoch 3 of 8" in text(driver))
    assert "75%, 1:15 left" in text(driver) and "6 runs: 1 running, 2 failed, 3 finished" in text(driver)
    put_run(results, 5, "running", {"epoch": 6})
    write()
    assert within(20, lambda: "epoch 7 of 8" in text(driver))
    put_run(results, 6, "finished")
    write(None)
    assert within(20, lambda: "This page is final" in text(driver) and "7 runs" in text(driver))


def test_held(driver: Any, results: Path, write: Callable[..., Path]) -> None:
    """A reader may hold it, e.g. to copy a command, and let it go again."""
    screen(driver, 1280)
    driver.get(write(1.0).as_uri())
    button = driver.find_element("tag name", "button")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    put_run(results, 5, "running", {"epoch": 6})
    write(1.0)
    assert not within(1.5, lambda: "epoch 7 of 8" in text(driver))
    button.click()
    assert within(20, lambda: "epoch 7 of 8" in text(driver))


def test_asks_nobody(driver: Any, write: Callable[..., Path]) -> None:
    """No message in the console, and no request but for the file itself."""
    screen(driver, 1280)
    driver.get_log("browser"), driver.get_log("performance")
    page = write(60.0)
    driver.get(page.as_uri())
    assert driver.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert {address for address in asked if not address.startswith("data:")} == {page.as_uri()}


def test_names_are_text(driver: Any, write: Callable[..., Path]) -> None:
    screen(driver, 1280)
    driver.get(write(60.0).as_uri())
    assert text(driver).count("[red]x[/red]<script>alert(1)</script>") == 2
    assert driver.execute_script("return document.scripts.length") == 1


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screens(driver: Any, write: Callable[..., Path], width: int, scheme: str) -> None:
    """No wider than the screen; every text is darker or lighter than its ground by 4.5 to 1, as WCAG asks for."""
    screen(driver, width, scheme)
    driver.get(write(60.0).as_uri())
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    script = """
    const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map((v) => v / 255)
      .map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
    const ground = light(getComputedStyle(document.body).backgroundColor);
    return [ground, ...[...document.querySelectorAll('main *')].map((e) => {
      const text = light(getComputedStyle(e).color);
      return (Math.max(text, ground) + .05) / (Math.min(text, ground) + .05); })];
    """
    ground, *contrasts = driver.execute_script(script)
    assert (ground < 0.1) == (scheme == "dark")
    assert len(contrasts) > 30 and min(contrasts) >= 4.5


def test_said_to_who_hears_it(driver: Any, write: Callable[..., Path]) -> None:
    """Bars have names, the box that scrolls can be reached, and headings go down by one."""
    screen(driver, 390)
    driver.get(write(60.0).as_uri())
    names = [bar.get_attribute("aria-label") for bar in driver.find_elements("tag name", "progress")]
    assert len(names) == 2 and all(names)
    levels = [int(found.tag_name[1]) for found in driver.find_elements("css selector", "h1, h2, h3")]
    assert levels[0] == 1 and all(below - above <= 1 for above, below in itertools.pairwise(levels))
    box = driver.find_element("css selector", ".scroll")
    assert (box.get_attribute("tabindex"), box.get_attribute("role")) == ("0", "region")
    assert driver.find_element("tag name", "html").get_attribute("lang") == "en" and driver.title
