"""Numbers and texts from the file to the exported model: scikit-learn's tables, and docstrings of what is installed."""

from __future__ import annotations

import ast
import importlib.util
import re
import zlib
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn import datasets

from seu_bench import hookimpl, load_model
from seu_bench.config import Request
from seu_bench.engine.onnx_export import onnx_bytes
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.stopping import StopRequest
from seu_bench.engine.verification import verify
from seu_bench.errors import Interruption, RequestError
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import without_times
from seu_bench.training.stage import StageProgress

#: Packages whose docstrings are told apart, which seu-bench needs itself; words of a docstring; and a vocabulary.
PACKAGES, WORDS, VOCABULARY = ("sklearn", "torch", "matplotlib", "pandas"), 24, 800
TABLES = {"wine": 1, "breast_cancer": 1, "digits": 2}
SEU = {"space": "dense", "channels": 8} | {f"{it}.epochs": 8 for it in ("searcher", "creator")}
SEU |= {f"{it}.batch_size": 16 for it in ("searcher", "creator")}


def docstrings(package: str, most: int) -> list[str]:
    """The first docstrings of functions and classes of a package, of files in alphabetical order."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    files = (file for file in sorted(Path(spec.origin).parent.rglob("*.py")) if "test" not in str(file))
    kinds = (ast.FunctionDef, ast.ClassDef)
    texts = (
        ast.get_docstring(node) or ""
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, kinds)
    )
    return list(islice((text for text in texts if len(text.split()) >= WORDS), most))


def tokens(text: str) -> list[int]:
    """Words by a hash, 0 for the names of the packages: those would tell them."""
    words = re.findall(r"[a-z]+", text.lower())[:WORDS]
    ids = [0 if word in PACKAGES else 1 + zlib.crc32(word.encode()) % (VOCABULARY - 1) for word in words]
    return ids + [0] * (WORDS - len(ids))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Benchmark files of all tables, and of the text."""
    folder = tmp_path_factory.mktemp("inputs")
    made: dict[str, tuple[str, Any, Any, int]] = {}
    for name, classes in TABLES.items():
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        made[name] = ("features", x, y, classes)
    texts = [docstrings(package, 80) for package in PACKAGES]
    labels = np.repeat(PACKAGES, [len(each) for each in texts])
    made["text"] = ("tokens", np.array([tokens(text) for each in texts for text in each]), labels, 2)
    for name, (kind, samples, labels, classes) in made.items():
        np.savez(folder / f"{name}.npz", allow_pickle=True, **{kind: samples, "labels": labels})
        text = f'name = "{name}"\ndefault_protocol = "paper"\n[stream]\nkind = "classes"\ndataset = "own"\n'
        text += f"classes_per_task = {classes}\n"
        text += f'order = "fixed"\n[datasets.own]\nkind = "{kind}"\npath = "{name}.npz"\n'
        text += "[protocols.paper]\ntraining = { epochs = 15, batch_size = 16, learning_rate = 0.05 }\n"
        (folder / f"{name}.toml").write_text(text)
    return folder


class Stopper:
    """Stops a run after so many epochs of training."""

    def __init__(self, after: int) -> None:
        self.stop, self.after = StopRequest(), after

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        if progress.stage == "training" and progress.epoch:
            self.after -= 1
            if self.after == 0:
                self.stop.ask(Interruption("stopped by the test", 143))


def run(folder: Path, name: str, strategy: str, scenario: str, results: Path, stopper: Stopper | None = None) -> Record:
    """Learn a benchmark of the folder; the forecast of passes and of bytes is what was measured."""
    manager = load_plugins()
    if stopper is not None:
        manager.register(stopper, name="stopper")
    options: dict[str, Any] = {"benchmark.stream.scenario": scenario}
    if strategy == "seu":
        options |= SEU | ({"infer_task": "entropy"} if scenario == "class" else {})
    fields: Any = {"results": results, "device": "cpu", "checkpoint_every": 0.0, "options": options}
    registry = Registry(manager)
    resolved = resolve(registry, Request(strategy=strategy, benchmark=str(folder / f"{name}.toml"), **fields))
    record = execute(registry, resolved, stop=stopper and stopper.stop).record
    cost = resolved.cost(resolved.context(resolved.plan()))
    if strategy == "seu":  # a range, as it grows; operations of a search are not forecast
        sizes = zip(cost.params_total_min, record.params_total, cost.params_total, strict=True)
        assert cost.image_passes == record.metrics["image_passes"]
        assert all(least <= found <= most for least, found, most in sizes) and cost.macs_min[0] <= record.macs[0]
        return record
    assert (cost.image_passes, cost.train_flops) == (record.metrics["image_passes"], record.metrics["train_flops"])
    assert (cost.memory_bytes, cost.macs) == (record.memory_bytes, record.macs)
    return record


@pytest.mark.parametrize(
    ("name", "strategy", "scenario", "least"),
    [
        ("wine", "ewc", "class", 0.3),
        ("wine", "nearest_mean", "class", 0.9),
        ("breast_cancer", "replay", "class", 0.85),
        ("text", "replay", "class", 0.45),
        pytest.param("digits", "replay", "class", 0.7, marks=pytest.mark.long),
        pytest.param("digits", "ewc", "task", 0.9, marks=pytest.mark.long),
        pytest.param("digits", "naive", "domain", 0.5, marks=pytest.mark.long),
        pytest.param("text", "naive", "task", 0.6, marks=pytest.mark.long),
        pytest.param("text", "ewc", "class", None, marks=pytest.mark.long),
        pytest.param("digits", "icarl", "class", 0.5, marks=pytest.mark.long),
        pytest.param("text", "icarl", "class", 0.4, marks=pytest.mark.long),
        pytest.param("digits", "memo", "class", 0.5, marks=pytest.mark.long),
        pytest.param("text", "lwf", "task", 0.6, marks=pytest.mark.long),
        pytest.param("digits", "seu", "task", 0.6, marks=pytest.mark.long),
        pytest.param("digits", "seu", "class", 0.3, marks=pytest.mark.long),
        pytest.param("text", "seu", "task", 0.6, marks=pytest.mark.long),
        pytest.param("text", "seu", "class", None, marks=pytest.mark.long),
    ],
)
def test_learned_and_verified(
    folder: Path, tmp_path: Path, name: str, strategy: str, scenario: str, least: float | None
) -> None:
    """At least so accurate, above chance; without a number where it forgets all but the last task."""
    record = run(folder, name, strategy, scenario, tmp_path)
    assert least is None or (record.metrics["acc"] or 0) >= least
    kind = "tokens" if name == "text" else "features"
    assert (record.input_kind, len(record.input_shape or ())) == (kind, 1)
    assert record.vocabulary is None or record.vocabulary <= VOCABULARY
    if strategy == "replay":  # numbers of 4 bytes, a priority, label and task
        width = (record.input_shape or (0,))[0]
        assert record.memory_by_kind["exemplars"] % (4 * width + 4 + 2) == 0
    benchmark = folder / f"{name}.toml"
    checks = verify(Registry(), record.run_id, results=tmp_path, device="cpu", benchmark=benchmark).checks
    assert [check for check in checks if check.passed is False] == []


@pytest.mark.parametrize(("name", "scenario"), [("wine", "class"), ("text", "task")])
def test_resumed_to_the_bit_and_exported(folder: Path, tmp_path: Path, name: str, scenario: str) -> None:
    """A run that was stopped within its second task ends as one that was not; raw samples are what its graph takes."""
    whole = run(folder, name, "replay", scenario, tmp_path / "whole")
    with pytest.raises(Interruption):
        run(folder, name, "replay", scenario, tmp_path / "parts", Stopper(after=20))
    resumed = run(folder, name, "replay", scenario, tmp_path / "parts")
    assert without_times(resumed) == without_times(whole)
    model = load_model(whole.run_id, tmp_path / "whole")
    with np.load(folder / f"{name}.npz") as file:
        kind = "tokens" if name == "text" else "features"
        raw = file[kind][:7].astype(np.int64 if kind == "tokens" else np.float32)
    logits = model(model.preprocess(torch.from_numpy(raw), 1), 1)
    session = onnxruntime.InferenceSession(onnx_bytes(model, 1), providers=["CPUExecutionProvider"])
    (found,) = session.run(["logits"], {kind: raw})
    np.testing.assert_allclose(found, logits.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "strategy", "options", "said", "hint"),
    [
        (
            "wine",
            "naive",
            {"backbone": "alexnet"},
            "'alexnet' takes images, and data set 'own' has features",
            "-o backbone=mlp;",
        ),
        ("text", "ewc", {"backbone": "mlp"}, "'mlp' takes images and features", "those that take tokens: embedding"),
        ("wine", "pnn", {}, "'pnn' learns images", "naive, replay or ewc"),
        ("wine", "seu", {}, "'darts_cell' takes images, and data set 'own' has features", "-o space=dense;"),
        (
            "text",
            "seu",
            {"space": "mbconv"},
            "'mbconv' takes images, and data",
            "-o space=dense; those that take tokens",
        ),
        ("text", "slda", {}, "'slda' learns images and features", "naive, replay or ewc"),
        ("split_digits", "naive", {"backbone": "embedding"}, "'embedding' takes tokens", "-o backbone=alexnet"),
    ],
)
def test_networks_that_do_not_take_it(
    folder: Path, tmp_path: Path, name: str, strategy: str, options: dict[str, Any], said: str, hint: str
) -> None:
    """They are refused before the data is read: no file here can be."""
    benchmark = name
    if name != "split_digits":
        own = tmp_path / "mine.toml"
        own.write_text((folder / f"{name}.toml").read_text())
        (tmp_path / f"{name}.npz").write_bytes(b"nothing that could be read")
        benchmark = str(own)
    with pytest.raises(RequestError, match=said) as caught:
        resolve(Registry(), Request(strategy=strategy, benchmark=benchmark, options=options))
    assert hint in str(caught.value.remedy)
