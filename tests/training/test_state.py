"""States are checked before they are saved, and errors of loading name the receiver."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seu_bench.errors import CheckpointError, RunError
from seu_bench.training.state import checkpoint_error_context, difference, not_finite


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ({"a": torch.ones(2), "b": [torch.ones(1), torch.tensor([1.0, float("nan")])]}, "b[1]"),
        ({"a": {"b": torch.tensor(float("-inf"))}}, "a.b"),
        ({"a": torch.tensor([2**62]), "b": float("inf")}, None),
    ],
)
def test_not_finite(state: Any, name: str | None) -> None:
    """The tensor is named; plain numbers may be infinite."""
    assert not_finite(state) == name


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        ({"a": [torch.ones(2), 1]}, {"a": (torch.ones(2), 1)}, None),
        ({"a": [torch.ones(2), 1]}, {"a": [torch.ones(2), True]}, "a[1]"),
        ({"a": {"b": torch.ones(2)}}, {"a": {"b": torch.ones(2).double()}}, "a.b"),
        ({"a": {"b": torch.ones(2)}}, {"a": {"c": torch.ones(2)}}, "a"),
        ({"a": {"b": torch.ones(2), "c": 1}}, {"a": {"b": torch.ones(2), "d": 1}}, "a"),
        ({"a": torch.ones(())}, {"a": 1.0}, "a"),
        ({"a": [None, "x"]}, {"a": [None]}, "a"),
    ],
)
def test_difference(one: Any, other: Any, place: str | None) -> None:
    """The first place is named; lists and tuples of equal parts are equal."""
    assert difference(one, other) == difference(other, one) == place


def test_errors_of_loading() -> None:
    """Any error becomes one of ours, with the receiver and the first line; those that are ours stay as they are."""
    with (
        pytest.raises(CheckpointError, match="the state does not fit task 3: KeyError: 'weights'") as caught,
        checkpoint_error_context("task 3"),
    ):
        raise KeyError("weights")
    assert isinstance(caught.value.__cause__, KeyError) and "--restart" in str(caught.value.remedy)
    ours = RunError("of another stage")
    with pytest.raises(RunError) as same, checkpoint_error_context("task 3"):
        raise ours
    assert same.value is ours
