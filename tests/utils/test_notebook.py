"""Tables for notebooks: well-formed, without scripts, every text escaped, no longer than a reader looks at."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from seu_bench.utils.notebook import Shaded, Strong, html_table, matrix_table, values_table


class Tags(HTMLParser):
    """What a page is made of: tags opened and closed in order, attributes, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


ALLOWED = {"div", "p", "strong", "small", "table", "thead", "tbody", "tr", "th", "td"}
EVIL = '<script>alert("1")</script>\x1b[2J & <img src=x onerror=alert(1)>'


def test_texts_are_escaped() -> None:
    """Wherever they stand."""
    page = html_table(EVIL, [EVIL, "n"], [[EVIL, Strong(EVIL)], [Shaded(EVIL, 0.5), None]], [EVIL])
    found = Tags(page)
    assert found.seen <= ALLOWED and found.attributes == {"style"}
    assert found.text.count('<script>alert("1")</script> [2J') == 6 and "\x1b" not in page


def test_long_ones_are_cut() -> None:
    """Rows and letters; the rest is counted."""
    page = html_table("t", ["a"], [["x" * 10_000]] * 250)
    assert "and 150 more" in page and len(page) < 60_000


@pytest.mark.parametrize("share", [-1.0, 0.0, 0.5, 1.0, 7.0])
def test_shades_are_light(share: float) -> None:
    """Ground over ground: letters of a light notebook and of a dark one can be read on it."""
    (alpha,) = [float(part.split(")")[0]) for part in html_table("", ["a"], [[Shaded("x", share)]]).split("160, ")[1:]]
    assert 0 <= alpha <= 0.35


def test_matrix() -> None:
    """In percent; a dash where nothing was measured; no row of tasks that were not learned."""
    found = Tags(matrix_table("t", ["a", "b", "c"], [[0.5], [0.25, 1.0], [None, None, None]]))
    assert [line for line in found.text.splitlines() if line] == [
        *("t", "accuracy (%) after learning", "0", "1", "2"),
        *("0 a", "50.0", "-", "-", "1 b", "25.0", "100.0", "-"),
    ]
    assert "<table>" not in matrix_table("t", [], [])


def test_values() -> None:
    """Whole numbers whole; what was not measured is left out."""
    text = Tags(values_table({"params_total": 1_234_567, "acc": 0.87654321, "fwt": None})).text.split()
    assert text == ["metrics", "metric", "value", "params_total", "1,234,567", "acc", "0.8765"]
