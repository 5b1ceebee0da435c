"""The trial that is chosen, and the tuned file that says what the choice rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from seu_bench.config.tuned import NOTES, Trial, TunedFile, TuningCost
from seu_bench.engine.resolve import ResolvedRun
from seu_bench.errors import SpecError
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import EVALUATION
from seu_bench.sweeps.tuning.spec import TuneSpec
from seu_bench.utils.files import check_output


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The trial of the highest score; of several, the first that was tried."""
    return max((trial for trial in trials if trial.score is not None), key=lambda trial: trial.score or 0.0)


def default_id(run: ResolvedRun) -> str:
    """Name of a tuned file that was given none."""
    return f"{run.spec.benchmark.title}-{run.spec.protocol_name}-{run.spec.configuration}"


def definition(spec: TuneSpec, run: ResolvedRun) -> dict[str, Any]:
    """Keys of a tuned file that say which tuning it is."""
    own = run.spec
    return {
        "benchmark": own.benchmark.name,
        "benchmark_version": own.benchmark.version,
        "protocol": own.protocol_name,
        "configuration": own.configuration,
        "strategy": own.strategy,
        "searcher": own.searcher,
        "creator": own.creator,
        "scenario": None if own.benchmark.stream.scenario == "task" else own.benchmark.stream.scenario,
        "method": spec.method,
        "sampler": spec.sampler if spec.trials is None else f"{spec.sampler}:{spec.trials}",
        "given": spec.run_options,
        "limit": spec.limit,
        "synthetic": spec.synthetic,
        "precision": spec.precision,
        "threads": spec.threads if spec.threads > 1 else None,  # so that the SHA-256 of older files stays
        "seeds": tuple(dict.fromkeys(spec.seeds)),
        "space": {key: str(part) for key, part in spec.space.items()},
    }


def check_target(spec: TuneSpec, run: ResolvedRun, path: Path) -> None:
    """Refuse to replace the file of another tuning, unless that is asked for."""
    check_output(path)
    if spec.replace or not path.exists():
        return
    known = TunedFile.read(path)
    differ = [key for key, value in definition(spec, run).items() if getattr(known, key) != value]
    if differ:
        raise SpecError(
            f"there is the file of another tuning, which differs in {', '.join(differ)}",
            where=str(path),
            remedy="give another --id or --output; or replace it with --replace (runs that it has in common are kept)",
        )


def make_file(spec: TuneSpec, run: ResolvedRun, trials: Sequence[Trial], records: Sequence[Record]) -> TunedFile:
    """Make the tuned file of complete trials.

    Args:
        spec: what was asked for.
        run: the run of any trial, for what all have in common.
        trials: one has a score.
        records: of all runs of the trials, each once.
    """
    best = best_trial(trials)
    defaults = run.tuned.options if run.tuned is not None else {}
    software = dict(records[0].environment.versions)
    if spec.sampler != "grid":
        software["optuna"] = version("optuna")
    if records[0].environment.git_revision:
        software["git_revision"] = records[0].environment.git_revision
    return TunedFile.sealed(
        id=spec.id or default_id(run),
        **definition(spec, run),
        note=NOTES[spec.method.partition(":")[0]],
        score=best.score,
        options={**defaults, **spec.run_options, **best.options},
        cost=total_cost(records, run.tuned),
        software=software,
        trials=tuple(trials),
    )


def total_cost(records: Sequence[Record], base: TunedFile | None) -> TuningCost:
    """Sum the cost of runs, and of the tuning whose values they start from; passes count measuring as well."""

    def total(name: str) -> Any:
        stages = (stage for record in records for stage in record.stages)
        counted = (stage for stage in stages if name == "image_passes" or stage.name != EVALUATION)
        values: list[Any] = [getattr(stage, name, None) for stage in counted]
        values += [getattr(base.cost, name)] if base is not None else []
        return None if None in values else math.fsum(values) if name == "cpu_seconds" else sum(values)

    return TuningCost(
        runs=len(records) + (base.cost.runs if base is not None else 0),
        image_passes=total("image_passes"),
        cpu_seconds=total("cpu_seconds"),
        flops=total("flops"),
    )
