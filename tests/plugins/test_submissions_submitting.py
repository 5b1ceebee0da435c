"""``submit`` beside others, killed at every step, and among links: nothing is lost or written elsewhere."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save
from torch import tensor

from seu_bench.errors import ResultsError
from seu_bench.results.record import record_digest
from seu_bench.results.record_files import MODEL_NAME
from seu_bench_submissions.checking import check_submissions
from seu_bench_submissions.commands import submit_runs as submit
from seu_bench_submissions.manifest import Manifest, read_manifests

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published" / "evidence" / "half_day"

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
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs' folders of real records, one of them with a file for a model."""
    folder = tmp_path_factory.mktemp("results")
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


def put(results: Path, folder: Path, *runs: str) -> None:
    submit(runs, folder, "me", about={"submitter": "me", "licence": "MIT"}, results=results)


@pytest.mark.long
def test_eight_at_once_lose_nothing(results: Path, tmp_path: Path) -> None:
    """Two processes of each of four submitters, which begin together."""
    folder, go = tmp_path / "shared", results / "go"
    runs = names(results)
    common = [sys.executable, "-c", SUBMIT, str(folder), str(results)]
    asked = [[*common, run, "abcd"[place % 4]] for place, run in enumerate(runs)]
    processes = [subprocess.Popen(each, stderr=subprocess.PIPE, text=True) for each in asked]
    go.touch()
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, said
    manifests = dict(read_manifests(folder))
    assert sorted(manifests) == list("abcd")
    assert sorted(run for it in manifests.values() if isinstance(it, Manifest) for run in it.runs) == runs
    assert check_submissions(folder, seeds=1).findings == []


def test_submit_that_was_killed_at_any_step_can_be_repeated(results: Path, tmp_path: Path) -> None:
    asked = [sys.executable, "-c", KILLED, str(results), str(tmp_path), *names(results)[:2]]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=500, check=False)
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) > 15  # kills


@pytest.mark.parametrize("place", [".", "submissions", "runs", "run"])
def test_nothing_is_written_through_a_link(results: Path, tmp_path: Path, place: str) -> None:
    folder, elsewhere, run = tmp_path / "shared", tmp_path / "elsewhere", names(results)[0]
    path = folder / "runs" / run if place == "run" else folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    elsewhere.mkdir()
    path.symlink_to(elsewhere)
    with pytest.raises(ResultsError, match="link"):
        put(results, folder, run)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["record.json", MODEL_NAME])
def test_link_in_place_of_a_file_is_replaced(results: Path, tmp_path: Path, name: str) -> None:
    folder, elsewhere, run = tmp_path / "shared", tmp_path / "elsewhere", names(results)[0]
    path = folder / "runs" / run / name
    path.parent.mkdir(parents=True)
    elsewhere.write_text("mine")
    path.symlink_to(elsewhere)
    put(results, folder, run)
    assert elsewhere.read_text() == "mine"
    assert check_submissions(folder, seeds=1).findings == []


def test_own_results_do_not_become_a_shared_folder(results: Path) -> None:
    with pytest.raises(ResultsError, match="one's own results"):
        put(results, results, names(results)[0])
    assert not (results / "submissions").exists()


def test_second_submission_of_a_submitter_is_refused(results: Path, tmp_path: Path) -> None:
    first, second, *_ = names(results)
    put(results, tmp_path / "shared", first)
    with pytest.raises(ResultsError, match="this submission is me's") as raised:
        submit([second], tmp_path / "shared", "other", about={"submitter": " ME", "licence": "MIT"}, results=results)
    assert "--name me" in str(raised.value.remedy)
    assert names(tmp_path / "shared") == [first]
