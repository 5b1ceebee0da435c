"""``seu-bench check-submission``: what is checked before a submission is accepted."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import RenderableType

from seu_bench.cli.options import format_option, print_as, request_command
from seu_bench.cli.tables import literal, new_table
from seu_bench.cli.verbosity import is_quiet, verbosity_options
from seu_bench.errors import ExitStatus, SeuBenchError
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.record import runs_folder
from seu_bench.results.submissions.checking import Checked, Finding, check_submissions
from seu_bench.results.submissions.manifest import STATED


@verbosity_options
@request_command("data_root", "device", "plugin")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Seeds of each configuration.")
@click.option(
    "--verify",
    "most",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Models of each submission that are measured again, all where it has no more; this takes the data sets.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=None,
    help="Seed by which those models are drawn, to repeat a check [default: from the clock].",
)
@format_option
def check_submission(
    folder: Path,
    seeds: int,
    most: int,
    seed: int | None,
    data_root: Path | None,
    device: str,
    plugin: tuple[Path, ...],
    form: str,
) -> None:
    """Check a shared leaderboard's folder: what a pull request's CI runs.

    Manifests, digests, metrics, hostile texts, copies, seeds, what options were tuned on, and what each run must have
    by its own request; of each submission with models some are measured again. Exit status 1 if anything is refused.
    """
    from seu_bench.engine.verification import claim_faults

    registry, seed = use_plugins(plugin), time.time_ns() % 2**32 if seed is None else seed
    found = check_submissions(folder, registry.known_metrics, seeds=seeds)
    findings, faulty = list(found.findings), {it.run for it in found.findings}
    for run_id, record in found.records.items():
        if run_id not in faulty:  # what is hostile is not even asked for
            told = claim_faults(registry, record, data_root)
            findings += [Finding(record.submitter or "", run_id, what) for what in told]
    verified: list[str] = []
    for name, run_id in () if findings else _sample(found, most, seed):
        findings += [Finding(name, run_id, what) for what in _faults(registry, folder, run_id, data_root, device)]
        verified.append(run_id)
    stated = [run_id for run_id in found.records if run_id not in found.models]
    verdict = f"{len(found.records)} runs of {len(found.manifests)} submissions: "
    verdict += f"{len(findings)} reasons to refuse" if findings else "accepted"
    notes = [
        f"models measured again: {len(verified)} of {len(found.models)}, drawn by --seed {seed}",
        f"runs without a model, whose accuracies are stated: {len(stated)}",
        STATED,
    ]
    rows = [(it.submission or "-", it.run or "-", literal(it.what)) for it in findings]
    table = new_table("refused", ("=submission", "=run", "reason"), rows)
    parts: list[str | RenderableType] = [verdict] if is_quiet() else [*([table] if findings else []), verdict, *notes]
    document = {"accepted": not findings, "seed": seed, "verified": verified, "without_models": stated}
    print_as(form, document | {"stated": STATED, "findings": list(map(asdict, findings))}, parts)
    if findings:
        raise SystemExit(ExitStatus.NOT_MET)


def _sample(found: Checked, most: int, seed: int) -> Iterator[tuple[str, str]]:
    """Some runs of each submission that have a model, drawn by a seed that no submitter knows."""
    for name in found.manifests:
        models = [run_id for run_id in found.models if found.records[run_id].submitter == name]
        drawn = random.Random(f"{seed} {name}").sample(models, min(most, len(models)))
        yield from ((name, run_id) for run_id in drawn)


def _faults(registry: Registry, folder: Path, run_id: str, data_root: Path | None, device: str) -> list[str]:
    """Checks of a model that failed; that it cannot be verified at all is one, too."""
    from seu_bench.engine.verification import verify

    try:
        checks = verify(registry, str(runs_folder(folder) / run_id), data_root=data_root, device=device).checks
    except SeuBenchError as error:
        return [f"it cannot be verified: {error.what}"]
    return [f"{check.name}: {'; '.join(check.detail)}" for check in checks if check.passed is False]
