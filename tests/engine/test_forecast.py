"""The time of a run, by the first batches of each stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seu_bench.engine.forecast import Speed, measure_speed
from seu_bench.testing.trial import Trial
from seu_bench.training.interfaces import Cost, StageCost


def test_prediction_by_operations() -> None:
    """Seconds per operation of the stage; per image where operations are not known; all stages for one not measured."""
    speed = Speed({"search": (2.0, 100, 10), "training": (1.0, 400, 20)})
    stages = (
        StageCost("search", 0, 1000, 0, 1000, 500),
        StageCost("training", 0, 50, 10),
        StageCost("fisher", 0, 30, 0, 250, 250),
        StageCost("evaluation", 0, 0, 10**9),
    )
    cost = Cost((1,), (1,), (1,), (1,), stages)
    assert speed.predict(cost) == 1000 * 2 / 100 + 60 * 1 / 20 + 250 * 3 / 500
    assert speed.predict(replace(cost, stages=())) == 0


@pytest.mark.parametrize(("strategy", "stages"), [("seu", {"search", "training"}), ("ewc", {"training", "fisher"})])
def test_speed_is_measured_of_every_stage(strategy: str, stages: set[str]) -> None:
    """Of a strategy that searches, and of one that does not; of none for which there is no memory."""
    run = Trial(strategy).resolved("tiny_two")
    cost = run.cost(run.context(run.plan()))
    speed = measure_speed(run, cost)
    assert speed is not None and set(speed.measured) == stages
    assert speed.predict(cost) > 0
    assert measure_speed(run, replace(cost, params_total=(10**13,))) is None
