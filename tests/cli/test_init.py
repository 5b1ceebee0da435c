"""Folders of images from the command line: run as they are, or by the file that ``seu-bench init`` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from support.commands import Command

from seu_bench.cli.init import init
from seu_bench.config import Request
from seu_bench.engine.resolve import resolve
from seu_bench.plugin import Registry
from seu_bench.results.record import read_record

NAMES = ("zero", "one", "two", "three", "four", "five")
#: What a run takes that is over in no time.
FAST = ("--strategy", "naive", "-o", "backbone=mlp", "--protocol", "smoke")


@pytest.fixture
def products(tmp_path: Path) -> Path:
    """Six digits of scikit-learn as pictures, 30 of each."""
    images, labels = load_digits(return_X_y=True)
    for label, name in enumerate(NAMES):
        (tmp_path / "products" / name).mkdir(parents=True)
        for number, image in enumerate(images[labels == label][:30]):
            picture = Image.fromarray(np.uint8(image.reshape(8, 8) * 15.9))
            picture.save(tmp_path / "products" / name / f"{number}.png")
    return tmp_path / "products"


def where(folder: Path) -> tuple[object, ...]:
    return "--results", folder.parent / "results", "--data-root", folder.parent / "data"


def run_ids(answer: str) -> list[str]:
    return re.findall(r"^record: .*/([^/]+)/record\.json$", answer, re.MULTILINE)


@pytest.mark.long
def test_the_command_as_it_is_typed(command: Command, products: Path) -> None:
    """The default strategy learns it, without a task label; the time is told before, and nothing is done twice."""
    asked = ("run", "--benchmark", f"{products}/", "--classes-per-task", 2, *where(products))
    first = command(*asked)
    assert first.status == 0, first.err
    told = r"6 classes in 3 tasks \(five, four \| one, three \| two, zero\), 8x8, grey: .*/products\.toml"
    assert re.search(told, first.err)
    assert re.search(r"seu on products \(quick\), seed 0: 3 tasks, [\d,]+ image passes, about \d", first.err)
    (run_id,) = run_ids(first.out)
    record = read_record(products.parent / "results" / "runs" / run_id / "record.json")
    assert (record.scenario, record.task_order, record.options["infer_task"]) == ("class", (0, 1, 2), "entropy")
    assert record.task_names == ("five, four", "one, three", "two, zero")
    assert (products.parent / "results" / str(record.benchmark_file)).resolve().is_file()
    again = command(*asked)
    assert run_ids(again.out) == [run_id] and "the run was finished before" in again.out
    told = command(*asked, "-o", "benchmark.stream.scenario=task", "--protocol", "smoke")
    assert told.status == 0 and "seu + mdl + mdl on products (protocol smoke)" in told.out, told.err


def test_further_picture_is_another_run(command: Command, products: Path) -> None:
    """What the file was printed for is what the folder itself is."""
    asked = ("run", "--benchmark", products, "--classes-per-task", 3, *FAST, *where(products))
    (first,) = run_ids(command(*asked).out)
    printed = command("init", products, "--classes-per-task", 3)
    assert (printed.status, printed.err) == (0, "")
    (products.parent / "mine.toml").write_text(printed.out, encoding="utf-8")
    by_file = command("run", "--benchmark", products.parent / "mine.toml", *FAST, *where(products))
    assert run_ids(by_file.out) == [first] and "finished before" in by_file.out
    (products / "one" / "0.png").rename(products / "one" / "30.png")
    (second,) = run_ids(command(*asked).out)
    assert second != first
    assert len(list((products.parent / "results" / "streams").iterdir())) == 1


def test_paths_of_the_printed_file(
    command: Command, products: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they were given, from the working folder, where its user saves it; tasks of a list have the list's path."""
    rows = [f"{file.relative_to(products.parent)},{file.parent.name},june" for file in products.rglob("*.png")]
    (products.parent / "list.csv").write_text("\n".join(["path,label,task", *rows]))
    monkeypatch.chdir(products.parent)
    init.main(["products/", "--classes-per-task", "6", "--size", "16"], standalone_mode=False)
    printed = capsys.readouterr().out
    assert 'path = "products"' in printed and "size = 16" in printed
    Path("mine.toml").write_text(printed, encoding="utf-8")
    assert resolve(Registry(), Request(strategy="naive", benchmark="mine.toml")).plan().classes_per_task == (6,)
    init.main(["list.csv"], standalone_mode=False)
    printed = capsys.readouterr().out
    assert 'path = "list.csv"' in printed and 'task = "june"' in printed
    refused = command("init", products)
    assert (refused.status, refused.out) == (2, "") and "hint: add --classes-per-task 2" in refused.err


@pytest.mark.long
def test_other_commands(command: Command, products: Path) -> None:
    """A forecast, a sweep and a tuning take a folder too; finished jobs are found again."""
    asked = ("--benchmark", products, "--classes-per-task", 2, "--protocol", "smoke")
    cost = command("cost", *asked, "--strategy", "naive", "--no-time", "--format", "json", *where(products))
    assert json.loads(cost.out)["tasks"] == ["five, four", "one, three", "two, zero"]
    sweep = ("sweep", *asked, "--strategy", "naive,replay", "-o", "backbone=mlp", "--jobs", 1, *where(products))
    assert command(*sweep).status == 0
    assert "2 finished, 0 pending" in command(*sweep).out
    tuned = command("tune", *asked, "--strategy", "ewc", "-o", "backbone=mlp", "-g", "ewc_lambda=1,10", "--seeds", 100,
                    "--method", "first-tasks:2", "--jobs", 1, *where(products))  # fmt: skip
    assert tuned.status == 0 and "chosen: ewc_lambda" in tuned.out, tuned.err
