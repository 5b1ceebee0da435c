"""``seu-bench submit`` and ``seu-bench check-submission``."""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from seu_bench.cli.completion import run_ids
from seu_bench.cli.options import format_option, known_registry, print_as, request_command
from seu_bench.cli.tables import literal, new_table
from seu_bench.cli.verbosity import is_quiet, quiet_option
from seu_bench.config.commands import command
from seu_bench.config.toml_file import toml_text, validate_document
from seu_bench.errors import ExitStatus, ResultsError, SeuBenchError
from seu_bench.plugin.registry import use_plugins
from seu_bench.results.metric import Metric
from seu_bench.results.record import RECORD_NAME, Record, parse_record, record_path, runs_folder
from seu_bench.results.record_files import MODEL_NAME, record_document
from seu_bench.results.record_metrics import METRICS
from seu_bench.utils.files import remove_parts, write_atomic
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.reading import cannot_read, read_file
from seu_bench_submissions.checking import check_record, check_submissions
from seu_bench_submissions.manifest import (
    FOLDER,
    GUIDE,
    Manifest,
    SubmittedRun,
    find_harmful_texts,
    manifest_path,
    read_manifests,
    refuse_links,
)

#: What nobody can compute again: it stands in tables as those who submit it say.
STATED: Final = (
    "stated by those who submit, and never measured again: times, peak memory, the environment, tuning and "
    "matching, image passes below the forecast, accuracies before the last row of the matrix, and answers between tasks"
)


@quiet_option
@request_command("results")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=run_ids)
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Shared folder, e.g. a checkout of a leaderboard's repository; made if there is none.",
)
@click.option("--submitter", required=True, metavar="TEXT", help="Person or group, as it is to be shown.")
@click.option("--licence", required=True, metavar="NAME", help="Licence of records and models, e.g. CC-BY-4.0.")
@click.option("--contact", default="", metavar="TEXT", help="Where questions go, e.g. an address on the web.")
@click.option("--note", default="", metavar="TEXT", help="About the runs.")
@click.option("--name", default=None, metavar="NAME", help="Name of the submission's file [default: from --submitter].")
@click.option("--models/--no-models", default=True, help="Copy the models, by which others verify the records.")
def submit(
    runs: tuple[str, ...], results: Path, folder: Path, submitter: str, name: str | None, models: bool, **about: str
) -> None:
    """Copy runs into a shared leaderboard's folder, and write the manifest.

    RUN is a run id, a unique prefix of one, or a run's folder. Runs that would not be accepted are refused, and then
    nothing is written.
    """
    chosen = re.sub(r"[^a-z0-9]+", "-", (name or submitter).lower())[:100].strip("-") or "submission"
    about = {"submitter": submitter, **about}
    metrics = known_registry().known_metrics
    made = submit_runs(runs, folder, chosen, about=about, results=results, weights=models, metrics=metrics)
    if not is_quiet():
        with_model = sum(run.weights_sha256 is not None for run in made.values())
        click.echo(f"{len(made)} runs, {with_model} of them with models: {manifest_path(folder, chosen)}")
        click.echo(f"{command('check-submission', '--', str(folder))} checks what is there")


def submit_runs(
    names: Sequence[str],
    folder: Path,
    name: str,
    *,
    about: Mapping[str, Any],
    results: Path = Path("results"),
    weights: bool = True,
    metrics: Mapping[str, Metric] = METRICS,
) -> dict[str, SubmittedRun]:
    """Copy runs into a shared folder and write the manifest last, one process at a time and never through a link.

    Args:
        names: run ids, unique beginnings of them, or runs' folders.
        folder: the shared folder; made where there is none.
        name: of the submission. Runs are added to a submission of that name.
        about: ``submitter``, ``licence``, ``contact`` and ``note`` of the manifest.
        results: the folder that holds the runs.
        weights: whether to copy the models of runs that have one.
        metrics: those known.

    Returns:
        What was added to the manifest.

    Raises:
        ResultsError: a run cannot be found or read, would not be accepted, or has been submitted before; or the
            submission is somebody else's. Nothing was written.
        SpecError: what is said about the submission is refused.
    """
    if folder.resolve() == results.resolve():  # whose other runs would be in no table any more
        what = "this is the folder of one's own results, not a shared one"
        raise ResultsError(what, where=str(folder), remedy="give another folder with --to")
    texts: dict[str, str] = {}
    contents: dict[str, bytes | None] = {}
    runs: dict[str, SubmittedRun] = {}
    for each in names:
        record = parse_record(text := record_document(results, each), each)
        run_id = record.run_id
        if run_id in texts:
            raise ResultsError("a run is named twice", where=run_id, remedy="name each run once")
        if faults := list(check_record(json.loads(text), record, metrics)):
            told = f"the run would not be accepted: {'; '.join(faults)}"
            raise ResultsError(told, where=run_id, remedy="leave it out")
        texts[run_id], contents[run_id] = text, _model(results, record) if weights else None
        digest = record.weights_sha256 if contents[run_id] is not None else None
        runs[run_id] = SubmittedRun(record_sha256=str(record.record_sha256), weights_sha256=digest)
    refuse_links(folder, *(record_path(folder, run_id).parent for run_id in texts))
    with folder_lock(folder / FOLDER):
        known: dict[str, SubmittedRun] = {}
        others: dict[str, Manifest] = {}
        for other, before in read_manifests(folder):
            if isinstance(before, Manifest):
                others[other] = before
                known |= before.runs if other == name else {}
                for run_id in before.runs.keys() & runs:
                    told = f"the run has been submitted before, by {other}"
                    raise ResultsError(told, where=run_id, remedy="leave it out")
            elif other == name:
                raise before
        document = {**about, "runs": known | runs}
        manifest = validate_document(Manifest, document, "the submission", GUIDE, faults=find_harmful_texts(about))
        _refuse_other_submitters(others, name, manifest, folder)
        refuse_links(folder, *(record_path(folder, run_id).parent for run_id in texts))
        for run_id, text in texts.items():
            run = record_path(folder, run_id).parent
            remove_parts(run)
            if (content := contents[run_id]) is not None:
                write_atomic(run / MODEL_NAME, content)
            write_atomic(run / RECORD_NAME, text)
        write_atomic(manifest_path(folder, name), toml_text(manifest.model_dump(mode="json", exclude_none=True)))
    return runs


def _refuse_other_submitters(others: Mapping[str, Manifest], name: str, manifest: Manifest, folder: Path) -> None:
    """Refuse the submission of another submitter, and a second one of the same: rows belong to a submission."""
    for other, before in others.items():
        if (other == name) != (before.submitter_key == manifest.submitter_key):
            what = f"this submission is {before.submitter}'s"
            remedy = "choose another name with --name" if other == name else f"add to it with --name {other}"
            raise ResultsError(what, where=str(manifest_path(folder, other)), remedy=remedy)


def _model(results: Path, record: Record) -> bytes | None:
    """The file with a run's model, as it was when the run was finished."""
    path = record_path(results, record.run_id).parent / MODEL_NAME
    if record.weights_sha256 is None or not path.is_file():
        return None
    try:
        content = read_file(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    if hashlib.sha256(content).hexdigest() != record.weights_sha256:
        what, remedy = "the model is not the one that the record names", "leave the run out, or --no-models"
        raise ResultsError(what, where=str(path), remedy=remedy)
    return content


@quiet_option
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
    folder: Path, seeds: int, most: int, seed: int | None, plugin: tuple[Path, ...], form: str, **where: Any
) -> None:
    """Check a shared leaderboard's folder: what a pull request's CI runs.

    Manifests, digests, metrics, hostile texts, copies, seeds, what options were tuned on, and what each run must have
    by its own request; of each submission with models some are measured again. Exit status 1 if anything is refused.
    """
    from seu_bench.engine.verification import verify
    from seu_bench_submissions.claims import claim_faults

    registry, seed = use_plugins(plugin), time.time_ns() % 2**32 if seed is None else seed
    checked = check_submissions(folder, registry.known_metrics, seeds=seeds)
    faulty = {it.run for it in checked.findings}
    for run_id, record in checked.records.items():
        if run_id not in faulty:  # what is hostile is not even asked for
            checked.refuse(record.submitter or "", run_id, *claim_faults(registry, record, where["data_root"]))
    verified: list[str] = []
    for name in () if checked.findings else checked.manifests:
        models = [run_id for run_id in checked.models if checked.records[run_id].submitter == name]
        for run_id in random.Random(f"{seed} {name}").sample(models, min(most, len(models))):
            verified.append(run_id)
            try:
                checks = verify(registry, str(runs_folder(folder) / run_id), **where).checks
            except SeuBenchError as error:
                checked.refuse(name, run_id, f"it cannot be verified: {error.what}")
                continue
            failed = (f"{it.name}: {'; '.join(it.detail)}" for it in checks if it.passed is False)
            checked.refuse(name, run_id, *failed)
    findings, stated = checked.findings, [run_id for run_id in checked.records if run_id not in checked.models]
    verdict = f"{len(checked.records)} runs of {len(checked.manifests)} submissions: "
    verdict += f"{len(findings)} reasons to refuse" if findings else "accepted"
    notes = [
        f"models measured again: {len(verified)} of {len(checked.models)}, drawn by --seed {seed}",
        f"runs without a model, whose accuracies are stated: {len(stated)}",
        STATED,
    ]
    rows = [(it.submission or "-", it.run or "-", literal(it.what)) for it in findings]
    table = new_table("refused", ("=submission", "=run", "reason"), rows)
    document = {"accepted": not findings, "seed": seed, "verified": verified, "without_models": stated}
    document |= {"stated": STATED, "findings": list(map(asdict, findings))}
    print_as(form, document, [verdict] if is_quiet() else [*([table] if findings else []), verdict, *notes])
    if findings:
        raise SystemExit(ExitStatus.NOT_MET)
