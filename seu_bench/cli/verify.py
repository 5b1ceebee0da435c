"""``seu-bench verify``: a record checked against the weights of its run."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from seu_bench.cli.completion import run_ids
from seu_bench.cli.options import format_option, print_as, request_command
from seu_bench.cli.tables import literal, new_table
from seu_bench.cli.verbosity import is_quiet, quiet_option
from seu_bench.errors import ExitStatus
from seu_bench.plugin.registry import use_plugins

#: What the checks can tell.
_SCOPE = (
    "measured again: the last row of the accuracy matrix, sizes, data; computed again: metrics; all else is compared "
    "by digests alone, which somebody who edits the record can renew"
)
#: Outcome of a check.
_WORDS = {True: "ok", False: "FAILED", None: "skipped"}


@quiet_option
@request_command("results", "data_root", "device", "plugin")
@click.argument("run", metavar="RUN", shell_complete=run_ids)
@click.option(
    "--benchmark",
    type=click.Path(path_type=Path),
    default=None,
    help="TOML file of the run's benchmark, if it is not an installed one.",
)
@format_option
def verify(
    run: str,
    results: Path,
    data_root: Path | None,
    device: str,
    plugin: tuple[Path, ...],
    benchmark: Path | None,
    form: str,
) -> None:
    """Check a record against the weights of its run.

    RUN is a run id, a unique prefix of one, or the run's folder. The model is rebuilt from disk and evaluated on the
    test images of every task. Exit status 1 if anything differs.
    """
    from seu_bench.engine.verification import verify as verified

    registry = use_plugins(plugin)
    found = verified(registry, run, results=results, data_root=data_root, device=device, benchmark=benchmark)
    rows = [(check.name, _WORDS[check.passed], Text("\n").join(map(literal, check.detail))) for check in found.checks]
    failed = [check.name for check in found.checks if check.passed is False]
    verdict = f"{len(failed)} of {len(rows)} checks failed: {', '.join(failed)}"
    skipped = [check.name for check in found.checks if check.passed is None]
    if not failed:
        verdict = "no difference found" + (f"; not checked: {', '.join(skipped)}" if skipped else "")
    table = new_table(found.record.run_id, ("=check", "=", "found"), rows)
    print_as(form, found.document(), [verdict] if is_quiet() else [table, verdict, _SCOPE])
    if failed:
        raise SystemExit(ExitStatus.NOT_MET)
