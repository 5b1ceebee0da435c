"""``python scripts/release_notes.py [VERSION]``: the section of a version in CHANGELOG.md, as the text of a release.

The version is by default that of the package. Links to files of the repository are made absolute where ``--base`` says
where it is published.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def notes(changelog: str, version: str, base: str | None = None) -> str:
    """The text below the heading of a version.

    Args:
        changelog: in the format of Keep a Changelog.
        version: such as ``0.1.0``.
        base: address of the repository's files, such as ``https://example.org/seu-bench/blob/v0.1.0``.

    Raises:
        ValueError: the changelog has no such version, or says nothing of it.
    """
    sections = re.split(r"^## \[([^\]]+)\].*$", changelog, flags=re.MULTILINE)
    known = dict(zip(sections[1::2], sections[2::2], strict=True))
    if version not in known:
        raise ValueError(f"CHANGELOG.md has no section for {version}; it has {', '.join(known) or 'none'}")
    text = known[version].strip()
    if not text:
        raise ValueError(f"CHANGELOG.md says nothing of {version}")
    if base is not None:
        text = re.sub(r"\]\((?![a-z]+://|#)([^)]+)\)", rf"]({base.rstrip('/')}/\1)", text)
    return text + "\n"


def main() -> int:
    """Print the notes; 1 if there are none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?", help="default: that of the package")
    parser.add_argument("--base", help="address of the repository's files")
    given = parser.parse_args()
    version = given.version
    if version is None:
        sys.path.insert(0, str(ROOT))
        from seu_bench._version import __version__ as version
    try:
        print(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version, given.base), end="")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
