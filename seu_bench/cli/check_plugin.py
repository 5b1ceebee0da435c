"""``seu-bench check-plugin``: the contract run on an installed plugin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.completion import names_of
from seu_bench.cli.options import format_option, print_as, request_command
from seu_bench.config.commands import command
from seu_bench.config.options import PREFIXES, did_you_mean, parse_assignments
from seu_bench.errors import ExitStatus, OptionError, RequestError
from seu_bench.plugin.code import Subject, subjects
from seu_bench.plugin.registry import use_plugins
from seu_bench.utils.reading import absolute
from seu_bench.utils.text import format_seconds, printable_lines

if TYPE_CHECKING:
    from seu_bench.testing.checking import Check

#: Outcome of a check.
_WORDS: Final = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


@request_command("plugin")
@click.argument(
    "name", shell_complete=names_of("strategies", "searchers", "creators", "backbones", "benchmarks", "datasets")
)
@click.option(
    "-o",
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
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
    try:
        from seu_bench.testing.checking import check, names_of_checks
    except ImportError as error:
        raise RequestError(str(error), remedy="pip install pytest") from error
    results: list[tuple[Subject, list[Check]]] = []
    for subject, own in zip(found, options, strict=True):
        results.append((subject, check(subject, own, pattern=pattern)))
        if form == "text" and results[-1][1]:
            click.echo("\n".join([click.style(str(subject), bold=True), *_lines(results[-1][1], whole=whole)]))
    checks = [check for _, done in results for check in done]
    if not checks:
        names = dict.fromkeys(each for subject in found for each in names_of_checks(subject))
        raise OptionError(
            f"no check of {name!r} matches {pattern!r}", where="-k", remedy=f"the checks are: {', '.join(names)}"
        )
    print_as(form, _document(results), _summary(name, results))
    if any(check.outcome == "failed" for check in checks):
        raise SystemExit(ExitStatus.NOT_MET)


def _lines(checks: Iterable[Check], *, whole: bool) -> Iterator[str]:
    """How each check ended; below a failure its message, the place in the plugin and, if asked for, the traceback."""
    for check in checks:
        word = f"{_WORDS[check.outcome]:<7}"
        word = click.style(word, fg="red") if check.outcome == "failed" else word
        yield f"  {word}  {check.name}  {check.seconds:.1f} s"
        details = check.message.splitlines()
        details += [f"at {check.raised}", f"    {check.raised.code}"] if check.raised is not None else []
        details += check.traceback.splitlines() if whole else []
        yield from (f"           {printable_lines(line)}" for line in details)


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


def _document(results: Sequence[tuple[Subject, Sequence[Check]]]) -> dict[str, Any]:
    checks = [check for _, done in results for check in done]
    counts: Counter[str] = Counter(check.outcome for check in checks)
    return {
        "subjects": [
            {
                "kind": it.kind,
                "name": it.entry.name,
                "plugin": it.entry.plugin,
                "package": it.entry.package,
                "checks": [check._asdict() | {"raised": check.raised and check.raised._asdict()} for check in done],
            }
            for it, done in results
        ],
        **{outcome: counts[outcome] for outcome in ("passed", "failed", "skipped")},
        "seconds": sum(check.seconds for check in checks),
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
        yield f"hint: repair it and run {again}, or send its author the output of {again} --traceback"
    counts: Counter[str] = Counter(check.outcome for check in checks)
    counted = [f"{counts[outcome]} {outcome}" for outcome in _WORDS if counts[outcome]]
    yield f"{', '.join(counted)} of {len(checks)} checks in {format_seconds(sum(check.seconds for check in checks))}"
