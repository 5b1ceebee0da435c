"""The grid: which jobs there are, in which order, what is refused before anything runs, and how long it will take."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import Command, Install
from support.sweeping import MODULES, NOWHERE, POINTS, plan, record_of
from support.tiny import registry

from seu_bench.engine.resolve import resolve
from seu_bench.errors import DataError, OptionError, RequestError
from seu_bench.plugin.executors import Progressed
from seu_bench.results.record import Environment, StageRecord, write_record
from seu_bench.sweeps.estimate import SweepEstimate, estimate_plan
from seu_bench.sweeps.file import make_spec
from seu_bench.sweeps.plan import SweepPlan, plan_sweep


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
        ({"strategy": "seu", "searcher": "mdl,mld"}, RequestError, "no searcher is called 'mld'"),
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
        ({"protocol": "quik", "strategy": "naive"}, RequestError, "has no protocol 'quik' (did you mean 'quick'?)"),
        (
            {"benchmark": "mixture", "strategy": "naive", "data_root": NOWHERE},
            DataError,
            "  - emnist_letters is missing",
        ),
        ({"strategy": "naive", "log": "tensorbord"}, RequestError, "(did you mean 'tensorboard'?)"),
        ({"strategy": "naive", "log_options": {"tensorboard.folder": "x"}}, OptionError, "is of no logger that was"),
        (
            {"strategy": "naive", "log": "tensorboard", "log_options": {"tensorboard.foldr": "x"}},
            OptionError,
            "(did you mean 'folder'?)",
        ),
    ],
)
def test_refused(asked: dict[str, Any], error: type[Exception], message: str) -> None:
    """What cannot be run, with the jobs that it concerns."""
    with pytest.raises(error) as refused:
        plan(**asked)
    assert message in str(refused.value)


def test_states(tmp_path: Path) -> None:
    """What is finished is not made, what failed only on demand, what was left goes on."""
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


def test_paths_for_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not depend on the working folder; a job is the same after its way as JSON."""
    monkeypatch.chdir(tmp_path)
    benchmark = registry().benchmarks["split_digits"].factory.path
    (tmp_path / "own.toml").write_text(benchmark.read_text())
    asked = {"benchmark": "own.toml", "strategy": "naive", "data_root": "data"}
    logged = {"log": "tensorboard", "log_options": {"tensorboard.folder": "events"}}
    found = plan_sweep(registry(), make_spec(asked | logged))
    made = found.to_job(found.jobs[0])
    assert made.request.benchmark == str(tmp_path / "own.toml")
    assert (made.request.results, made.request.data_root) == (tmp_path / "results", tmp_path / "data")
    assert (made.request.log, made.request.log_options) == (("tensorboard",), {"tensorboard.folder": "events"})
    assert type(made).model_validate_json(made.model_dump_json()) == made


class TestEstimate:
    """Image passes left over the speed of finished runs."""

    def stages(self, passes: int) -> tuple[StageRecord, ...]:
        return (StageRecord(name="training", task=0, epochs=1, seconds=1.0, image_passes=passes),)

    def test_nothing_is_known(self) -> None:
        """Without a finished run there is no speed."""
        found = plan(strategy="naive")
        assert estimate_plan(found).of_all(found.pending, {}, 2) is None

    def test_speed_of_finished_runs(self, tmp_path: Path) -> None:
        """The sweep's own; 1,000 passes took 10 s, one of two jobs left was half done."""
        asked = {"results": tmp_path, "strategy": "naive", "seeds": "0-2", "options": {"epochs": 3}}
        done, half, _ = plan(**asked).jobs
        write_record(tmp_path, record_of(done, stages=self.stages(1000), seconds=10.0))
        write_record(tmp_path, record_of(half, status="interrupted", stages=self.stages(500), seconds=5.0))
        found = plan(**asked)
        estimate = estimate_plan(found)
        assert [estimate.of_job(job) for job in found.pending] == [pytest.approx(5), pytest.approx(10)]
        assert estimate.of_all(found.pending, {}, 1) == pytest.approx(15)
        assert estimate.of_all(found.pending, {}, 2) == pytest.approx(10)  # the longest
        assert estimate.of_all(found.pending, {"x": 7.0}, 2) == pytest.approx(11)
        assert estimate.of_all(found.pending, {"x": None}, 2) is None
        assert estimate.of_all(found.pending, {}, None) is None

    def test_speed_of_others(self, tmp_path: Path) -> None:
        """A run with other options, of the same kind, gives a speed; the passes are those that ``cost`` tells."""
        (other,) = plan(strategy="naive", options={"epochs": 7}).jobs
        write_record(tmp_path, record_of(other, stages=self.stages(1000), seconds=10.0))
        found = plan(tmp_path, strategy="naive,ewc", seeds="5")
        estimate = estimate_plan(found)
        run = found.jobs[0].configuration.run
        passes = run.strategy.cost(run.context(run.plan())).all_passes
        assert [estimate.of_job(job) for job in found.jobs] == [pytest.approx(passes / 100), None]
        assert estimate.of_all(found.pending, {}, 2) is None

    def test_other_devices(self, tmp_path: Path) -> None:
        """The speed of a card is none of a CPU's."""
        done, _ = plan(strategy="naive", seeds="0,1").jobs
        made = record_of(done, stages=self.stages(9), seconds=1.0, environment=Environment(device="cuda (a card)"))
        write_record(tmp_path, made)
        found = plan(tmp_path, strategy="naive", seeds="0,1")
        assert estimate_plan(found).of_all(found.pending, {}, 1) is None

    def test_learned_on_the_way(self) -> None:
        """From a job that runs, then from one that is finished, which knows better."""
        first, second = plan(strategy="naive", seeds="0,1").jobs
        estimate = SweepEstimate()
        where = {"task": 0, "tasks": 1, "stage": "training", "epoch": 1, "epochs": 2}
        estimate.see(first.configuration, Progressed(run_id=first.run_id, passed=0, planned=1000, **where))
        assert estimate.of_job(second) is None
        estimate.see(
            first.configuration, Progressed(run_id=first.run_id, passed=500, planned=1000, remaining=5, **where)
        )
        assert estimate.of_job(second) == pytest.approx(10)
        estimate.learn(first.configuration, record_of(first, stages=self.stages(1000), seconds=20.0))
        assert estimate.of_job(second) == pytest.approx(20)
        estimate.see_start(3.0)
        estimate.see_start(5.0)
        assert estimate.of_all([first, second], {"x": 10.0}, 1) == pytest.approx(2 * (20 + 4) + 10)


def test_dry_run(command: Command, install: Install, tmp_path: Path) -> None:
    """The plan, and nothing written."""
    install("a-stranger", POINTS, MODULES)
    asked = ("--strategy", "tiny,naive", "-o", "fault=none,raise", "--seeds", "0-1", "--protocol", "smoke")
    answer = command("sweep", *asked, "--dry-run", "--jobs", 3, "--results", tmp_path / "results")
    assert (answer.status, answer.err) == (0, "")
    assert "6 jobs: 0 finished, 6 pending\nestimated time: not known yet, 3 jobs at once\n" in answer.out
    assert "note: naive takes no fault: its jobs are planned without" in answer.out
    assert list(tmp_path.glob("results*")) == []
