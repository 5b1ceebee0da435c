"""Pages of the repository as sources of a site: copied, with links that lead to pages of the site.

The repository's own pages are written for a forge, where links lead to files and folders. On the site a linked page
is a page, and a linked file or folder of the source becomes a page that shows it, so that nothing leads out of the site
and all of it can be read offline.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: Pages that nothing needs to link to.
FIRST: Final = ("README.md", "docs/README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
_LINK: Final = re.compile(r"(?<=\]\()(?P<place>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
_FENCED: Final = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_MARKER: Final = re.compile(r"^<!-- include: .*-->\n", re.MULTILINE)
#: Languages of sources that a page shows; other files are named alone.
_LANGUAGES: Final = {".py": "python", ".toml": "toml", ".md": "markdown", ".cfg": "ini", "": "text", ".cff": "yaml"}
#: Begins a page that no table of contents lists.
_UNLISTED: Final = "---\norphan: true\n---\n\n"
#: Of a folder with more files their names are listed.
_MOST_SHOWN: Final = 40
_SHOWN_AS_FILES: Final = frozenset({".png", ".svg", ".json", ".lock", ".ipynb"})


class Site:
    """Sources of the site, and what has been put there.

    Args:
        folder: an empty folder for the sources.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: set[Path] = set()

    def stage(self) -> None:
        """Copy the pages that can be reached, and what they show."""
        waiting = [ROOT / name for name in FIRST]
        while waiting:
            page = waiting.pop()
            if page not in self._made:
                self._made.add(page)
                waiting += self._page(page)

    def _page(self, page: Path) -> Iterator[Path]:
        """Write a page of the site; yield the pages that it links to."""
        text = _MARKER.sub("", page.read_text(encoding="utf-8"))
        target = self.folder / page.relative_to(ROOT)
        linked: list[Path] = []

        def link(found: re.Match[str]) -> str:
            place, anchor = found["place"], found["anchor"] or ""
            if "://" in place or place.startswith("mailto:"):
                return found[0]
            file = (page.parent / place).resolve()
            if file.is_dir() and (file / "README.md").exists():
                file = file / "README.md"
            if file.suffix == ".md":
                linked.append(file)
                shown = self.folder / file.relative_to(ROOT)
            elif file.suffix in _SHOWN_AS_FILES:
                shown = self._file(file)
            else:
                shown = self._source(file)
            return os.path.relpath(shown, target.parent) + anchor

        written = _outside_code(text, link)
        if page.is_relative_to(ROOT / "examples"):
            written = _UNLISTED + written
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(written, encoding="utf-8")
        yield from linked

    def _file(self, file: Path) -> Path:
        target = self.folder / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        return target

    def _source(self, place: Path) -> Path:
        """Write the page that shows a source file, or all of a folder."""
        name = place.relative_to(ROOT).as_posix()
        target = self.folder / "source" / f"{name}.md"
        if place not in self._made:
            self._made.add(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            files = sorted(_sources(place)) if place.is_dir() else [place]
            parts = [_shown(file, place, with_text=len(files) <= _MOST_SHOWN) for file in files]
            target.write_text(f"{_UNLISTED}# `{name}`\n\n" + "\n".join(parts), encoding="utf-8")
        return target


def _outside_code(text: str, link: Callable[[re.Match[str]], str]) -> str:
    """Replace links everywhere but in code."""
    parts, end = [], 0
    for code in _FENCED.finditer(text):
        parts += [_LINK.sub(link, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(link, text[end:])])


def _sources(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.is_file() and not any(part.startswith((".", "__pycache__")) for part in file.relative_to(folder).parts):
            yield file


def _shown(file: Path, within: Path, *, with_text: bool) -> str:
    heading = "" if file == within else f"## `{file.relative_to(within).as_posix()}`\n\n"
    if not with_text:
        return f"- `{file.relative_to(within).as_posix()}`"
    if (language := _LANGUAGES.get(file.suffix)) is None:
        return heading
    # Longer than any fence that a page within has.
    return f"{heading}``````{language}\n{file.read_text(encoding='utf-8')}``````\n"
