"""A shared leaderboard's folder: three submitters, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seu_bench.errors import ResultsError, SpecError
from seu_bench.results.building import read_leaderboards
from seu_bench.results.record import record_digest
from seu_bench.results.record_files import MODEL_NAME
from seu_bench_submissions.checking import check_submissions
from seu_bench_submissions.commands import submit_runs as submit
from seu_bench_submissions.manifest import Manifest, SubmittedRun, find_harmful_texts, manifest_path, read_manifests

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published" / "evidence" / "half_day"
ABOUT = {"submitter": "Jane Doe", "licence": "CC-BY-4.0", "contact": "https://example.org", "note": ""}
#: Strategies of each submitter; each was run with three seeds on three benchmarks.
SUBMITTERS = {"jane": ("linear", "independent"), "group-b": ("naive",), "c": ("seu",)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder of real records, of three seeds each."""
    folder = tmp_path_factory.mktemp("results")
    shutil.copy(PUBLISHED / "records.jsonl", folder)
    return folder


def runs_of(results: Path, strategies: tuple[str, ...]) -> list[str]:
    documents = map(json.loads, (results / "records.jsonl").read_text().splitlines())
    return sorted(
        it["run_id"]
        for it in documents
        if it["strategy"] in strategies and it["creator"] in (None, "mdl") and it["benchmark"] != "pmnist"
    )


def put(results: Path, folder: Path, name: str, **more: Any) -> dict[str, SubmittedRun]:
    runs = runs_of(results, SUBMITTERS[name])
    return submit(runs, folder, name, about={**ABOUT, "submitter": name}, results=results, **more)


@pytest.fixture(scope="module")
def submitted(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What three people have submitted; no test changes it."""
    folder = tmp_path_factory.mktemp("submitted") / "shared"
    for name in SUBMITTERS:
        put(results, folder, name)
    return folder


@pytest.fixture
def shared(submitted: Path, tmp_path: Path) -> Path:
    """A copy of it, for a test to change."""
    return shutil.copytree(submitted, tmp_path / "shared", symlinks=True)


def reasons(folder: Path, **more: Any) -> list[str]:
    return [f"{it.submission}: {it.what}" for it in check_submissions(folder, **more).findings]


def changed(folder: Path, strategy: str, change: Callable[[dict[str, Any]], object], *, renew: bool = True) -> str:
    """Change the record of a run, as somebody who lies would: digest and manifest renewed."""
    path = sorted(folder.glob(f"runs/split_fashion-half_day-{strategy}-seed0-*/record.json"))[0]
    document = json.loads(path.read_text())
    before = document["record_sha256"]
    change(document)
    if renew:
        document["record_sha256"] = record_digest(document)
        for manifest in folder.glob("submissions/*.toml"):
            manifest.write_text(manifest.read_text().replace(before, document["record_sha256"]))
    path.write_text(json.dumps(document))
    return path.parent.name


# --- what is accepted ---------------------------------------------------------------------------------------------


def test_honest_runs_of_three_submitters_are_accepted_and_ranked(shared: Path) -> None:
    found = check_submissions(shared)
    assert found.findings == []
    assert set(found.manifests) == set(SUBMITTERS)
    assert len(found.records) == 24
    boards = read_leaderboards(shared).boards
    assert [(board.benchmark, len(board.rows)) for board in boards] == [("split_cifar100", 4), ("split_fashion", 4)]


def test_runs_are_added_to_a_submission(results: Path, tmp_path: Path) -> None:
    first, *others = runs_of(results, ("naive",))
    submit([first], tmp_path, "b", about=ABOUT, results=results)
    assert list(submit(others, tmp_path, "b", about=ABOUT, results=results)) == others
    ((name, manifest),) = read_manifests(tmp_path)
    assert isinstance(manifest, Manifest) and name == "b" and set(manifest.runs) == {first, *others}
    assert (manifest.submitter, manifest.licence, manifest.contact) == tuple(ABOUT.values())[:3]
    assert reasons(tmp_path) == []


# --- what is refused ----------------------------------------------------------------------------------------------


def test_record_that_is_not_the_manifests(shared: Path) -> None:
    def elsewhere(document: dict[str, Any]) -> None:
        document["started"] = "2020-01-01T00:00:00+00:00"
        document["record_sha256"] = record_digest(document)

    changed(shared, "naive", elsewhere, renew=False)
    assert reasons(shared) == ["group-b: its record is not the one that the manifest names"]


@pytest.mark.parametrize(
    ("change", "renew", "reason"),
    [
        (lambda it: it.update(status="failed"), True, "it is never ranked: the run is failed, not finished"),
        (lambda it: it["environment"].update(device="cpu \x1b[2J"), True, "control characters"),
        (lambda it: it.update(record_sha256=None), False, "it has no digest"),
        (lambda it: it["metrics"].update(acc=1.0), False, "the record was changed after the run's end"),
        (lambda it: it.pop("accuracy_matrix"), True, "the metric"),
        (lambda it: it.update(run_id="another"), True, "its record is of run another"),
    ],
)
def test_changed_record(shared: Path, change: Callable[[dict[str, Any]], object], renew: bool, reason: str) -> None:
    changed(shared, "naive", change, renew=renew)
    assert any(reason in found for found in reasons(shared))


def test_run_of_two_submissions(shared: Path) -> None:
    shutil.copy(manifest_path(shared, "group-b"), manifest_path(shared, "thief"))
    assert set(reasons(shared)) == {
        "thief: has been submitted by group-b",
        "thief: its submitter is that of group-b",
    }


def test_run_under_a_new_name(shared: Path) -> None:
    """The same run once more, with another seed and id."""
    source = sorted(shared.glob("runs/split_fashion-half_day-naive-seed0-*"))[0]
    copy = source.with_name("split_fashion-half_day-naive-seed9-0123456789")
    shutil.copytree(source, copy)
    document = json.loads((copy / "record.json").read_text())
    document |= {"run_id": copy.name, "seed": 9}
    document["record_sha256"] = digest = record_digest(document)
    (copy / "record.json").write_text(json.dumps(document))
    manifest = manifest_path(shared, "group-b")
    manifest.write_text(manifest.read_text() + f'{copy.name} = {{record_sha256 = "{digest}"}}\n')
    (found,) = reasons(shared)
    assert found.startswith("group-b: has the same")


def test_too_few_seeds(results: Path, tmp_path: Path) -> None:
    runs = [run for run in runs_of(results, ("linear",)) if "seed2" not in run]
    submit(runs, tmp_path, "few", about=ABOUT, results=results)
    assert reasons(tmp_path) == [
        "few: linear by few on split_cifar100-v2-half_day has 2 of 3 seeds",
        "few: linear by few on split_fashion-v2-half_day has 2 of 3 seeds",
    ]
    assert reasons(tmp_path, seeds=2) == []


def test_files_that_are_no_part_of_a_submission(shared: Path) -> None:
    run = sorted(shared.glob("runs/*naive*"))[0]
    (run / "setup.py").write_text("")
    (shared / "runs" / "stray").mkdir()
    (shared / "submissions" / "readme.md").write_text("")
    assert sorted(reasons(shared)) == [
        ": belongs to no submission: submit it, or remove it",
        "group-b: holds setup.py, which is no part of a submission",
        "readme: this is no manifest: its name must be of a-z, 0-9 and -, and end with .toml",
    ]


def test_run_that_is_missing_or_a_link(shared: Path) -> None:
    first, second = sorted(shared.glob("runs/*naive*"))[:2]
    shutil.rmtree(first)
    shutil.rmtree(second)
    second.symlink_to(sorted(shared.glob("runs/*linear*"))[0])
    assert reasons(shared) == ["group-b: has no folder in runs"] * 2


def test_model_that_is_not_the_records(shared: Path) -> None:
    run = sorted(shared.glob("runs/split_fashion*naive-seed0*"))[0]
    (run / MODEL_NAME).write_bytes(b"another")
    assert reasons(shared) == ["group-b: its model cannot be read: it is no file of safetensors"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('submitter = "<b>me</b>"', "holds markup"),
        ('submitter = "me\\u202e"', "holds control characters"),
        ('submitter = ""', "submitter"),
        ("schema_version = 2", "schema_version"),
        ("nonsense", "cannot be read as TOML"),
    ],
)
def test_manifest_that_is_none(shared: Path, line: str, fault: str) -> None:
    path = manifest_path(shared, "c")
    key = line.partition(" ")[0]
    path.write_text("\n".join(line if it.startswith(f"{key} ") else it for it in [*path.read_text().splitlines()]))
    if line == "nonsense":
        path.write_text(line)
    found = [it for it in check_submissions(shared).findings if it.submission == "c"]
    assert any(fault in it.what for it in found)


def test_submit_refuses_what_would_not_be_accepted_and_writes_nothing(results: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(results, mine)
    path = mine / "records.jsonl"
    first = runs_of(mine, ("naive",))[0]
    path.write_text(path.read_text().replace('"strategy":"naive"', '"strategy":"naive","note":"<script>"'))
    with pytest.raises(ResultsError, match=r"would not be accepted: .*markup"):
        submit(runs_of(mine, ("naive",)), tmp_path / "to", "b", about=ABOUT, results=mine)
    with pytest.raises(SpecError, match="fault"):
        submit([first], tmp_path / "to", "b", about={**ABOUT, "licence": ""}, results=results)
    assert not (tmp_path / "to").exists()


def test_submit_refuses_what_is_there(shared: Path, results: Path) -> None:
    with pytest.raises(ResultsError, match="has been submitted before"):
        put(results, shared, "jane")


def test_harmful_texts() -> None:
    value = {"a": ["fine", "<img src=x>"], "<b>": 1, "c": {"d": "JavaScript:alert(1)"}, "e": "a\u202eb"}
    found = [fault.partition(":")[0] for fault in find_harmful_texts(value)]
    assert found == ["a[1]", "the key", "c.d", "e"]
    assert list(find_harmful_texts(["a < b", "SEU, 3x3", "line\nline", "Ünïcödé 学習", None, 1])) == []


def test_submission_of_somebody_else_is_left_alone(shared: Path, results: Path) -> None:
    path = manifest_path(shared, "jane")
    before = path.read_text()
    with pytest.raises(ResultsError, match="this submission is jane's"):
        submit(runs_of(results, ("ewc",)), shared, "jane", about={**ABOUT, "submitter": "eve"}, results=results)
    assert path.read_text() == before


def test_what_an_interrupted_submission_left_can_be_submitted(results: Path, tmp_path: Path) -> None:
    """The manifest is written last."""
    put(results, tmp_path, "group-b")
    manifest_path(tmp_path, "group-b").unlink()
    put(results, tmp_path, "group-b")
    assert reasons(tmp_path) == []


def test_run_that_is_named_twice(results: Path, tmp_path: Path) -> None:
    first = runs_of(results, ("naive",))[0]
    with pytest.raises(ResultsError, match="named twice"):
        submit([first, first], tmp_path, "b", about=ABOUT, results=results)
