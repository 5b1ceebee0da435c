"""Drawn figures as files: PDF, SVG and PNG of one drawing, the same bytes whenever the records are the same.

A paper takes the PDF: lines are vectors, and fonts are embedded as TrueType (Type 42), since publishers refuse Type 3.
In the SVG texts stay texts, which can be read aloud, searched and edited; title and description say what is shown.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from xml.sax.saxutils import escape

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from seu_bench.results.report.canvas import DARK, Picture
from seu_bench.results.report.layout import PAGE, PAPER, Layout, adapt_texts, settings
from seu_bench.utils.text import printable

#: Dots per inch of PNG files, which is what journals ask for, and of the page's pixels.
PNG_DPI, PAGE_DPI = 300, 96
#: Formats of files, in the order in which they are named.
FORMATS: Final = ("pdf", "svg", "png")
#: Families of a font in an SVG.
_FAMILIES: Final = re.compile(r"font-family: '[^';\"]+'(?:, '[^';\"]+')*(?=[;\"])")


@dataclass(frozen=True)
class RenderedFigure:
    """A figure in every format, and what it shows in words.

    Attributes:
        name: beginning of the names of its files: group and kind.
        title: one line.
        caption: what is drawn, of how many seeds, and how to read it.
        alt: what it shows in words and numbers, for who cannot see it.
        inches: width and height.
        svg: on white, UTF-8; texts are texts.
        pdf: one page without a background; fonts are embedded as TrueType.
        png: on white, 300 dots per inch.
    """

    name: str
    title: str
    caption: str
    alt: str
    inches: tuple[float, float]
    svg: bytes
    pdf: bytes
    png: bytes

    @property
    def files(self) -> Mapping[str, bytes]:
        """Contents by name of the file, ``svg``, ``pdf`` and ``png``."""
        return {f"{self.name}.{form}": getattr(self, form) for form in FORMATS}

    @property
    def width(self) -> int:
        """Pixels on a page."""
        return round(self.inches[0] * PAGE_DPI)

    @property
    def height(self) -> int:
        """Pixels on a page."""
        return round(self.inches[1] * PAGE_DPI)

    @cached_property
    def src(self) -> str:
        """The SVG as an address for a page: light or dark as the reader's system is."""
        return "data:image/svg+xml;base64," + base64.b64encode(themed(self.svg.decode()).encode()).decode()


def render(name: str, picture: Picture, layout: Layout = PAGE) -> RenderedFigure:
    """Draw a picture, and write it in every format.

    Args:
        name: beginning of the names of its files.
        picture: what to draw.
        layout: width and font.

    Returns:
        All formats of one drawing.
    """
    title, caption, alt = map(printable, (picture.heading, picture.caption, picture.alt))
    with settings(layout):
        figure = picture.draw(layout)
        adapt_texts(figure, layout)
        _place(figure)
        contents = to_svg(figure, title, alt).encode(), to_pdf(figure, title, caption), to_png(figure)
    width, height = map(float, figure.get_size_inches())
    return RenderedFigure(name, title, caption, alt, (width, height), *contents)


def to_png(figure: Figure) -> bytes:
    """Render the figure on white."""
    _place(figure)
    figure.set_facecolor(PAPER)
    figure.set_dpi(PNG_DPI)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def to_pdf(figure: Figure, title: str = "", subject: str = "") -> bytes:
    """Render the figure as a page of its size, without a background; title and subject are the document's."""
    _place(figure)
    figure.set_facecolor("none")
    buffer = io.BytesIO()
    # Who made it, by which version and when would be other bytes each time.
    known = {"Title": title or None, "Subject": subject or None, "Creator": None, "Producer": None}
    FigureCanvasPdf(figure).print_pdf(buffer, metadata=known | {"CreationDate": None})  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def to_svg(figure: Figure, title: str = "", description: str = "") -> str:
    """Render the figure on white. It loads nothing."""
    _place(figure)
    figure.set_facecolor(PAPER)
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(buffer, metadata=nothing)  # type: ignore[no-untyped-call]
    text = buffer.getvalue()
    head, _, rest = text[text.index("<svg") :].partition(">")
    # Texts stay texts; a program that has not this font takes another one.
    rest = _FAMILIES.sub(lambda found: f"{found[0]}, {'serif' if 'Serif' in found[0] else 'sans-serif'}", rest)
    words = {"title": title, "desc": description}
    said = "".join(f"\n <{tag}>{escape(printable(text))}</{tag}>" for tag, text in words.items() if text)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head} role="img">{said}{rest}'


def themed(svg: str) -> str:
    """The SVG of :func:`to_svg` in the colours of the reader's system, light or dark."""
    rules = [f"svg{{background:{DARK[PAPER]}}}"]
    for light, dark in DARK.items():
        rules += [f'[style*="{part}: {light}"]{{{part}:{dark} !important}}' for part in ("fill", "stroke")]
    theme = f"svg{{background:{PAPER}}}@media (prefers-color-scheme:dark){{{''.join(rules)}}}"
    start = svg.index("<svg")
    head, _, rest = svg[start:].partition(">")
    return f"{svg[:start]}{head}>\n<style>{theme}</style>{rest}"


def _place(figure: Figure) -> None:
    """Find the places of everything, once: ``savefig`` would do it twice for each file, in most of its time."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
