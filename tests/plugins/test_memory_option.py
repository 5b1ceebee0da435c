"""One option for the budget of images, ``memory``, in all methods that keep some; older names and runs hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.board_records import leaderboards, writer
from support.tiny import registry

from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.errors import OptionError
from seu_bench.results.record import Record, image_budget, parse_record

OWN = """
name = "own"
version = 1
summary = "a user's own"
default_protocol = "mine"

[stream]
kind = "classes"
dataset = "digits"
classes_per_task = 5
scenario = "class"

[protocols.mine]
summary = "short"
training = { epochs = 1 }
strategies.replay.memory = 30
strategies.gem.patterns_per_experience = 15
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return str(path)


@pytest.mark.parametrize(
    ("strategy", "options", "digest"),
    [
        ("replay", {}, "b48760a2d7"),
        ("replay", {"memory": 77}, "252e7d21ab"),
        ("gem", {"patterns_per_experience": 40}, "d636965674"),
        ("gem", {"patterns_per_experience": 7}, "0e0551593c"),
        ("icarl", {"learning_rate": 0.025}, "1042a6074b"),
        ("icarl", {"learning_rate": 0.025, "memory": 2000}, "17f659bf69"),
    ],
)
def test_run_ids_are_those_of_before(strategy: str, options: dict[str, Any], digest: str) -> None:
    """As they were when every method had a name of its own for it, and icarl kept 2000 by default."""
    asked = Request(strategy=strategy, benchmark="split_mnist_class", protocol="quick", options=options)
    assert resolve(registry(), asked).spec.run_id.endswith(f"-seed0-{digest}")


def test_what_is_given_replaces_what_a_protocol_says_by_another_name(own: str) -> None:
    def found(strategy: str, **options: Any) -> dict[str, Any]:
        run = resolve(registry(), Request(strategy=strategy, benchmark=own, options=options))
        options = run.options.model_dump().items()
        return {key: value for key, value in options if key in ("memory", "patterns_per_experience")}

    assert found("replay") == {"memory": 30}
    assert found("replay", memory=50) == {"memory": 50}
    assert found("gem") == {"memory": None, "patterns_per_experience": 15}
    assert found("gem", memory=50) == {"memory": 50, "patterns_per_experience": None}
    assert found("gem", patterns_per_experience=9) == {"memory": None, "patterns_per_experience": 9}
    with pytest.raises(OptionError, match="are both given"):
        found("gem", patterns_per_experience=9, memory=50)


@pytest.mark.parametrize(
    ("strategy", "old", "new", "budget"),
    [
        ("replay", {"mem_size": 90}, {"memory": 90}, 90),
        ("gem", {"patterns_per_experience": None}, {"memory": 200, "patterns_per_experience": None}, 200),
        ("agem", {"patterns_per_experience": 40}, {"memory": None, "patterns_per_experience": 40}, 80),
        ("icarl", {"memory": 90}, {"memory": 90}, 90),
        ("naive", {}, {}, None),
    ],
)
def test_older_records(
    strategy: str, old: dict[str, Any], new: dict[str, Any], budget: int | None, tmp_path: Path
) -> None:
    """Are read as they would be written now: one row with later ones."""
    put = writer(tmp_path)
    put(1, strategy=strategy, options=new, task_order=(0, 1))
    written = put(0, strategy=strategy, options=old, task_order=(0, 1))
    record = parse_record(written.model_dump_json(), "here")
    assert isinstance(record, Record) and record.options == new and image_budget(record) == budget
    (board,) = leaderboards(tmp_path)
    assert [row.seeds for row in board.rows] == [2]
