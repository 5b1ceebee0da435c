"""``seu-bench check-plugin``: the contract run on an installed plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from seu_bench.cli.completion import names_of
from seu_bench.cli.options import request_command
from seu_bench.config.options import PREFIXES, did_you_mean, parse_assignments
from seu_bench.errors import ExitStatus, OptionError
from seu_bench.plugin.code import Subject, subjects
from seu_bench.plugin.registry import use_plugins
from seu_bench.utils.reading import absolute


@request_command("plugin")
@click.argument(
    "name",
    shell_complete=names_of("strategies", "searchers", "creators", "spaces", "backbones", "benchmarks", "datasets"),
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
def check_plugin(name: str, assignments: tuple[str, ...], pattern: str, plugin: tuple[Path, ...]) -> None:
    """Run the contract tests on a plugin and list what failed.

    NAME is what a plugin registers, of any kind that `seu-bench list` shows, or a plugin, a package or a file of
    Python, of which everything is checked. The report is pytest's; a check that does not apply is skipped with its
    reason. Exit status 1 if one fails.
    """
    is_file = name.endswith(".py")
    registry = use_plugins([*plugin, *([name] if is_file else [])])
    owners = [owner for owner, (path, _) in registry.manager.files.items() if is_file and path == absolute(name)]
    asked = _with_options(subjects(registry, owners[0] if owners else name), parse_assignments(assignments))
    from seu_bench.testing.checking import check  # takes seconds: pytest and torch

    if check(asked, pattern):
        raise SystemExit(ExitStatus.NOT_MET)


def _with_options(found: Iterable[Subject], options: Mapping[str, Any]) -> list[tuple[Subject, dict[str, Any]]]:
    """Each subject with the options that it has, or that go to a part of it; each must be one of some subject."""
    models = [(it, getattr(getattr(it.entry.factory, "options", None), "model_fields", {})) for it in found]
    known = {name for _, model in models for name in model}
    if unknown := [key for key in options if key not in known and key.partition(".")[0] not in PREFIXES]:
        raise OptionError(
            "; ".join(f"{key!r} is not an option{did_you_mean(key, known)}" for key in unknown),
            where=", ".join(str(it) for it, _ in models),
            remedy=f"the options are: {', '.join(sorted(known)) or 'none'}",
        )
    return [(it, {k: value for k, value in options.items() if k in own or "." in k}) for it, own in models]
