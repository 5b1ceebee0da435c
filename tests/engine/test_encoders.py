"""Streams of features: computed once, equal in evaluation, prediction and ONNX, and counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from support import tiny_encoder
from support.tiny_encoder import INFO

import seu_bench
from seu_bench.config.run import Request
from seu_bench.data.encoding import CHUNK, FeatureFile
from seu_bench.engine.onnx_export import onnx_bytes
from seu_bench.engine.resolve import resolve
from seu_bench.engine.saved_model import load_model
from seu_bench.engine.verification import verify
from seu_bench.errors import DataError, RequestError, ResultsError, SeuBenchError
from seu_bench.models.encoder import Encoder
from seu_bench.plugin.methods import PLUGINS
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.record import Record
from seu_bench.testing.trial import load_registry

PLUGIN = Path(tiny_encoder.__file__)
DIGITS = load_registry().datasets.find("digits").factory.load(None).test
INPUT = {"benchmark.stream.input.encoder": "two_convs", "benchmark.stream.input.resize": 16}


@pytest.fixture(autouse=True)
def forget_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other test of this process has the plugin."""
    monkeypatch.setenv(PLUGINS, "")


@pytest.fixture
def registry() -> Registry:
    return use_plugins(PLUGIN)


def run(tmp_path: Path, strategy: Any = "nearest_mean", **more: Any) -> Record:
    """Learn the digits on features, class by class, in seconds."""
    options = {**INPUT, "benchmark.stream.scenario": "class", **more.pop("options", {})}
    places: Any = {"results": tmp_path / "results", "data_root": tmp_path / "data", "plugin": PLUGIN}
    return seu_bench.run(
        strategy, "split_digits", protocol=more.pop("protocol", "smoke"), options=options, **places, **more
    )


def test_rows_are_computed_once_and_damaged_ones_again(tmp_path: Path) -> None:
    """Whoever opens the file: what is computed is what is missing, in whole chunks, and what was changed."""
    asked: list[int] = []

    def compute(rows: Any) -> Any:
        assert len(rows) <= CHUNK
        asked.extend(rows.tolist())
        return np.stack([np.full(3, row, dtype=np.float32) for row in rows.tolist()])

    columns = np.array([2, 0])
    for wanted in (np.arange(5, 150), np.arange(100), np.array([0, 149])):
        found = FeatureFile(tmp_path / "deep" / "file", 200, 3).read(wanted, columns, compute)
        assert found.tolist() == [[row, row] for row in wanted.tolist()]
    assert sorted(asked) == list(range(150))
    np.memmap(tmp_path / "deep" / "file.f32", dtype=np.float32, mode="r+", shape=(200, 3))[7] = 1
    assert FeatureFile(tmp_path / "deep" / "file", 200, 3).read(np.array([7]), columns, compute).tolist() == [[7, 7]]
    assert asked[150:] == [7]


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The hint names the option."""
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match="file of features cannot be used") as error:
        FeatureFile(tmp_path / "file" / "x", 2, 2).read(np.arange(2), np.arange(2), lambda rows: np.zeros((2, 2)))
    assert "--data-root" in str(error.value.remedy)


@pytest.mark.parametrize("strategy", ["nearest_mean", "slda", "naive", "heads_on_encoder"])
def test_prediction_and_onnx_answer_as_the_run_did(tmp_path: Path, strategy: str, registry: Registry) -> None:
    """From the data set's own pixels: resized, normalised as the encoder was trained, encoded, answered."""
    record = run(tmp_path, strategy, protocol="quick")
    images, labels = DIGITS.images, DIGITS.labels
    model = load_model(record.run_id, tmp_path / "results", plugin=PLUGIN)
    answers = [int(label) for label in model.predict(images).labels]
    assert model.card.classes is not None and model.card.input_kind == "image"
    assert (np.array(answers) == labels).mean() == pytest.approx(record.metrics["image_acc"] or record.metrics["acc"])
    assert verify(registry, record.run_id, results=tmp_path / "results", data_root=tmp_path / "data").passed
    session = onnxruntime.InferenceSession(onnx_bytes(model))
    (_, shares) = session.run(None, {"images": images.transpose(0, 2, 3, 1)})
    assert [int(model.card.classes[place]) for place in shares.argmax(axis=1)] == answers


def test_sizes_count_the_network_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In parameters, bytes and multiply-accumulates; what tasks add is told; the forecast knows."""
    record, network = run(tmp_path), tiny_encoder.tiny_encoder()
    assert record.encoder is not None and record.encoder.sha256 == INFO.sha256
    params = sum(it.numel() for it in network.parameters())
    assert record.encoder.params == params and record.encoder.bytes == 4 * params
    assert record.metrics["memory_added_bytes"] == record.memory_bytes[-1] - 4 * params == 4 * (10 * 16 + 10)
    assert record.macs[-1] == 10 * 16 + (8 * 27 * 64 + 16 * 72 * 16)
    images = sum(train + valid for train, valid, _ in record.task_images)
    assert sum(it.image_passes for it in record.stages if it.name == "features") == images
    assert "forecast was wrong" not in capsys.readouterr().err
    with_network = run(tmp_path, "heads_on_encoder")
    assert with_network.data_fingerprint == record.data_fingerprint
    assert (with_network.input_kind, with_network.input_shape) == ("image", (3, 16, 16))
    assert with_network.params_total[-1] == params + 10 * 17


def test_features_are_those_of_the_images(tmp_path: Path, registry: Registry) -> None:
    """Of a grey image three times, each channel normalised by its own mean; of the layers that are asked for."""
    from seu_bench.data.streams import build_stream

    options = {**INPUT, "benchmark.stream.input.layers": [1, 0]}
    request = Request(
        strategy="naive", benchmark="split_digits", protocol="smoke", options=options, data_root=tmp_path / "data"
    )
    resolved = resolve(registry, request)
    stream = build_stream(resolved.spec.benchmark, resolved.load, resolved.limits, 0, **resolved.part)
    assert resolved.encoder is not None and resolved.plan().input.shape == (24,)
    images = build_stream(
        resolved.spec.benchmark,
        resolved.load,
        resolved.limits,
        0,
        **resolved.part | {"encoder": replace(resolved.encoder, makes_samples=False)},
    )
    (x, y), (z, same) = (it.tasks[1].test.gather(torch.arange(20)) for it in (images, stream))
    assert torch.equal(y, same) and x.shape == (20, 3, 16, 16)
    assert torch.allclose(z, tiny_encoder.tiny_encoder().readings(x)[:, [*range(8, 24), *range(8)]], atol=1e-6)
    mean, std = (torch.tensor(it).view(3, 1, 1) for it in (INFO.mean, INFO.std))
    grey = x * std + mean
    assert torch.allclose(grey[:, :1], grey, atol=1e-6) and 0 <= float(grey.min()) < float(grey.max()) <= 1.000001


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is not loaded on another network, and a run on one has another fingerprint."""
    record = run(tmp_path)
    factory = use_plugins(PLUGIN).encoders.find("two_convs").factory
    other = replace(INFO, sha256="f" * 16)
    monkeypatch.setattr(type(factory), "load", lambda self: Encoder(other, tiny_encoder.tiny_encoder().layers, len))
    with pytest.raises(ResultsError, match="are not the run's: ffffffffffffffff"):
        load_model(record.run_id, tmp_path / "results", plugin=PLUGIN)


@pytest.mark.parametrize(
    ("benchmark", "options", "said"),
    [
        ("split_digits", {"benchmark.stream.input.layers": [2]}, "which has 2"),
        ("pmnist", {}, "of which no encoder makes features"),
        ("split_digits", {"benchmark.stream.input.augment.flip": True}, "leave augment and channels out"),
        ("split_digits", {"benchmark.stream.input.encoder": "tinny"}, "tinny"),
    ],
)
def test_what_makes_no_sense_is_refused(
    benchmark: str, options: dict[str, Any], said: str, registry: Registry, tmp_path: Path
) -> None:
    """Before anything is read."""
    request = Request(strategy="naive", benchmark=benchmark, options={**INPUT, **options}, data_root=tmp_path)
    with pytest.raises(SeuBenchError, match=said):
        resolve(registry, request).plan()


def test_method_that_learns_with_the_network_needs_one(registry: Registry) -> None:
    """The hint can be pasted."""
    with pytest.raises(RequestError) as error:
        resolve(registry, Request(strategy="heads_on_encoder", benchmark="split_digits"))
    assert "input.encoder=lite0" in str(error.value.remedy)
