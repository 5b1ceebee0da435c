"""The command line: parse, call, print. Nothing is imported before a command needs it."""

from __future__ import annotations

import sys

import click

from seu_bench._version import __version__
from seu_bench.cli.cost import cost
from seu_bench.cli.data import data
from seu_bench.cli.models import export, verify
from seu_bench.cli.plugins import check_plugin, list_
from seu_bench.cli.report import report
from seu_bench.cli.results import compare, leaderboard, show
from seu_bench.cli.run import run
from seu_bench.cli.runs import runs
from seu_bench.cli.sweep import sweep
from seu_bench.errors import Interruption, SeuBenchError
from seu_bench.utils import progress as bars

#: Exit status of a request that cannot be met, and of a run that the user interrupted.
REFUSED = 2
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="seu-bench")
def cli() -> None:
    """Benchmark lifelong learning: accuracy, forgetting and size together.

    Begin with: seu-bench run --strategy seu --benchmark split_digits
    """


cli.add_command(run)
cli.add_command(cost)
cli.add_command(data)
cli.add_command(list_)
cli.add_command(check_plugin)
cli.add_command(show)
cli.add_command(compare)
cli.add_command(leaderboard)
cli.add_command(runs)
cli.add_command(sweep)
cli.add_command(report)
cli.add_command(verify)
cli.add_command(export)


def main() -> None:
    """Entry point of the command ``seu-bench``: errors become one message and exit status 2."""
    try:
        with bars.shown():
            status = cli.main(prog_name="seu-bench", standalone_mode=False)
    except SeuBenchError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(REFUSED)
    except click.ClickException as error:
        error.show()
        sys.exit(REFUSED)
    except (click.Abort, KeyboardInterrupt) as stopped:
        # click wraps every KeyboardInterrupt.
        cause = stopped.__cause__ if isinstance(stopped, click.Abort) else stopped
        if isinstance(cause, Interruption):
            click.echo(f"{cause.reason}; the same command goes on with the run", err=True)
            sys.exit(cause.status)
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
