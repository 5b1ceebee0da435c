"""A saved run of deep generative replay: verified with its generator, exported without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny import all_threads, one_thread, registry

from seu_bench import load_model
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.saved_model import onnx_bytes
from seu_bench.engine.verification import verify
from seu_bench.plugin.registry import Registry

setup_module, teardown_module = one_thread, all_threads


def saved_run(generator: str, results: Path) -> str:
    """The id of a finished run of two tasks of digits, class-incremental, by a network with dropout."""
    options = {
        "benchmark.stream.scenario": "class",
        "benchmark.stream.classes_per_task": 5,
        "generator": generator,
        "generator_iterations": 4,
    }
    asked = Request(strategy="dgr", protocol="smoke", options=options, device="cpu", results=results, limit=16)
    return execute(registry(), resolve(registry(), asked)).record.run_id


@pytest.mark.parametrize("generator", ["vae", "wgan_gp"])
@pytest.mark.long
def test_saved_model_reproduces_its_record(generator: str, tmp_path: Path) -> None:
    """Accuracies and sizes, from record and weights; the generator is there, with the range of its images."""
    run_id = saved_run(generator, tmp_path)
    assert verify(Registry(), run_id, results=tmp_path).passed
    network: Any = load_model(run_id, tmp_path).network
    assert float(network.generator.low) < 0 < float(network.generator.high)
    assert network.generator.images(3).shape == (3, 1, 8, 8)


@pytest.mark.long
def test_exported_is_the_solver(tmp_path: Path) -> None:
    """The logits of all classes by onnxruntime; no weight of the generator is in the file."""
    import onnxruntime

    model = load_model(saved_run("vae", tmp_path), tmp_path)
    content = onnx_bytes(model, 1)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    pixels = torch.randint(256, (5, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    (logits,) = session.run(["logits"], {"images": pixels.numpy()})
    assert logits.shape == (5, 10)
    assert torch.allclose(torch.from_numpy(logits), model(model.preprocess(pixels, 1)), atol=1e-5)
    network: Any = model.network
    for weight in network.generator.parameters():
        if weight.numel() > 100:
            assert weight.detach().numpy().tobytes() not in content
            assert weight.detach().t().contiguous().numpy().tobytes() not in content if weight.dim() == 2 else True
