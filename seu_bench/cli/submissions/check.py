"""``seu-bench check-submission``: what is checked before a submission is accepted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import RenderableType

from seu_bench.cli.options import format_option, print_as, request_command
from seu_bench.cli.output.verbosity import is_quiet, verbosity_options
from seu_bench.cli.tables import literal, new_table
from seu_bench.errors import ExitStatus, SeuBenchError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import runs_folder
from seu_bench.results.submissions.checking import Checked, Finding, check_submissions


@verbosity_options
@request_command("data_root", "device")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Seeds of each configuration.")
@click.option(
    "--verify",
    "sample",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Models of each submission that are measured again, which takes the data sets.",
)
@format_option
def check_submission(folder: Path, seeds: int, sample: int, data_root: Path | None, device: str, form: str) -> None:
    """Check a shared leaderboard's folder: what a pull request's CI runs.

    Manifests, digests, metrics, hostile texts, copies, seeds, and what options were tuned on; of each submission with
    models some are measured again. Exit status 1 if anything is refused.
    """
    registry = Registry()
    found = check_submissions(folder, registry.known_metrics, seeds=seeds)
    findings = list(found.findings)
    verified: list[str] = []
    if not findings:
        for name, run_id in _sample(found, sample):
            findings += [Finding(name, run_id, what) for what in _faults(registry, folder, run_id, data_root, device)]
            verified.append(run_id)
    verdict = f"{len(found.records)} runs of {len(found.manifests)} submissions: "
    verdict += f"{len(findings)} reasons to refuse" if findings else f"accepted; verified: {len(verified)}"
    rows = [(it.submission or "-", it.run or "-", literal(it.what)) for it in findings]
    table = new_table("refused", ("=submission", "=run", "reason"), rows)
    parts: list[str | RenderableType] = [verdict] if is_quiet() or not findings else [table, verdict]
    document = {"accepted": not findings, "verified": verified, "findings": list(map(asdict, findings))}
    print_as(form, document, parts)
    if findings:
        raise SystemExit(ExitStatus.NOT_MET)


def _sample(found: Checked, most: int) -> Iterator[tuple[str, str]]:
    """Some runs of each submission that have a model: which, hangs on all that it submits."""
    for name, manifest in found.manifests.items():
        salt = "".join(run.record_sha256 for run in manifest.runs.values())
        models = [run_id for run_id, run in manifest.runs.items() if run.weights_sha256 is not None]
        models.sort(key=lambda run_id: hashlib.sha256(f"{salt}{run_id}".encode()).digest())
        yield from ((name, run_id) for run_id in models[:most])


def _faults(registry: Registry, folder: Path, run_id: str, data_root: Path | None, device: str) -> list[str]:
    """Checks of a model that failed; that it cannot be verified at all is one, too."""
    from seu_bench.engine.saved_model.verify import verify

    try:
        checks = verify(registry, str(runs_folder(folder) / run_id), data_root=data_root, device=device).checks
    except SeuBenchError as error:
        return [f"it cannot be verified: {error.what}"]
    return [f"{check.name}: {'; '.join(check.detail)}" for check in checks if check.passed is False]
