"""Fields without effect on a finished run: which are told, as what, and the command that sends a record."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from seu_bench.config.run import ExecutionFields, Request
from seu_bench.config.unapplied import LEARNING_FIELDS, log_command, unapplied_fields, unapplied_lines

CPU = "cpu (AMD EPYC, AVX512)"


def lines(**fields: Any) -> list[str]:
    return unapplied_lines(Request(**fields), "a-run", CPU)


def test_every_field_is_one_of_learning_or_of_none() -> None:
    """A new field of execution must be told, or be known to have its effect on a finished run as well."""
    assert set(ExecutionFields.model_fields) - set(LEARNING_FIELDS) == {"plugin", "results", "match", "accept_code"}
    assert set(LEARNING_FIELDS) - set(ExecutionFields.model_fields) == {"max_seconds"}


@pytest.mark.parametrize("fields", [{}, {"results": "x"}, {"device": "auto"}, {"device": "cpu"}, {"seed": 3}])
def test_what_was_applied_is_not_told(fields: dict[str, Any]) -> None:
    assert lines(**fields) == []


def test_all_of_them() -> None:
    (told,) = lines(
        device="cuda:1",
        data_root=Path("my data"),
        checkpoint_every=5,
        max_seconds=1000,
        feature_cache="2G",
        compile=True,
        keep_weights=False,
    )
    assert told == (
        "without effect, because the run was finished before: --device cuda:1, --data-root 'my data', "
        "--checkpoint-every 5, --max-seconds 1000, --feature-cache 2147483648, --compile, --no-weights "
        "(--restart makes it again)"
    )


def test_model_and_device_as_they_were() -> None:
    """No model was kept, as is asked for now; the device is the same."""
    asked = Request(keep_weights=False, device="cuda")
    assert unapplied_fields(asked, "cuda:0 (NVIDIA H100)", has_model=False) == {}
    assert unapplied_fields(asked, CPU, has_model=True) == {"keep_weights": False, "device": "cuda"}


def test_command_that_sends_the_record() -> None:
    given = {"mlflow.experiment": "my runs", "wandb.project": "x"}
    asked = Request(log=["mlflow", "wandb"], log_options=given, results=Path("my results"))
    first, second = unapplied_lines(asked, "a-run", CPU)
    assert "--log mlflow,wandb, --log-option 'mlflow.experiment=my runs', --log-option wandb.project=x" in first
    assert second == f"to send its record to mlflow and wandb: {log_command(asked, 'a-run')}"
    assert shlex.split(log_command(asked, "a-run")) == [
        *("seu-bench", "log", "a-run", "--to", "mlflow", "--to", "wandb", "--log-option", "mlflow.experiment=my runs"),
        *("--log-option", "wandb.project=x", "--results", "my results"),
    ]


def test_keywords_of_python() -> None:
    (told,) = unapplied_lines(Request(compile=True, device="cuda"), "a-run", CPU, as_flags=False)
    assert told.endswith("device='cuda', compile=True (restart=True makes it again)")
