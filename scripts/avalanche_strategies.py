"""Avalanche's strategies run by their import path on split_digits: the table of docs/reference/avalanche.md.

``python -m scripts.avalanche_strategies`` writes it anew; a test compares it.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from avalanche.training import supervised
from avalanche.training.templates.base_sgd import BaseSGDTemplate

import seu_bench
from seu_bench.errors import SeuBenchError
from seu_bench.plugin.registry import Registry

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "avalanche.md"
#: Values of arguments without a default.
GIVEN: Final[dict[str, Any]] = {
    "patterns_per_exp": 20,
    "sample_size": 16,
    "memory_strength": 0.5,
    "mem_size": 50,
    "batch_size_mem": 10,
    "ewc_lambda": 1.0,
    "si_lambda": 1.0,
    "lambda_e": 0.1,
    "alpha": 1.0,
    "temperature": 2.0,
    "subsample": 50,
    "cwr_layer_name": "heads.0",
    "post_prune_epochs": 1,
    "prune_proportion": 0.5,
}
#: Those that are offered by name, with what differs: see docs/reference/rehearsal.md.
BY_NAME: Final = {
    "EWC": ("ewc", "one anchor for all tasks; Avalanche keeps one for each"),
    "Naive": ("naive", "weights of the lowest validation loss are restored"),
    "LwF": ("lwf", "the teacher answers in evaluation mode; Avalanche's in training mode, with dropout"),
    "SynapticIntelligence": ("si", "weights are copied; on a CPU Avalanche's copies are views, its penalty is 0"),
    "MAS": ("mas", "importances in evaluation mode; Avalanche's with dropout, and a loss of exactly 0 is an error"),
    "GEM": ("gem", "the newest images of each task are kept"),
    "AGEM": ("agem", "batches of the memory are always full; Avalanche's loader also gives what is left over"),
    "Replay": ("replay", "batches of the memory are always full; Avalanche's loader also gives what is left over"),
    "MIR": (
        "mir",
        "the look-ahead in evaluation mode, and every class is offered; Avalanche's leaves out numbers of "
        "the last batch, which with a head per task are nearly all",
    ),
    "ER_ACE": ("er_ace", ""),
    "GDumb": ("gdumb", ""),
    "CWRStar": ("cwr", "the head is that of the task; Avalanche takes the last layer for all tasks"),
    "Cumulative": ("cumulative", "batches are drawn from all images alike; Avalanche divides each between tasks"),
    "JointTraining": ("joint", "batches are drawn from all images alike; Avalanche divides each between tasks"),
    "FromScratchTraining": ("from_scratch", "statistics of batch normalisation are reset, too"),
    "DER": ("derpp", "logits of classes that came later are left out"),
    "ICaRL": ("icarl", ""),
    "PackNet": ("packnet", ""),
    "StreamingLDA": ("slda", ""),
    "PNNStrategy": ("pnn", ""),
}


class Tried(NamedTuple):
    """A run: accuracy at the end, or else why there is none."""

    acc: float | None
    reason: str = ""

    def __str__(self) -> str:
        return "yes" if self.acc is not None else f"no: {self.reason}"


def strategies() -> dict[str, str]:
    """Import paths of Avalanche's strategies of classification by class."""
    found = {it for it in vars(supervised).values() if isinstance(it, type) and issubclass(it, BaseSGDTemplate)}
    named = {it.__name__: f"avalanche.training.supervised:{it.__name__}" for it in found}
    more = {"LaMAML": "lamaml:LaMAML", "LaMAML (v2)": "lamaml_v2:LaMAML"}
    named |= {name: f"avalanche.training.supervised.{place}" for name, place in more.items()}
    return dict(sorted(named.items()))


def tried(path: str, scenario: str, results: Path) -> Tried:
    """Run a strategy on few images."""
    try:
        silent = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
            warnings.simplefilter("ignore")
            fields = Registry().strategies.find(path).factory.options.model_fields
            required = {key: GIVEN[key] for key, field in fields.items() if field.is_required()}
            options = {"backbone": "mlp", "benchmark.stream.scenario": scenario, **required}
            record = seu_bench.run(path, protocol="smoke", limit=40, options=options, results=results)
    except SeuBenchError as error:
        text = re.sub(r"^strategy \S+ (of package \S+ failed: |cannot be run by its path: )?", "", error.what)
        return Tried(None, re.sub(r"[|`<>]", "", text.partition("\n")[0]))
    return Tried(record.metrics["acc"])


def rows() -> Iterator[str]:
    """The table."""
    yield "| class | runs with a head per task | runs class-incrementally | by name | what differs by name |"
    yield "| --- | --- | --- | --- | --- |"
    with tempfile.TemporaryDirectory() as folder:
        for name, path in strategies().items():
            task, one_head = (str(tried(path, scenario, Path(folder))) for scenario in ("task", "class"))
            other, differs = BY_NAME.get(name, ("", ""))
            same = "no: the same" if task == one_head != "yes" else one_head
            yield f"| {name} | {task} | {same} | {f'`{other}`' if other else ''} | {differs} |"


def page(text: str) -> str:
    """The page with the table made anew."""
    before, marker, rest = text.partition("<!-- table -->\n")
    _, end, after = rest.partition("<!-- end -->")
    return before + marker + "\n".join(rows()) + "\n" + end + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
