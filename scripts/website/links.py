"""Links of a site that was built: those that lead to no file or to no place within a page."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """Collects what a page links to and shows, and the places within it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            if value and name in ("id", "name"):
                self.places.add(value)


@cache
def _read(page: Path) -> _Page:
    parser = _Page()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def broken_links(site: Path) -> list[str]:
    """Find links that lead nowhere; those to other hosts are not followed.

    Args:
        site: folder of one version.

    Returns:
        One line for each: page, link, reason.
    """
    _read.cache_clear()
    faults = []
    for page in sorted(site.rglob("*.html")):
        for link in dict.fromkeys(_read(page).links):
            if reason := _fault(page, link, site):
                faults.append(f"{page.relative_to(site)}: {link}: {reason}")
    return faults


def _fault(page: Path, link: str, site: Path) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or parts.path.endswith("versions.js"):
        return ""
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target = target / "index.html"
    if site.resolve() not in target.resolve().parents:
        return "leads out of the site"
    if not target.exists():
        return "no such file"
    place = unquote(parts.fragment)
    if place and target.suffix == ".html" and place not in _read(target).places:
        return "no such place in that page"
    return ""
