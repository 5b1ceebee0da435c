"""python -m scripts.evidence: the pages of docs/evidence that records make, and their figures."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from scripts.evidence import (
    canon,
    contest,
    inheritance,
    months,
    pretrained,
    published,
    reference_numbers,
    scenarios,
    transfer,
    units,
)
from scripts.evidence.evidence import PROTOCOLS
from scripts.evidence.page import CONFIGURATIONS, KINDS, OVER_BENCHMARKS, PAGE, rendered
from scripts.evidence.publish import publish
from scripts.evidence.runs import EVIDENCE
from scripts.evidence.transfer_long import draw, long_run
from seu_bench.results import Layout, write_report


def make_figures() -> None:
    """The report's figures that the page shows, as SVG, which is the smallest, by set."""
    shutil.rmtree(EVIDENCE / "figures", ignore_errors=True)
    for name in PROTOCOLS:
        if not (EVIDENCE / name).is_dir():
            continue
        folder = EVIDENCE / "figures" / name
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as scratch:
            # A report leaves far more figures than the page shows.
            shutil.copytree(EVIDENCE / name, scratch, dirs_exist_ok=True)
            written = write_report(Path(scratch), top=CONFIGURATIONS, layout=Layout())
            for figure in written.figures:
                if figure.suffix == ".svg" and figure.stem.endswith((*KINDS, *OVER_BENCHMARKS)):
                    shutil.copy(figure, folder)


def main() -> None:
    """Make the figures, then the page, which shows those that are there, and the other pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-figures", action="store_true", help="leave the figures as they are")
    parser.add_argument(
        "--publish", type=Path, metavar="FOLDER", help="first replace the published sets by what sweeps finished there"
    )
    given = parser.parse_args()
    if given.publish:
        for name, number in publish(given.publish).items():
            print(f"{name}: {number} records")
    if not given.no_figures:
        make_figures()
        if (run := long_run()) is not None:
            draw(run)
        inheritance.draw()
        months.draw()
        pretrained.draw()
        canon.draw()
        contest.draw()
    PAGE.write_text(rendered(), encoding="utf-8")
    pages = reference_numbers, published, scenarios, transfer, inheritance, units, months, pretrained, canon, contest
    for page in pages:
        page.PAGE.write_text(page.rendered(), encoding="utf-8")
    print(PAGE, *(page.PAGE for page in pages), sep="\n")


if __name__ == "__main__":
    main()
