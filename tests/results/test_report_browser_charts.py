"""Charts, folding and saving on the page of a report, in a real browser."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browsing import MARKS, draw_charts, screen, wait
from support.report_records import SEEDS, published, put, put_all

from seu_bench.results.building import make_leaderboards
from seu_bench.results.formats import to_latex
from seu_bench.results.report import Limits, ReportFiles, write_report

pytestmark = [*MARKS, pytest.mark.long]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    """Two benchmarks, both with figures."""
    results = put_all(tmp_path_factory.mktemp("results"), ["naive", "seu", "joint"])
    for strategy in ("naive", "seu"):
        for seed in (0, 1):
            put(results, published(strategy, seed), run_id=f"{strategy}{seed}", benchmark="second")
    make_leaderboards(results)
    return write_report(results, limits=Limits(figures=11, units=1))


@pytest.fixture(autouse=True)
def driver(chromium: Any, report: ReportFiles) -> Iterator[Any]:
    """The page as it is when it is opened."""
    screen(chromium, 1280)
    chromium.get(report.page.as_uri())
    yield chromium


def figure(driver: Any, kind: str, benchmark: str = "split_digits-v1") -> Any:
    return driver.find_element("id", f"figure-{benchmark}-quick-{kind}")


def shown(driver: Any, chart: Any) -> list[int]:
    """Points of each series that is drawn, by plotly.js itself."""
    script = (
        "return arguments[0].querySelector('.plot').data.map(t => t.visible ? t.y.filter(v => v !== null).length : 0)"
    )
    return list(driver.execute_script(script, chart))


def hovered(driver: Any, chart: Any, series: int, point: int) -> str:
    """What stands beside the pointer when it is upon a point."""
    from selenium.webdriver import ActionChains

    script = (
        "const trace = arguments[0].querySelectorAll('.scatterlayer .trace')[arguments[1]];"
        "return trace.querySelectorAll('.point')[arguments[2]]"
    )
    ActionChains(driver).move_to_element(driver.execute_script(script, chart, series, point)).perform()
    wait(driver, lambda: chart.find_elements("css selector", ".hoverlayer .hovertext"))
    return str(chart.find_element("css selector", ".hoverlayer .hovertext").text)


def legend(chart: Any) -> list[Any]:
    return list(chart.find_elements("css selector", ".legend button"))


def test_hover_shows_values(driver: Any) -> None:
    """Configuration, place, mean and deviation with the unit, and seeds."""
    draw_charts(driver)
    chart = figure(driver, "average-accuracy")
    names = [button.text for button in legend(chart)]
    number = next(place for place, name in enumerate(names) if name.endswith(" naive"))
    found = [100 * float(published("naive", seed).accuracy_matrix[0][0] or 0) for seed in SEEDS]
    text = hovered(driver, chart, number, 0)
    assert names[number] in text and "3 seeds" in text
    assert f"after task 0: {statistics.fmean(found):.1f} ± {statistics.stdev(found):.1f} %" in text
    text = hovered(driver, figure(driver, "accuracy-parameters"), 0, 0)
    assert "million parameters" in text and "%" in text


def test_legend_toggles(driver: Any) -> None:
    """An entry hides its values and shows them again, by mouse and by keyboard; all at once, too."""
    from selenium.webdriver import Keys

    draw_charts(driver)
    chart = figure(driver, "average-accuracy")
    before, (first, second, *_) = shown(driver, chart), legend(chart)
    assert len(before) == len(legend(chart)) == 3 and all(before)
    first.click()
    assert first.get_attribute("aria-pressed") == "false" and shown(driver, chart) == [0, *before[1:]]
    second.send_keys(Keys.SPACE)
    assert shown(driver, chart) == [0, 0, *before[2:]]
    everything = chart.find_element("css selector", ".everything")
    assert everything.text == "Show all"
    everything.click()
    assert shown(driver, chart) == before and first.get_attribute("aria-pressed") == "true"
    everything.click()
    assert shown(driver, chart) == [0] * 3 and everything.text == "Show all"
    assert shown(driver, figure(driver, "average-accuracy", "second-v1")) == [5, 5]  # others stay as they are


def test_choice_of_a_view(driver: Any) -> None:
    """Of a task, or of what is shown of it."""
    draw_charts(driver)
    chart = figure(driver, "accuracy-curves")
    choice = chart.find_element("css selector", "select.view")
    assert shown(driver, chart)[0] == 5
    choice.send_keys("task 3")
    wait(driver, lambda: shown(driver, chart)[0] == 2)
    chart = figure(driver, "original-retained")
    title = "return arguments[0].querySelector('.plot').layout.yaxis.title.text"
    assert driver.execute_script(title, chart) == "forgetting (points)"
    chart.find_element("css selector", "select.view").send_keys("accuracy after")
    wait(driver, lambda: driver.execute_script(title, chart) == "accuracy (%)")


def test_colors_follow(driver: Any) -> None:
    """Of ground, text and lines, without a reload; what is hidden stays so."""
    draw_charts(driver)
    chart = figure(driver, "average-accuracy")
    legend(chart)[0].click()
    script = (
        "const p = arguments[0].querySelector('.plot');"
        "return [p.layout.paper_bgcolor, p.layout.font.color, p.data[1].line.color, p.data[0].visible]"
    )
    light = driver.execute_script(script, chart)
    screen(driver, 1280, "dark")
    wait(driver, lambda: driver.execute_script(script, chart)[0] != light[0])
    dark = driver.execute_script(script, chart)
    assert all(one != other for one, other in zip(light[:3], dark[:3], strict=True))
    assert light[3] is dark[3] is False


def test_still_figure(driver: Any, report: ReportFiles) -> None:
    """The figure of the files, in the chart's place."""
    draw_charts(driver)
    chart = figure(driver, "average-accuracy")
    image, button = (chart.find_element("css selector", name) for name in (".picture img", ".still-button"))
    assert not image.is_displayed()
    button.click()
    assert image.is_displayed() and not chart.find_element("css selector", ".plot").is_displayed()
    button.click()
    assert not image.is_displayed() and chart.find_element("css selector", ".plot").is_displayed()


def saved(driver: Any, link: Any, downloads: Path, name: str) -> bytes:
    """The file that a click saves."""
    (downloads / name).unlink(missing_ok=True)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    wait(driver, lambda: (downloads / name).is_file() and not list(downloads.glob("*.crdownload")))
    return (downloads / name).read_bytes()


def test_tables_are_saved(driver: Any, report: ReportFiles, downloads: Path) -> None:
    """A leaderboard byte by byte as its own file, and for LaTeX."""
    build = make_leaderboards(report.page.parent)
    board = next(board for board in build.boards if board.benchmark == "split_digits")
    group = next(each for each in driver.find_elements("css selector", ".group") if "split_digits" in each.text[:80])
    table, latex = group.find_elements("css selector", ":scope > .saving .save")
    content = saved(driver, table, downloads, f"{board.name}.csv")
    assert content == (report.page.parent / "leaderboards" / f"{board.name}.csv").read_bytes()
    assert saved(driver, latex, downloads, f"{board.name}.tex") == to_latex(board).encode()


def test_figures_are_saved(driver: Any, report: ReportFiles, downloads: Path) -> None:
    """SVG and PDF as their files; PNG in the same size, on white also on a dark screen."""
    from PIL import Image

    screen(driver, 1280, "dark")
    name = "split_digits-v1-quick-average-accuracy"
    links = {link.text: link for link in figure(driver, "average-accuracy").find_elements("css selector", ".save")}
    for form in ("svg", "pdf"):
        content = saved(driver, links[form.upper()], downloads, f"{name}.{form}")
        assert content == (report.page.parent / "figures" / f"{name}.{form}").read_bytes()
    saved(driver, links["PNG"], downloads, f"{name}.png")
    with (
        Image.open(downloads / f"{name}.png") as ours,
        Image.open(report.page.parent / "figures" / f"{name}.png") as file,
    ):
        assert all(abs(one - other) <= 4 for one, other in zip(ours.size, file.size, strict=True))
        colors = ours.convert("L").resize((50, 50)).tobytes()
    assert sum(colors) / len(colors) > 200


def test_sections_fold(driver: Any) -> None:
    """Each by itself, all together, and a link into one that is folded unfolds it."""
    groups = driver.find_elements("css selector", "details.group")
    is_open = lambda: [each.get_property("open") for each in groups]  # noqa: E731
    assert is_open() == [True, True, True, False]
    groups[0].find_element("css selector", "summary").click()
    assert is_open()[0] is False and not driver.find_element("css selector", ".board").is_displayed()
    unfold, fold = driver.find_elements("css selector", "[data-fold]")
    unfold.click()
    assert all(is_open())
    fold.click()
    assert not any(is_open())
    driver.find_element("css selector", "nav a[href='#group-1']").click()
    wait(driver, lambda: is_open() == [False, True, False, False])


def test_figures_without_the_library(driver: Any) -> None:
    """A browser that cannot unpack it shows the figures."""
    source = {"source": "delete window.DecompressionStream"}
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    driver.refresh()
    image = figure(driver, "average-accuracy").find_element("css selector", ".picture img")
    assert image.is_displayed() and not driver.find_element("css selector", ".plot").is_displayed()
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_static_page(driver: Any, tmp_path: Path) -> None:
    """It has figures and no library, loads nothing, and says nothing to the console."""
    put_all(tmp_path, ["naive"], [0])
    page = write_report(tmp_path, limits=Limits(figures=2), is_interactive=False).page
    text = page.read_text(encoding="utf-8")
    assert "plotly" not in text.replace("plotly_", "") and len(text) < 500_000
    driver.get_log("browser"), driver.get_log("performance")
    driver.get(page.as_uri())
    assert all(image.is_displayed() for image in driver.find_elements("css selector", "figure img"))
    assert driver.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
    assert {address for address in asked if not address.startswith("data:")} == {page.as_uri()}
