"""Pages of the documentation, as several tests read them."""

from __future__ import annotations

import re

#: A fenced block of code: its language, and the file that it is taken from where one is named above it.
BLOCK = re.compile(
    r"(?:<!-- include: (?P<source>\S+) -->\n)?^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
