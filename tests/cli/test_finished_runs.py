"""A run that was finished before, asked for again: flags without effect are named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import FEW_IMAGES, Answer, Command

from seu_bench.results.record import Record, read_record


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "few.toml").write_text(FEW_IMAGES)
    (folder / "one.toml").write_text(FEW_IMAGES.replace("classes_per_task = 5", 'groups = [["0"], ["1", 2]]'))
    return folder


def run(command: Command, place: Path, *more: object, benchmark: str = "few") -> Answer:
    asked = ("run", "--strategy", "naive", "--benchmark", place / f"{benchmark}.toml", "--results", place / "results")
    answer = command(*asked, *more)
    assert answer.status == 0, answer.err
    return answer


def record_of(answer: Answer) -> Record:
    (path,) = re.findall(r"^record: (.+)$", answer.out, flags=re.MULTILINE)
    return read_record(Path(path))


@pytest.fixture(scope="module")
def first(command: Command, place: Path) -> Answer:
    return run(command, place, "--device", "cpu")


def test_flags_are_named(command: Command, place: Path, first: Answer) -> None:
    again = run(command, place, "--compile", "--no-weights", "--checkpoint-every", 5)
    assert again.err == (
        "without effect, because the run was finished before: --checkpoint-every 5, --compile, --no-weights "
        "(--restart makes it again)\n"
    )
    assert record_of(again) == record_of(first)


@pytest.fixture(scope="module")
def one_class(command: Command, place: Path) -> Answer:
    return run(command, place, benchmark="one")


def test_task_of_one_class(command: Command, place: Path, one_class: Answer) -> None:
    """Warned of at the start, told by ``cost``, written down, and not ranked: the leaderboard says why."""
    warning = "warning: task 'classes 0' has images of one class only"
    assert warning in one_class.err
    record = record_of(one_class)
    assert record.ranked and not record.may_be_ranked
    (place_of_it,) = record.one_class_tasks
    assert record.task_class_names[place_of_it] == ("0",)
    reason = "a task has one class only, and is 100 % by construction"
    assert one_class.out.endswith(f"leaderboard: none ({reason})\n")
    board = command("leaderboard", "--results", place / "results")
    assert f"not ranked: {reason} ({record.run_id})" in " ".join(board.out.split())
    cost = command("cost", "--strategy", "naive", "--benchmark", place / "one.toml")
    assert cost.out.splitlines()[-1].startswith(warning)
