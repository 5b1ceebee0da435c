"""``seu-bench check-plugin``: the contract run on an installed plugin."""

from __future__ import annotations

import click

from seu_bench.cli.completion import values
from seu_bench.cli.completion.option_keys import component_option_keys
from seu_bench.config.options import parse_assignments
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry


@click.command(name="check-plugin")
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
def check_plugin(name: str, assignments: tuple[str, ...]) -> None:
    """Run the contract tests on an installed plugin and list what failed.

    NAME is a strategy, a searcher or a creator, or a plugin that offers some. Exit status 1 if a test fails.
    """
    registry, options = Registry(), parse_assignments(assignments)
    try:
        from seu_bench.testing.checking import check, subjects
    except ImportError as error:
        raise RequestError(str(error), remedy="pip install pytest") from error
    failed = 0
    for subject in subjects(registry, name):
        click.secho(str(subject), bold=True)
        checks = list(check(subject, options))
        for found in checks:
            click.echo(f"  {'ok    ' if found.passed else 'FAILED'}  {found.name}")
            if found.message:
                click.echo("\n".join(f"          {line}" for line in found.message.splitlines()))
        passed = sum(found.passed for found in checks)
        failed += len(checks) - passed
        click.echo(f"{passed} of {len(checks)} checks passed")
    if failed:
        raise SystemExit(1)
