"""``seu-bench predict``: classes of new pictures, by the model of a run."""

from __future__ import annotations

import contextlib
import csv
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import click

from seu_bench.cli.completion import run_ids
from seu_bench.cli.export import task_option
from seu_bench.cli.options import request_command
from seu_bench.cli.verbosity import is_quiet, quiet_option
from seu_bench.errors import DataCorruptError, RequestError
from seu_bench.plugin.registry import use_plugins
from seu_bench.utils.progress import bar, hide_progress

#: A file, and names and probabilities of its most probable classes.
Rows: TypeAlias = Iterator[tuple[str, list[tuple[str, float]]]]


@quiet_option
@request_command("results", "plugin")
@click.argument("run", metavar="RUN", shell_complete=run_ids)
@click.argument("files", metavar="FILE|FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@task_option
@click.option(
    "--top", type=click.IntRange(min=1), default=3, show_default=True, help="Classes of each picture to show."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Output format; json is one object a line.",
)
def predict(
    run: str, files: tuple[Path, ...], results: Path, task: str | None, top: int, form: str, plugin: tuple[Path, ...]
) -> None:
    """Predict the classes of pictures with the model of a run.

    RUN is a run id, a unique prefix of one, or the run's folder. Pictures are decoded, resized and normalised as the
    run's own were; folders are searched for them. json and csv are printed as they are computed, a line for each file.

    Where files lie in folders that are called like classes the accuracy on them is told on standard error. Files that
    are no usable pictures are named at the end: all others are predicted, and the exit status is 2.
    """
    from seu_bench.engine.prediction import find_images
    from seu_bench.engine.saved_model import load_model

    use_plugins(plugin)
    model = load_model(run, results)
    card, number = model.card, model.card.find_task(task)
    if card.input_kind != "image":
        what = f"run {model.run_id} was made on {card.input_kind}, of which no files are read here"
        raise RequestError(what, remedy=f"from Python: seu_bench.load_model({model.run_id!r}).predict(array)")
    found, outputs, faults = find_images(files), card.outputs_of(number), list[DataCorruptError]()
    shown = range(1, min(top, len(card.classes_of(number))) + 1)
    done = known = right = 0

    def rows() -> Rows:
        nonlocal done, known, right
        with bar("predicting", len(found)) as advance:
            try:
                for part in model.predict_batches(found, number):
                    for file, ranked, output in zip(part.files, part.top(top), part.outputs, strict=True):
                        label = outputs.get(file.absolute().parent.name)
                        known, right = known + (label is not None), right + (label == output)
                        yield str(file), [(name, round(share, 6)) for name, share in ranked]
                    done += len(part)
                    advance(len(part))
            except DataCorruptError as error:
                faults.append(error)

    # A bar would stand among lines that are printed as they come.
    with hide_progress() if form != "table" and sys.stdout.isatty() else contextlib.nullcontext():
        _WRITERS[form](rows(), shown)
    how = "no task label is needed" if number is None else f"task {number} ({card.task_names[number]!r})"
    if number is not None and card.scenario == "class" and not card.has_task_outputs:
        how += ", answered with the classes of all tasks"
    if card.task_label in ("entropy", "energy") and number is None:
        how = f"the task of each is inferred by {card.task_label}"
    told = f"{done:,} files; {how}"
    if known:
        others = f", not of {done - known:,} others" if known < done else ""
        told += f"; accuracy {100 * right / known:.1f} % of {known:,} in folders called like classes{others}"
    if not is_quiet():
        click.echo(told, err=True)
    if faults:
        raise faults[0]


def _print_table(rows: Rows, shown: Iterable[int]) -> None:
    from seu_bench.cli.tables import new_table, wide_console

    cells = ((file, *(cell for name, share in ranked for cell in (name, f"{share:.1%}"))) for file, ranked in rows)
    headings = ("file", *(heading for place in shown for heading in (f"class {place}", ">share")))
    wide_console().print(new_table("", headings, cells))


def _print_csv(rows: Rows, shown: Iterable[int]) -> None:
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(["file", *(heading for place in shown for heading in (f"class_{place}", f"probability_{place}"))])
    for file, ranked in rows:
        lines.writerow([file.encode(errors="replace").decode(), *(cell for pair in ranked for cell in pair)])


def _print_json(rows: Rows, _shown: Iterable[int]) -> None:
    for file, ranked in rows:
        top = [{"class": name, "probability": share} for name, share in ranked]
        click.echo(json.dumps({"file": file, "top": top}))


_WRITERS: Final = {"table": _print_table, "csv": _print_csv, "json": _print_json}
