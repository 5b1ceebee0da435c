"""The grid: which jobs there are, in which order, what is refused before anything runs, and how long it will take."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sweeping import NOWHERE, plan, record_of
from support.tiny import registry

from seu_bench.engine.resolve import resolve
from seu_bench.errors import DataError, OptionError, RequestError
from seu_bench.results.record import write_record
from seu_bench.sweeps.plan import SweepEstimate, SweepPlan


def requests(found: SweepPlan) -> list[tuple[Any, ...]]:
    """Who, with what, on what, of which seed."""
    made = [job.configuration.request for job in found.jobs]
    return [
        (request.benchmark, request.strategy, request.searcher, request.creator, dict(request.options), job.seed)
        for request, job in zip(made, found.jobs, strict=True)
    ]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["naive", "ewc", "pnn"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["split_digits", "pmnist"]), min_size=1, max_size=3),
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_grid(strategies: list[str], benchmarks: list[str], seeds: list[int], epochs: list[int]) -> None:
    """Every combination once, each with the run id that it has by itself; all of one seed before the next."""
    found = plan(strategy=strategies, benchmark=benchmarks, seeds=seeds, synthetic=True, options={"epochs": epochs})
    wanted = {*itertools.product(strategies, benchmarks, seeds, epochs)}
    got = [(who, what, seed, options["epochs"]) for what, who, _, _, options, seed in requests(found)]
    assert (len(got), set(got)) == (len(wanted), wanted)
    assert [seed for seed, _ in itertools.groupby(seed for _, _, seed, _ in got)] == list(dict.fromkeys(seeds))
    for job in found.jobs:
        request = found.to_job(job).request
        assert resolve(registry(), request).spec.run_id == job.run_id
        assert request.seed == job.seed


def test_what_a_strategy_does_not_take() -> None:
    """Searchers, creators and options are combined for those that take them; the others are planned once, without."""
    found = plan(
        strategy="seu,naive,ewc",
        searcher="mdl,random",
        options={"ewc_lambda": [1, 10], "epochs": 2, "searcher.epochs": [1, 2], "benchmark.stream.validation": 0.1},
    )
    rows = [
        (who, searcher, options.get("ewc_lambda"), options.get("searcher.epochs"))
        for _, who, searcher, _, options, _ in requests(found)
    ]
    assert sorted(rows, key=str) == sorted(
        [
            ("seu", "mdl", None, 1), ("seu", "mdl", None, 2), ("seu", "random", None, None),
            ("naive", None, None, None), ("ewc", None, 1, None), ("ewc", None, 10, None),
        ],
        key=str,
    )  # fmt: skip
    assert all(options["benchmark.stream.validation"] == 0.1 for _, _, _, _, options, _ in requests(found))
    assert found.notes == (
        "seu takes no ewc_lambda: its jobs are planned without",
        "naive takes no searcher, no ewc_lambda, no searcher.epochs: its jobs are planned without",
        "ewc takes no searcher, no searcher.epochs: its jobs are planned without",
    )


def test_equal_jobs_once() -> None:
    """A default that is also named is the same run."""
    both = plan(strategy="seu", searcher="mdl,random")
    default = plan(strategy="seu")
    assert default.jobs[0].run_id in {job.run_id for job in both.jobs}
    assert len(plan(strategy="naive", options={"restore": ["best_valid", "last"]}, seeds="0,0-1").jobs) == 4
    assert len(plan(strategy="naive", options={"momentum": [0.5, 0.50]}).jobs) == 1


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"strategy": "naive,nave"}, RequestError, "no strategy is called 'nave'"),
        ({"strategy": "naive", "searcher": "mdl"}, OptionError, "no strategy of the sweep takes 'searcher'"),
        (
            {"strategy": "naive,ewc", "options": {"epoch": 1}},
            OptionError,
            "no strategy of the sweep takes 'epoch' (did you mean 'epochs'?)",
        ),
        (
            {"strategy": "naive,ewc", "options": {"epochs": [1, 0, "x"]}},
            RequestError,
            "4 of 6 configurations of the sweep cannot be run; nothing was begun",
        ),
        ({"benchmark": "split_digits,pmnis", "strategy": "naive"}, RequestError, "pmnis: naive\n      no benchmark is"),
        ({"benchmark": "no/such.toml", "strategy": "naive"}, RequestError, "the benchmark file does not exist"),
        (
            {"benchmark": "mixture", "strategy": "naive", "data_root": NOWHERE},
            DataError,
            "  - emnist_letters is missing",
        ),
        ({"strategy": "naive", "log": "tensorbord"}, RequestError, "(did you mean 'tensorboard'?)"),
        ({"strategy": "naive", "log_options": {"tensorboard.folder": "x"}}, OptionError, "is of no logger that was"),
    ],
)
def test_refused(asked: dict[str, Any], error: type[Exception], message: str) -> None:
    """Refused configurations, with the jobs that they concern."""
    with pytest.raises(error) as refused:
        plan(**asked)
    assert message in str(refused.value)


def test_states(tmp_path: Path) -> None:
    """Finished jobs are not run, failed ones only on demand, interrupted ones resume."""
    seeds = {"finished": 0, "failed": 1, "interrupted": 2, "running": 3}
    for job in plan(strategy="naive", seeds="0-5").jobs:
        for status, seed in seeds.items():
            if job.seed == seed:
                write_record(tmp_path, record_of(job, status=status, error="why"))
        if job.seed == 4:
            folder = write_record(tmp_path, record_of(job, run_id=f"{job.run_id}-of-another")).parent
            folder.rename(tmp_path / "runs" / job.run_id)
        if job.seed == 5:
            (tmp_path / "runs" / job.run_id).mkdir(parents=True)
            (tmp_path / "runs" / job.run_id / "record.json").write_text("{")
    asked = {"results": tmp_path, "strategy": "naive", "seeds": "0-6"}
    found = plan(**asked)
    states = [job.state for job in found.jobs]
    # Nobody holds the lock of the one that says that it is running: its process was killed.
    assert states == ["finished", "failed", "interrupted", "interrupted", "new", "new", "new"]
    assert [job.seed for job in found.pending] == [2, 3, 4, 5, 6]
    assert [job.seed for job in plan(**asked, retry_failed=True).pending] == [1, 2, 3, 4, 5, 6]


def test_estimate(tmp_path: Path) -> None:
    """The mean of a configuration's finished runs, in turn where few run at once; unknown where one has none."""
    asked: dict[str, Any] = {"results": tmp_path, "strategy": "naive", "seeds": "0-2", "options": {"epochs": [1, 2]}}
    for job, seconds in zip(plan(**asked).jobs[:3], (10.0, 4.0, 20.0), strict=True):
        write_record(tmp_path, record_of(job, seconds=seconds))
    found = plan(**asked)
    estimate = SweepEstimate(found, 1)
    assert [job.seed for job in found.pending] == [1, 2, 2]
    assert estimate.of(found.pending) == 4 + 15 + 4
    assert SweepEstimate(found, 9).of(found.pending) == 15
    assert SweepEstimate(found, None).of(found.pending) is None
    assert SweepEstimate(plan(strategy="ewc"), 2).of(found.pending) is None
    estimate.learn(found.pending[0], 8.0)
    assert estimate.of(found.pending[:1]) == 6
