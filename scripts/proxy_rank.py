"""Whether the scores that searches learn from rank genotypes as their accuracy from scratch does: Kendall's tau.

    python scripts/proxy_rank.py measure [--data FOLDER] [--output results/published/proxy_rank.json]
    python scripts/proxy_rank.py table results/published/proxy_rank.json [--write docs/reference/searchers.md]

For each benchmark and seed random genotypes are drawn, scored as searchers score them on the first task's training
images, and trained from scratch at the size and schedule of the protocol's task models. Accuracies are measured on
validation images that nothing else sees; test images are not read. Parts that the output has already are kept.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import torch
from scipy.stats import kendalltau
from torch import nn

from seu_bench.config.protocol import ProtocolSpec, Schedule
from seu_bench.config.run import Request
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.models import count_parameters
from seu_bench.plugin.registry import Registry
from seu_bench.training import Forward, cosine_rate, evaluate, make_sgd, set_rate
from seu_bench.utils import RandomState, derive_seed
from seu_bench.utils.files import write_atomic
from seu_bench_kit import (
    EDGES,
    OPERATIONS,
    Genotype,
    SearchSpace,
    SearchTask,
    genotype_network,
    proxy_network,
    recalibrate,
    sample_of,
    train_epoch,
)
from seu_bench_zero_cost.scores import naswot, synflow

CPU: Final = torch.device("cpu")
#: Scores by key, as the table names them. Those of shared weights: after a search of the protocol's length that samples
#: uniformly, each genotype is trained for one more epoch on a copy of the weights, and scored on the second half.
SCORES: Final = {
    "shared": "shared weights, statistics recalibrated",
    "shared_stale": "shared weights, statistics as training left them",
    "short": "loss after a training of its own, proxy size and search schedule",
    "naswot": "NASWOT",
    "synflow": "SynFlow",
    "parameters": "number of parameters (no search: the control)",
}
#: Scores that are accuracies.
ACCURACIES: Final = ("shared", "shared_stale")
#: Marks of the page around the table.
BEGIN, END = "<!-- proxy_rank: begin -->", "<!-- proxy_rank: end -->"


@dataclass(frozen=True)
class Setting:
    """What is measured with: a protocol and the first task of a benchmark's stream.

    Attributes:
        training: images to search and train on.
        withheld: validation images to measure accuracies on.
    """

    protocol: ProtocolSpec
    task: SearchTask
    training: TaskImages
    withheld: TaskImages

    def randomness(self, *purpose: str | int) -> RandomState:
        """Random state of one purpose."""
        return RandomState(derive_seed(self.task.seed, "proxy rank", *purpose))


def setting(benchmark: str, protocol: str, seed: int, data: Path | None, **fields: Any) -> Setting:
    """Build the first task, with all of the validation images that the benchmark has: half of them are withheld."""
    fields |= {"benchmark": benchmark, "protocol": protocol, "seed": seed, "data_root": data}
    run = resolve(Registry(), Request(evaluation="validation", first_tasks=1, **fields))
    limits = run.limits.model_copy(update={"valid": None, "test": None})
    stream = build_stream(run.spec.benchmark, run.load, limits, seed, CPU, **run.part)
    first = stream.tasks[0]
    classes, schedule = stream.plan.classes_per_task[0], run.spec.protocol.search
    task = SearchTask(first.train, 0, classes, SearchSpace(), schedule, seed, CPU)
    return Setting(run.spec.protocol, task, first.train, first.test)


def trained(network: nn.Module, images: TaskImages, schedule: Schedule) -> None:
    """Train a network by SGD over a cosine."""
    parameters, optimizer = list(network.parameters()), make_sgd(list(network.parameters()), schedule)
    network.train()
    for epoch in range(schedule.epochs):
        set_rate(optimizer, cosine_rate(schedule, epoch))
        train_epoch(network, parameters, optimizer, images, schedule, _ignore)
    network.eval()


def from_scratch(found: Setting, genotype: Genotype, repeat: int) -> float:
    """Accuracy on the withheld images of the task model that is all of the genotype; the last weights count."""
    protocol = found.protocol
    size = protocol.search.model_copy(update=protocol.model.model_dump(include={"cells", "channels"}))
    with found.randomness("scratch", repeat).active():
        network = genotype_network(found.task, size, genotype)
        trained(network, found.training, protocol.training)
    return evaluate(network, found.withheld, 500, _ignore)[0]


def scores_of(found: Setting, shared: nn.Module, place: int, genotype: Genotype) -> dict[str, float]:
    """The scores of :data:`SCORES`; the larger, the better a genotype is said to be."""
    schedule, halves = found.task.schedule, found.training.halves()
    with found.randomness("copy", place).active():
        stale, fresh = _shared_scores(copy.deepcopy(shared), genotype, halves, schedule)
    with found.randomness("short", place).active():
        network = genotype_network(found.task, schedule, genotype)
        initial = copy.deepcopy(network)
        trained(network, halves[0], schedule)
    recalibrate(network, network, halves[0], len(halves[0]), schedule.batch_size, _ignore)
    loss = evaluate(network, halves[1], 500, _ignore)[1]
    images = found.training.gather(torch.arange(min(64, len(found.training))))[0]
    untrained = naswot(initial.train(), images), synflow(initial, (images.shape[1], images.shape[2], images.shape[3]))
    return dict(zip(SCORES, (fresh, stale, -loss, *untrained, float(count_parameters(network))), strict=True))


def measured(job: tuple[Setting, nn.Module, int, Genotype, int]) -> tuple[dict[str, float], list[float], float]:
    """Scores of a genotype, its accuracies from scratch, and CPU seconds."""
    found, shared, place, genotype, repeats = job
    torch.set_num_threads(1)
    began = time.process_time()
    scores = scores_of(found, shared, place, genotype)
    accuracies = [from_scratch(found, genotype, repeat) for repeat in range(repeats)]
    return scores, accuracies, time.process_time() - began


def measure(found: Setting, count: int, repeats: int, workers: int = 1) -> dict[str, Any]:
    """Measure one benchmark with one seed; plain values."""
    with found.randomness("genotypes").active():
        genotypes = [found.task.space.random_genotype() for _ in range(count)]
    with found.randomness("shared").active():
        shared = proxy_network(found.task, found.task.schedule)
        _train_shared(shared, found.training.halves()[0], found.task.schedule)
    jobs = [(found, shared, place, genotype, repeats) for place, genotype in enumerate(genotypes)]
    with ProcessPoolExecutor(workers, get_context("forkserver")) if workers > 1 else nullcontext() as pool:
        results = list(map(measured, jobs) if pool is None else pool.map(measured, jobs))
    scores = {name: [scores[name] for scores, _, _ in results] for name in SCORES}
    return {
        "images": [len(found.training), len(found.withheld)],
        "classes": found.task.num_classes,
        "settings": found.protocol.model_dump(mode="json", include={"search", "training", "model"}),
        "genotypes": [genotype.to_dict() for genotype in genotypes],
        "accuracies": [[accuracies[repeat] for _, accuracies, _ in results] for repeat in range(repeats)],
        "scores": {name: [it if math.isfinite(it) else None for it in values] for name, values in scores.items()},
        "cpu_seconds": round(sum(seconds for _, _, seconds in results), 1),
    }


def tau_of(scores: Sequence[float | None], accuracies: Sequence[float]) -> tuple[float, float]:
    """Kendall's tau-b and its two-sided p-value; what could not be scored counts as the worst. Scores that are all
    equal rank nothing: 0, and 1."""
    found = kendalltau([-math.inf if score is None else score for score in scores], accuracies)
    return (0.0, 1.0) if math.isnan(found.statistic) else (float(found.statistic), float(found.pvalue))


def table(document: Mapping[str, Any]) -> str:
    """The page's table in Markdown: tau of each score by benchmark, mean over seeds and each seed's with its p."""
    lines = []
    for name, parts in document["benchmarks"].items():
        ordered = [parts[seed] for seed in sorted(parts, key=int)]
        truths = [[statistics.fmean(values) for values in zip(*part["accuracies"], strict=True)] for part in ordered]
        rows = {
            label: [tau_of(part["scores"][key], truth) for part, truth in zip(ordered, truths, strict=True)]
            for key, label in SCORES.items()
        }
        if all(len(part["accuracies"]) == 2 for part in ordered):
            again = "one training from scratch and the other (the limit of what can be measured)"
            rows[again] = [tau_of(*part["accuracies"]) for part in ordered]
        numbers = ", ".join(f"{100 * min(truth):.0f} to {100 * max(truth):.0f}" for truth in truths)
        trainings, withheld = ordered[0]["images"]
        mean = statistics.fmean(value for truth in truths for value in truth)
        lines += [
            f"`{name}`, first task ({ordered[0]['classes']} classes, {trainings} training images), protocol "
            f"`{document['protocol']}`, seeds: {len(ordered)}, genotypes of each: {len(truths[0])}. Accuracies from "
            f"scratch (trainings of each: {len(ordered[0]['accuracies'])}) on {withheld} withheld images: {numbers} %, "
            f"each with a standard error of {100 * math.sqrt(mean * (1 - mean) / withheld):.1f} points.",
            "",
            "| score | mean tau | tau of each seed (p) | mean score as an accuracy |",
            "| --- | ---: | --- | ---: |",
        ]
        for key, label in [*SCORES.items(), *((None, label) for label in rows if label not in SCORES.values())]:
            taus = rows[label]
            each = ", ".join(f"{tau:+.2f} ({_p(p)})" for tau, p in taus)
            of_all = [value for part in ordered for value in part["scores"].get(key, ()) if key in ACCURACIES]
            accuracy = f"{100 * statistics.fmean(of_all):.1f} %" if of_all else "-"
            lines.append(f"| {label} | {statistics.fmean(tau for tau, _ in taus):+.2f} | {each} | {accuracy} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def _train_shared(network: Any, images: TaskImages, schedule: Schedule) -> None:
    """As the MDL searcher does before it has learned anything: an epoch for each uniform sample."""
    parameters, optimizer = list(network.parameters()), make_sgd(list(network.parameters()), schedule)
    network.train()
    for epoch in range(schedule.epochs):
        drawn = torch.randint(len(OPERATIONS), (2, len(EDGES))).tolist()
        set_rate(optimizer, cosine_rate(schedule, epoch))
        train_epoch(network.sampled((drawn[0], drawn[1])), parameters, optimizer, images, schedule, _ignore)


def _shared_scores(
    network: Any, genotype: Genotype, halves: tuple[TaskImages, TaskImages], schedule: Schedule
) -> tuple[float, float]:
    """Accuracy on the second half with the statistics that training left, and with those of the first half."""
    forward: Forward = network.sampled(sample_of(genotype))
    parameters, optimizer = list(network.parameters()), make_sgd(list(network.parameters()), schedule)
    set_rate(optimizer, cosine_rate(schedule, schedule.epochs - 1))
    network.train()
    train_epoch(forward, parameters, optimizer, halves[0], schedule, _ignore)
    network.eval()
    stale = evaluate(forward, halves[1], 500, _ignore)[0]
    recalibrate(network, forward, halves[0], len(halves[0]), schedule.batch_size, _ignore)
    return stale, evaluate(forward, halves[1], 500, _ignore)[0]


def _p(value: float) -> str:
    return "<.001" if value < 0.001 else f"{value:.3f}".lstrip("0") if value < 1 else "1"


def _ignore(_images: int) -> None:
    """Passes are counted by searches, not here."""


def inserted(page: str, text: str) -> str:
    """The page with ``text`` between the marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def _measure(given: argparse.Namespace, show: Callable[[str], None] = print) -> None:
    torch.set_num_threads(1)  # whatever the number of workers: sums are rounded alike
    document: dict[str, Any] = {"protocol": given.protocol, "torch": torch.__version__.split("+")[0], "benchmarks": {}}
    if given.output.exists():
        document = json.loads(given.output.read_text(encoding="utf-8"))
        if document["protocol"] != given.protocol:
            raise SystemExit(f"{given.output} is of protocol {document['protocol']}: name another file")
    for seed in range(given.seeds):
        for benchmark in given.benchmarks:
            parts = document["benchmarks"].setdefault(benchmark, {})
            if str(seed) not in parts:
                found = setting(benchmark, given.protocol, seed, given.data)
                parts[str(seed)] = measure(found, given.genotypes, given.repeats, given.workers)
                write_atomic(given.output, json.dumps(document, indent=1) + "\n")
                show(f"{benchmark}, seed {seed}: {parts[str(seed)]['cpu_seconds']} CPU seconds")


def _table(given: argparse.Namespace, show: Callable[[str], None] = print) -> None:
    text = table(json.loads(given.file.read_text(encoding="utf-8")))
    if given.write is None:
        show(text)
    else:
        write_atomic(given.write, inserted(given.write.read_text(encoding="utf-8"), text))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--benchmarks", nargs="+", default=["split_fashion", "split_cifar100"])
    measuring.add_argument("--protocol", default="quick")
    measuring.add_argument("--genotypes", type=int, default=20)
    measuring.add_argument("--seeds", type=int, default=3)
    measuring.add_argument("--repeats", type=int, default=2, help="trainings from scratch of each genotype")
    measuring.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    measuring.add_argument("--data", type=Path, help="folder of the data sets")
    measuring.add_argument("--output", type=Path, default=Path("results/published/proxy_rank.json"))
    measuring.set_defaults(call=_measure)
    making = commands.add_parser("table")
    making.add_argument("file", type=Path)
    making.add_argument("--write", type=Path, metavar="PAGE", help="put it between the marks of a page")
    making.set_defaults(call=_table)
    given = parser.parse_args(arguments)
    given.call(given)


if __name__ == "__main__":
    main()
