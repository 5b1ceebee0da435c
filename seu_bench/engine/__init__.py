"""One run, from request to record, checkpoints and a saved model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .environment import describe_environment, installed_versions
    from .launcher import launch
    from .model_card import ModelCard
    from .onnx_export import export_onnx
    from .prediction import Predictions
    from .resolve import ResolvedRun
    from .run_folder import RunState, find_state, list_runs
    from .runner import Outcome, execute
    from .saved_model import LearnedModel, load_model
    from .stopping import StopRequest
    from .verification import Verification, verify

__all__ = [
    "LearnedModel",
    "ModelCard",
    "Outcome",
    "Predictions",
    "ResolvedRun",
    "RunState",
    "StopRequest",
    "Verification",
    "describe_environment",
    "execute",
    "export_onnx",
    "find_state",
    "installed_versions",
    "launch",
    "list_runs",
    "load_model",
    "verify",
]

__getattr__, __dir__ = attach(__name__)
