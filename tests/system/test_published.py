"""Pages are what the published records say; records can be read and sweeps be run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import seu_bench
from scripts.evidence import (
    canon,
    components,
    contest,
    inheritance,
    months,
    page,
    pretrained,
    published,
    reference_numbers,
    scenarios,
    sweeps,
    transfer,
    units,
)
from scripts.evidence.evidence import PROTOCOLS, SETS, Evidence, read_evidence
from scripts.evidence.publish import publish
from scripts.evidence.reference_runs import SET, Beside, Number, read_source, resolved
from scripts.evidence.runs import EVIDENCE, ROOT, SEU, records
from scripts.pack_records import pack_records
from scripts.perf import page as perf
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.verification import request_of
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, write_record
from seu_bench.results.record_files import read_records

PUBLISHED = ROOT / "results" / "published"
FOLDERS = sorted(path.parent.relative_to(PUBLISHED).as_posix() for path in PUBLISHED.rglob("records.jsonl"))
REFERENCE_SWEEPS = sorted(path.stem for path in (ROOT / sweeps.FOLDER).glob("reference_*.toml"))


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """All published sets."""
    return read_evidence()


def a_run(name: str = "ewc", seed: int = 0, acc: float = 0.5, **fields: Any) -> Record:
    """A record of one seed."""
    component = "mdl" if name == SEU else None
    given = {
        "run_id": f"{name}-{seed}", "status": "finished", "strategy": name, "searcher": component,
        "creator": component, "benchmark": "one", "benchmark_version": 1, "protocol": "quick", "seed": seed,
        "data_fingerprint": "0" * 64, "metrics": {"acc": acc},
    }  # fmt: skip
    return Record.model_validate(given | fields)


def put(folder: Path, *runs: Record, name: str = "quick") -> Evidence:
    """The evidence of these records as a set."""
    (folder / name).mkdir(exist_ok=True)
    lines = "".join(f"{run.model_dump_json()}\n" for run in runs)
    (folder / name / "records.jsonl").write_text(lines, encoding="utf-8")
    return read_evidence(folder)


@pytest.mark.parametrize(
    "module",
    [
        page,
        scenarios,
        transfer,
        inheritance,
        units,
        months,
        pretrained,
        published,
        canon,
        contest,
        pytest.param(reference_numbers, marks=pytest.mark.long),
    ],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_page_comes_from_the_records(module: Any) -> None:
    """To the letter: no number of it is typed, and no verdict."""
    assert module.PAGE.read_text(encoding="utf-8") == module.rendered()


@pytest.mark.parametrize(("der", "said"), [(0.4, "it is so"), (0.2, "`icarl` is above `der`")])
def test_order_that_the_field_expects(tmp_path: Path, der: float, said: str) -> None:
    """Told by the records, and so is a network that died."""
    accuracies = {"joint": 0.5, "der": der, "icarl": 0.3, "naive": 0.1}
    learned = {"naive": [[0.9], [0.0, 0.5]], "icarl": [[0.9], [0.0, 0.6]]}
    runs = [
        a_run(name, 0, acc, accuracy_matrix=learned.get(name, []), task_classes=[2, 2])
        for name, acc in accuracies.items()
    ]
    put(tmp_path, *runs, name=canon.SET)
    (rows,) = canon.read_streams(tmp_path).values()
    *_, order, dead = canon.findings(rows)
    assert "The field's order" in order and said in order
    assert dead.endswith(": `naive`, seeds 0.")


def test_page_of_speed_comes_from_what_was_measured() -> None:
    document = PUBLISHED / "performance.json"
    made = "\n".join(perf.page(json.loads(document.read_text(encoding="utf-8")))) + "\n"
    assert made == document.with_suffix(".md").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS)
def test_sets_are_complete(tmp_path: Path, folder: str) -> None:
    """Every line can be read, and packing what is packed changes nothing."""
    assert seu_bench.load_records(PUBLISHED / folder).attrs["unreadable"] == []
    shutil.copy(PUBLISHED / folder / "records.jsonl", tmp_path)
    assert pack_records(tmp_path).read_bytes() == (PUBLISHED / folder / "records.jsonl").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("folder", FOLDERS)
def test_run_ids_stay(folder: str) -> None:
    """What was published is what a run would find: of each configuration the record of its first seed."""
    registry, seen = Registry(), set()
    for record in read_records(PUBLISHED / folder):
        assert isinstance(record, Record)
        configuration = (record.benchmark, record.protocol, record.strategy, record.searcher, record.creator)
        if configuration in seen or record.benchmark not in registry.benchmarks:
            continue
        seen.add(configuration)
        spec = resolve(registry, request_of(record)).spec
        if spec.benchmark.version == record.benchmark_version:
            assert (spec.run_id, record.threads) == (record.run_id, 1)


def test_every_run_is_ranked_and_its_seeds_are_those_of_the_others(evidence: Evidence) -> None:
    """Of one benchmark and protocol all are on the same images; a set may be incomplete."""
    for name in SETS:
        for group in evidence.sets[name]:
            found = [record for row in group.rows.values() for record in row.runs.values()]
            assert all(record.may_be_ranked for record in found)
            assert len({record.data_fingerprint for record in found}) == 1
            assert {record.protocol for record in found} == {name if name in ("half_day", "paper") else "quick"}


def test_seu_forgets_exactly_nothing(evidence: Evidence) -> None:
    """In no run of the evidence: each entry of a column of the accuracy matrix is the same number."""
    ours = [record for name in SETS for record in evidence.records(name) if record.strategy == SEU]
    assert len(ours) >= 9
    for record in ours:
        for task in range(len(record.accuracy_matrix)):
            assert len({row[task] for row in record.accuracy_matrix[task:]}) == 1
        assert record.metrics["forgetting"] == 0


def test_runs_beside_reference_numbers_are_whole() -> None:
    """On all test images, on one thread, and on as many training images as theirs but for those held out."""
    found = records(EVIDENCE / SET)
    assert found
    for record in found:
        assert (record.evaluation, record.limit, record.first_tasks, record.threads) == ("test", None, None, 1)
        if record.benchmark == "reference_pmnist":
            assert {test for _, _, test in record.task_images} == {10_000}
            images = {"mir": 1_000, "si": 60_000}.get(record.protocol, 59_994)
            assert {train for train, *_ in record.task_images} == {images}
        elif record.benchmark.startswith("reference_split_mnist"):
            assert sum(test for _, _, test in record.task_images) == 10_000


def test_chains_of_months_are_whole() -> None:
    """Each month extends the one before, and ten months from nothing end with the same weights."""
    chains = [it for of_strategy in months.read_chains().values() for it in of_strategy]
    assert {it.record.run_id for it in chains} == {it.run_id for it in records(EVIDENCE / months.SET)}
    for chain in chains:
        assert [it.months for it in chain.processes] == list(range(1, months.MONTHS + 1))
        assert chain.record.parent is not None and chain.record.parent.run_id == chain.processes[-2].run_id
        assert chain.is_same or chain.from_nothing is None
    assert all(chains[0].from_nothing for chains in months.read_chains().values())


def test_readme_claims_are_linked() -> None:
    """Every file named by the README's table of claims exists."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## What is measured") :].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "](" in line]
    assert len(rows) >= 5
    for row in rows:
        for link in re.findall(r"\]\(([^)#]+)", row):
            assert (ROOT / link).exists(), link


def test_sweeps_can_be_read() -> None:
    """Every file is of strategies and components that there are, and writes into its set."""
    registry = Registry()
    kinds = {"strategy": registry.strategies, "searcher": registry.searchers, "creator": registry.creators}
    for file, (name, _) in sweeps.FILES.items():
        spec = sweeps.sweep(file)
        assert spec.results.resolve() == ROOT / "results" / "evidence" / name and spec.match is None
        assert spec.protocol in PROTOCOLS and file.startswith(spec.protocol)
        for key, kind in kinds.items():
            assert [name for name in getattr(spec, key) if name not in kind] == [], file


def test_reference_sweeps() -> None:
    """Each is of a number, on a benchmark that is called as its file, and no leaderboard ranks these schedules."""
    source = read_source()
    named = {number.sweep for number in source.numbers} | {each.sweep for each in source.elsewhere if each.sweep}
    assert sorted(named) == REFERENCE_SWEEPS
    for number in source.numbers:
        spec = sweeps.sweep(number.sweep)
        assert resolved(spec, number.strategy).spec.benchmark.name == Path(spec.benchmark[0]).stem
        assert number.strategy in spec.strategy and all(len(values) == 1 for values in spec.axes.values())
    for name in REFERENCE_SWEEPS:
        spec = sweeps.sweep(name)
        assert spec.results.resolve() == ROOT / "results" / "evidence" / SET and spec.evaluation == "test"
        assert not resolved(spec, spec.strategy[0]).spec.protocol.ranked


@pytest.mark.parametrize(
    ("ours", "verdict"), [((0.8,), "within"), ((0.77, 0.83), "within"), ((0.769,), "below"), ((0.831,), "above")]
)
def test_verdicts_beside_a_number(ours: tuple[float, ...], verdict: str) -> None:
    """The mean over seeds, either way; the tolerance itself is within."""
    known: dict[str, Any] = {"theirs": 0.8, "tolerance": 0.03, "files": ("a",), "schedule": "", "differs": ("b",)}
    number = Number(sweep="one", setting="", strategy="gem", **known)
    spec = sweeps.sweep("reference_gem_pmnist")
    matrix = {"task_images": [(10, 1, 10)]}
    runs = tuple(a_run("gem", seed, accuracy_matrix=[[acc]], **matrix) for seed, acc in enumerate(ours))
    assert Beside(number, spec, "domain", runs, ()).verdict == verdict
    assert Beside(number, spec, "domain", (), ()).verdict == "not run"


def test_two_configurations_are_not_mixed(tmp_path: Path) -> None:
    """Two runs of a seed under one name: nothing is averaged over them. Seeds may differ in an option."""
    one, other = (a_run(seed=seed, options={"width": seed + 1.0}) for seed in (0, 1))
    (group,) = put(tmp_path, one, other).sets["quick"]
    assert list(group.rows["ewc"].runs) == [0, 1]
    with pytest.raises(ValueError, match="more than one run of a seed is called 'ewc'"):
        put(tmp_path, one, a_run(acc=0.6, options={"width": 3.0}, run_id="again"))


def test_page_of_nothing(tmp_path: Path) -> None:
    """No question is answered, and every set has the command that makes it."""
    text = page.rendered(tmp_path)
    assert "| 12 not run |" in text and "95 % interval |" not in text and "## Equal protocol" not in text
    assert text.count(": `seu-bench sweep scripts/evidence/sweeps/") == len(sweeps.FILES)


def test_each_method_has_a_published_number_or_a_reason() -> None:
    """In one table of the page; numbers that stand on two pages are the same."""
    listed = [name for group in published.SOURCE["groups"] for name in group["strategies"]]
    lines = published.read_lines(EVIDENCE)
    numbered, without = {line.strategy for line in lines}, set(published.SOURCE["without"])
    assert len(listed) == len(set(listed)) and set(Registry().strategies) <= set(listed)
    assert numbered | without == set(listed) and not numbered & without
    theirs = {number.sweep: number.theirs for number in read_source().numbers}
    shared = [line for line in lines if line.setting["name"] == "continual-learning-baselines"]
    assert len(shared) == 3
    for line in shared:
        assert (
            theirs[line.setting["command"].format(line.strategy).split("/")[-1][: -len(".toml")]] == line.theirs / 100
        )


def test_published_numbers_without_records(tmp_path: Path) -> None:
    """All are there, none has runs, and each has a command."""
    text, lines = published.rendered(tmp_path), published.read_lines(tmp_path)
    assert text.count("| not run |") == len(lines) > 60 and "0 have runs of ours" in text
    for line in lines:
        assert f"seu-bench {line.setting['command'].format(line.strategy)}`" in text


def test_commands_of_published_numbers() -> None:
    """Each can be run: benchmark and options fit the strategy."""
    registry = Registry()
    for command in {it.setting["command"].format(it.strategy) for it in published.read_lines(EVIDENCE) if not it.runs}:
        words = shlex.split(command)
        given = {key.strip("-"): value for key, value in zip(words[1::2], words[2::2], strict=True)}
        options = dict([given.pop("o").split("=")]) if "o" in given else {}
        benchmark = registry.benchmarks[given["benchmark"]].factory.load()
        if given["strategy"] in registry.strategies and given["protocol"] in benchmark.protocols:
            resolve(registry, Request(**given, options=options))


def test_records_beside_a_published_number(tmp_path: Path) -> None:
    """Of one configuration, by the metric of the number; two configurations are not averaged."""
    ours = {"set": "units", "benchmark": "one", "protocol": "quick", "options": {"width": ""}, "overrides": {}}
    matrix = [[1.0], [0.5, 0.5], [0.25, 0.25, 0.4]]
    run = a_run(accuracy_matrix=matrix, task_images=[(9, 1, 10)] * 3, options={"width": None})
    others = {
        "wide": {"options": {"width": 2.0}},
        "layers": {"benchmark_overrides": {"a": 1}},
        "paper": {"protocol": "paper"},
    }
    put(tmp_path, run, *(a_run(run_id=name, **fields) for name, fields in others.items()), name="units")
    assert [record.run_id for record in published.nearest(ours, "ewc", tmp_path)] == ["ewc-0"]
    assert published.nearest(ours, "gem", tmp_path) == published.nearest(ours | {"set": "other"}, "ewc", tmp_path) == ()
    for metric, percent in {"acc": 30, "image_acc": 30, "avg_incremental_acc": 60, "later_acc": 40}.items():
        line = published.Line({}, "ewc", metric, 50.0, (run,))
        assert line.difference == pytest.approx(percent - 50)
    with pytest.raises(ValueError, match="more than one run of a seed of 'ewc'"):
        published.nearest(ours | {"options": {}}, "ewc", tmp_path)


def test_finished_runs_are_published(tmp_path: Path) -> None:
    """Those that go on are not, and a set that has none stays as it was."""
    for seed, status in enumerate(("finished", "running", "finished")):
        write_record(tmp_path / "made" / "quick", a_run(seed=seed, status=status))
    write_record(tmp_path / "made" / "half_day", a_run(status="failed"))
    size = {"budget": "params", "run": "seu", "seeds": (0,), "target": 9, "value": 9, "option": "width", "chosen": 0.1}
    for when, acc in (("2026-01-02", 0.2), ("2026-01-01", 0.1)):  # the size of SEU changed as more of its runs finished
        write_record(tmp_path / "made" / "quick", a_run(acc=acc, matched=size, started=when, run_id=f"ewc-{acc}"))
    assert publish(tmp_path / "made", tmp_path / "published") == {"quick": 2, "parameters": 1}
    found = read_evidence(tmp_path / "published")
    assert found.sets["parameters"][0].rows["ewc"].mean("acc") == 0.2
    assert list(found.sets["quick"][0].rows["ewc"].runs) == [0, 2]
    assert not (tmp_path / "published" / "half_day").exists()


def test_share_that_is_reused() -> None:
    """Of the places of later tasks: task 1 reuses 1 of 2, task 2 reuses 2 of 2, one of them made by task 1."""
    record = a_run("seu", 0, 0.5, paths=((0, 0), (0, 1), (0, 1)), unit_tasks=((0,), (0, 1)))
    assert components.reused_share(record) == 0.75
    assert components.reused_share(a_run("ewc", 0, 0.5)) is None


@pytest.mark.parametrize(
    ("ease", "memory", "said"),
    [
        (0.50, 9, "is met."),
        (0.50, 20, "is **missed**: it keeps 20.0 MB, `ease` 10.0."),
        (0.795, 9, "is **missed**: it is not for `ease`."),
        (0.90, 11, "is **missed**: it is not for `ease`; it keeps 11.0 MB, `ease` 10.0."),
    ],
)
def test_goal_on_pretrained_features(tmp_path: Path, ease: float, memory: int, said: str) -> None:
    """Significantly more accurate than both by a point, in less memory; rows of other layers have their own name."""
    means = {"seu_adapt": (0.8, memory), "ranpac": (0.6, 20), "ease": (ease, 10)}
    runs = [
        a_run(name, seed, metrics={"acc": acc + 0.001 * (seed * len(name) % 4), "memory_bytes": size * 10**6})
        for name, (acc, size) in means.items()
        for seed in range(5)
    ]
    layered = a_run("ranpac", 0, 0.7, run_id="layers", benchmark_overrides={pretrained.LAYERS: [7, 8]})
    put(tmp_path, *runs, layered, name=pretrained.SET)
    (rows,) = pretrained.read_streams(tmp_path).values()
    assert list(rows) == sorted(rows, key=lambda name: -(rows[name].mean("acc") or 0)) and len(rows) == 4
    assert rows["ranpac (layers 7-8)"].run_ids == {0: "layers"}
    (goal,) = (it for it in pretrained.findings("one", rows, pretrained.compare({"one": rows})) if "goal" in it)
    assert goal.endswith(said)
