"""``seu-bench predict`` and ``export`` as their users call them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.commands import Command, folder_of_run

from seu_bench.plugin.registry import Registry
from seu_bench.results.record import read_record

SMALL = ("--protocol", "smoke", "-o", "backbone=mlp", "-o", "epochs=4", "-o", "benchmark.stream.classes_per_task=5")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results folder of this module."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def run(command: Command, results: Path) -> Path:
    """A task-incremental run on digits."""
    return folder_of_run(command, "--strategy", "naive", *SMALL, "--device", "cpu", "--results", results)


@pytest.fixture(scope="module")
def one_head(command: Command, results: Path) -> Path:
    """A class-incremental one."""
    scenario = ("-o", "benchmark.stream.scenario=class")
    return folder_of_run(command, "--strategy", "naive", *SMALL, *scenario, "--device", "cpu", "--results", results)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Test digits as pictures in folders called like their classes."""
    folder = tmp_path_factory.mktemp("digits")
    test = Registry().datasets["digits"].factory.load(None).test
    for number, (image, label) in enumerate(zip(test.images, test.labels, strict=True)):
        (folder / str(label)).mkdir(exist_ok=True)
        Image.fromarray(image[0]).save(folder / str(label) / f"{number:03}.png")
    return folder


def test_accuracy_of_folders(command: Command, run: Path, digits: Path) -> None:
    """Of files in folders called like classes of the task, which are told from others; as the run was evaluated."""
    record = read_record(run)
    for task in (0, record.task_names[1]):
        number = record.task_names.index(task) if isinstance(task, str) else task
        answer = command("predict", run, digits, "--task", task, "--format", "csv", "--top", 2)
        lines = list(csv.DictReader(answer.out.splitlines()))
        assert answer.status == 0 and len(lines) == len(list(digits.rglob("*.png")))
        assert list(lines[0]) == ["file", "class_1", "probability_1", "class_2", "probability_2"]
        names = record.task_class_names[number]
        own = [line for line in lines if Path(line["file"]).parent.name in names]
        right = sum(line["class_1"] == Path(line["file"]).parent.name for line in own)
        assert f"{len(lines)} files; task {number} ({record.task_names[number]!r}); accuracy" in answer.err
        assert f"{100 * right / len(own):.1f} % of {len(own)} in folders" in answer.err
        assert f"not of {len(lines) - len(own)} others" in answer.err


def test_formats(command: Command, one_head: Path, digits: Path) -> None:
    """Table, CSV and JSON have the same answers; a head that answers for all tasks needs no label; quiet is quiet."""
    files = [digits / "3", *sorted((digits / "5").iterdir())[:2]]
    answers = {form: command("predict", one_head, *files, "--format", form) for form in ("table", "csv", "json")}
    assert all(answer.status == 0 and "no task label is needed" in answer.err for answer in answers.values())
    lines = [json.loads(line) for line in answers["json"].out.splitlines()]
    assert len(lines) == len(list((digits / "3").iterdir())) + 2
    for line, row in zip(lines, csv.DictReader(answers["csv"].out.splitlines()), strict=True):
        assert row["file"] == line["file"] and len(line["top"]) == 3
        shares = [entry["probability"] for entry in line["top"]]
        assert shares == sorted(shares, reverse=True)
        assert [row["class_1"], float(row["probability_1"])] == list(line["top"][0].values())
        assert line["file"] in answers["table"].out.replace("\n", "")
    everything = command("predict", one_head, files[1], "--top", 99, "--format", "json", "-q")
    (line,) = map(json.loads, everything.out.splitlines())
    assert len(line["top"]) == 10 and sum(it["probability"] for it in line["top"]) == pytest.approx(1, abs=1e-5)
    assert everything.err == ""


def test_unreadable_files(command: Command, one_head: Path, digits: Path, tmp_path: Path) -> None:
    """They are named at the end, with exit status 2; the others are answered."""
    good = sorted((digits / "3").iterdir())[0]
    for name in ("a.png", "b.jpg"):
        (tmp_path / name).write_text("no picture")
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(tmp_path / "c.png")
    for form in ("table", "csv", "json"):
        answer = command("predict", one_head, tmp_path, good, "--format", form)
        assert answer.status == 2 and "2 of 4 inputs are no usable images" in answer.err
        assert f"{tmp_path / 'a.png'}: " in answer.err and f"{tmp_path / 'b.jpg'}: " in answer.err
        assert str(good) in answer.out and str(tmp_path / "c.png") in answer.out and "a.png" not in answer.out


def test_what_is_not_done_is_told(command: Command, one_head: Path, digits: Path, tmp_path: Path) -> None:
    """Files of a folder that do not end like images, and a task whose label one head for all does not use."""
    good = sorted((digits / "3").iterdir())[0]
    for name in ("a.png", "b.heic", ".hidden"):
        (tmp_path / name).write_bytes(good.read_bytes())
    with pytest.warns(UserWarning, match="1 files that do not end like images are left out"):
        answer = command("predict", one_head, tmp_path, "--task", 0, "--format", "csv")
    assert answer.status == 0
    assert "answered with the classes of all tasks" in answer.err and "b.heic" not in answer.out
    answer = command("predict", one_head, tmp_path / "b.heic", "--format", "csv")
    assert answer.status == 0 and "b.heic" in answer.out


def test_refused(command: Command, run: Path, one_head: Path, digits: Path) -> None:
    """Nothing is printed but why, and what to do."""
    for arguments, told in (
        ((run, digits), "needs the task of the samples\n  hint: give one that it learned by --task 0 "),
        ((run, digits, "--task", "unheard"), "has not learned task unheard"),
        ((run, digits, "--task", "2"), "has not learned task 2"),
        ((one_head, digits / "nowhere"), "nowhere: no such file"),
        (("nobody", digits), "nobody"),
        ((one_head,), "Missing argument"),
        ((one_head, digits, "--top", 0), "--top"),
    ):
        answer = command("predict", *arguments)
        assert (answer.status, answer.out) == (2, "") and told in answer.err, arguments


def test_export(command: Command, run: Path, one_head: Path, tmp_path: Path) -> None:
    """A run of tasks asks which; another one needs no label."""
    assert "by --task 0 " in command("export", run).err
    answer = command("export", one_head, "--input", "float", "--output", tmp_path / "m.onnx", "-q")
    assert (answer.status, answer.out) == (0, f"{tmp_path / 'm.onnx'}\n")
