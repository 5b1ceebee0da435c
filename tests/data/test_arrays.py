"""Benchmarks from Python: ``seu_bench.stream`` of arrays, and ``BenchmarkSpec.of`` without any file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.commands import Command

import seu_bench
from seu_bench.config import BenchmarkFile, BenchmarkSpec, ImageLimits, Request
from seu_bench.data import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.errors import DataError, RequestError, ResultsError, SeuBenchError, SpecError
from seu_bench.plugin import Registry

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_benchmark.py"
#: What a run takes that is over in no time.
FAST: dict[str, Any] = {"protocol": "smoke", "device": "cpu", "options": {"backbone": "mlp"}}
Task = tuple[Any, Any, Any, Any]


def task(*labels: int | str, shape: tuple[int, ...] = (6, 6), seed: int = 0) -> Task:
    """Twelve training and four test images of each label."""
    random = np.random.default_rng(seed)
    y_train, y_test = np.repeat(labels, 12), np.repeat(labels, 4)
    x_train, x_test = (random.integers(0, 256, (len(y), *shape), dtype=np.uint8) for y in (y_train, y_test))
    return x_train, y_train, x_test, y_test


TWO = [task(0, 1), task(2, 3, seed=1)]


def contents(benchmark: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(benchmark).parent.iterdir()}


def made(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_same_arrays_are_the_same_benchmark(tmp_path: Path) -> None:
    """Whatever they are held in, and wherever it is made; another pixel, name or order of tasks is another one."""
    first = seu_bench.stream(TWO, name="mine", folder=tmp_path / "a b")
    before = contents(first)
    assert sorted(before) == ["mine.toml", "task_1.npz", "task_2.npz"]
    as_tensors = [tuple(map(torch.from_numpy, each)) for each in TWO]
    as_floats = [(x / 255, y, x_test / np.float32(255), y_test) for x, y, x_test, y_test in TWO]
    fortran = [(np.asfortranarray(x), y[:, None], x_test.tolist(), y_test.tolist()) for x, y, x_test, y_test in TWO]
    for place, same in enumerate((TWO, as_tensors, as_floats, fortran)):
        again = seu_bench.stream(same, name="mine", folder=tmp_path / str(place))
        assert (contents(again), Path(again).parent.name) == (before, Path(first).parent.name)
    changed = [task(0, 1), task(2, 3, seed=2)]
    folders = [
        Path(seu_bench.stream(tasks, folder=tmp_path, **keys)).parent.name
        for tasks, keys in (
            (changed, {"name": "mine"}),
            (TWO[::-1], {"name": "mine"}),
            (TWO, {"name": "other"}),
            (TWO, {"name": "mine", "class_names": ["a", "b", "c", "d"]}),
            (TWO, {"name": "mine", "scenario": "class"}),
        )
    ]
    assert len({*folders, Path(first).parent.name}) == 6


def test_file_that_was_changed_is_written_again(tmp_path: Path) -> None:
    """What is as it was stays untouched."""
    path = Path(seu_bench.stream(TWO, name="mine", folder=tmp_path))
    before, time = contents(str(path)), path.stat().st_mtime_ns
    (path.parent / "task_2.npz").write_bytes(b"damaged")
    (path.parent / "task_1.npz").unlink()
    assert seu_bench.stream(TWO, name="mine", folder=tmp_path) == str(path)
    assert (contents(str(path)), path.stat().st_mtime_ns) == (before, time)


def test_classes_are_told_by_their_labels(tmp_path: Path) -> None:
    """A label is one class in all tasks: it has one output where tasks share a head."""
    tasks = {"first": task(10, 2), "second/half": task(2, 7)}
    benchmark = seu_bench.stream(tasks, name="mine", scenario="class", folder=tmp_path)
    plan = resolve(Registry(), Request(strategy="naive", benchmark=benchmark)).plan()
    assert [it.name for it in plan.tasks] == list(tasks)
    assert [it.labels for it in plan.tasks] == [(0, 1), (0, 2)]
    assert [it.class_names for it in plan.tasks] == [("2", "10"), ("7",)]
    named = [task("owl", "ant"), task("owl", "eel")]
    for tasks_, names in ((named, None), ([task(1, 0), task(1, 2)], ["ant", "owl", "eel"])):
        benchmark = seu_bench.stream(tasks_, name="mine", scenario="class", class_names=names, folder=tmp_path)
        plan = resolve(Registry(), Request(strategy="naive", benchmark=benchmark)).plan()
        assert [it.class_names for it in plan.tasks] == [("ant", "owl"), ("eel",)]


def test_one_normalisation_for_all_tasks(tmp_path: Path) -> None:
    """By one of its own a task would be told from others where that is not known, and a darker domain be none; of
    later tasks nothing is known yet."""
    dark = [(x // 4, y, x_test // 4, y_test) for x, y, x_test, y_test in [task(0, 1, shape=(6, 6, 3), seed=3)]]
    tasks = [task(0, 1, shape=(6, 6, 3)), *dark]
    benchmark = seu_bench.stream(tasks, name="mine", scenario="domain", folder=tmp_path)
    run = resolve(Registry(), Request(strategy="naive", benchmark=benchmark))
    stream = build_stream(run.spec.benchmark, run.load, run.limits, 0)
    assert stream.inputs[0] == stream.inputs[1] and run.spec.protocol_name == "quick"
    first = stream.tasks[0].train
    x = first.gather(torch.arange(len(first)))[0]
    np.testing.assert_allclose([x.mean((0, 2, 3)), x.std((0, 2, 3), correction=0)], [[0] * 3, [1] * 3], atol=1e-5)


@pytest.mark.parametrize("kind", ["features", "tokens"])
def test_samples_that_are_no_images(kind: str, tmp_path: Path) -> None:
    """The type of a table decides; columns are standardised by the first task, and the vocabulary is that of all."""
    random = np.random.default_rng(0)
    tasks = []
    for shift in (0, 7):
        table = 10**3 + shift + random.normal(size=(32, 3)) if kind == "features" else random.integers(5, size=(32, 3))
        if kind == "tokens":
            table += shift
        else:
            table[:, 2] = 8.0
        tasks.append((table[::2], np.arange(16) % 2, table[1::2], np.arange(16) % 2))
    path = Path(seu_bench.stream(tasks, name="mine", scenario="domain", folder=tmp_path))
    lists = [tuple(it.tolist() for it in each) for each in tasks]
    assert seu_bench.stream(lists, name="mine", scenario="domain", folder=tmp_path) == str(path)
    run = resolve(Registry(), Request(strategy="naive", benchmark=str(path)))
    assert run.options.identity()["backbone"] == ("mlp" if kind == "features" else "embedding")
    assert (run.plan().input.kind, run.plan().input.shape) == (kind, (3,))
    stream = build_stream(run.spec.benchmark, run.load, ImageLimits(), 0)
    splits = [each.train for each in stream.tasks[: 1 if kind == "features" else 2]]
    samples = torch.cat([split.gather(torch.arange(len(split)))[0] for split in splits])
    if kind == "tokens":
        assert stream.plan.vocabulary == 12 and (samples.min(), samples.max()) == (0, 11)
    else:
        spread = (samples.std(0, correction=0) - torch.tensor([1, 1, 0])).abs().max()
        assert samples.mean(0).abs().max() < 1e-2 and spread < 1e-2


X, Y, X_TEST, Y_TEST = task(0, 1)
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ([], {}, "the benchmark 'mine' has 1 fault"),
    ([X], {}, "task 'task_1' of stream 'mine' cannot be used: it is no tuple"),
    ((X, Y, X_TEST, Y_TEST), {}, "it is no tuple"),
    ([(X, Y)], {}, "it is no tuple"),
    ([(X[:0], Y[:0], X_TEST[:0], Y_TEST[:0])], {}, r"x_train has shape \(0, 6, 6\), and y_train has 0 labels"),
    ([(X, Y, X_TEST[:0], Y_TEST[:0])], {}, "y_test has 0 labels"),
    ([(7, Y, X_TEST, Y_TEST)], {}, r"x_train is int64 of shape \(\)"),
    ([(X, Y, X_TEST[:4], Y_TEST[:4])], {}, r"the classes \[1\] are in y_train or in y_test alone"),
    ([(X, Y, X_TEST, Y_TEST + 1)], {}, r"the classes \[0, 2\] are in"),
    ([(X, Y[:5], X_TEST, Y_TEST)], {}, r"x_train has shape \(24, 6, 6\), and y_train has 5 labels"),
    ([(X, Y.astype(str), X_TEST, Y_TEST)], {}, "y_train and y_test are texts and numbers"),
    ([(X, Y - 1, X_TEST, Y_TEST - 1)], {}, "y_train is int64 .*; needed are texts, or whole numbers from 0"),
    ([(X, Y * 1.0, X_TEST, Y_TEST)], {}, "y_train is float64"),
    ([(X, np.eye(2)[Y], X_TEST, Y_TEST)], {}, r"y_train is float64 of shape \(24, 2\)"),
    ([(X, ["a", None] * 12, X_TEST, Y_TEST)], {}, "y_train is object"),
    ([(np.where(X > 250, np.nan, X / 255), Y, X_TEST, Y_TEST)], {}, "x_train has dtype float64 and values nan..nan"),
    ([(X / 128 - 1, Y, X_TEST, Y_TEST)], {}, r"x_train has dtype float64 and values -1\.\."),
    ([(X.astype(object), Y, X_TEST.astype(object), Y_TEST)], {}, "x_train has dtype object"),
    ([(X[:, 0] > 9, Y, X_TEST[:, 0] > 9, Y_TEST)], {}, r"x_train is bool of shape \(24, 6\); needed are"),
    (
        [(X[:, 0] / 2, Y, X_TEST[:, 0], Y_TEST)],
        {},
        "x_train is float64, taken for features, and x_test uint8, for tokens",
    ),
    ([(X[:, 0] + np.inf, Y, X_TEST[:, 0] / 2, Y_TEST)], {}, "x_train has inf in row 0"),
    ([(X[:, 0] - 300.0 > 0, Y, X_TEST, Y_TEST)], {}, "x_train is bool"),
    ([(X[:, 0].astype(int) - 300, Y, X_TEST[:, 0].astype(int), Y_TEST)], {}, "x_train has ids of tokens from -"),
    ([TWO[0], (X[:, 0] / 2, Y, X_TEST[:, 0] / 2, Y_TEST)], {}, "'task_1' has images of 1x6x6, 'task_2' has 6 features"),
    ([(X[:, 0, :n], Y, X_TEST[:, 0, :n], Y_TEST) for n in (5, 6)], {}, "'task_1' has 5 tokens"),
    ([(X * 1j, Y, X_TEST, Y_TEST)], {}, "x_train has dtype complex128"),
    ([([X[0], X[1, 1:]], Y, X_TEST, Y_TEST)], {}, "x_train is no array"),
    ([(X, Y, X_TEST[:, 1:], Y_TEST)], {}, r"images \(1, 6, 6\) in training and \(1, 5, 6\) in test"),
    ([*TWO, task(0, shape=(8, 6))], {}, "the tasks of stream 'mine' differ: .*'task_3' has images of 1x8x6"),
    ([task(0, shape=(5, 6, 4))], {}, "which axis has the 1 or 3 channels cannot be told"),
    (TWO, {"scenario": "domain"}, "has tasks that share their classes, but task 'task_2' has"),
    (TWO, {"scenario": "tasks"}, "stream.scenario"),
    (TWO, {"order": ["task_1"]}, "order must name each of task_1, task_2 once"),
    (TWO, {"validation": 1.5}, "stream.validation"),
    ([task(0)], {"validation": 0.01}, "needed are one, and two others"),
    (TWO, {"default_protocol": "fast"}, "default_protocol 'fast' is not one of"),
    (TWO, {"class_names": ["a", "b", "c"]}, "it has the label 3, and class_names has 3 names"),
    (TWO, {"class_names": ["a", "b", "c", "a"]}, "are no list of different texts"),
    (TWO, {"class_names": "abcd"}, "are no list of different texts"),
    ([task("a", "b")], {"class_names": ["a", "b"]}, "leave class_names out"),
    (TWO, {"name": "../mine"}, "name: "),
    (TWO, {"name": "My stream"}, "name: "),
    ({1: TWO[0]}, {}, "stream.tasks"),
]


@pytest.mark.parametrize(("tasks", "keys", "what"), REFUSED)
def test_refusals(tasks: Any, keys: dict[str, Any], what: str, tmp_path: Path) -> None:
    """Each names what does not fit, and nothing is written."""
    with pytest.raises(SeuBenchError, match=what) as error:
        seu_bench.stream(tasks, **{"name": "mine", "folder": tmp_path} | keys)
    assert isinstance(error.value, DataError | RequestError) and error.value.remedy
    assert made(tmp_path) == []


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match="choose another folder"):
        seu_bench.stream(TWO, name="mine", folder=tmp_path / "file")


def test_processes_that_write_the_same(tmp_path: Path) -> None:
    """All of them find it whole, and nothing is left beside it."""
    code = (
        "import numpy as np, seu_bench\n"
        "x = np.arange(40 * 400).reshape(40, 20, 20) % 251; y = np.arange(40) % 2\n"
        "for _ in range(5): print(seu_bench.stream([(x, y, x, y)] * 3, name='mine', folder='.'))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in "12"
    ]
    said = {line for process in running for line in process.communicate()[0].splitlines()}
    assert [process.returncode for process in running] == [0, 0]
    assert len(said) == 1 and sorted(contents(*said)) == ["mine.toml", "task_1.npz", "task_2.npz", "task_3.npz"]


@pytest.mark.long
def test_runs_sweeps_and_verifies(tmp_path: Path, command: Command) -> None:
    """From Python and from the command line it is one run; other arrays are another one."""
    results = tmp_path / "results"
    benchmark = seu_bench.stream(TWO, name="mine", scenario="class", folder=results / "streams")
    record = seu_bench.run("naive", benchmark, results=results, **FAST)
    assert (record.benchmark, record.scenario, record.task_classes) == ("mine", "class", (2, 2))
    again = ["--strategy", "naive", "--benchmark", benchmark, "--protocol", "smoke", "--device", "cpu"]
    again += ["-o", "backbone=mlp", "--results", results]
    assert record.run_id in command("run", *again).out
    verified = command("verify", record.run_id, "--benchmark", benchmark, "--results", results)
    assert verified.status == 0, verified.err
    swept = seu_bench.sweep(
        strategy=["naive", "ewc"], seeds="0-1", benchmark=benchmark, jobs=1, results=results, **FAST
    )
    assert [job.status for job in swept.jobs].count("finished") == 4
    assert record.run_id in {it.run_id for it in swept.records}
    other = seu_bench.stream([TWO[0], task(2, 3, seed=5)], name="mine", scenario="class", folder=tmp_path)
    assert resolve(Registry(), Request(strategy="naive", benchmark=other, **FAST)).spec.run_id != record.run_id


# ---------------------------------------------------------------------------------------------- without arrays

STREAM = {"kind": "classes", "dataset": "digits", "classes_per_task": 2}


def test_benchmark_of_code_is_that_of_a_file(tmp_path: Path) -> None:
    """With the same overrides, and the same faults."""
    own = {"quick": {"training": {"epochs": 3}}, "mine": {"images": {"train": 9}}}
    spec = BenchmarkSpec.of(STREAM, name="pairs", protocols=own)
    (tmp_path / "pairs.toml").write_text(
        'name = "pairs"\n[stream]\nkind = "classes"\ndataset = "digits"\nclasses_per_task = 2\n'
        "[protocols]\nquick.training.epochs = 3\nmine.images.train = 9\n"
    )
    file = BenchmarkFile(tmp_path / "pairs.toml")
    asked: list[dict[str, Any]] = [
        {},
        {"stream.scenario": "class", "stream.validation": 0.2},
        {"stream.groups": [[0, 1, 2], [3]]},
        {"stream.then": 5},
        {"protocols.quick.training": {"epochs": 7}, "version": 2},
    ]
    for overrides in asked:
        assert spec.load(overrides) == file.load(overrides)
    assert spec.protocols["quick"].training.epochs == 3 and spec.load() is spec
    for source in (spec, file):
        with pytest.raises(SpecError, match=r"option benchmark\.stream\.validation"):
            source.load({"stream.validation": 2})
    with pytest.raises(SpecError, match=r"has 2 faults"):
        BenchmarkSpec.of({**STREAM, "datset": 1}, name="a/b")


def test_paths_of_code_start_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it changes afterwards."""
    np.savez(tmp_path / "x.npz", images=X, labels=Y)
    monkeypatch.chdir(tmp_path)
    stream = {"kind": "permutation", "dataset": "mine"}
    spec = BenchmarkSpec.of(stream, name="permuted", datasets={"mine": {"kind": "npz", "path": "x.npz"}})
    monkeypatch.chdir("/")
    assert spec.datasets["mine"].path == tmp_path / "x.npz"  # type: ignore[union-attr]


@pytest.mark.long
def test_run_takes_a_benchmark_of_code(tmp_path: Path) -> None:
    """By the run id of the same file; a sweep says what it needs."""
    spec = BenchmarkSpec.of(STREAM, name="pairs")
    record = seu_bench.run("naive", spec, results=tmp_path, **FAST | {"options": {"benchmark.stream.validation": 0.2}})
    (tmp_path / "pairs.toml").write_text(
        'name = "pairs"\n[stream]\nkind = "classes"\ndataset = "digits"\nclasses_per_task = 2\nvalidation = 0.2\n'
    )
    request = Request(strategy="naive", benchmark=str(tmp_path / "pairs.toml"), protocol="smoke")
    assert resolve(Registry(), request).spec.run_id == record.run_id
    taken = BenchmarkSpec.of(STREAM, name="split_mnist")
    with pytest.raises(RequestError, match="another benchmark is called 'split_mnist'"):
        seu_bench.run("naive", taken, results=tmp_path, **FAST)
    for call in (seu_bench.sweep, seu_bench.tune):
        with pytest.raises(RequestError, match="register_benchmarks"):
            call(strategy="naive", benchmark=spec, results=tmp_path)


def test_example_of_a_benchmark_in_one_file(command: Command, tmp_path: Path) -> None:
    """Run by its name, and checked."""
    few = ["--protocol", "smoke", "--device", "cpu", "-o", "backbone=mlp", "--results", tmp_path]
    answer = command("run", "--plugin", EXAMPLE, "--benchmark", "split_spots", "--strategy", "naive", *few)
    assert answer.status == 0, answer.err
    assert command("check-plugin", EXAMPLE).status == 0
