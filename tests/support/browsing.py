"""Chromium for the tests of pages: started, sized, light or dark, and waited for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")

#: For modules of such tests.
MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(
        BROWSER is None or DRIVER is None,
        reason="no chromium and chromedriver on the path (Debian: apt-get install chromium chromium-driver)",
    ),
]


@contextmanager
def browser(downloads: Path) -> Iterator[Any]:
    """A headless Chromium that notes its console and its requests, and saves into a folder."""
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    # Its sandbox needs more than a container or root has; the page is our own.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER), log_output=os.devnull))
    driver.set_script_timeout(300)
    try:
        yield driver
    finally:
        driver.quit()


def screen(driver: Any, width: int, scheme: str = "light") -> None:
    """Set width in pixels and colours."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    # Scrolling at once: a button that still moves cannot be clicked.
    features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    wanted = [{"name": name, "value": value} for name, value in features.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": wanted})


def wait(driver: Any, holds: Callable[[], object], seconds: int = 120) -> None:
    """Wait until something holds; fail where it does not in time, which is long for a busy machine."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(driver, seconds, poll_frequency=0.1).until(lambda _: holds())


def draw_charts(driver: Any) -> int:
    """Bring every chart that can be seen into sight, and wait until all are drawn; how many there are."""
    figures = [each for each in driver.find_elements("css selector", "figure") if each.is_displayed()]
    for figure in figures:
        driver.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", figure)
        wait(
            driver,
            lambda figure=figure: driver.execute_script(  # type: ignore[misc]
                "return arguments[0].querySelector('.plot .main-svg .cartesianlayer') !== null", figure
            ),
        )
    return len(figures)
