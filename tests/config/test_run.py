"""Precision and compilation: what they change, and what they must not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.board_records import frame, leaderboards
from support.tiny import all_threads, one_thread
from torch import Tensor, nn
from torch._inductor import config as inductor

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.verification import verify
from seu_bench.errors import OptionError, RequestError
from seu_bench.plugin.registration import Register
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import Record
from seu_bench.training.interfaces import Cost, StrategyContext, StrategyFactory
from seu_bench.training.strategy import computing_in
from seu_bench_kit.search_space import GENOTYPES, SearchSpace
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


def test_float32_is_what_runs_were_before() -> None:
    """The default leaves run ids as they are; others have a name and a hash of their own."""
    registry = Registry()
    ids = {p: resolve(registry, Request(precision=p)).spec.run_id for p in ("float32", "bf16-features", "bf16")}
    assert len(set(ids.values())) == 3
    assert ids["float32"] == resolve(registry, Request()).spec.run_id
    assert "-bf16-features-seed0-" in ids["bf16-features"] and "-bf16-seed0-" in ids["bf16"]


def test_unknown_precision() -> None:
    """The message has those that there are."""
    with pytest.raises(OptionError, match="bf16-features"):
        resolve(Registry(), Request(precision="half"))  # type: ignore[arg-type]


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


@pytest.mark.long
def test_a_row_of_its_own(tmp_path: Path) -> None:
    """A leaderboard does not take one precision for another."""
    for precision in ("float32", "bf16"):
        registry = Registry()
        fields = {"protocol": "quick", "options": {"epochs": 1}, "results": tmp_path, "device": "cpu"}
        execute(registry, resolve(registry, Request(strategy="naive", precision=precision, **fields)))
    (board,) = leaderboards(tmp_path)
    assert sorted(frame(board)["configuration"]) == ["naive", "naive (precision=bf16)"]


class _Deaf(nn.Module):
    """A strategy that knows nothing of precisions."""

    model = nn.Linear(1, 1)


class _DeafFactory:
    summary = "knows nothing of precisions"
    options: type[Options] = Options
    components: Mapping[str, str] = {}
    presets: Mapping[str, Mapping[str, object]] = {}

    def build(self, context: StrategyContext) -> Any:
        return _Deaf()

    def cost(self, context: StrategyContext) -> Cost:
        return Cost((), (), (), (), ())


class _DeafPlugin:
    @hookimpl
    def register_strategies(self, register: Register[StrategyFactory]) -> None:
        register("deaf", _DeafFactory())


def test_a_strategy_that_cannot_is_refused(tmp_path: Path) -> None:
    """It would compute in float32, and the record would say otherwise."""
    manager = load_plugins()
    manager.register(_DeafPlugin())
    registry = Registry(manager)
    request = Request(strategy="deaf", protocol="smoke", precision="bf16", results=tmp_path, device="cpu")
    run = resolve(registry, request)
    with pytest.raises(RequestError, match="computes in float32 only"):
        execute(registry, run)
    assert not list(tmp_path.glob("runs/*/record.json"))


def test_autocast_sees_weights_change() -> None:
    """Many steps within one block: the second product uses the weights of the second step."""
    layer = nn.Linear(4, 4, bias=False)
    x = torch.eye(4)
    with computing_in("bf16", CPU):
        before = layer(x)
        with torch.no_grad():
            layer.weight.add_(1)
        after = layer(x)
    assert before.dtype == torch.bfloat16
    assert torch.allclose((after - before).float(), torch.ones(4, 4), atol=0.02)


# ---------------------------------------------------------------------- compilation


def grown() -> SuperModel:
    """A super model of one task whose units train."""
    torch.manual_seed(0)
    model = SuperModel(3, [5], 3, 4, SearchSpace())
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


def test_other_batches_are_computed_as_ever() -> None:
    """Batches of other sizes and evaluation need no compiler, and nothing is compiled for them."""
    units = CompiledUnits(6)
    unit = nn.Conv2d(3, 2, 1)
    images = torch.randn(5, 3, 4, 4)
    assert torch.equal(units(unit, images), unit(images))
    with torch.no_grad():
        images = torch.randn(6, 3, 4, 4)
        assert torch.equal(units(unit, images), unit(images))
    assert not units._made


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


@pytest.mark.parametrize("compile", [False, True])
def test_record_says_whether_units_were_to_be_compiled(tmp_path: Path, compile: bool) -> None:
    """It is no part of the run id, for it is a matter of rounding; so the record has to say it."""
    registry = Registry()
    ways: dict[str, Any] = {"protocol": "smoke", "limit": 8, "first_tasks": 1, "device": "cpu", "results": tmp_path}
    outcome = execute(registry, resolve(registry, Request(strategy="naive", compile=compile, **ways)))
    assert outcome.record.environment.compile is compile
    assert json.loads(outcome.path.read_text(encoding="utf-8"))["environment"]["compile"] is compile
