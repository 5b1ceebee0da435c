"""Extensions: bit by bit a run of all tasks, whatever the stream, also when they are stopped; or they are refused."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from support.months import months_file, write_month
from support.stopping import Stopping
from torch.testing import assert_close

import seu_bench
from seu_bench.config.run import Request
from seu_bench.engine.extending import extend
from seu_bench.engine.launcher import launch
from seu_bench.engine.runner import Outcome
from seu_bench.errors import DataMissingError, Interruption, OptionError, RequestError, ResultsError, SeuBenchError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_files import LEARNER_NAME
from seu_bench.results.record_metrics import without_times

FIRST = {"benchmark.stream.input.normalise": "first_task"}
SMALL = {"epochs": 2, "width": 0.1}


def run(results: Path, benchmark: object, strategy: str = "replay", **fields: Any) -> Record:
    """A small run."""
    options = SMALL | fields.pop("options", {})
    fields = {"protocol": "smoke", "device": "cpu", "data_root": results / "decoded"} | fields
    return seu_bench.run(strategy, str(benchmark), results=str(results), options=options, **fields)


def extended(results: Path, record: Record, **more: Any) -> Outcome:
    """Its extension."""
    return extend(Registry(), record.run_id, results=results, device="cpu", data_root=results / "decoded", **more)


def common(record: Record) -> dict[str, Any]:
    """What an extension and a run from nothing must have in common: all but sizes of the time when it had fewer tasks,
    which the file of the weights has, too."""
    own = {"parent", "given_options", "environment", "learner_sha256", "learner_bytes", "weights_sha256"}
    sizes = ("params_total", "params_active", "memory_bytes", "macs", "mask_bits")
    document = {key: value for key, value in without_times(record).items() if key not in own}
    return document | {name: document[name][-1] for name in sizes}


def weights(results: Path, record: Record) -> dict[str, torch.Tensor]:
    """Of its network."""
    return seu_bench.load_model(record.run_id, results).network.state_dict()


def classes(folder: Path) -> tuple[str, Path, dict[str, Any]]:
    """The classes of a built-in data set, in an order drawn by the seed."""
    return "split_digits", write_month(folder / "june", [3, 8]), {"options": FIRST, "seed": 3}


def first_tasks(folder: Path) -> tuple[str, Path, dict[str, Any]]:
    """No more than some of them."""
    return "split_digits", write_month(folder / "june", [3, 8]), {"options": FIRST, "first_tasks": 2, "strategy": "ewc"}


def stream_file(folder: Path, classes: Sequence[int], stream: str) -> Path:
    """A benchmark file of a stream of one data set, ``all``."""
    if not (folder / "all").exists():
        write_month(folder / "all", classes)
    text = f'name = "own"\n[stream]\n{stream}\n[datasets.all]\nkind = "folder"\nsize = 8\nchannels = 1\npath = "all"\n'
    (folder / "own.toml").write_text(text, encoding="utf-8")
    return folder / "own.toml"


def shared(folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Tasks of one data set that have a class in common, and a month that brings one of them back."""
    stream = 'kind = "classes"\nscenario = "class"\ndataset = "all"\ngroups = [["d0", "d1"], ["d1", "d2"]]'
    return stream_file(folder, [0, 1, 2], stream), write_month(folder / "june", [2, 3], first=24), {}


def drawn(folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Drawn classes and numbers of images of each."""
    first = '{ dataset = "all", draw_classes = 2, train_per_class = 9, valid_per_class = 3 }'
    other = '{ dataset = "all", draw_classes = 3, rotate_labels = 1, train_per_class = 5, valid_per_class = 2, '
    stream = f'kind = "datasets"\n[stream.tasks]\na = {first}\nb = {other}test_per_class = 3 }}'
    return stream_file(folder, range(6), stream), write_month(folder / "june", [7, 8]), {"seed": 2}


def coloured(folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Domains of drawn colours and a border; the new one has the border, and is not coloured."""
    file = months_file(folder / "b.toml", [write_month(folder / "may", [0, 1])], "domain", "")
    text = file.read_text(encoding="utf-8").replace(
        'dataset = "may"\n', 'dataset = "may"\n[stream.tasks.may.input]\ncolor = "random"\npad = 1\n'
    )
    file.write_text(text, encoding="utf-8")
    return file, write_month(folder / "june", [0, 1], first=24), {}


def features(folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Tables of numbers."""
    samples, labels = load_digits(return_X_y=True)
    text = 'name = "tables"\n[stream]\nkind = "datasets"\nscenario = "class"\n'
    for name, own in (("may", (0, 1)), ("june", (2, 3))):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*map(str, range(64)), "digit"])
            writer.writerows([*x, f"d{y}"] for x, y in zip(samples[:200], labels[:200], strict=True) if y in own)
    text += '[stream.tasks.may]\ndataset = "may"\n'
    text += '[datasets.may]\nkind = "features"\npath = "may.csv"\nlabel = "digit"\ntest_fraction = 0.3\n'
    (folder / "tables.toml").write_text(text, encoding="utf-8")
    return folder / "tables.toml", folder / "june.csv", {"options": {"backbone": "mlp"}}


def tokens(folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Sequences of ids, of a vocabulary that the first ones do not show."""
    draws = np.random.RandomState(0)
    for place, name in enumerate(("may", "june")):
        labels = np.arange(120) % 2
        np.savez(
            folder / f"{name}.npz", tokens=draws.randint(0, 9, (120, 6)) + 9 * labels[:, None] + place, labels=labels
        )
    text = 'name = "words"\n[stream]\nkind = "datasets"\n[stream.tasks.may]\ndataset = "may"\n'
    text += '[datasets.may]\nkind = "tokens"\npath = "may.npz"\nvocabulary = 19\n'
    (folder / "words.toml").write_text(text, encoding="utf-8")
    return folder / "words.toml", folder / "june.npz", {"options": {"backbone": "embedding"}}


def no_clipping(folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """A protocol of its own, with a value that no file of TOML can say."""
    months = [write_month(folder / "may", [0, 1]), write_month(folder / "april", [2, 3])]
    more = {"benchmark.protocols.smoke.training.clip_norm": None, "benchmark.protocols.smoke.images.test": 7}
    file = months_file(folder / "b.toml", months, "task", "")
    return file, write_month(folder / "june", [4, 5]), {"options": more, "limit": 20, "strategy": "ewc"}


@pytest.mark.parametrize(
    "case",
    [
        features,
        *[pytest.param(it, marks=pytest.mark.long) for it in (classes, first_tasks, shared, drawn, coloured)],
        *[pytest.param(it, marks=pytest.mark.long) for it in (tokens, no_clipping)],
    ],
)
def test_extension_is_a_run_of_all(case: Callable[[Path], tuple[object, Path, dict[str, Any]]], tmp_path: Path) -> None:
    """The same run id, weights, accuracies, sizes and costs as of a run of all of its tasks from nothing."""
    benchmark, data, fields = case(tmp_path)
    short = run(tmp_path / "one", benchmark, **fields)
    longer = extended(tmp_path / "one", short, data=data, name="June")
    assert longer.record.parent is not None
    assert (longer.record.parent.run_id, longer.record.parent.tasks) == (short.run_id, len(short.task_names))
    assert longer.record.task_names == (*short.task_names, "June")
    file = tmp_path / "one" / str(longer.record.benchmark_file)
    assert file.is_file()
    kept = {key: it for key, it in fields.get("options", {}).items() if it is None or not key.startswith("benchmark.")}
    fields = {key: it for key, it in fields.items() if key != "first_tasks"} | {"options": kept}
    whole = run(tmp_path / "two", file, **fields)
    assert whole.parent is None
    assert common(whole) == common(longer.record)
    found = weights(tmp_path / "one", longer.record)
    assert_close(found, weights(tmp_path / "two", whole), rtol=0, atol=0)


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three months of two digits each."""
    folder = tmp_path_factory.mktemp("months")
    return [write_month(folder / name, [2 * at, 2 * at + 1]) for at, name in enumerate(("may", "june", "july"))]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, months: list[Path]) -> tuple[Path, Record]:
    """A results folder with a run of two months."""
    results = tmp_path_factory.mktemp("results")
    return results, run(results, months_file(results.with_suffix(".toml"), months[:2]), protocol="instant")


@pytest.fixture
def short(kept: tuple[Path, Record], tmp_path: Path) -> tuple[Path, Record]:
    """A copy of it, to be changed."""
    results, record = kept
    shutil.copytree(results, tmp_path / "results")
    shutil.copy(results.with_suffix(".toml"), tmp_path / results.with_suffix(".toml").name)
    return tmp_path / "results", record


def test_interrupted_extension_resumes(short: tuple[Path, Record], months: list[Path]) -> None:
    """To the same bits, with what it cost counted once; then it is finished, and the parent is as it was."""
    results, record = short
    before = (results / "runs" / record.run_id / "record.json").read_bytes()
    whole = extended(results, record, data=months[2]).record
    folder = results / "runs" / whole.run_id
    shutil.rmtree(folder)
    watcher = Stopping(task=2)
    with pytest.raises(Interruption):
        extended(results, record, data=months[2], stop=watcher.stop, watcher=lambda _: watcher, checkpoint_every=0.0)
    stopped = read_record(folder)
    assert (stopped.status, stopped.parent) == ("interrupted", whole.parent)
    assert [*(folder / "checkpoints").glob("*")] != []
    again = extended(results, record, data=months[2])
    assert not again.reused
    assert common(again.record) == common(whole)
    assert again.record.weights_sha256 == whole.weights_sha256
    assert again.record.metrics["image_passes"] == whole.metrics["image_passes"]
    assert extended(results, record, data=months[2]).reused
    assert (results / "runs" / record.run_id / "record.json").read_bytes() == before


@pytest.mark.long
def test_further_than_a_run_from_nothing(short: tuple[Path, Record], months: list[Path]) -> None:
    """A run of all tasks that was stopped in its first one goes on where the finished run ended."""
    results, record = short
    longer = months_file(results.parent / "longer.toml", months)
    whole = run(results.parent / "other", longer, protocol="instant")
    watcher = Stopping(task=0)
    fields: dict[str, Any] = {"strategy": "replay", "benchmark": str(longer), "options": SMALL, "results": results}
    request = Request(**fields, protocol="instant", device="cpu", checkpoint_every=0.0)
    with pytest.raises(Interruption):
        launch(request, Registry(), stop=watcher.stop, watcher=lambda _: watcher)
    found = extended(results, record, benchmark=str(longer)).record
    assert found.parent is not None and common(found) == common(whole)
    assert_close(weights(results, found), weights(results.parent / "other", whole), rtol=0, atol=0)


@pytest.mark.long
def test_chain_in_other_places(short: tuple[Path, Record], months: list[Path]) -> None:
    """Neither the benchmark's file nor the results folder has to stay where it was."""
    results, record = short
    for file in results.parent.glob("*.toml"):
        file.unlink()
    first = extended(results, record, data=months[2]).record
    moved = results.rename(results.parent / "moved")
    second = extended(moved, first, data=months[0], name="may again").record
    assert second.parent is not None and second.parent.run_id == first.run_id
    assert second.task_names == ("may", "june", "july", "may again")
    folder = moved / "runs" / record.run_id
    elsewhere = extend(
        Registry(), folder, data=months[2], results=results.parent / "new", device="cpu", data_root=moved / "decoded"
    )
    assert elsewhere.record.run_id == first.run_id
    assert elsewhere.path.parent.parent == results.parent / "new" / "runs"


@pytest.mark.long
def test_results_and_data_that_move_together(months: list[Path], tmp_path: Path) -> None:
    """As a project does that is mounted elsewhere: paths in files start from these."""
    project = tmp_path / "project"
    project.mkdir()
    for month in months:
        shutil.copytree(month, project / month.name)
    file = months_file(project / "b.toml", [Path(month.name) for month in months[:1]])
    short = run(project / "results", file, protocol="instant")
    first = extended(project / "results", short, data=project / "june").record
    project = project.rename(tmp_path / "elsewhere")
    second = extended(project / "results", first, data=project / "july").record
    assert second.task_names == ("may", "june", "july")


@dataclass
class Case:
    """What a refused extension finds."""

    results: Path
    record: Record
    months: list[Path]

    def rewritten(self, **fields: Any) -> dict[str, Any]:
        """A run whose record says something else."""
        path = self.results / "runs" / self.record.run_id / "record.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))
        return {"data": self.months[2]}

    def file(self, *months: Path, scenario: str = "class", old: str = "", new: str = "") -> dict[str, Any]:
        """A benchmark of some months."""
        file = months_file(self.results.parent / "b.toml", months, scenario)
        file.write_text(file.read_text().replace(old, new))
        return {"benchmark": str(file)}

    def empty_class(self) -> dict[str, Any]:
        half = shutil.copytree(self.months[2], self.results.parent / "half")
        (half / "d9").mkdir()
        return {"data": half}

    def other_kind(self) -> dict[str, Any]:
        (file := self.results.parent / "july.parquet").write_bytes(b"")
        return {"data": file}

    def changed_data(self) -> dict[str, Any]:
        here = [Path(shutil.copytree(month, self.results.parent / month.name)) for month in self.months]
        next((here[1] / "d2").iterdir()).unlink()
        return self.file(*here)

    def other_finished(self) -> dict[str, Any]:
        asked = self.file(self.months[2], *self.months[:2])
        run(self.results, asked["benchmark"], protocol="instant")
        return asked


REFUSALS: Mapping[str, tuple[Callable[[Case], dict[str, Any]], type[SeuBenchError], str]] = {
    "no learner": (lambda it: it.rewritten(learner_sha256=None), ResultsError, r"kept no learner"),
    "unfinished": (lambda it: it.rewritten(status="interrupted"), ResultsError, r"is interrupted"),
    "known name": (lambda it: {"data": it.months[2], "name": "may"}, RequestError, r"a task 'may' already.*--name"),
    "no data": (lambda it: {"data": it.results / "august"}, DataMissingError, r"no such data"),
    "other kind": (Case.other_kind, RequestError, r"learned from image.*july\.parquet is none of"),
    "empty class": (Case.empty_class, SeuBenchError, r"d9 has no images"),
    "several tasks": (lambda it: {"data": it.months[0].parent}, RequestError, r"3 tasks, not one: july, june, may"),
    "other seed": (lambda it: {"data": it.months[2], "seed": 1}, RequestError, r"and seed cannot change"),
    "no number": (lambda it: {"data": it.months[2], "max_seconds": "long"}, OptionError, r"max_seconds"),
    "nothing": (lambda it: {}, RequestError, r"give the data of a further task"),
    "no further task": (lambda it: it.file(*it.months[:2]), RequestError, r"has 2 tasks, and run .* learned 2"),
    "other tasks": (
        lambda it: it.file(it.months[0], it.months[2], it.months[1]),
        *(RequestError, r"task 1 \('june'\) is not the one .*: its .*data.* differ"),
    ),
    "other finished": (Case.other_finished, RequestError, r"learned otherwise than by run .*: .*task_class_names"),
    "other protocol": (
        lambda it: it.file(*it.months, old="batch_size = 16", new="batch_size = 8"),
        *(RequestError, r"learned otherwise than by run .*: training differ"),
    ),
    "other scenario": (lambda it: it.file(*it.months, scenario="task"), RequestError, r"scenario"),
    "changed data": (Case.changed_data, RequestError, r"task 1 \('june'\) is not the one .*: its .*data.* differ"),
    "lost data": (
        lambda it: it.file(it.months[0], it.results.parent / "june", it.months[2]),
        *(DataMissingError, r"data set 'june' is missing.*june"),
    ),
}


@pytest.mark.parametrize(("spoil", "kind", "told"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(
    spoil: Callable[[Case], dict[str, Any]],
    kind: type[SeuBenchError],
    told: str,
    short: tuple[Path, Record],
    months: list[Path],
) -> None:
    """Each with its reason and a hint, and nothing is written."""
    results, record = short
    asked = spoil(Case(results, record, months))
    before = sorted(results.rglob("*"))
    with pytest.raises(kind, match=f"(?s){told}") as caught:
        extended(results, record, **asked)
    assert caught.value.remedy
    assert [path for path in sorted(results.rglob("*")) if path not in before and "decoded" not in path.parts] == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"keep_learner": True, "options": {"benchmark.stream.input.normalise": "data_set"}}, "images of all tasks"),
        ({"keep_learner": True, "keep_weights": False}, "of no use without the weights"),
        ({"keep_learner": True, "strategy": "joint"}, "no learner can be kept"),
    ],
)
def test_learners_that_cannot_be_kept(fields: Mapping[str, Any], told: str, months: list[Path], tmp_path: Path) -> None:
    """Refused where they are asked for, before anything is learned."""
    file = months_file(tmp_path / "b.toml", months[:2])
    with pytest.raises(RequestError, match=told):
        run(tmp_path / "results", file, protocol="instant", **fields)
    assert not (tmp_path / "results" / "runs").exists()


@pytest.mark.parametrize("fields", [{"keep_learner": False}, {"keep_weights": False}, {"strategy": "joint"}])
def test_no_learner(fields: Mapping[str, Any], months: list[Path], tmp_path: Path) -> None:
    """None is kept where it is not wanted or of no use, and the record says so."""
    record = run(tmp_path, months_file(tmp_path / "b.toml", months[:2]), protocol="instant", **fields)
    assert (record.learner_sha256, record.learner_bytes) == (None, None)
    assert [*tmp_path.rglob(LEARNER_NAME)] == []
    with pytest.raises(ResultsError, match="kept no learner"):
        extended(tmp_path, record, data=months[2])


@pytest.mark.long
def test_further_groups_of_one_data_set(tmp_path: Path) -> None:
    """They can follow; not where a class comes back, by which earlier tasks would have been split otherwise."""
    write_month(tmp_path / "all", range(6), each=25)

    def groups(*further: list[str]) -> str:
        known = [["d0", "d1"], ["d2", "d3"], *further]
        return str(stream_file(tmp_path, (), f'kind = "classes"\ndataset = "all"\norder = "fixed"\ngroups = {known}'))

    short = run(tmp_path, groups(), "ewc")
    with pytest.raises(RequestError, match=r"task 0 .* its images and input differ"):
        extended(tmp_path, short, benchmark=groups(["d1", "d4"]))
    longer = extended(tmp_path, short, benchmark=groups(["d4", "d5"])).record
    whole = run(tmp_path / "two", tmp_path / "own.toml", "ewc")
    assert common(longer) == common(whole)
    assert_close(weights(tmp_path, longer), weights(tmp_path / "two", whole), rtol=0, atol=0)
