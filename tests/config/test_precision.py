"""Precision and compilation: what they change, and what they must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.tiny import all_threads, image_shape, one_thread
from torch import Tensor, nn
from torch._inductor import config as inductor

from seu_bench import LazyFactory, hookimpl
from seu_bench.config.options import Options
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.verification import verify
from seu_bench.errors import RequestError
from seu_bench.plugin.registration import Register
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import Record
from seu_bench.testing import pretended_card
from seu_bench.training.interfaces import Cost, StrategyFactory
from seu_bench.training.loops import EpochMeter
from seu_bench.training.monitoring import AccuracyMatrix
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.genotypes import GENOTYPES
from seu_bench_kit.units import CompiledUnits
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads

CPU = torch.device("cpu")


def made(results: Path, strategy: str, precision: Any = "float32", **options: Any) -> tuple[Record, dict[str, Tensor]]:
    """A short run's record and weights."""
    registry = Registry()
    fields = {"protocol": "smoke", "options": options, "precision": precision, "results": results, "device": "cpu"}
    outcome = execute(registry, resolve(registry, Request(strategy=strategy, **fields)))
    return outcome.record, load_file(outcome.path.with_name("model.safetensors"))


# ---------------------------------------------------------------------- precision


@pytest.mark.parametrize(
    "strategy",
    ["lwf", *(pytest.param(name, marks=pytest.mark.long) for name in ("naive", "ewc", "pnn", "ltg", "seu"))],
)
def test_bf16_learns_and_is_measured_in_float32(tmp_path: Path, strategy: str) -> None:
    """Products are rounded, weights are not; what the record says can be measured again from the weights."""
    plain, weights = made(tmp_path, strategy)
    rounded, others = made(tmp_path, strategy, "bf16")
    assert (plain.precision, rounded.precision) == ("float32", "bf16")
    assert all(tensor.dtype != torch.bfloat16 for tensor in others.values())
    assert strategy == "seu" or weights.keys() == others.keys()
    assert any(name in weights and not torch.equal(weights[name], tensor) for name, tensor in others.items())
    checks = verify(Registry(), rounded.run_id, results=tmp_path, device="cpu").checks
    assert checks and all(check.passed for check in checks), checks


@pytest.mark.long
def test_kept_in_half(tmp_path: Path) -> None:
    """Only what is kept is in bfloat16: half of the bytes, and weights close to the exact ones' after a short run."""
    plain, weights = made(tmp_path, "pnn")
    rounded, others = made(tmp_path, "pnn", "bf16-features")
    exact, half = plain.metrics["peak_feature_bytes"], rounded.metrics["peak_feature_bytes"]
    assert isinstance(exact, int) and isinstance(half, int)
    assert half == exact // 2 > 0
    first = [name for name in weights if name.startswith("columns.0.")]
    assert first and all(torch.equal(weights[name], others[name]) for name in first)
    assert any(not torch.equal(weights[name], others[name]) for name in weights)


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_tf32_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Any) -> None:
    """An accelerator rounds products so where that was asked for, and nowhere else; accuracies are float32's."""
    products, seen = (torch.backends.cudnn, torch.backends.cuda.matmul), set[tuple[str, bool]]()
    fixed = set[bool]()  # whether algorithms are deterministic: in training there

    def noted(name: str, of: Any) -> Any:
        def note(*given: Any) -> Any:
            fixed.add(torch.are_deterministic_algorithms_enabled())
            return [seen.update((name, it.allow_tf32) for it in products), of(*given)][1]

        return note

    monkeypatch.setattr(EpochMeter, "add", noted("training", EpochMeter.add))
    monkeypatch.setattr(
        AccuracyMatrix, "after_eval_iteration", noted("evaluation", AccuracyMatrix.after_eval_iteration)
    )
    before = [it.allow_tf32 for it in products]
    request = Request(strategy="naive", protocol="smoke", precision=precision, results=tmp_path, device="cuda")
    with pretended_card():
        record = execute(Registry(), resolve(Registry(), request)).record
    assert record.precision == precision
    # The rehearsal of a run's cost trains on the processor, whatever is asked for.
    assert seen - {("training", False)} == {("training", True)} & {("training", precision == "tf32")} | {
        ("evaluation", False)
    }
    assert [it.allow_tf32 for it in products] == before
    assert True in fixed and not torch.are_deterministic_algorithms_enabled()


def test_there_is_no_tf32_on_a_processor(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no TF32 on cpu"):
        made(tmp_path, "naive", "tf32")
    assert not list(tmp_path.glob("runs/*/record.json"))


class Deaf(nn.Module):
    """A strategy that knows nothing of precisions, and the plugin that offers it."""

    model = nn.Linear(1, 1)

    @hookimpl
    def register_strategies(self, register: Register[StrategyFactory]) -> None:
        cost = Cost((), (), (), (), ())
        register("deaf", LazyFactory("deaf", options=Options, build=lambda _: Deaf(), cost=lambda _: cost))


def test_a_strategy_that_cannot_is_refused(tmp_path: Path) -> None:
    """It would compute in float32, and the record would say otherwise."""
    manager = load_plugins()
    manager.register(Deaf())
    registry = Registry(manager)
    request = Request(strategy="deaf", protocol="smoke", precision="bf16", results=tmp_path, device="cpu")
    run = resolve(registry, request)
    with pytest.raises(RequestError, match="computes in float32 only"):
        execute(registry, run)
    assert not list(tmp_path.glob("runs/*/record.json"))


# ---------------------------------------------------------------------- compilation


def grown() -> SuperModel:
    """A super model of one task whose units train."""
    torch.manual_seed(0)
    model = SuperModel(image_shape(3), [5], 3, 4, CellSpace())
    model.expand(GENOTYPES["mdenas_mixture"], 0)
    model.set_path(0, (0,) * 4)
    return model.train()


def gradients(model: SuperModel, images: Tensor) -> dict[str, Tensor]:
    """Of a step."""
    model.zero_grad()
    model.forward_single_task(images, 0).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.long
def test_without_a_compiler_it_goes_on(tmp_path: Path) -> None:
    """A compiler that is missing is told, and the unit is computed as it is."""
    unit = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
    images = torch.randn(6, 3, 4, 4)
    expected = unit(images)
    units = CompiledUnits(6)
    missing = {"cpp.cxx": (str(tmp_path / "no-such-compiler"),), "fx_graph_cache": False}
    with inductor.patch(missing), pytest.warns(RuntimeWarning, match="units are not compiled"):
        assert torch.equal(units(unit, images), expected)
    assert torch.equal(units(unit, images), expected)


@pytest.mark.slow
def test_compiled_units_learn_the_same() -> None:
    """Outputs, gradients and BatchNorm's statistics of compiled units, up to rounding."""
    plain, model = grown(), grown()
    images = torch.randn(8, 3, 8, 8)
    expected = gradients(plain, images)
    with model.compiling(8):
        found = gradients(model, images)
        assert model.compiled is not None and model.compiled.batch == 8
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max() + 1))
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(dict(model.named_buffers())[name], buffer, rtol=1e-4, atol=1e-5)
