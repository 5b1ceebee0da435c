"""The evidence page on made-up records: it says what the numbers say, whatever is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the scripts are no installed package

from scripts.evidence import claims, components, sweeps, tables
from scripts.evidence.claims import Finding
from scripts.evidence.evidence import Evidence, read_evidence
from scripts.evidence.page import rendered
from scripts.evidence.publish import publish as publish_runs
from scripts.evidence.runs import CONTROL, PAPER
from seu_bench.results.record import Record, write_record

#: What noise adds to the values of three seeds: equal for all rows but for a little.
NOISE = (0.0, 0.01, -0.01)
Publish = Callable[..., Evidence]


def a_run(name: str, seed: int, metrics: Mapping[str, float], **fields: Any) -> Record:
    """A record of one seed; a name such as ``seu: random, all_new`` says searcher and creator."""
    strategy, _, pair = name.partition(": ")
    searcher, creator = pair.split(", ") if pair else ("mdl", "mdl") if name == "seu" else (None, None)
    given = {
        "run_id": f"{strategy}-{searcher}-{creator}-{fields.get('benchmark', 'one')}-{seed}",
        "status": "finished",
        "strategy": strategy,
        "searcher": searcher,
        "creator": creator,
        "benchmark": "one",
        "benchmark_version": 1,
        "protocol": "quick",
        "seed": seed,
        "data_fingerprint": "0" * 64,
        "metrics": dict(metrics),
    }
    return Record.model_validate(given | fields)


@pytest.fixture
def publish(tmp_path: Path) -> Publish:
    """Write records of sets, given as metrics by name of row: a value for all seeds, or one for each."""

    def write(seeds: int = 3, **sets: Mapping[str, Mapping[str, float | Sequence[float]]]) -> Evidence:
        for folder, rows in sets.items():
            (tmp_path / folder).mkdir()
            lines = []
            for name, metrics in rows.items():
                for seed in range(seeds):
                    values = {
                        metric: value[seed] if isinstance(value, Sequence) else value + NOISE[seed % 3]
                        for metric, value in metrics.items()
                    }
                    lines.append(a_run(name, seed, values).model_dump_json())
            (tmp_path / folder / "records.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return read_evidence(tmp_path)

    return write


def found(evidence: Evidence, text: str) -> Finding:
    """The finding whose claim begins so."""
    return next(each for each in claims.findings(evidence) if each.text.startswith(text))


def accuracies(values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    return {name: {"acc": value} for name, value in values.items()}


# --- claims -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ewc", "status", "detail"),
    [
        (0.50, "stands", "`one` 4 of 4"),
        (0.80, "stands in part", "`one` 3 of 4 (not told beside `ewc`)"),
        (0.90, "stands in part", "`one` 3 of 4 (below `ewc`)"),
    ],
)
def test_a_claim_is_judged_by_the_records(publish: Publish, ewc: float, status: str, detail: str) -> None:
    """All comparisons significant, one that is not, one the other way round."""
    rows = accuracies({"seu": 0.8, "naive": 0.2, "ltg": 0.3, "pnn": 0.4, "ewc": ewc})
    said = found(publish(quick=rows), "SEU is more accurate than the paper's")
    assert (said.status, said.detail) == (status, detail)


def test_holm_changes_a_claim(publish: Publish) -> None:
    """A difference with p = 0.03 stands alone, and not beside three more that say nothing."""
    seu, ewc = [0.60, 0.62, 0.64], [0.50, 0.56, 0.52]
    unclear = {"acc": [0.5, 0.7, 0.6]}
    alone = publish(quick={"seu": {"acc": seu}, "ewc": {"acc": ewc}})
    (only,) = (each for each in alone.compared("quick", "acc") if each.pair.one == "seu")
    assert 0.02 < (only.difference.p_value or 1) < 0.05 and only.side == "above"
    others = {name: unclear for name in PAPER if name != "ewc"}
    together = publish(half_day={"seu": {"acc": seu}, "ewc": {"acc": ewc}, **others})
    said = {each.pair.other: each.side for each in together.compared("half_day", "acc") if each.pair.one == "seu"}
    assert set(said.values()) == {"not told"} and len(said) == 4


def test_components_are_compared_with_their_controls(publish: Publish) -> None:
    """Searchers with the random one, creators with the paper's, each with the other component as it is; SEU itself and
    its control are those of the protocol."""
    evidence = publish(
        quick=accuracies({"seu": 0.8, CONTROL: 0.6}),
        components=accuracies({"seu: random, mdl": 0.5, "seu: random, frugal": 0.4, "seu: mdl, frugal": 0.7}),
    )
    pairs = {(each.pair.one, each.pair.other) for each in evidence.compared("components", "acc")}
    assert pairs == {
        ("seu", "seu: random, mdl"), ("seu: mdl, frugal", "seu: random, frugal"),
        ("seu: mdl, frugal", "seu"), ("seu: random, frugal", "seu: random, mdl"), (CONTROL, "seu: random, mdl"),
    }  # fmt: skip
    said = found(evidence, "The MDL search is more accurate")
    assert (said.status, said.detail) == ("stands", "`one` 2 of 2")
    assert components.component_comparisons(evidence).count("| `seu: mdl, frugal` |") == 2


# --- tables -------------------------------------------------------------------------------------------------------


def test_front_has_no_reference_and_nothing_that_is_beaten(publish: Publish) -> None:
    """`ewc` is beaten by `seu`; `joint` would beat all and is a reference."""
    values = {"seu": (0.8, 2), "ewc": (0.7, 3), "pnn": (0.9, 9), "naive": (0.1, 1), "joint": (1.0, 1)}
    rows = {name: {"acc": [acc] * 3, "memory_bytes": [size] * 3} for name, (acc, size) in values.items()}
    (group,) = publish(quick=rows).sets["quick"]
    assert tables.front(group.learners) == ["naive", "seu", "pnn"]
    text = tables.contest(group).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text if "`" in line]
    assert rows[:4] == [["1", "**`pnn`**"], ["2", "**`seu`**"], ["3", "`ewc`"], ["4", "**`naive`**"]]
    assert rows[4][0] == "`joint`"


# --- records that do not fit ----------------------------------------------------------------------------------------


def test_two_configurations_are_not_mixed(tmp_path: Path) -> None:
    """Two runs of a seed under one name: nothing is averaged over them. Seeds may differ in an option."""
    (tmp_path / "quick").mkdir()
    file = tmp_path / "quick" / "records.jsonl"
    one, other = (a_run("ewc", seed, {"acc": 0.5}, options={"width": seed + 1.0}) for seed in (0, 1))
    file.write_text(f"{one.model_dump_json()}\n{other.model_dump_json()}\n", encoding="utf-8")
    (group,) = read_evidence(tmp_path).sets["quick"]
    assert list(group.rows["ewc"].runs) == [0, 1]
    again = a_run("ewc", 0, {"acc": 0.6}, options={"width": 3.0}, run_id="again")
    file.write_text(f"{one.model_dump_json()}\n{again.model_dump_json()}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="more than one run of a seed is called 'ewc'"):
        read_evidence(tmp_path)


def test_page_of_nothing(tmp_path: Path) -> None:
    """Every claim is unmeasured, and every set has the command that makes it."""
    text = rendered(tmp_path)
    assert "## What was not measured" in text and "## What stands\n" not in text and "## Equal protocol" not in text
    assert text.count(": `seu-bench sweep scripts/evidence/sweeps/") == len(sweeps.FILES)


def test_finished_runs_are_published(tmp_path: Path) -> None:
    """Those that go on are not, and a set that has none stays as it was."""
    for seed, status in enumerate(("finished", "running", "finished")):
        write_record(tmp_path / "made" / "quick", a_run("ewc", seed, {"acc": 0.5}, status=status))
    write_record(tmp_path / "made" / "half_day", a_run("ewc", 0, {"acc": 0.5}, status="failed"))
    size = {"budget": "params", "run": "seu", "seeds": (0,), "target": 9, "value": 9, "option": "width", "chosen": 0.1}
    for when, acc in (("2026-01-02", 0.2), ("2026-01-01", 0.1)):  # the size of SEU changed as more of its runs finished
        write_record(
            tmp_path / "made" / "quick", a_run("ewc", 0, {"acc": acc}, matched=size, started=when, run_id=f"ewc-{acc}")
        )
    assert publish_runs(tmp_path / "made", tmp_path / "published") == {"quick": 2, "parameters": 1}
    (group,) = read_evidence(tmp_path / "published").sets["parameters"]
    assert group.rows["ewc"].mean("acc") == 0.2
    (group,) = read_evidence(tmp_path / "published").sets["quick"]
    assert list(group.rows["ewc"].runs) == [0, 2]
    assert not (tmp_path / "published" / "half_day").exists()


def test_what_was_not_run_is_counted(tmp_path: Path) -> None:
    """A sweep is pending until each of its runs has a record; then it is not named."""
    (tmp_path / "components").mkdir()
    wanted = list(sweeps.runs_of(sweeps.sweep("quick_7_darts")))
    assert ("split_fashion", "seu: darts, frugal", 2) in wanted and len(wanted) == 6
    lines = [a_run(name, seed, {"acc": 0.5}, benchmark=place).model_dump_json() + "\n" for place, name, seed in wanted]
    file = tmp_path / "components" / "records.jsonl"
    file.write_text("".join(lines[:4]), encoding="utf-8")
    told = {title: counts for title, *counts, _ in sweeps.pending(read_evidence(tmp_path))}
    assert told["the searcher `darts`"] == [4, 6] and len(told) == len(sweeps.FILES)
    file.write_text("".join(lines), encoding="utf-8")
    assert "the searcher `darts`" not in {title for title, *_ in sweeps.pending(read_evidence(tmp_path))}


def test_share_that_is_reused() -> None:
    """Of the places of later tasks: task 1 reuses 1 of 2, task 2 reuses 2 of 2, one of them made by task 1."""
    record = a_run("seu", 0, {}, paths=((0, 0), (0, 1), (0, 1)), unit_tasks=((0,), (0, 1)))
    assert components.reused_share(record) == 0.75
    assert components.reused_share(a_run("ewc", 0, {})) is None
