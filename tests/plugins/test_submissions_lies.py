"""Kinds of lies in a shared leaderboard: each is refused with its reason, or marked as stated.

Every lie is told as by somebody who knows the formats: metrics, digests, the seal of a model and manifests are renewed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from support.commands import Command

from seu_bench.engine.resolve import ResolvedRun
from seu_bench.engine.saved_model import KEY, SEALED
from seu_bench.results.record import parse_record, record_digest
from seu_bench.results.record_files import MODEL_NAME
from seu_bench.results.record_metrics import METRICS, compute_metrics
from seu_bench.training.interfaces import Cost, StrategyContext
from seu_bench_submissions.commands import STATED

#: Whose runs are of which strategy, with how many seeds.
SUBMITTERS = {"jane": ("naive", 3), "group-b": ("ewc", 1), "c": ("linear", 1)}


@pytest.fixture(scope="module")
def honest(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three submissions of real runs with models."""
    folder = tmp_path_factory.mktemp("honest")
    for name, (strategy, seeds) in SUBMITTERS.items():
        asked = ("--strategy", strategy, "--protocol", "quick", "-o", "epochs=1", "--results", folder / "results")
        for seed in range(seeds):
            assert command("run", *asked, "--seed", seed, "--device", "cpu").status == 0
        runs = sorted((folder / "results" / "runs").glob(f"*-{strategy}-*"))
        about = ("--submitter", name, "--licence", "CC-BY-4.0", "--results", folder / "results")
        assert command("submit", *runs, *about, "--to", folder / "shared").status == 0
    return folder / "shared"


class Lie:
    """A copy of the honest folder, and ways to lie in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = folder / "submissions" / "jane.toml"

    def run(self, strategy: str = "naive", seed: int = 0) -> Path:
        return next((self.folder / "runs").glob(f"*-{strategy}-seed{seed}-*"))

    def change(
        self,
        change: Callable[[dict[str, Any]], object],
        run: Path | None = None,
        *,
        tensors: Path | None = None,
        metrics: bool = True,
    ) -> Path:
        """Change a run's record; whatever follows from it is renewed, ``tensors`` are those of another run."""
        run = run or self.run()
        path = run / "record.json"
        document = json.loads(path.read_text())
        before = {key: document[key] for key in ("record_sha256", "weights_sha256")}
        change(document)
        if metrics:
            self._renew_metrics(document)
        if (model := run / MODEL_NAME).exists():
            self._seal(model, document, (tensors or run) / MODEL_NAME)
        document["record_sha256"] = record_digest(document)
        path.write_text(json.dumps(document))
        for manifest in self.folder.glob("submissions/*.toml"):
            text = manifest.read_text()
            for key, value in before.items():
                text = text.replace(value, document[key])
            manifest.write_text(text)
        return run

    @staticmethod
    def _renew_metrics(document: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # the record may be none any more
            made = compute_metrics(parse_record(json.dumps(document), ""))
            document["metrics"] |= {name: value for name, value in made.items() if METRICS[name].from_record}

    @staticmethod
    def _seal(model: Path, document: dict[str, Any], source: Path) -> None:
        from safetensors import safe_open

        with safe_open(model, "pt") as file:
            seal = json.loads(file.metadata()[KEY])
        seal["run_id"] = document["run_id"]
        seal["record"] = {key: document[key] for key in SEALED if key in document}
        save_file(load_file(source), model, {KEY: json.dumps(seal)})
        document["weights_sha256"] = hashlib.sha256(model.read_bytes()).hexdigest()

    def forge(self, name: str, run_id: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Submit somebody's run under another name and id."""
        source = self.run()
        copy = source.with_name(run_id)
        shutil.copytree(source, copy)
        document = json.loads((copy / "record.json").read_text()) | {"run_id": run_id}
        self._seal(copy / MODEL_NAME, document, source / MODEL_NAME)
        change(document)
        self._renew_metrics(document)
        document["record_sha256"] = record_digest(document)
        (copy / "record.json").write_text(json.dumps(document))
        weights = f', weights_sha256 = "{document["weights_sha256"]}"'
        (self.folder / "submissions" / f"{name}.toml").write_text(
            f'schema_version = 1\nsubmitter = "{name}"\nlicence = "MIT"\n[runs]\n'
            f'"{run_id}" = {{record_sha256 = "{document["record_sha256"]}"{weights}}}\n'
        )


@pytest.fixture(scope="module", autouse=True)
def forecasts_once() -> Iterator[None]:
    """Forecast once what the same request is forecast: of a folder, all but one run are as in every other test."""
    forecast, known = ResolvedRun.cost, {}

    def cost(run: ResolvedRun, context: StrategyContext) -> Cost:
        asked = (repr(run.request), run.spec.run_id, str(context.device))
        if asked not in known:
            known[asked] = forecast(run, context)
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResolvedRun, "cost", cost)
        yield


@pytest.fixture
def lie(honest: Path, tmp_path: Path) -> Lie:
    return Lie(shutil.copytree(honest, tmp_path / "shared"))


def check(command: Command, folder: Path, *more: object) -> dict[str, Any]:
    answer = command("check-submission", folder, "--format", "json", "--seeds", 1, "--verify", 0, *more)
    found: dict[str, Any] = json.loads(answer.out)
    assert answer.status == (0 if found["accepted"] else 1), answer.err
    return found


def test_honest_runs_are_accepted_measured_and_ranked(command: Command, honest: Path) -> None:
    found = check(command, honest, "--verify", 4)
    assert (found["findings"], len(found["verified"])) == ([], 5)
    (board,) = json.loads(command("leaderboard", "--results", honest, "--format", "json").out)
    rows = {row["configuration"]: len(row["run_ids"]) for row in board["rows"]}
    assert rows == {"naive by jane": 3, "ewc by group-b": 1, "linear by c": 1}
    assert "are as stated" in command("leaderboard", "--results", honest, "--format", "md").out


def zeros(document: dict[str, Any]) -> None:
    document["accuracy_matrix"] = [[it and 0.0 for it in row] for row in document["accuracy_matrix"]]


def raised(document: dict[str, Any]) -> None:
    """One more right answer, which is a share of all images."""
    test, row = document["task_images"][0][2], document["accuracy_matrix"][-1]
    row[0] = (round(row[0] * test) + (1 if row[0] < 1 else -1)) / test


def zeros_in_2999(document: dict[str, Any]) -> None:
    zeros(document)
    document["started"] = "2999-01-01T00:00:00Z"


def each(key: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    """Change a value of each stage, or of each task."""

    def changed(document: dict[str, Any]) -> None:
        if isinstance(document.get(key), list):
            document[key] = [change(value) for value in document[key]]
        else:
            for stage in document["stages"]:
                stage[key] = change(stage[key]) if stage[key] is not None else None

    return changed


def hidden_passes(document: dict[str, Any]) -> None:
    """Learning that is called evaluation is counted by no cost."""
    for stage in document["stages"][1:]:
        stage["name"] = "evaluation"


def put(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(values)


def within(key: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document[key].update(values)


TUNED = {"id": "t", "sha256": "0", "method": "first-tasks:3", "seeds": [0], "runs": 1, "image_passes": 1}

#: What is changed in the record of ``naive``, and the reason.
CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "accuracy that is no share": (lambda it: it["accuracy_matrix"][-1].__setitem__(0, 0.99999), "is no share of"),
    "metric": (within("metrics", acc=1.0), "the metric acc: recorded 1.0"),
    "metric that is none": (within("metrics", acc=float("nan")), "NaN is no number"),
    "negative peak memory": (within("metrics", peak_memory_bytes=-5), "peak_memory_bytes is -5"),
    "accuracies left out": (
        lambda it: it.update(accuracy_matrix=[[None] * 5] * 4 + it["accuracy_matrix"][-1:]),
        "does not have a value for each task",
    ),
    "one byte of memory": (
        lambda it: it.update(memory_bytes=[1] * 5, memory_by_kind={"parameters": 1}),
        "memory_bytes is 1 after task 0",
    ),
    "memory not said": (put(memory_bytes=[None] * 5, memory_by_kind={}), "memory_bytes is None after task 0"),
    "memory by kind": (within("memory_by_kind", exemplars=7), "memory_by_kind is not what"),
    "half of the parameters": (each("params_total", lambda it: it // 2), "params_total is"),
    "negative operations": (each("flops", lambda it: -it), "not a complete record"),
    "half of the operations": (each("flops", lambda it: it // 2), "operations of learning"),
    "operations not counted": (put(stages=[]), "0 image passes to learn"),
    "learning called evaluation": (hidden_passes, "image passes to evaluate"),
    "no images": (put(task_images=[]), "task_images"),
    "another order of tasks": (lambda it: it["task_order"].reverse(), "task_order"),
    "a learner as a reference": (put(reference="an upper bound"), "reference: recorded 'an upper bound'"),
    "a smoke run as ranked": (put(protocol="smoke", ranked=True), "run_id: recorded"),
    "another protocol": (lambda it: it["protocol_settings"]["training"].update(epochs=99), "protocol_settings"),
    "another option": (within("options", epochs=8), "run_id: recorded"),
    "another version of the benchmark": (put(benchmark_version=99), "benchmark_version"),
    "made-up data": (put(synthetic=True), "never ranked: synthetic data"),
    "limited images": (put(limit=10), "never ranked: images were limited"),
    "validation images": (put(evaluation="validation"), "never ranked: measured on validation images"),
    "a start in the future": (put(started="2999-01-01T00:00:00+00:00"), "started in the future"),
    "a start of no time zone": (put(started="2020-01-01"), "no time with a time zone"),
    "tuned on its own seed": (put(tuned=TUNED), "tuned on its own seed, 0"),
    "markup": (put(task_names=["<script>x</script>"] * 5), "markup"),
    "weights of an absolute path": (within("options", weights="/dev/zero"), "names a file: weights"),
    "data of one's own": (
        put(benchmark_overrides={"datasets.x.kind": "torchvision", "datasets.x.train": {"size": 10**8}}),
        "defines data of its own",
    ),
    "a benchmark's file": (put(benchmark="x.toml"), "is not registered here"),
    "a strategy of nobody": (put(strategy="best"), "cannot be checked here"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_lying_record_is_refused(command: Command, lie: Lie, kind: str) -> None:
    change, reason = CHANGES[kind]
    lie.change(change, metrics="metric" not in kind)
    told = [it["what"] for it in check(command, lie.folder)["findings"]]
    assert any(reason in it for it in told), told


def zeros_of_the_future(lie: Lie) -> None:
    lie.forge("eve", lie.run().name[:-10] + "0123456789", zeros_in_2999)


def models_of_another_run(lie: Lie) -> None:
    """All of it is measured to be true: the model does reach these accuracies."""
    source = lie.run()
    truth = json.loads((source / "record.json").read_text())
    lie.change(lambda it: it.update(accuracy_matrix=truth["accuracy_matrix"]), lie.run("ewc"), tensors=source)


def models_of_another_seed(lie: Lie) -> None:
    source = lie.run(seed=0)
    truth = json.loads((source / "record.json").read_text())
    lie.change(lambda it: it.update(accuracy_matrix=truth["accuracy_matrix"]), lie.run(seed=1), tensors=source)


def curves_of_another_run(lie: Lie) -> None:
    truth = json.loads((lie.run() / "record.json").read_text())
    same = {key: truth[key] for key in ("accuracy_matrix", "stages")}
    lie.change(lambda it: it.update(same), lie.run("ewc"))


def text(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text()))


def lookalike(lie: Lie) -> None:
    """Full-width letters, which read as those of another submitter."""
    text(lie.folder / "submissions" / "c.toml", lambda it: it.replace('"c"', '"\\uff2aANE"'))


def hostile_manifest(lie: Lie) -> None:
    text(lie.manifest, lambda it: it.replace('contact = ""', 'contact = "<script>"'))


def packed(lie: Lie) -> None:
    record = json.loads((lie.run() / "record.json").read_text()) | {"run_id": "winner"}
    (lie.folder / "records.jsonl").write_text(json.dumps(record) + "\n")


def pipe(place: str) -> Callable[[Lie], None]:
    def made(lie: Lie) -> None:
        path = lie.manifest if place == "manifest" else lie.run() / place
        path.unlink()
        os.mkfifo(path)

    return made


def link(place: str) -> Callable[[Lie], None]:
    """A link to a device without an end, or to a folder elsewhere."""

    def made(lie: Lie) -> None:
        path = {"manifest": lie.manifest, "run": lie.run()}.get(place, lie.run() / place)
        if path.is_dir():
            moved = lie.folder.with_name("elsewhere")
            path.rename(moved)
            path.symlink_to(moved)
        else:
            path.unlink()
            path.symlink_to("/dev/zero")

    return made


def more_behind_the_header(lie: Lie) -> None:
    with (lie.run() / MODEL_NAME).open("ab") as file:
        file.truncate(2**33)  # a file with a hole, which takes no room


def stray(lie: Lie) -> None:
    shutil.copytree(lie.run(), lie.folder / "runs" / "winner")


def record_of_another_manifest(lie: Lie) -> None:
    before = lie.manifest.read_text()
    lie.change(put(started="2020-01-01T00:00:00+00:00"))
    lie.manifest.write_text(before)


LIES: dict[str, tuple[Callable[[Lie], object], str]] = {
    "the same, of the year 2999": (zeros_of_the_future, "started in the future"),
    "another's models": (models_of_another_run, "has the same weights as"),
    "the model of one seed for two": (models_of_another_seed, "has the same weights as"),
    "another's curves": (curves_of_another_run, "has the same accuracies and losses as"),
    "a run of two submissions": (
        lambda lie: shutil.copy(lie.manifest, lie.manifest.with_name("thief.toml")),
        "has been submitted by",
    ),
    "another record than the manifest's": (record_of_another_manifest, "is not the one that the manifest names"),
    "another model than the record's": (
        lambda lie: shutil.copy(lie.run(seed=1) / MODEL_NAME, lie.run(seed=0) / MODEL_NAME),
        "its model is not the one that record and manifest name",
    ),
    "a model that is none": (
        lambda lie: (lie.run() / MODEL_NAME).write_bytes(b"another"),
        "it is no file of safetensors",
    ),
    "records in the root": (packed, "holds records of no submission"),
    "a run of no manifest": (stray, "belongs to no submission"),
    "a submitter that looks like another": (lookalike, "its submitter is that of"),
    "markup in a manifest": (hostile_manifest, "contact: '<script>' holds markup"),
    "a manifest that is a pipe": (pipe("manifest"), "not a regular file"),
    "a record that is a pipe": (pipe("record.json"), "not a regular file"),
    "a model that is a link": (link(MODEL_NAME), "not a regular file"),
    "a run that is a link": (link("run"), "has no folder in runs"),
    "much behind a small header": (more_behind_the_header, "more in it than its header says"),
}


@pytest.mark.parametrize("kind", LIES)
def test_lying_folder_is_refused(command: Command, lie: Lie, kind: str) -> None:
    tell, reason = LIES[kind]
    tell(lie)
    told = [it["what"] for it in check(command, lie.folder)["findings"]]
    assert any(reason in it for it in told), told


@pytest.mark.parametrize("tell", [packed, stray])
def test_only_runs_of_manifests_are_ranked(command: Command, lie: Lie, tell: Callable[[Lie], object]) -> None:
    page = lie.folder.with_name("page.html")
    before = command("leaderboard", "--results", lie.folder, "--format", "csv").out
    tell(lie)
    assert command("leaderboard", "--results", lie.folder, "--format", "csv").out == before
    assert command("leaderboard", "--results", lie.folder, "--ranks").status == 0
    assert command("report", "--results", lie.folder, "--top", 0, "--output", page).status == 0
    assert "winner" not in page.read_text()


@pytest.mark.parametrize("place", [".", "runs", "submissions"])
def test_link_in_place_of_a_folder_is_refused(command: Command, lie: Lie, place: str, tmp_path: Path) -> None:
    moved = (lie.folder / place).rename(tmp_path / "elsewhere")
    (tmp_path / "shared" / place).symlink_to(moved)
    before = sorted(moved.rglob("*"))
    for asked in (("check-submission",), ("leaderboard", "--results"), ("report", "--results")):
        answer = command(*asked, tmp_path / "shared")
        assert answer.status == 2
        assert "this is a link" in answer.err
    assert sorted(moved.rglob("*")) == before


@pytest.mark.long
def test_every_model_of_a_few_is_measured(command: Command, lie: Lie) -> None:
    """One of three lies; a sample of one is drawn by the checker, and differs."""
    run = lie.change(raised, lie.run(seed=1))
    (found,) = check(command, lie.folder, "--verify", 3)["findings"]
    assert found["run"] == run.name
    assert found["what"].startswith("accuracy: accuracy_matrix[4][0]: recorded")
    drawn = {tuple(check(command, lie.folder, "--verify", 1, "--seed", seed)["verified"]) for seed in range(5)}
    assert len(drawn) > 1
    assert len({run.name in each for each in drawn}) == 2
    once, again = (check(command, lie.folder, "--verify", 1, "--seed", 3) for _ in range(2))
    assert once == again


def fewer_passes(document: dict[str, Any]) -> None:
    for stage in document["stages"]:
        stage["image_passes"] -= 1


def test_a_submitters_rows_are_its_own(command: Command, lie: Lie) -> None:
    """Zeros of the same configuration and seed, made later, replace nobody's row: not even where nothing is checked."""

    def rows() -> dict[str, Any]:
        (board,) = json.loads(command("leaderboard", "--results", lie.folder, "--format", "json").out)
        return {row["configuration"]: row["metrics"]["acc"]["mean"] for row in board["rows"]}

    before = rows()
    zeros_of_the_future(lie)
    assert rows() == before | {"naive by eve": 0}


#: What nobody can compute again.
MARKED: dict[str, Callable[[dict[str, Any]], object]] = {
    "times": each("seconds", lambda it: it / 100),
    "processor time": each("cpu_seconds", lambda it: it / 100),
    "image passes": fewer_passes,
    "device": lambda it: it["environment"].update(device="cpu of another kind"),
    "an accuracy before the last row": lambda it: it["accuracy_matrix"][0].__setitem__(0, 0.0),
    "tuning of one's own": put(tuned=TUNED | {"seeds": [9]}),
}


@pytest.mark.parametrize("kind", MARKED)
def test_what_cannot_be_computed_again_is_marked_as_stated(command: Command, lie: Lie, kind: str) -> None:
    lie.change(MARKED[kind])
    found = check(command, lie.folder)
    assert (found["findings"], found["stated"]) == ([], STATED)
