"""A search whose rewards stayed at chance: the record says so, and the user is told once, when the stage ends."""

from __future__ import annotations

import pytest
import torch
from support.shown import a_record
from support.tiny import registry

from seu_bench.engine.recorder import RunRecorder
from seu_bench.results.record import Record
from seu_bench.training.stage import EpochReport, StageProgress


@pytest.mark.parametrize(("share", "told"), [(None, 0), (0.0, 0), (0.8, 0), (1.0, 1)])
def test_rewards_at_chance(share: float | None, told: int) -> None:
    notices: list[str] = []
    recorder = RunRecorder(lambda _: None, a_record(), registry(), torch.device("cpu"), lambda _: None, notices.append)
    running = StageProgress("search", 2, 3, 6, EpochReport(0.7, 0.5), 100, 1.0)
    recorder.watch(running)
    assert not notices
    recorder.watch(StageProgress("search", 2, 6, 6, EpochReport(0.7, 0.5), 200, 2.0, done=True, chance_share=share))
    (stage,) = recorder._measured().stages
    assert stage.chance_share == share
    assert len(notices) == told and all("search of task 3" in notice and "at chance" in notice for notice in notices)
    # Resumed, the stage is known and nobody is told again.
    again = RunRecorder(lambda _: None, a_record(), registry(), torch.device("cpu"), lambda _: None, notices.append)
    again.load_state_dict(recorder.state_dict())
    assert again._measured().stages == (stage,) and len(notices) == told


def test_older_records_have_none() -> None:
    """A record without the key is read, and says that nothing was measured."""
    document = a_record().model_dump(mode="json")
    for stage in document["stages"]:
        del stage["chance_share"]
    assert {stage.chance_share for stage in Record.model_validate(document).stages} == {None}
