"""How wide figures are and which font they have: for a page, or for the column of a paper.

For a paper a figure has exactly the width of the column, so that it is included without scaling, and its text is 7 to 8
points as printed.
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.text import Text

from seu_bench.utils.text import printable

INK, MUTED, FAINT, PAPER = "#1b1f24", "#69737d", "#d4d9de", "#ffffff"

#: Widths in inches, as the authors' instructions have them; ``-wide`` is of figures across both columns.
COLUMNS: Final = {
    "acl": 7.7 / 2.54,
    "acl-wide": 16 / 2.54,
    "cvpr": 3.25,
    "cvpr-wide": 6.875,
    "iclr": 5.5,
    "icml": 3.25,
    "icml-wide": 6.75,
    "ieee": 3.5,
    "ieee-wide": 7.16,
    "jmlr": 6.0,
    "neurips": 5.5,
}
#: Inches that a figure may be wide.
NARROWEST, WIDEST = 2.5, 20.0
#: Families by the name of a font, the first that has a letter. All come with matplotlib.
FONTS: Final = {
    "sans": ("DejaVu Sans",),
    "serif": ("STIXGeneral", "DejaVu Serif", "DejaVu Sans"),
    "cmr": ("cmr10", "DejaVu Serif", "DejaVu Sans"),
}
#: Letters at whose places Computer Modern has others, and what looks like them in the next family.
_COMPUTER_MODERN: Final = str.maketrans('_<>\\{}|"', "\u02cd\u2039\u203a\u2216\u2774\u2775\u2223\u201d")
_UNITS: Final = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}  # a point of TeX's, as \columnwidth is in
#: Panels shrink to this share of their width on a page before fewer stand in a row.
_SHRINK: Final = 0.62


@dataclass(frozen=True)
class Layout:
    """Width and font of figures.

    Args:
        width: of every figure in inches, ``None``: each is as wide as its panels need on a page.
        families: of the font, the first that has a letter.

    Example:
        >>> Layout.of("8.25cm", "serif").families
        ('STIXGeneral', 'DejaVu Serif', 'DejaVu Sans')
    """

    width: float | None = None
    families: tuple[str, ...] = FONTS["sans"]

    @classmethod
    def of(cls, width: str | None = None, font: str = "sans") -> Layout:
        """Layout of a column's width and a font in words.

        Args:
            width: a length or a name, as :func:`column_width` has them; ``None``: for a page.
            font: a name, as :func:`font_families` has them.

        Raises:
            ValueError: figures cannot be that wide, or there is no such font.
        """
        return cls(None if width is None else column_width(width), font_families(font))

    def panels(self, columns: int, size: tuple[float, float], *, keep: bool = False) -> tuple[int, float, float]:
        """Columns, and width and height of a panel in inches, for what would be ``columns`` of ``size`` on a page.

        ``keep``: not fewer columns.
        """
        if self.width is None:
            return columns, *size
        fitting = max(1, int(self.width / (_SHRINK * size[0])))
        columns = columns if keep else min(columns, fitting)
        width = self.width / columns
        # Labels stay as large as they are: heights shrink less than widths.
        return columns, width, max(1.0, size[1] * min(1.0, width / size[0]) ** 0.6)


#: For the report's page.
PAGE: Final = Layout()


def column_width(text: str) -> float:
    """Parse the width of a column.

    Args:
        text: a length such as ``3.25in``, ``8.25cm``, ``82mm`` or ``234pt`` (TeX's), or a name of :data:`COLUMNS`.

    Returns:
        Inches.

    Raises:
        ValueError: it is none, or figures cannot be that wide.

    Example:
        >>> column_width("icml"), round(column_width("8.25cm"), 3)
        (3.25, 3.248)
    """
    if text.lower() in COLUMNS:
        return COLUMNS[text.lower()]
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{0,20})?)\s*(in|cm|mm|pt)", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        known = ", ".join(COLUMNS)
        raise ValueError(f"{text!r} is no width; give one such as 3.25in, 8.25cm, 82mm or 234pt, or one of {known}")
    inches = float(match[1]) * _UNITS[match[2].lower()]
    if not NARROWEST <= inches <= WIDEST:
        raise ValueError(f"{text} is {inches:.2f} inches; figures are {NARROWEST:g} to {WIDEST:g} inches wide")
    return inches


def font_families(name: str) -> tuple[str, ...]:
    """Families of a font.

    Args:
        name: ``sans``, ``serif``, ``cmr`` (Computer Modern), or the family of a TrueType font that is installed, such
            as ``Times New Roman``.

    Returns:
        The family, and one that has the letters which it lacks.

    Raises:
        ValueError: there is no such font, or it is no TrueType font, which alone can be embedded as one.
    """
    from matplotlib import font_manager  # looks for fonts when it is imported first

    if name.lower() in FONTS:
        return FONTS[name.lower()]
    entries = font_manager.fontManager.ttflist
    found = [entry for entry in entries if entry.name.lower() == name.strip().lower()]
    usable = {entry.name for entry in found if entry.fname.lower().endswith(".ttf")}
    if usable:
        return usable.pop(), FONTS["sans"][0]
    if found:
        raise ValueError(f"the font {printable(name)!r} is no TrueType font (.ttf), and cannot be embedded as one")
    some = ", ".join(sorted({entry.name for entry in entries if entry.fname.lower().endswith(".ttf")})[:40])
    raise ValueError(f"there is no font {printable(name)!r}; give {', '.join(FONTS)}, or an installed one: {some}")


def _settings(layout: Layout) -> dict[str, Any]:
    """Settings of matplotlib; sizes are those on a page, or in print."""
    print_ = layout.width is not None
    title, label, tick, legend = (8, 8, 7, 7) if print_ else (9.5, 9, 8, 8.5)
    line, marker, thin, pad = (1.2, 4.5, 0.6, 0.035) if print_ else (1.8, 6.5, 0.8, 0.07)
    return {
        "font.family": list(layout.families),
        "font.size": label,
        "axes.titleweight": "bold",
        "axes.titlesize": title,
        "axes.labelsize": label,
        "axes.linewidth": thin,
        "axes.grid": True,
        "axes.axisbelow": True,
        # Computer Modern has no minus sign among its letters.
        "axes.unicode_minus": layout.families[0] != "cmr10",
        "grid.color": FAINT,
        "grid.linewidth": 0.75 * thin,
        "lines.linewidth": line,
        "lines.markersize": marker,
        "legend.frameon": False,
        "legend.fontsize": legend,
        "hatch.linewidth": thin,
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), tick),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
        **dict.fromkeys(("figure.constrained_layout.w_pad", "figure.constrained_layout.h_pad"), pad),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
        **dict.fromkeys(("text.color", "axes.titlecolor", "axes.labelcolor", "legend.labelcolor"), INK),
        **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), INK),
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
        # Names come from records: a dollar sign in one is no formula.
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "seu-bench",
        "pdf.fonttype": 42,  # TrueType; publishers refuse Type 3, matplotlib's own choice
    }


def adapt_texts(figure: Figure, layout: Layout) -> None:
    """Adapt texts to the layout's font.

    Computer Modern has other letters at some places: an underscore would be a dot. The lines of STIX are far apart.
    """
    for text in figure.findobj(Text):
        if isinstance(text, Text) and layout.families[0] == "cmr10":
            text.set_text(text.get_text().translate(_COMPUTER_MODERN))
        elif isinstance(text, Text) and layout.families[0] == "STIXGeneral":
            text.set_linespacing(1.0)


@contextlib.contextmanager
def settings(layout: Layout = PAGE) -> Iterator[None]:
    """Apply the report's settings: figures look the same whatever a user has set up."""
    with matplotlib.style.context(_settings(layout), after_reset=True), warnings.catch_warnings():
        # A name may be in letters that the font has not; browsers have others.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # Which reads tick labels as formulas; those of these figures have no minus sign of its own.
        warnings.filterwarnings("ignore", message="cmr10 font should ideally be used with mathtext")
        # That a font is old, or has no bold letters, which its usual ones replace.
        with _quiet("fontTools"), _quiet("matplotlib.font_manager"):
            yield


@contextlib.contextmanager
def _quiet(library: str) -> Iterator[None]:
    """Let a library report errors only."""
    logger = logging.getLogger(library)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
