"""The README's pictures: what commands show in a terminal, and the report in a browser, of published records.

    python scripts/pictures.py results/published/evidence/quick docs/pictures

Needs Chromium and its driver on the path (Debian: chromium, chromium-driver), and the packages of the tests.
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text
from selenium import webdriver

from seu_bench.results import Record, read_records
from seu_bench.results.record import write_record

#: Columns of the terminal; width and height of the browser's window.
COLUMNS: Final = 104
WINDOW: Final = (1400, 1320)
#: The paper's strategies, of Avalanche's the most accurate ones of both kinds (penalties, replay), and the references.
STRATEGIES: Final = (
    "seu", "naive", "ewc", "ltg", "pnn", "lwf", "si", "replay", "er_ace", "linear", "independent", "joint"
)  # fmt: skip


def is_shown(record: Record, benchmark: str) -> bool:
    """Whether the pictures, which have room for few rows, show a record."""
    is_chosen = record.searcher in (None, "mdl") or (record.searcher, record.creator) == ("random", "all_new")
    return record.benchmark == benchmark and record.strategy in STRATEGIES and is_chosen


def in_a_terminal(command: Sequence[str], folder: Path) -> str:
    """Run a command in a terminal; its output, colours and all."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as process:
        os.close(theirs)
        output = b"".join(_chunks(ours))
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{output.decode(errors='replace')}")
    return output.decode("utf-8").replace("\r\n", "\n")


def _chunks(file: int) -> Iterator[bytes]:
    with os.fdopen(file, "rb", buffering=0) as reader:
        while True:
            try:
                chunk = reader.read(4096)
            except OSError:  # the other end is closed
                return
            if not chunk:
                return
            yield chunk


def terminal_page(shown: Sequence[tuple[str, str]]) -> str:
    """Draw commands and their output as an SVG of a terminal."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command, output in shown:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(output.rstrip("\n")))
        console.print()
    return console.export_svg(title="seu-bench").replace("Fira Code", "DejaVu Sans Mono")


@contextmanager
def browser(width: int, height: int) -> Iterator[Any]:
    """Start a headless Chromium with a window of this size."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={width},{height}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a folder of published records")
    parser.add_argument("output", type=Path, help="where the pictures go")
    parser.add_argument("--benchmark", default="split_cifar100", help="which of its benchmarks (%(default)s)")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        chosen = [record for record in read_records(given.results) if isinstance(record, Record)]
        chosen = [record for record in chosen if is_shown(record, given.benchmark)]
        for record in chosen:
            write_record(results, record)
        commands = [["seu-bench", "leaderboard", "--benchmark", given.benchmark]]
        runs = [record.run_id for record in chosen if (record.strategy, record.seed) == ("naive", 0)]
        commands += [["seu-bench", "show", run_id, "--plot"] for run_id in runs[:1]]
        programs = Path(sys.executable).parent
        shown = [
            (" ".join(command), in_a_terminal([str(programs / command[0]), *command[1:]], Path(folder)))
            for command in commands
        ]
        terminal = Path(folder) / "terminal.svg"
        terminal.write_text(terminal_page(shown), encoding="utf-8")
        in_a_terminal([str(programs / "seu-bench"), "report", "--benchmark", given.benchmark], Path(folder))
        with browser(*WINDOW) as driver:
            driver.get((results / "report.html").as_uri())
            driver.implicitly_wait(60)  # for the chart, which is drawn as it comes into sight
            driver.find_element("css selector", ".plot .point")
            driver.save_screenshot(str(given.output / "report.png"))
            driver.get(terminal.as_uri())
            driver.find_element("css selector", "svg").screenshot(str(given.output / "terminal.png"))


if __name__ == "__main__":
    main()
