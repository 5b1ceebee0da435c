"""``seu-bench check-plugin``: the contract run on an installed plugin."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seu_bench.cli.completion import values
from seu_bench.cli.completion.option_keys import component_option_keys
from seu_bench.cli.options import format_option, print_as, request_command
from seu_bench.config.commands import command
from seu_bench.config.options import PREFIXES, did_you_mean, parse_assignments
from seu_bench.errors import ExitStatus, OptionError, RequestError
from seu_bench.plugin.code import Subject, subjects
from seu_bench.plugin.registry import use_plugins
from seu_bench.utils.packages import source_folder
from seu_bench.utils.progress import hidden
from seu_bench.utils.reading import absolute
from seu_bench.utils.text import format_seconds, printable_lines

if TYPE_CHECKING:
    from seu_bench.testing.checking import Check

#: Outcome of a check.
_WORDS = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


@request_command("plugin")
@click.argument("name", shell_complete=values.checked_names)
@click.option(
    "-o",
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=component_option_keys,
    help="An option of the component, without a prefix; may be repeated.",
)
@click.option(
    "-k", "pattern", metavar="PATTERN", default="", help="Run matching checks only, e.g. 'learns or resumes'."
)
@click.option("--traceback", "whole", is_flag=True, help="Show the whole traceback of each check that failed.")
@format_option
def check_plugin(
    name: str, assignments: tuple[str, ...], pattern: str, whole: bool, plugin: tuple[Path, ...], form: str
) -> None:
    """Run the contract tests on a plugin and list what failed.

    NAME is what a plugin registers, of any kind that `seu-bench list` shows, or a plugin, a package or a file of
    Python, of which everything is checked. A check that does not apply is skipped with its reason. Exit status 1 if one
    fails.
    """
    is_file = name.endswith(".py")
    registry = use_plugins([*plugin, *([name] if is_file else [])])
    owners = [owner for owner, (path, _) in registry.manager.files.items() if is_file and path == absolute(name)]
    found = subjects(registry, owners[0] if owners else name)
    options = _options_of_each(found, parse_assignments(assignments))
    if sys.stderr.isatty() and form == "text":
        click.echo("importing torch and Avalanche ...", err=True)
    try:
        from seu_bench.testing.checking import check, names_of_checks
    except ImportError as error:
        raise RequestError(str(error), remedy="pip install pytest") from error
    results: list[tuple[Subject, list[Check]]] = []
    for subject, own in zip(found, options, strict=True):
        watcher = _Display(subject, whole=whole) if form == "text" else None
        # A bar would be drawn over the lines.
        with hidden() if watcher is not None and watcher.is_terminal else contextlib.nullcontext():
            results.append((subject, check(subject, own, pattern=pattern, watcher=watcher)))
    checks = [check for _, done in results for check in done]
    if not checks:
        names = dict.fromkeys(each for subject in found for each in names_of_checks(subject))
        raise OptionError(
            f"no check of {name!r} matches {pattern!r}",
            where="-k",
            remedy=f"the checks are: {', '.join(names)}",
        )
    print_as(form, _document(results), _summary(name, results))
    if any(check.outcome == "failed" for check in checks):
        raise SystemExit(ExitStatus.NOT_MET)


class _Display:
    """Print each check when it has ended; on a terminal also the one that runs."""

    def __init__(self, subject: Subject, *, whole: bool) -> None:
        self._subject, self._whole = subject, whole
        self._out = sys.stdout  # pytest's own output goes elsewhere while it runs
        self.is_terminal = self._out.isatty()
        self._total = self._count = 0
        self._told: dict[tuple[str, ...], str] = {}

    def collected(self, total: int) -> None:
        """Note how many there are."""
        self._total = total

    def started(self, name: str) -> None:
        """Say what runs, in a line that its result is written over."""
        if self._count == 0:
            self._echo(click.style(str(self._subject), bold=True))
        self._count += 1
        if self.is_terminal:
            self._echo(f"  {'...':<7}  {name} ({self._count} of {self._total})", end="")

    def ended(self, check: Check) -> None:
        """Print how it ended, and what is to be known of a failure."""
        word = f"{_WORDS[check.outcome]:<7}"
        word = click.style(word, fg="red") if check.outcome == "failed" else word
        # A carriage return, and "erase to the end of the line".
        begin = "\r\x1b[K" if self.is_terminal else ""
        self._echo(f"{begin}  {word}  {check.name}  {check.seconds:.1f} s")
        details = tuple(_details(check, whole=self._whole))
        # What is broken at one place fails many checks.
        first = self._told.setdefault(details, check.name) if check.outcome == "failed" else check.name
        for line in details if first == check.name else (f"as {first}",):
            self._echo(f"           {printable_lines(line)}")

    def _echo(self, text: str, end: str = "\n") -> None:
        click.echo(text + end, file=self._out, nl=False)


def _options_of_each(found: Iterable[Subject], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options that each subject has, or that go to a part of it; each option must be one of some subject."""
    models = [getattr(subject.entry.factory, "options", None) for subject in found]
    names = [{*getattr(model, "model_fields", ())} for model in models]
    known = set().union(*names)
    unknown = [key for key in options if key not in known and key.partition(".")[0] not in PREFIXES]
    if unknown:
        raise OptionError(
            "; ".join(f"{key!r} is not an option{did_you_mean(key, known)}" for key in unknown),
            where=", ".join(map(str, found)),
            remedy=f"the options are: {', '.join(sorted(known)) or 'none'}",
        )
    return [{key: value for key, value in options.items() if key in own or "." in key} for own in names]


def _details(check: Check, *, whole: bool) -> Iterator[str]:
    """Lines below a check: its message, and the place in the plugin or the whole traceback."""
    yield from check.message.splitlines()
    if check.raised is not None:
        yield f"at {check.raised}"
        yield f"    {check.raised.code}"
    if whole:
        yield from check.traceback.splitlines()


def _counted(checks: Iterable[Check]) -> dict[str, int]:
    outcomes: list[str] = [check.outcome for check in checks]
    return {outcome: outcomes.count(outcome) for outcome in _WORDS}


def _document(results: Sequence[tuple[Subject, Sequence[Check]]]) -> dict[str, Any]:
    """Results as JSON has them."""
    return {
        "subjects": [
            {
                "kind": subject.kind,
                "name": subject.entry.name,
                "plugin": subject.entry.plugin,
                "package": subject.entry.package,
                "checks": [check._asdict() | {"raised": check.raised and check.raised._asdict()} for check in checks],
            }
            for subject, checks in results
        ],
        **_counted(check for _, checks in results for check in checks),
        "seconds": sum(check.seconds for _, checks in results for check in checks),
    }


def _summary(name: str, results: Sequence[tuple[Subject, Sequence[Check]]]) -> Iterator[str]:
    """The failed checks once more, what to do about them, and how many ended in which way."""
    checks = [check for _, done in results for check in done]
    failed = [(subject, check) for subject, done in results for check in done if check.outcome == "failed"]
    if failed:
        yield ""
        yield from (f"FAILED  {subject.kind} {subject.entry.name}: {check.name}" for subject, check in failed)
        pattern = " or ".join(dict.fromkeys(check.name.partition("[")[0] for _, check in failed))
        again = command("check-plugin", name, *(["-k", pattern] if len(failed) < len(checks) else []))
        for package in dict.fromkeys(subject.entry.package for subject, _ in failed):
            yield from _advice(package, again)
    counted = [f"{count} {outcome}" for outcome, count in _counted(checks).items() if count]
    seconds = format_seconds(sum(check.seconds for check in checks))
    yield f"{', '.join(counted)} of {len(checks)} checks in {seconds}"


def _advice(package: str, again: str) -> Iterator[str]:
    if (folder := source_folder(package)) is not None:
        yield f"hint: repair it in {folder}, then run again: {again}"
    else:
        yield f"hint: report it to the author of {package} with the output of: {again} --traceback"
