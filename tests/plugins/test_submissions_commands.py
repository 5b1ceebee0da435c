"""``seu-bench submit`` and ``check-submission`` on real runs with models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.commands import Command

from seu_bench.errors import ExitStatus
from seu_bench.results.record import record_digest
from seu_bench.results.record_files import MODEL_NAME

ABOUT = ("--submitter", "Jane Doe, Lab", "--licence", "CC-BY-4.0")


@pytest.fixture(scope="module")
def results(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of a second each."""
    folder = tmp_path_factory.mktemp("results")
    asked = ("--strategy", "naive", "--protocol", "quick", "-o", "epochs=1", "--device", "cpu")
    assert command("sweep", *asked, "--seeds", "0-2", "--jobs", 1, "--results", folder).status == 0
    return folder


@pytest.fixture
def shared(command: Command, results: Path, tmp_path: Path) -> Path:
    """The runs submitted by one person."""
    runs = sorted((results / "runs").iterdir())
    answer = command("submit", *runs, "--results", results, "--to", tmp_path / "shared", *ABOUT)
    assert answer.status == 0, answer.err
    assert f"3 runs, 3 of them with models: {tmp_path}/shared/submissions/jane-doe-lab.toml" in answer.out
    return tmp_path / "shared"


def test_honest_runs_are_accepted_and_shown(command: Command, shared: Path) -> None:
    answer = command("check-submission", shared, "--verify", 2, "--format", "json")
    assert answer.status == 0, answer.out
    found = json.loads(answer.out)
    assert (found["accepted"], found["findings"], len(found["verified"])) == (True, [], 2)
    assert "naive" in command("leaderboard", "--results", shared, "--format", "csv").out
    page = shared.parent / "page.html"
    assert command("report", "--results", shared, "--figures", 0, "--output", page).status == 0
    assert "naive" in page.read_text()
    assert command("leaderboard", "--results", shared / "nowhere").status == ExitStatus.REFUSED


def test_what_is_refused_is_told_with_its_reason(command: Command, shared: Path) -> None:
    path = sorted(shared.glob("runs/*/record.json"))[0]
    path.write_text(path.read_text().replace('"status": "finished"', '"status": "finished", "note": "<script>"'))
    answer = command("check-submission", shared, "--verify", 0)
    assert answer.status == ExitStatus.NOT_MET
    assert "the record was changed after the run's end" in answer.out
    assert "note: '<script>' holds markup" in answer.out
    assert "3 runs of 1 submissions: 2 reasons to refuse" in answer.out


def test_an_accuracy_that_only_the_model_contradicts_is_found_by_measuring_again(
    command: Command, shared: Path
) -> None:
    """Everything that can be computed from the record is renewed; the seal in the model's file is as well."""
    for path in shared.glob("runs/*/record.json"):
        document = json.loads(path.read_text())
        test = document["task_images"][0][2]
        row = document["accuracy_matrix"][-1]
        row[0] = (round(row[0] * test) - 1) / test
        document["metrics"] = {}
        before = document["record_sha256"]
        document["record_sha256"] = record_digest(document)
        path.write_text(json.dumps(document))
        for manifest in shared.glob("submissions/*.toml"):
            manifest.write_text(manifest.read_text().replace(before, document["record_sha256"]))
    quick = command("check-submission", shared, "--verify", 0)
    assert quick.status == 0, quick.out
    answer = command("check-submission", shared)
    assert answer.status == ExitStatus.NOT_MET
    assert "accuracy: accuracy_matrix[4][0]: recorded" in " ".join(answer.out.split())


def test_another_model_is_not_the_records(command: Command, shared: Path) -> None:
    first, second = sorted(shared.glob(f"runs/*/{MODEL_NAME}"))[:2]
    shutil.copy(second, first)
    answer = command("check-submission", shared)
    assert answer.status == ExitStatus.NOT_MET
    assert "its model is not the one that record and manifest name" in " ".join(answer.out.split())


def test_a_folder_that_is_not_there_is_refused(command: Command, tmp_path: Path) -> None:
    assert command("check-submission", tmp_path / "nowhere").status == ExitStatus.REFUSED


def test_a_folder_without_submissions_is_refused(command: Command, results: Path) -> None:
    answer = command("check-submission", results)
    assert answer.status == ExitStatus.REFUSED
    assert "there are no submissions in this folder" in answer.err


def test_runs_without_models_cannot_be_measured_again(command: Command, results: Path, tmp_path: Path) -> None:
    runs = sorted((results / "runs").iterdir())
    command("submit", *runs, "--results", results, "--to", tmp_path, "--no-models", "--name", "me", *ABOUT)
    assert not list(tmp_path.glob(f"runs/*/{MODEL_NAME}"))
    answer = command("check-submission", tmp_path)
    assert answer.out.startswith("3 runs of 1 submissions: accepted\nmodels measured again: 0 of 0, ")
    assert "runs without a model, whose accuracies are stated: 3" in answer.out
    assert "without models, so that all accuracies are stated" in command("leaderboard", "--results", tmp_path).out


def test_hostile_submitter_is_refused_and_nothing_written(command: Command, results: Path, tmp_path: Path) -> None:
    runs = sorted((results / "runs").iterdir())
    about = ("--submitter", "<script>alert(1)</script>", "--licence", "MIT")
    answer = command("submit", *runs, "--results", results, "--to", tmp_path / "to", *about)
    assert answer.status == ExitStatus.REFUSED
    assert "holds markup" in answer.err
    assert not (tmp_path / "to").exists()


def test_model_that_is_not_the_records_is_not_submitted(command: Command, results: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(results, mine)
    first, second = sorted(mine.glob(f"runs/*/{MODEL_NAME}"))[:2]
    shutil.copy(second, first)
    answer = command("submit", first.parent.name, "--results", mine, "--to", tmp_path / "to", *ABOUT)
    assert answer.status == ExitStatus.REFUSED
    assert "the model is not the one that the record names" in answer.err
    assert not (tmp_path / "to").exists()
