"""A shared leaderboard's folder: three submitters, what is refused, and ``submit`` beside others, killed at every step,
and among links: nothing is lost or written elsewhere."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save
from support.commands import Command
from torch import tensor

from seu_bench.errors import ExitStatus, ResultsError, SpecError
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
    with pytest.raises(ResultsError, match="named twice"):
        submit([first, first], tmp_path / "to", "b", about=ABOUT, results=results)
    with pytest.raises(SpecError, match="fault"):
        submit([first], tmp_path / "to", "b", about={**ABOUT, "licence": ""}, results=results)
    assert not (tmp_path / "to").exists()


def test_harmful_texts() -> None:
    value = {"a": ["fine", "<img src=x>"], "<b>": 1, "c": {"d": "JavaScript:alert(1)"}, "e": "a\u202eb"}
    found = [fault.partition(":")[0] for fault in find_harmful_texts(value)]
    assert found == ["a[1]", "the key", "c.d", "e"]
    assert list(find_harmful_texts(["a < b", "SEU, 3x3", "line\nline", "Ünïcödé 学習", None, 1])) == []


#: Submit a run when the file ``go`` is there.
SUBMIT = """
import sys, time
from pathlib import Path
from seu_bench_submissions.commands import submit_runs as submit

folder, results, run, name = map(Path, sys.argv[1:])
while not (results / "go").exists():
    time.sleep(0.01)
submit([str(run)], folder, str(name), about={"submitter": str(name), "licence": "MIT"}, results=results)
"""

#: Submit runs in a process that is killed at its 1st, 2nd, ... step that changes a file or a folder, and then again.
KILLED = """
import os, signal, sys
from pathlib import Path
from seu_bench_submissions.checking import check_submissions
from seu_bench_submissions.commands import submit_runs as submit

results, folder, *runs = map(Path, sys.argv[1:])
steps = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}

def submitted(to):
    submit([run.name for run in runs], to, "me", about={"submitter": "me", "licence": "MIT"}, results=results)

def killed_at(last, to):
    seen = 0
    def count(event, arguments):
        nonlocal seen
        if event in steps or (event == "open" and (arguments[2] or 0) & os.O_CREAT):
            seen += 1
            if seen == last:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    submitted(to)

for last in range(1, 1000):
    to = folder / str(last)
    if not (child := os.fork()):
        killed_at(last, to)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        break
    try:
        submitted(to)
    except Exception as error:
        if "submitted before" not in str(error):
            raise
    found = check_submissions(to, seeds=1)
    assert (found.findings, len(found.records), len(found.models)) == ([], len(runs), 1), (last, found.findings)
print(last - 1)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs' folders of real records, one of them with a file for a model."""
    folder = tmp_path_factory.mktemp("made")
    documents = [json.loads(line) for line in (PUBLISHED / "records.jsonl").read_text().splitlines()]
    for number, document in enumerate([it for it in documents if it["strategy"] == "naive"][:8]):
        run = folder / "runs" / document["run_id"]
        run.mkdir(parents=True)
        if not number:
            (run / MODEL_NAME).write_bytes(model := save({"weight": tensor([1.0])}))
            document["weights_sha256"] = hashlib.sha256(model).hexdigest()
            document["record_sha256"] = record_digest(document)
        (run / "record.json").write_text(json.dumps(document))
    return folder


def names(results: Path) -> list[str]:
    return sorted(path.name for path in (results / "runs").iterdir())


def put_mine(results: Path, folder: Path, *runs: str) -> None:
    submit(runs, folder, "me", about={"submitter": "me", "licence": "MIT"}, results=results)


@pytest.mark.long
def test_eight_at_once_lose_nothing(made: Path, tmp_path: Path) -> None:
    """Two processes of each of four submitters, which begin together."""
    folder, go = tmp_path / "shared", made / "go"
    runs = names(made)
    common = [sys.executable, "-c", SUBMIT, str(folder), str(made)]
    asked = [[*common, run, "abcd"[place % 4]] for place, run in enumerate(runs)]
    processes = [subprocess.Popen(each, stderr=subprocess.PIPE, text=True) for each in asked]
    go.touch()
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, said
    manifests = dict(read_manifests(folder))
    assert sorted(manifests) == list("abcd")
    assert sorted(run for it in manifests.values() if isinstance(it, Manifest) for run in it.runs) == runs
    assert check_submissions(folder, seeds=1).findings == []


def test_submit_that_was_killed_at_any_step_can_be_repeated(made: Path, tmp_path: Path) -> None:
    asked = [sys.executable, "-c", KILLED, str(made), str(tmp_path), *names(made)[:2]]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=500, check=False)
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) > 15  # kills


@pytest.mark.parametrize("place", [".", "submissions", "runs", "run"])
def test_nothing_is_written_through_a_link(made: Path, tmp_path: Path, place: str) -> None:
    folder, elsewhere, run = tmp_path / "shared", tmp_path / "elsewhere", names(made)[0]
    path = folder / "runs" / run if place == "run" else folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    elsewhere.mkdir()
    path.symlink_to(elsewhere)
    with pytest.raises(ResultsError, match="link"):
        put_mine(made, folder, run)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["record.json", MODEL_NAME])
def test_link_in_place_of_a_file_is_replaced(made: Path, tmp_path: Path, name: str) -> None:
    folder, elsewhere, run = tmp_path / "shared", tmp_path / "elsewhere", names(made)[0]
    path = folder / "runs" / run / name
    path.parent.mkdir(parents=True)
    elsewhere.write_text("mine")
    path.symlink_to(elsewhere)
    put_mine(made, folder, run)
    assert elsewhere.read_text() == "mine"
    assert check_submissions(folder, seeds=1).findings == []


def test_own_results_do_not_become_a_shared_folder(made: Path) -> None:
    with pytest.raises(ResultsError, match="one's own results"):
        put_mine(made, made, names(made)[0])
    assert not (made / "submissions").exists()


def test_second_submission_of_a_submitter_is_refused(made: Path, tmp_path: Path) -> None:
    first, second, *_ = names(made)
    put_mine(made, tmp_path / "shared", first)
    with pytest.raises(ResultsError, match="this submission is me's") as raised:
        submit([second], tmp_path / "shared", "other", about={"submitter": " ME", "licence": "MIT"}, results=made)
    assert "--name me" in str(raised.value.remedy)
    assert names(tmp_path / "shared") == [first]


def test_folder_that_holds_none_is_refused(command: Command, made: Path, tmp_path: Path) -> None:
    assert command("check-submission", tmp_path / "nowhere").status == ExitStatus.REFUSED
    answer = command("check-submission", made)
    assert answer.status == ExitStatus.REFUSED and "there are no submissions in this folder" in answer.err


def test_hostile_submitter_or_model_is_refused(command: Command, made: Path, tmp_path: Path) -> None:
    """And nothing is written."""
    mine = shutil.copytree(made, tmp_path / "mine")
    asked = ("submit", *names(mine), "--results", mine, "--to", tmp_path / "to", "--licence", "MIT", "--submitter")
    for submitter, reason in (("<script>alert(1)</script>", "holds markup"), ("me", "the model is not the one that")):
        answer = command(*asked, submitter)
        (model,) = mine.glob(f"runs/*/{MODEL_NAME}")
        model.write_bytes(save({"weight": tensor([2.0])}))
        assert answer.status == ExitStatus.REFUSED and reason in answer.err
    assert not (tmp_path / "to").exists()


def test_runs_without_models_cannot_be_measured_again(command: Command, made: Path, tmp_path: Path) -> None:
    about = ("--no-models", "--name", "me", "--submitter", "Jane Doe, Lab", "--licence", "CC-BY-4.0")
    command("submit", *names(made), "--results", made, "--to", tmp_path, *about)
    assert not list(tmp_path.glob(f"runs/*/{MODEL_NAME}"))
    answer = command("check-submission", tmp_path, "--seeds", 1)
    assert answer.out.startswith("8 runs of 1 submissions: accepted\nmodels measured again: 0 of 0, ")
    assert "without models, so that all accuracies are stated" in command("leaderboard", "--results", tmp_path).out
