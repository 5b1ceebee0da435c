"""Budgets of other runs: the nearest width or epochs, a clear refusal, and what the record says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seu_bench.config.run import Matched, Request
from seu_bench.engine.launcher import FACTOR, matched_request, nearest
from seu_bench.engine.resolve import resolve
from seu_bench.errors import OptionError, RequestError, ResultsError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import CodeRecord, Record, write_record
from seu_bench.sweeps.plan import plan_sweep
from seu_bench.sweeps.spec import SweepSpec

PARAMETERS = (30_000, 34_000)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


def request(results: Path, strategy: str = "naive", **fields: Any) -> Request:
    return Request(strategy=strategy, protocol="smoke", results=results, **fields)


@pytest.fixture
def results(tmp_path: Path, registry: Registry) -> Path:
    """Records of SEU on two seeds, of another configuration of it, of an interrupted run, and of other code."""
    runs: list[tuple[int, dict[str, Any], str, int]] = [
        (seed, {}, "finished", parameters) for seed, parameters in enumerate(PARAMETERS)
    ]
    runs += [(0, {"channels": 3}, "finished", 900_000), (2, {}, "interrupted", 10), (3, {}, "finished", 900_000)]
    for seed, options, status, parameters in runs:
        spec = resolve(registry, request(tmp_path, "seu", seed=seed, options=options)).spec
        metrics = {"params_total": parameters, "image_passes": 60_000, "train_flops": None}
        fields: dict[str, Any] = {"strategy": "seu", "benchmark": "split_digits", "benchmark_version": 1}
        fields["code"] = [CodeRecord(kind="strategy", name="seu", package="a-stranger")] if seed == 3 else []
        record = Record(
            run_id=spec.run_id, status=status, protocol="smoke", seed=seed, options=options, metrics=metrics, **fields
        )
        write_record(tmp_path, record)
    return tmp_path


@pytest.mark.parametrize("wanted", [1, 37, 499.9, 500, 12_345, 99_999, 10**9])
@pytest.mark.parametrize("start", [1, 16, 5_000])
def test_nearest_is_that_of_all_steps(wanted: float, start: int) -> None:
    """Beside a search of every step, for a forecast that grows in jumps."""

    def forecast(step: int) -> int:
        return 7 * (step // 3) ** 2 + 20

    def distance(value: int) -> float:
        return max(value / wanted, wanted / value)

    step, value = nearest(forecast, wanted, start=start, most=5_000)
    assert value == forecast(step)
    assert distance(value) == min(distance(forecast(other)) for other in range(1, 5_001))


@pytest.mark.long
def test_parameters_by_the_mean_over_seeds(registry: Registry, results: Path) -> None:
    """Runs of other options and those that are not finished do not count."""
    found = matched_request(registry, request(results, match="params=seu"))
    matched = found.matched
    assert matched is not None
    assert (matched.seeds, matched.target) == ((0, 1), 32_000)
    assert found.match is None
    run = resolve(registry, found)
    cost = run.strategy.cost(run.context(run.plan()))
    assert cost.params_total[-1] == matched.value
    assert found.options == {"width": matched.chosen}
    assert 0.97 < matched.ratio < 1.03
    # A step of width either way is not nearer.
    for step in (-0.0001, 0.0001):
        other = resolve(registry, request(results, options={"width": matched.chosen + step}))
        value = other.strategy.cost(other.context(other.plan())).params_total[-1]
        assert abs(value / 32_000 - 1) >= abs(matched.ratio - 1) - 1e-9


def test_passes_of_one_run(registry: Registry, results: Path) -> None:
    name = resolve(registry, request(results, "seu")).spec.run_id
    found = matched_request(registry, request(results, match=f"passes={name}"))
    assert found.matched is not None
    assert (found.matched.run, found.matched.seeds, found.matched.option) == (name, (0,), "epochs")
    assert found.options == {"epochs": found.matched.chosen}
    assert isinstance(found.matched.chosen, int)


@pytest.mark.parametrize(
    ("strategy", "fields", "says"),
    [
        ("linear", {"match": "params=seu"}, "no option 'width'"),
        ("ltg", {"match": "params=seu"}, "is not known before it runs"),
        ("naive", {"match": "flops=seu"}, "has no train_flops"),
        ("naive", {"match": "params=ewc"}, "no finished run of ewc"),
        ("naive", {"match": "params=seu", "options": {"width": 0.1}}, "width is given"),
        ("naive", {"match": "params=seu", "options": {"backbone": "linear"}}, f"within a factor of {FACTOR:g}"),
        ("naive", {"match": "params=seu+random"}, r"no finished run of seu\+random"),
    ],
)
def test_refusals(registry: Registry, results: Path, strategy: str, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        matched_request(registry, request(results, strategy, **fields))


def test_names_that_mean_nothing(registry: Registry, results: Path) -> None:
    with pytest.raises(ResultsError):
        matched_request(registry, request(results, match="params=nobody"))
    for text in ("params", "weights=seu", "params="):
        with pytest.raises(OptionError, match="names no budget and run"):
            matched_request(registry, request(results, match=text))


def test_a_sweep_leaves_the_target_as_it_is(registry: Registry, results: Path) -> None:
    spec = SweepSpec(strategy="seu,naive", seeds="0-1", protocol="smoke", results=results, match="params=seu")
    plan = plan_sweep(registry, spec)
    states = {(job.configuration.run.spec.strategy, job.seed): job.state for job in plan.jobs}
    assert states == {("seu", 0): "finished", ("seu", 1): "finished", ("naive", 0): "new", ("naive", 1): "new"}
    assert [note for note in plan.notes if "of seu, mean of 2 seeds" in note]
    jobs = [plan.to_job(job) for job in plan.pending]
    assert all(job.request.match is None and isinstance(job.request.matched, Matched) for job in jobs)
    assert all(type(job).model_validate_json(job.model_dump_json()) == job for job in jobs)
