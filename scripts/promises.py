"""The tries of the tests that hold the promises of docs/explanation/reliability.md, counted where the tests are.

    python scripts/promises.py            # write the column `tries` of the page's table
    python scripts/promises.py --check    # exit with 1 if it is another one

A parametrised test makes a try for each case. One that tries many things in a case says how many, at least, by the
marker `tries`, and fails if there were fewer.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "explanation" / "reliability.md"
SECTION: Final = "## Promises and their tests"


class Counting:
    """A plugin of pytest that counts the tries of what was collected."""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count each test's cases under `FILE::TEST`, whatever class it is in."""
        for item in session.items:
            marker = item.get_closest_marker("tries")
            name = item.nodeid.partition("[")[0].split("::")
            self.tries[f"{name[0]}::{name[-1]}"] += marker.args[0] if marker else 1


def tests_of(row: str) -> Iterator[str]:
    """Yield `FILE::TEST` for each test that a row of the table names."""
    file = ""
    for named, test in re.findall(r"`(tests/[a-z_/]+\.py)?::([a-z_]+)`", row):
        file = named or file
        yield f"{file}::{test}"


def counted(page: str) -> str:
    """Return the page with the tries of each promise in its row.

    Raises:
        ValueError: A row names a test that pytest does not find.
    """
    before, after = page.split(SECTION)
    rows = [row for row in after.splitlines() if any(tests_of(row))]
    counting = Counting()
    files = sorted({test.partition("::")[0] for row in rows for test in tests_of(row)})
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *files], plugins=[counting])
    if status:
        raise ValueError(f"pytest does not collect the tests\n{said.getvalue()}")
    for row in rows:
        if missing := [test for test in tests_of(row) if test not in counting.tries]:
            raise ValueError(f"no such test: {', '.join(missing)}")
        tries = sum(counting.tries[test] for test in tests_of(row))
        promise, held = row.strip("| ").split(" | ")[:2]
        after = after.replace(row, f"| {promise} | {held} | {tries:,} |")
    return f"{before}{SECTION}{after}"


def main() -> int:
    """Write the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    new = counted(page)
    if "--check" in sys.argv[1:]:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
