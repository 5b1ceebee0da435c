"""``seu-bench watch``: the command."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.live import Live

from seu_bench.cli.completion import values
from seu_bench.cli.options import output_path, request_command
from seu_bench.cli.tables import wide_console
from seu_bench.cli.watch.frame import Frame, count_words
from seu_bench.cli.watch.page import watch_page
from seu_bench.cli.watch.terminal import Keys, Left, leaving
from seu_bench.cli.watch.view import View, Watcher
from seu_bench.errors import ExitStatus, OptionError, ResultsError
from seu_bench.utils.files import check_output, is_standard_output, write_atomic

#: Of the page, in the results folder, where none is named.
PAGE_NAME: Final = "watch.html"
#: A look may take so much of the time at most: the interval grows where there are very many runs.
_SHARE: Final = 0.2
_FOOTER: Final = "q leaves"
#: ``--page`` without a file; no path can be this.
_NO_FILE: Final = "\0"


def _names(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


@request_command("results")
@click.option(
    "--page",
    "page",
    type=output_path,
    is_flag=False,
    flag_value=_NO_FILE,
    default=None,
    metavar="[FILE]",
    help=f"Also write an HTML page that loads itself again: to this file, to RESULTS/{PAGE_NAME} without one, or once "
    "to standard output with -.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=86400),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Look once, print it and end; the default where the output is no terminal.")
@click.option(
    "--until-done",
    is_flag=True,
    help="End when nothing is running or pending any more, with exit status 1 if a run failed or was interrupted.",
)
@click.option(
    "--benchmark",
    "benchmarks",
    multiple=True,
    callback=_names,
    metavar="A,B",
    shell_complete=values.names_of("benchmarks", listed=True),
    help="Only these benchmarks.",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    callback=_names,
    metavar="A,B",
    shell_complete=values.names_of("strategies", listed=True),
    help="Only these strategies.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Maximum runs of each list; 0: all. On a terminal no more than fit.",
)
def watch(
    results: Path,
    page: Path | None,
    interval: float,
    once: bool,
    until_done: bool,
    benchmarks: tuple[str, ...],
    strategies: tuple[str, ...],
    rows: int,
) -> None:
    """Watch the runs of a results folder while they are made.

    Running runs come first: task, stage, epoch, time left, and accuracies of the tasks learned. Then those that failed
    or were interrupted, with the reason and the command that resumes them, and those that finished last. The folder is
    only read, and need not exist yet. q or Ctrl-C ends.
    """
    if once and until_done:
        raise OptionError("--once and --until-done exclude each other", remedy="give one of them")
    console, watcher = wide_console(), Watcher(results, benchmarks, strategies, rows)
    if page is not None and is_standard_output(page):
        click.echo(watch_page(watcher.look(), None), nl=False)
        return
    watching = Watching(watcher, _PageFile(page, results) if page is not None else None, interval, console)
    with leaving(), contextlib.suppress(KeyboardInterrupt, Left):
        if once or not (console.is_terminal or page or until_done):
            console.print(Frame(watching.look(is_last=True), rows))
            return
        if console.is_terminal and not console.is_dumb_terminal:
            watching.on_screen(rows, until_done=until_done)
        else:
            watching.in_lines(until_done=until_done)
    view = watching.finish()
    if until_done and view is not None and (view.stopped_count or not view.is_done):
        raise SystemExit(ExitStatus.NOT_MET)


class _PageFile:
    """The page's file; one in the results folder waits until there is that folder."""

    def __init__(self, path: Path, results: Path) -> None:
        is_beside = str(path) == _NO_FILE
        self.path = results / PAGE_NAME if is_beside else path
        self._waits_for = results if is_beside else None
        check_output(self.path)

    def write(self, text: str) -> None:
        """Replace it in one step."""
        if self._waits_for is None or self._waits_for.is_dir():
            check_output(self.path)
            write_atomic(self.path, text, durable=False)


class Watching:
    """Looks, shows and writes, again and again.

    Args:
        watcher: looks.
        page: where the page is written; ``None``: nowhere.
        interval: seconds between two looks.
        console: standard output.
    """

    def __init__(self, watcher: Watcher, page: _PageFile | None, interval: float, console: Console) -> None:
        self._watcher, self._page, self._interval, self._console = watcher, page, interval, console
        self._pause = interval
        self._view: View | None = None
        self._wrote = False
        self._fault = ""

    def look(self, *, is_last: bool = False) -> View:
        """Look, and write the page; the last one does not load itself again."""
        began = time.monotonic()
        view = self._view = self._watcher.look()
        self._pause = max(self._interval, (time.monotonic() - began) / _SHARE)
        self._write(view, is_last)
        return view

    def on_screen(self, rows: int, *, until_done: bool) -> None:
        """Draw on the terminal's second screen until the user leaves; then the last frame stays on the first."""
        view = View(self._watcher.results, time.time())
        screen = Live(console=self._console, screen=True, auto_refresh=False)
        with contextlib.suppress(KeyboardInterrupt), Keys() as keys, screen as live:
            while True:
                view = self.look()
                footer = self._fault or _FOOTER
                live.update(Frame(view, rows, self._console.height, footer), refresh=True)
                if (until_done and view.is_done) or keys.pressed_within(self._pause):
                    break
        self._console.print(Frame(view, rows, max(8, self._console.height - 2)))

    def in_lines(self, *, until_done: bool) -> None:
        """Print a line whenever the counts have changed."""
        said = ""
        while True:
            view = self.look()
            words = count_words(view)
            if words != said:
                click.echo(f"{time.strftime('%H:%M:%S', time.localtime(view.time))} {words}")
                said = words
            if until_done and view.is_done:
                break
            time.sleep(self._pause)

    def finish(self) -> View | None:
        """Write the page for the last time, and return what was seen last."""
        if self._view is not None:
            self._write(self._view, is_last=True)
        return self._view

    def _write(self, view: View, is_last: bool) -> None:
        if self._page is None:
            return
        try:
            self._page.write(watch_page(view, None if is_last else self._pause))
            self._fault = ""
        except ResultsError as error:
            if not self._wrote:
                raise
            self._fault = f"the page cannot be written: {error.what}"
        self._wrote = True
