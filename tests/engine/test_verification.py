"""``seu-bench verify``: what holds, what was changed, and what cannot be checked."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import Answer, Command, RunFolders

from seu_bench.engine.resolve import resolve
from seu_bench.engine.verification import request_of
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import read_record, write_record
from seu_bench.results.record_files import MODEL_NAME

SMALL = ("--protocol", "smoke", "--limit", 12, "-o", "epochs=1", "--device", "cpu")
CHECKS = "record,run id,weights,sealed copy,model,data,tasks,accuracy,params_total,mask_bits,params_active,macs,metrics"

#: Our own strategies and, of Avalanche's, those that touch weights, freeze layers, distil, or learn everything at once.
STRATEGIES = [
    *("naive", "ewc", "hat", "independent", "linear", "mntdp", "packnet", "pathnet", "pnn", "ltg", "den", "rcl", "seu"),
    *("cpg", "wsn", "supsup", "lwf", "cwr", "rwalk", "gdumb", "joint"),
]
#: What ``make test`` makes runs of; ``make test-long`` takes the others.
USUAL = ("naive", "ltg", "seu")
each_strategy = pytest.mark.parametrize(
    "strategy", [pytest.param(name, marks=[] if name in USUAL else pytest.mark.long) for name in STRATEGIES]
)


@pytest.fixture
def copy(folders: RunFolders, tmp_path: Path) -> Path:
    """SEU's run in a folder of its own, to be changed."""
    return Path(shutil.copytree(folders["seu"], tmp_path / "runs" / folders["seu"].name))


def asked(command: Command, folder: Path, *more: object) -> tuple[Answer, dict[str, Any]]:
    """The command's answer on a folder, and its document."""
    answer = command("verify", folder, "--device", "cpu", "--format", "json", *more)
    assert answer.status in (0, 1), answer.err
    assert answer.err == ""
    document: dict[str, Any] = json.loads(answer.out)
    assert document["passed"] == (answer.status == 0)
    assert [check["name"] for check in document["checks"] if check["name"] != "code"] == CHECKS.split(",")
    return answer, {check["name"]: check for check in document["checks"]}


def failed(command: Command, folder: Path) -> dict[str, str]:
    """Failed checks of a folder where some must fail, with their messages."""
    answer, checks = asked(command, folder)
    assert answer.status == 1
    found = {name: "\n".join(check["detail"]) for name, check in checks.items() if check["passed"] is False}
    found.pop("record", None)  # any change of the record; see test_any_edit_of_the_record
    return found


def changed(folder: Path, **fields: Any) -> None:
    """Change fields of a record."""
    write_record(folder.parent.parent, read_record(folder).model_copy(update=fields))


@each_strategy
@pytest.mark.long
def test_all_comes_out(command: Command, folders: RunFolders, strategy: str) -> None:
    """A run that nobody touched, of every kind of model, which nothing is changed of."""
    before = {path: path.read_bytes() for path in folders[strategy].iterdir()}
    answer, checks = asked(command, folders[strategy])
    assert {path: path.read_bytes() for path in folders[strategy].iterdir()} == before
    assert answer.status == 0
    assert all(check["passed"] is True for check in checks.values()), checks
    sha256 = hashlib.sha256((folders[strategy] / MODEL_NAME).read_bytes()).hexdigest()
    assert checks["weights"]["detail"] == [f"SHA-256 {sha256}"]
    assert checks["accuracy"]["detail"] == ["the last row on 60 test images of 5 tasks"]


@pytest.mark.parametrize("place", [0, 8, 60, 0.6, -1])
def test_changed_byte(command: Command, copy: Path, place: float) -> None:
    """In the length of the header, the header and the tensors: the weights are named, whatever else fails."""
    path = copy / MODEL_NAME
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) if isinstance(place, float) else place] ^= 1
    path.write_bytes(content)
    found = failed(command, copy)
    assert found["weights"].endswith(f"found 'SHA-256 {hashlib.sha256(content).hexdigest()}'")


@pytest.mark.parametrize(
    "edit",
    [
        lambda record: record["stages"][0].update(epochs=9),
        lambda record: record["stages"][0].update(image_passes=1),
        lambda record: record["stages"][0]["accuracies"].__setitem__(0, 0.987),
        lambda record: record["environment"].update(device="cuda:0 (a large one)"),
        lambda record: record.update(started="2001-01-01T00:00:00+00:00"),
        lambda record: record.update(seconds=0.1),
        lambda record: record.update(added_by_a_stranger=1),
    ],
)
def test_any_edit_of_the_record(command: Command, copy: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Also of what cannot be measured again, by the record's digest."""
    document = json.loads((copy / "record.json").read_text())
    edit(document)
    (copy / "record.json").write_text(json.dumps(document))
    answer, checks = asked(command, copy)
    assert (answer.status, checks["record"]["passed"]) == (1, False)
    assert "was changed after the run's end" in checks["record"]["detail"][0]


@pytest.mark.parametrize(("row", "task"), [(1, 0), (3, 3), (4, 4)])
def test_changed_accuracy(command: Command, copy: Path, row: int, task: int) -> None:
    """In an early row the sealed copy tells; in the last one so does the evaluation, with the images."""
    matrix = [list(values) for values in read_record(copy).accuracy_matrix]
    was = matrix[row][task]
    assert was is not None
    now = was - 1 / 12 if was > 0.5 else was + 1 / 12
    matrix[row][task] = now
    changed(copy, accuracy_matrix=tuple(tuple(values) for values in matrix))
    found = failed(command, copy)
    assert found["sealed copy"] == f"accuracy_matrix[{row}][{task}]: recorded {now}, sealed {was}"
    assert ("accuracy" in found) == (row == 4)
    if row == 4:
        told = found["accuracy"].splitlines()[0]
        assert told == f"accuracy_matrix[4][{task}]: recorded {now}, found {was} (1 of 12 images)"
    if row in (task, 4):  # what metrics read always; of others the largest alone
        assert "metrics" in found


@pytest.mark.parametrize(("images", "passes"), [(1, True), (2, False)])
def test_another_kind_of_device_rounds_otherwise(command: Command, copy: Path, images: int, passes: bool) -> None:
    """A half percent of a task's images may be answered otherwise, and one of a few."""
    record = read_record(copy)
    matrix = [list(values) for values in record.accuracy_matrix]
    was = matrix[4][4]
    assert was is not None
    matrix[4][4] = was - images / 12 if was > 0.5 else was + images / 12
    environment = record.environment.model_copy(update={"device": "cuda:0 (a card)"})
    changed(copy, accuracy_matrix=tuple(tuple(values) for values in matrix), environment=environment)
    _, checks = asked(command, copy)
    assert checks["accuracy"]["passed"] is passes
    assert ("; on cpu 1 of them differ" in checks["accuracy"]["detail"][0]) is passes


@pytest.mark.parametrize("name", ["params_total", "mask_bits", "params_active", "macs"])
@pytest.mark.parametrize("place", [0, 4])
def test_changed_size(command: Command, copy: Path, name: str, place: int) -> None:
    """One digit of any of them; all but the last task's parameters and masks are in the sealed copy only."""
    sizes = list(getattr(read_record(copy), name))
    was = sizes[place]
    sizes[place] = was + 10
    changed(copy, **{name: tuple(sizes)})
    found = failed(command, copy)
    assert found["sealed copy"] == f"{name}[{place}]: recorded {was + 10}, sealed {was}"
    assert (name in found) == (name not in ("params_total", "mask_bits") or place == 4)
    if name in found:
        assert found[name] == f"{name}[{place}]: recorded {was + 10}, found {was}"
    assert ("metrics" in found) == (place == 4)
    assert set(found) <= {"sealed copy", name, "metrics"}


@pytest.mark.parametrize(
    ("fields", "check", "told"),
    [
        ({"weights_sha256": "0" * 64}, "weights", "recorded 'SHA-256 0000"),
        ({"data_fingerprint": "f" * 64}, "data", "fingerprint: recorded 'ffff"),
        ({"seed": 1}, "run id", "the record's settings give run split_digits-smoke-seu-limit12-seed1-"),
        ({"limit": 13}, "run id", "-limit13-"),
        ({"task_order": (0, 1, 2, 3, 4)}, "tasks", "task_order[0]: recorded 0, made 2"),
        ({"task_classes": (2, 2, 2, 2, 3)}, "tasks", "task_classes[4]: recorded 3, made 2"),
        ({"task_classes": (2, 2, 2, 2, 3)}, "model", "heads.4.bias is float32[2], not float32[3]"),
        ({"genotypes": None}, "sealed copy", "genotypes: recorded None, sealed "),
        ({"paths": ((0, 0, 0, 0),) * 4 + ((9, 9, 9, 9),)}, "sealed copy", "paths[4][0]: recorded 9, sealed "),
        ({"accuracy_matrix": ((7.0,),)}, "metrics", "acc: recorded "),
        ({"accuracy_matrix": ((7.0,),)}, "accuracy", "accuracy_matrix[0][0]: recorded 7.0, found "),
        ({"params_active": ()}, "params_active", "nothing was recorded"),
        ({"macs": (1, 2)}, "macs", "macs[0]: recorded 1, found "),
        ({"input_shape": (1, 9, 9)}, "tasks", "input_shape[1]: recorded 9, made 8"),
        ({"input_shape": (1, 9, 9)}, "model", "become (1, 8, 8), and the network takes (1, 9, 9)"),
        ({"task_inputs": ()}, "model", "differ in length"),
        ({"task_class_counts": ()}, "accuracy", "task_class_counts: recorded (), found "),
    ],
)
def test_changed_field(command: Command, copy: Path, fields: dict[str, Any], check: str, told: str) -> None:
    """The check that fails names the changed field, for any of them."""
    changed(copy, **fields)
    assert told in failed(command, copy)[check]


def test_changed_metric(command: Command, copy: Path) -> None:
    """A metric that does not follow from the record; one whose plugin is gone is not compared, and that is told."""
    metrics = read_record(copy).metrics
    changed(copy, metrics=metrics | {"acc": 0.99, "image_passes": None, "of_a_stranger": 3.0})
    found = failed(command, copy)
    assert set(found) == {"metrics"}
    assert f"acc: recorded 0.99, found {metrics['acc']}" in found["metrics"]
    assert f"image_passes: recorded None, found {metrics['image_passes']}" in found["metrics"]
    changed(copy, metrics=metrics | {"of_a_stranger": 3.0, "peak_memory_bytes": 12345})
    _, checks = asked(command, copy)
    assert checks["metrics"]["passed"]
    assert checks["metrics"]["detail"][0].endswith("not compared: of_a_stranger (its plugin is not installed)")
    del metrics["bwt"]
    changed(copy, metrics=metrics)
    assert failed(command, copy)["metrics"].startswith("bwt: not recorded, found")


def test_cannot_be_done(command: Command, copy: Path) -> None:
    """No weights, no such run, a part that is not installed: one message and status 2."""
    for more in ((copy, "--device", "abacus"), ("nobody", "--results", copy.parent.parent)):
        answer = command("verify", *more)
        assert (answer.status, answer.out) == (2, "")
    (copy / MODEL_NAME).unlink()
    answer = command("verify", copy)
    assert answer.status == 2
    assert str(copy / MODEL_NAME) in answer.err
    changed(copy, weights_sha256=None)
    answer = command("verify", copy)
    assert answer.status == 2
    assert "saved no weights" in answer.err
    assert "hint: " in answer.err


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"options": {"weights": "/dev/zero"}}, "the record names a file: weights=/dev/zero"),
        ({"searcher_options": {"table": ["~/table"]}}, "the record names a file: searcher.table=~/table"),
        ({"benchmark_overrides": {"datasets.x.path": "x"}}, "defines data of its own: benchmark.datasets.x.path"),
        ({"benchmark": "own.toml"}, "is not registered here"),
    ],
)
def test_files_that_a_record_names_are_not_opened(
    command: Command, copy: Path, fields: dict[str, Any], told: str
) -> None:
    """A stranger's record could name a device without an end."""
    changed(copy, **fields)
    answer = command("verify", copy)
    assert (answer.status, answer.out) == (2, "")
    assert told in answer.err


def test_benchmark_of_a_file(command: Command, tmp_path: Path) -> None:
    """It is not registered: its file is asked for, and another one by that name is noticed."""
    text = 'name = "mine"\n[stream]\nkind = "classes"\ndataset = "digits"\nclasses_per_task = 5\n'
    (tmp_path / "mine.toml").write_text(text)
    results = tmp_path / "results"
    made = ("run", "--strategy", "naive", "--benchmark", tmp_path / "mine.toml", *SMALL, "--results", results)
    assert command(*made).status == 0
    (folder,) = (results / "runs").iterdir()
    without = command("verify", folder)
    assert without.status == 2
    assert "--benchmark" in without.err
    assert asked(command, folder, "--benchmark", tmp_path / "mine.toml")[0].status == 0
    (tmp_path / "other.toml").write_text(text + "validation = 0.3\n")
    answer, checks = asked(command, folder, "--benchmark", tmp_path / "other.toml")
    assert answer.status == 1
    assert not checks["run id"]["passed"]
    assert not checks["data"]["passed"]


@each_strategy
def test_request_of_a_record(folders: RunFolders, strategy: str) -> None:
    """A record's request is that of its run, option by option."""
    record = read_record(folders[strategy])
    run = resolve(Registry(), request_of(record))
    assert run.spec.run_id == record.run_id
    assert run.options.model_dump(mode="json") == record.options
