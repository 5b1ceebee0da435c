"""The library that draws the page's charts: plotly.js, as the package ``plotly`` ships it, packed into the page.

It is compressed, since it would be most of the page otherwise, and unpacked by the page's script when a chart comes
into sight. The page's policy lets nothing run but scripts of a known hash, and this is one of them.
"""

from __future__ import annotations

import base64
import gzip
import re
from importlib.resources import files
from typing import NamedTuple

from seu_bench.errors import ResultsError


class Library(NamedTuple):
    """A script for a page.

    Attributes:
        packed: compressed by gzip, in base64.
        text: what that unpacks to.
        styles: ids of styles that parts of it add unless there are elements with these ids; no chart here needs them.
    """

    packed: str
    text: str
    styles: tuple[str, ...]


def read_library() -> Library:
    """Read plotly.js from the installed package.

    Raises:
        ResultsError: the package has no such file.
    """
    try:
        text = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    except (ImportError, OSError) as error:
        raise ResultsError(
            f"the package plotly, which draws the page's charts, cannot be read: {error}",
            remedy="pip install --force-reinstall plotly, or give --static for a page without charts that answer",
        ) from error
    packed = base64.b64encode(gzip.compress(text, 9, mtime=0)).decode()
    script = text.decode("utf-8")
    return Library(packed, script, tuple(sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', script)))))
