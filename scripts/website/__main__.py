"""Build the site: ``python -m scripts.website [--output FOLDER] [--notebooks]``; offline, a page for each version.

FOLDER/VERSION/ is what was built, FOLDER/index.html leads to the newest version, and FOLDER/versions.js lets readers
change between those that were built into the same folder. All of it is plain files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from packaging.version import Version
from sphinx.cmd.build import build_main

from scripts.website.links import broken_links
from scripts.website.reference import write_reference
from scripts.website.registered import write_registered
from scripts.website.staging import ROOT, Site
from seu_bench import __version__

_LEAD: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>seu-bench</title>
<meta http-equiv="refresh" content="0; url={version}/index.html"><a href="{version}/index.html">seu-bench {version}</a>
</html>
"""


def build(output: Path, *, notebooks: bool) -> list[str]:
    """Build the present version into a folder.

    Args:
        output: folder of the site; versions that are there stay.
        notebooks: run them, which takes minutes; otherwise they are shown without outputs.

    Returns:
        Faults: links that lead nowhere. Warnings of Sphinx are faults as well, which end the process.

    Raises:
        SystemExit: Sphinx refused something; it has said what.
    """
    with tempfile.TemporaryDirectory() as made:
        sources, built = Path(made) / "sources", Path(made) / "html"
        sources.mkdir()
        Site(sources).stage()
        write_reference(sources)
        write_registered(sources)
        executed = "force" if notebooks else "off"
        arguments = [
            "-q",
            "-W",
            "--keep-going",
            "-c",
            str(Path(__file__).parent),
            "-D",
            f"nb_execution_mode={executed}",
        ]
        if status := build_main([*arguments, str(sources), str(built)]):
            raise SystemExit(status)
        shutil.rmtree(built / ".doctrees", ignore_errors=True)
        target = output / __version__
        shutil.rmtree(target, ignore_errors=True)
        output.mkdir(parents=True, exist_ok=True)
        shutil.move(built, target)
    write_versions(output)
    return broken_links(target)


def write_versions(output: Path) -> None:
    """Write what leads to the versions that are in a folder."""
    versions = sorted((path.parent.name for path in output.glob("*/index.html")), key=Version, reverse=True)
    (output / "versions.js").write_text(f"window.VERSIONS = {json.dumps(versions)};\n", encoding="utf-8")
    (output / "index.html").write_text(_LEAD.format(version=versions[0]), encoding="utf-8")


def main() -> None:
    """Build, and say where it lies."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--notebooks", action="store_true", help="run the notebooks, minutes")
    asked = parser.parse_args()
    faults = build(asked.output, notebooks=asked.notebooks)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        raise SystemExit(1)
    print(f"open {asked.output / 'index.html'}")


if __name__ == "__main__":
    main()
